/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The directory of a sandbox on disk, with its mark and the socket that init listens on. It is made
 * under a name of its own and gets that of the sandbox by a rename, so that it can be made ahead:
 * making files is the slowest thing that a journaled file system does.
 */

#include "launcher/context.h"
#include "launcher/fail.h"

enum { DIRECTORY_NAME_SIZE = 40 };

struct directory {
    int dir;                        /* owned */
    int mark;                       /* owned: the mark's file, empty or cleared */
    int socket;                     /* owned: listens */
    char name[DIRECTORY_NAME_SIZE]; /* "" when there is none, or when it has a sandbox's name */
};

#define DIRECTORY_NONE                      \
    {                                       \
        .dir = -1, .mark = -1, .socket = -1 \
    }

/* The number must be unique among the directories made ahead. */
int directory_make(const struct context *context, struct directory *directory, unsigned number,
                   struct fail *fail);

/* EEXIST when there is a sandbox of that id. */
int directory_rename(const struct context *context, struct directory *directory, const char *id,
                     struct fail *fail);

/* The way back, when the sandbox is dead. */
int directory_take_back(const struct context *context, struct directory *directory, const char *id,
                        unsigned number);

/* Makes the directory of a dead sandbox as good as new. */
int directory_renew(struct directory *directory, struct fail *fail);

/* Closes descriptors only. */
void directory_close(struct directory *directory);

/* Closes the descriptors, and removes a directory that no sandbox got. */
void directory_drop(const struct context *context, struct directory *directory);

/* Removes the directory that a dead builder may have made under this number. */
void directory_drop_ahead(const struct context *context, unsigned number);

/* LOCK_SH to make directories, LOCK_EX to remove those of another process. Returns a descriptor
 * that holds the lock while it is open; -1 when the lock is taken. */
int directories_lock(const struct context *context, int how);

/* Removes the directories that an earlier launcher made ahead. */
void directories_sweep(const struct context *context);
