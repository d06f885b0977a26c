#pragma once

/*
 * The folder of a sandbox on disk, with its mark and the socket that init listens on. It is made
 * under a name of its own and gets that of the sandbox by a rename, so that it can be made ahead:
 * making files is the slowest thing that a journaled file system does.
 */

#include "launcher/fail.h"

enum { FOLDER_NAME_SIZE = 40 };

struct launcher;

struct folder {
    int dir;                     /* owned */
    int mark;                    /* owned: the mark's file, empty or cleared */
    int socket;                  /* owned: listens */
    char name[FOLDER_NAME_SIZE]; /* "" when there is none, or when it has a sandbox's name */
};

#define FOLDER_NONE                         \
    {                                       \
        .dir = -1, .mark = -1, .socket = -1 \
    }

/* The name must be unique among those that are made ahead. */
int folder_make(struct launcher *launcher, struct folder *folder, unsigned number,
                struct fail *fail);

/* EEXIST when there is a sandbox of that id. */
int folder_rename(struct launcher *launcher, struct folder *folder, const char *id,
                  struct fail *fail);

/* The way back, when the sandbox is dead. */
int folder_take_back(struct launcher *launcher, struct folder *folder, const char *id,
                     unsigned number);

/* Makes one that has been a sandbox's as good as a new one. */
int folder_renew(struct folder *folder, struct fail *fail);

/* Closes descriptors only. */
void folder_close(struct folder *folder);

/* Closes what is still here, and removes a folder that no sandbox got. */
void folder_drop(struct launcher *launcher, struct folder *folder);

/* Removes what a builder that died may have made under this number. */
void folder_drop_ahead(struct launcher *launcher, unsigned number);

/* Whoever makes folders shares the lock (LOCK_SH), whoever removes those of others has it alone
 * (LOCK_EX). A descriptor that holds it while it is open; -1 when it is taken. */
int folders_lock(const struct launcher *launcher, int how);

/* Removes those that an earlier launcher made ahead. */
void folders_sweep(struct launcher *launcher);
