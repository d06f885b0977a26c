/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Tar archives as pure functions: members in, headers out, and bytes in, members out. Nothing is
 * allocated, so that init can use it.
 *
 * The writer makes ustar headers, with a pax header where a name or size does not fit. The reader
 * takes V7, ustar, pax and GNU archives, and ignores names of owners, device numbers and extended
 * attributes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TAR_BLOCK = 512,
    TAR_PATH_SIZE = 4096,                       /* of a member that is read, with the NUL */
    TAR_EXTRA_SIZE = 32 * 1024,                 /* the longest pax header that is read */
    TAR_HEADER_SIZE = 2 * 1024 + 2 * 17 * 1024, /* room for all that comes before a content */
};

enum tar_type {
    TAR_FILE = '0',
    TAR_HARD_LINK = '1',
    TAR_LINK = '2',
    TAR_CHARACTER_DEVICE = '3',
    TAR_BLOCK_DEVICE = '4',
    TAR_DIRECTORY = '5',
    TAR_FIFO = '6',
    TAR_OTHER = '?',
};

struct tar_member {
    enum tar_type type;
    uint32_t mode; /* 07777 */
    uint64_t size;
    int64_t modified_s;
    uint64_t uid, gid; /* read; UINT64_MAX when it is not a number. Not written */
    const char *path;  /* borrowed */
    const char *link;  /* borrowed; "" without one */
    bool is_too_long;  /* read: path or link is longer than it may be, and cut */
    bool has_nul;      /* read: path or link has a NUL in it */
    bool is_sparse;    /* read: the content is not the file's as it is */
};

/* --- writing --------------------------------------------------------------------------------- */

/* The headers of a member; how many bytes, or 0 when `capacity` is too small. A directory's path
 * gets a slash. */
size_t tar_write_member(char *out, size_t capacity, const struct tar_member *member);

/* A remark that readers pass over; it has no line breaks. As tar_write_member(). */
size_t tar_write_comment(char *out, size_t capacity, const char *text);

/* How many zeros follow a content of this size. */
static inline size_t tar_padding(uint64_t size)
{
    return (size_t)(-size & (TAR_BLOCK - 1));
}

/* --- reading --------------------------------------------------------------------------------- */

enum tar_event {
    TAR_NEED_MORE,  /* all input is consumed */
    TAR_MEMBER,     /* parser->member is the next one */
    TAR_DATA,       /* a piece of its content */
    TAR_MEMBER_END, /* its content is complete; comes for each member */
    TAR_END,        /* of the archive; bytes behind it are ignored */
    TAR_BAD,        /* parser->problem says why; there is no going on */
};

struct tar_parser {
    struct tar_member member; /* its texts are below */
    const char *problem;

    /* its own */
    unsigned step;
    size_t filled; /* of the block or of the extra */
    uint64_t left; /* of the content */
    uint64_t extra_left;
    size_t padding;
    char extra_type;
    bool has_path, has_link, has_size; /* given by headers before the member's own */
    bool is_too_long, has_nul, is_sparse;
    bool has_data;
    uint64_t size;
    unsigned char block[TAR_BLOCK];
    char path[TAR_PATH_SIZE];
    char link[TAR_PATH_SIZE];
    char extra[TAR_EXTRA_SIZE];
};

void tar_parser_init(struct tar_parser *parser);
enum tar_event tar_parser_feed(struct tar_parser *parser, const void *data, size_t length,
                               size_t *out_used, const void **out_piece, size_t *out_length);

/* Whether the input may end here. */
bool tar_parser_is_between(const struct tar_parser *parser);

/* --- safe paths ---------------------------------------------------------------------------- */

/* The path without "." and double slashes. NULL on success, else why it must not be used: it is
 * absolute, goes up, or is empty. `out` has room for TAR_PATH_SIZE. */
const char *tar_clean_path(const char *path, char *out);

/* Why a symbolic link at the (clean) path must not lead there; NULL when it stays inside. */
const char *tar_link_problem(const char *path, const char *target);
