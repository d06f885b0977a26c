/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Methods of filesystem.Filesystem; files of a sandbox, by init, as service/file_call.h does it. */

#include "e2b/envd/path.h"

/* A call about files. It goes with its exchange. */
struct files_call {
    struct file_call call;
    struct rpc *rpc;
    struct describe describe;
    const char *asked;  /* borrowed from the input: the path as the client wrote it */
    const char *second; /* borrowed: of a move, the destination for init */
    char *parent;       /* owned: of a move, the directory of the destination */
    unsigned depth;
    file_call_fn *start; /* when the sandbox is there */
};

static inline struct files_call *files_call_of(struct file_call *call)
{
    return container_of(call, struct files_call, call);
}

/* Begins work on the path of the input under `name`; NULL when it was answered. */
struct files_call *files_call_begin(struct rpc *rpc, const char *name, file_call_fn *start);

/* Answers with the error of an operation of init. */
void files_call_fail(struct rpc *rpc, int number, const char *path);

rpc_fn filesystem_stat, filesystem_list_dir, filesystem_make_dir, filesystem_move,
    filesystem_remove;
