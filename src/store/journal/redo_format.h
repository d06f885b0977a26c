/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The bytes of the redo log; for redo.c and redo_read.c only.
 *
 * A file: its header, then frames, each beginning at a multiple of 8 bytes. Behind the last frame
 * are zeros, or frames of an earlier use of the file, with lower numbers.
 */

#include "store/checksum.h"
#include "store/journal/redo.h"

#define REDO_MAGIC "SGREDO2"
#define REDO_MAGIC_1 "SGREDO1" /* without promises and sum in the header; only read */
#define REDO_MARK_MAGIC "SGMARK1"

enum { REDO_ALIGNMENT = 8 };

struct redo_header {
    char magic[8];
    char id[REDO_ID_SIZE];
    uint64_t base;     /* number of the last frame before this log */
    uint64_t boot;     /* redo_boot() */
    uint64_t flushed;  /* 1: promised frames were flushed; 0: promises hold within this boot */
    uint64_t checksum; /* of the fields before it */
};

struct redo_header_1 {
    char magic[8];
    char id[REDO_ID_SIZE];
};

struct redo_frame {
    uint64_t checksum; /* of the following fields and the changes */
    uint64_t number;
    uint64_t length;   /* of the changes behind it */
    uint64_t promised; /* all frames up to this one are safe; not in version 1 */
};

enum { REDO_FRAME_1_SIZE = 3 * sizeof(uint64_t) };

/* The file with the promise, the least number of the log's last frame: a log that lost its end, or
 * was replaced by an earlier copy, looks valid by itself. */
struct redo_mark {
    struct redo_header header;
    uint64_t promised;
    uint64_t checksum; /* of the fields before it */
};

static inline uint64_t redo_boot(const char *boot_id)
{
    return boot_id && *boot_id ? checksum(boot_id, strlen(boot_id)) : 0;
}

static inline uint64_t redo_frame_checksum(const uint8_t *frame, size_t length)
{
    return checksum(frame + sizeof(uint64_t), length - sizeof(uint64_t));
}

char *redo_file_path(const char *path, unsigned which);
char *redo_mark_path(const char *path);
