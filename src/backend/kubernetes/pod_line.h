/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The stream to the gate of a pod, by the pod's address: kubernetes.transport: address. */

#include "backend/remote/line.h"
#include "backend/remote/pump.h"

struct pod_line;
typedef void pod_line_fn(struct pod_line *line);

/* A part of its struct pod, where its address and port are. */
struct pod_line {
    struct pump base;
    struct line_call call;
    struct error err;    /* of the last attempt; ERR_NONE when it succeeded */
    pod_line_fn *on_end; /* an attempt has ended, as `err` says */
};

void pod_line_init(struct pod_line *line, struct loop *loop, pod_line_fn *on_end);
