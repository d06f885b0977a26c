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

/* The name must be unique among those that are made ahead. */
int directory_make(const struct context *context, struct directory *directory, unsigned number,
                   struct fail *fail);

/* EEXIST when there is a sandbox of that id. */
int directory_rename(const struct context *context, struct directory *directory, const char *id,
                     struct fail *fail);

/* The way back, when the sandbox is dead. */
int directory_take_back(const struct context *context, struct directory *directory, const char *id,
                        unsigned number);

/* Makes one that has been a sandbox's as good as a new one. */
int directory_renew(struct directory *directory, struct fail *fail);

/* Closes descriptors only. */
void directory_close(struct directory *directory);

/* Closes what is still here, and removes a directory that no sandbox got. */
void directory_drop(const struct context *context, struct directory *directory);

/* Removes what a builder that died may have made under this number. */
void directory_drop_ahead(const struct context *context, unsigned number);

/* Whoever makes directories shares the lock (LOCK_SH), whoever removes those of others has it alone
 * (LOCK_EX). A descriptor that holds it while it is open; -1 when it is taken. */
int directories_lock(const struct context *context, int how);

/* Removes those that an earlier launcher made ahead. */
void directories_sweep(const struct context *context);
