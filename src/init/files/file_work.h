/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The work of a helper for one FILE message. It runs with the user's rights, in the memory behind
 * the message in its buffer. */

#include "init/files/file_walk.h"
#include "init/init.h"
#include "init/path.h"
#include "init/tree.h"
#include "wire/tar.h"

#include <stdalign.h>

enum {
    FD_HELPER_SOCKET = 3,
    FD_HELPER_PROC = 4,
    FD_HELPERS = 5, /* from here on they are the work's own */

    FILE_TEXTS = 16 * 1024, /* the message itself is shorter than this */
    FILE_OUTPUT_SIZE = 64 * 1024,
    FILE_ENTRIES_SIZE = 8 * 1024,
    FILE_REMOVE_DEPTH = 4096,
    FILE_INPUT_SIZE = 48 * 1024,
    FILE_NOTES_SIZE = 32 * 1024,
    FILE_WATCHES = 1024,
    FILE_WATCH_PATHS = 48 * 1024,
    FILE_DESCRIPTION_SIZE = 12 * 1024, /* names, the target of a link, attributes */
    FILE_ATTRIBUTES_SIZE = 8 * 1024,
    PORTS_MAX_PROCESSES = 8192, /* of a host, when a sandbox shares its network */
    PORTS_MAX_LISTENING = 1024,
    PORTS_TEXT_SIZE = 8 * 1024,
};

struct file_identity {
    uint64_t device;
    uint64_t inode;
};

struct port_listening {
    uint64_t inode;
    uint32_t port;
    bool is_own; /* of the sandbox */
};

union file_memory {
    struct {
        alignas(8) char entries[FILE_ENTRIES_SIZE];
        struct file_identity levels[FILE_REMOVE_DEPTH];
    } remove;
    struct {
        struct walk walk;
        char target[PROTOCOL_MAX_PATH];
        char output[FILE_OUTPUT_SIZE];
    } list;
    struct {
        struct walk walk;
        char target[PROTOCOL_MAX_PATH];
        char header[TAR_HEADER_SIZE];
        char output[FILE_OUTPUT_SIZE];
    } pack;
    struct {
        struct tar_parser tar;
        char path[TAR_PATH_SIZE];
        char other[TAR_PATH_SIZE];
        char input[FILE_INPUT_SIZE];
        char notes[FILE_NOTES_SIZE];
    } unpack;
    struct {
        struct walk walk;
        alignas(8) char events[8 * 1024];
        char path[WALK_PATH_SIZE];
        char output[16 * 1024];
        int descriptors[FILE_WATCHES];
        uint32_t places[FILE_WATCHES];
        char paths[FILE_WATCH_PATHS];
    } watch;
    struct {
        struct walk walk;
        char text[FILE_DESCRIPTION_SIZE];
        char names[FILE_ATTRIBUTES_SIZE];
        char path[PROTOCOL_MAX_PATH];
        char output[FILE_OUTPUT_SIZE];
    } describe;
    char content[FILE_OUTPUT_SIZE]; /* READ and WRITE */
    struct {
        struct tree_entry processes[PORTS_MAX_PROCESSES];
        struct port_listening listening[PORTS_MAX_LISTENING];
        alignas(8) char text[PORTS_TEXT_SIZE];
        char output[4 * 1024];
    } ports;
};

struct file_work;
typedef void file_go_on_fn(struct file_work *work);

struct file_work {
    struct job *job;
    struct protocol_file_done done;
    char temporary[PROTOCOL_MAX_TEMPORARY];
    int fd;               /* for the daemon; -1 without one */
    int base;             /* the directory that the work goes on in; -1 for other kinds */
    int stream;           /* where its results go */
    int file;             /* READ and WRITE: of the content */
    file_go_on_fn *go_on; /* after the answer; NULL when the work is done */
};

static inline union file_memory *file_memory(const struct file_work *work)
{
    return (union file_memory *)(void *)(work->job->memory->message + FILE_TEXTS);
}

/* 0 or -errno. */
int file_work_do(struct file_work *work);

int file_remove_tree(struct file_work *work, int parent, const char *name);

/* Opens the directory and makes the pipe, which is written to after the answer. */
int file_open_stream(struct file_work *work);
int file_glob_open(struct file_work *work);
int file_pack_open(struct file_work *work);
int file_unpack_open(struct file_work *work);
int file_read_open(struct file_work *work);
int file_write_open(struct file_work *work);
int file_describe_open(struct file_work *work);

file_go_on_fn file_list_write, file_glob_write, file_grep_write, file_pack_write, file_unpack_read,
    file_watch_write, file_read_write, file_write_read;

/* work->fd becomes a descriptor of the regular file, or of a new one under a temporary name, and
 * the answer its state. */
int file_do_open_read(struct file_work *work);
int file_do_open_write(struct file_work *work, int dir, const char *name);

/* A regular file that is none of /proc, opened without ever waiting; or -errno. */
struct stat;
int file_open_regular(int dir, const char *name, int flags, struct stat *out_status);

/* A new file in the directory of the file that it will replace. */
int file_create_temporary(int dir, char name[PROTOCOL_MAX_TEMPORARY]);
void file_make_temporary_name(char name[PROTOCOL_MAX_TEMPORARY]);
bool file_is_temporary(const char *name);

void file_stat_fill(struct protocol_stat *out, const struct stat *status);
