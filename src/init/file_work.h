#pragma once

/* What a helper does for one FILE message. It runs with the user's rights and in the memory that
 * the message leaves of its buffer. */

#include "init/init.h"
#include "init/path.h"

#include <stdalign.h>

enum {
    FD_HELPER_SOCKET = 3,
    FD_HELPER_PROC = 4,
    FD_HELPERS = 5, /* from here on they are the work's own */

    FILE_TEXTS = 12 * 1024, /* the message itself is shorter than this */
    FILE_PATH_SIZE = 16 * 1024,
    FILE_OUTPUT_SIZE = 64 * 1024,
    FILE_ENTRIES_SIZE = 8 * 1024,
    FILE_REMOVE_DEPTH = 4096,
};

struct file_identity {
    uint64_t device;
    uint64_t inode;
};

union file_room {
    struct {
        alignas(8) char entries[FILE_ENTRIES_SIZE];
        struct file_identity levels[FILE_REMOVE_DEPTH];
    } remove;
    struct {
        int levels[PROTOCOL_MAX_DEPTH];
        size_t path_lengths[PROTOCOL_MAX_DEPTH];
        alignas(8) char entries[FILE_ENTRIES_SIZE];
        char path[FILE_PATH_SIZE];
        char target[PROTOCOL_MAX_PATH];
        char output[FILE_OUTPUT_SIZE];
    } list;
};

struct file_work {
    struct job *job;
    struct protocol_file_done done;
    char temporary[PROTOCOL_MAX_TEMPORARY];
    int fd;        /* for the daemon; -1 without one */
    int listed;    /* FILE_LIST: the directory; -1 for other kinds */
    int list_pipe; /* where its entries go */
};

static inline union file_room *file_room(const struct file_work *work)
{
    return (union file_room *)(void *)(work->job->room->message + FILE_TEXTS);
}

/* 0 or -errno. */
int file_work_do(struct file_work *work);

int file_remove_tree(struct file_work *work, int parent, const char *name);

/* Opens the directory and makes the pipe; the entries are written after the answer is sent. */
int file_list_open(struct file_work *work);
void file_list_write(struct file_work *work);

struct stat;
void file_stat_fill(struct protocol_stat *out, const struct stat *status);
