/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the API server's description of a pod says about the sandbox in it: whether it waits, runs, can
 * never start or has ended, and why. A function of the document alone, without a client or a clock.
 *
 * Unknown is never dead: a node that does not answer leaves its pods as they were.
 */

#include "backend/backend.h"

#include <jansson.h>

#define POD_CONTAINER "sandbox"
#define POD_PORT "sandglass-gate" /* the name of the port at which its gate listens */

#define POD_LABEL "sandglass.io/"
#define POD_LABEL_INSTANCE POD_LABEL "instance"
#define POD_LABEL_SANDBOX POD_LABEL "sandbox"
#define POD_LABEL_STATE POD_LABEL "state"     /* tells daemons of the same instance apart */
#define POD_LABEL_CLUSTER POD_LABEL "cluster" /* of nodes of Sandglass, which may take it over */
#define POD_LABEL_NETWORK POD_LABEL "network"

/* The same labels of a pod that a claim has taken: the one domain that a controller of agent-sandbox
 * lets claims give to pods, where it is not told to allow others. */
#define POD_CLAIM_LABEL "sandglass.sandbox.users.io/"

enum {
    POD_UID_SIZE = 40,
    POD_FULL_NAME_SIZE = 128, /* a pod with a longer name is none of ours */
    POD_NODE_SIZE = 128,      /* cut off where it is longer: for people */
    POD_REASON_SIZE = 64,
    POD_WORDS_SIZE = 304,
    POD_ADDRESS_SIZE = 46,
};

enum pod_verdict {
    POD_WAITS,         /* for its image, or for its containers to be made */
    POD_UNSCHEDULABLE, /* no node can take it now */
    POD_RUNS,
    POD_STUCK, /* it will not start: `reason` and `words` say why */
    POD_ENDED, /* `end` says how */
};

struct pod_state {
    enum pod_verdict verdict;
    char uid[POD_UID_SIZE];
    char node[POD_NODE_SIZE];       /* "" before it is scheduled */
    char reason[POD_REASON_SIZE];   /* the cluster's own word: "ErrImagePull", "Unschedulable" */
    char words[POD_WORDS_SIZE];     /* and its message */
    bool is_image;                  /* stuck for want of the image */
    bool is_settled;                /* of one that has ended: the kubelet has said all about it */
    bool is_terminating;            /* its deletion was asked for */
    bool is_node_silent;            /* its node does not report any more */
    bool is_claimed;                /* it came from a warm pool, by a claim of ours */
    bool has_container;             /* that we know by name */
    char address[POD_ADDRESS_SIZE]; /* or "" */
    unsigned port;                  /* of the gate; 0: the container has none */
    unsigned restarts;              /* of that container, since the pod was made */
    struct sandbox_limits limits;   /* of that container; 0: none */
    struct backend_end end; /* of one that has not ended: the detail of what is about to end it */
    const char *name;       /* borrowed from the document, here and below; or "" */
    const char *instance, *cluster, *sandbox, *state; /* labels */
};

/* "1073741824", "1Gi", "500m" for thousandths; 0 for what is absent. */
double pod_quantity(const char *text);

/* Without control characters, cut at a character where it is too long. */
void pod_copy_words(char *out, size_t size, const char *text);

/* False for a document that describes no pod. */
bool pod_state_read(const json_t *pod, struct pod_state *out_state);

/* Of a pod that is gone, by the last that was seen of it. */
struct backend_end pod_state_gone(const struct pod_state *last);
