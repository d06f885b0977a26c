/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The pump of a pod, which the exec of the pod starts. */

#include "backend/kubernetes/kube_client.h"
#include "backend/remote/pump.h"

struct tunnel;
typedef void tunnel_fn(struct tunnel *tunnel);

struct tunnel {
    struct pump base;
    struct kube_client *client; /* borrowed */
    const char *pod;            /* borrowed: its name */
    tunnel_fn *on_refused;      /* the API server refuses the exec: the pod may have ended */
    struct kube_exec exec;
};

void tunnel_init(struct tunnel *tunnel, struct loop *loop, struct kube_client *client,
                 const char *pod, tunnel_fn *on_refused);
