/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Declarations shared by the files of the backend kubernetes:
 *
 *   kubernetes.c    opening, settings, the watch of all pods, the table of operations
 *   ground.c        what pods need in their namespace: owner, init, network policies
 *   placement.c     where pods run: selectors and tolerations of the settings
 *   pod.c           a pod that is known: how it ends, how its init is reached
 *   pod_create.c    from an image to a pod with an init in it
 *   pod_control.c   adopt, destroy, list, update
 *   pod_report.c    what is in force for a pod
 *   claim.c         pods of a warm pool: what a claim asks for, what it says, what it cannot have
 *   claim_control.c claims: removing them
 *   pod_spec.c      the JSON that asks the API server for a pod
 *   pod_state.c     what the API server's JSON says about a pod
 *   tunnel.c        the stream to a relay, by the exec of a pod
 *   pod_line.c      the same by the address of a pod
 *   kube_*.c        the client of the API server
 */

#include "backend/backend.h"
#include "backend/kubernetes/kube_client.h"
#include "backend/kubernetes/pod_line.h"
#include "backend/kubernetes/pod_state.h"
#include "backend/kubernetes/tunnel.h"
#include "backend/relay_key.h"
#include "backend/remote/job.h"
#include "base/list.h"
#include "base/map.h"
#include "loop/workflow.h"

struct bridge;
struct config;
struct json_writer;

#define KUBERNETES_INSIDE "/.sandglass"
#define KUBERNETES_INIT KUBERNETES_INSIDE "/bin/sandglass-init"
#define KUBERNETES_RELAY_SOCKET KUBERNETES_INSIDE "/run/relay.sock"
#define KUBERNETES_WORKSPACE "/workspace"

#define RELAY_KEY_VARIABLE "SANDGLASS_KEY"

enum {
    KUBE_SCOPE_SIZE = 80,
    KUBE_LABEL_SIZE = 64,
    KUBE_CLUSTER_SIZE = 17,
    KUBE_INIT_NAME_SIZE = KUBE_SCOPE_SIZE + 40,
    KUBE_POLICY_NAME_SIZE = KUBE_SCOPE_SIZE + KUBE_LABEL_SIZE + 20,
    POD_NAME_SIZE = ID_SIZE,
    KUBE_PATH_SIZE = 512,
    KUBE_REQUEST_MS = 30 * 1000,
};

/* Whether what pods need is in the namespace. */
enum ground_state { GROUND_UNKNOWN, GROUND_CHECKING, GROUND_READY };

struct ground {
    enum ground_state state;
    struct workflow workflow;
    struct kube_call call;
    int64_t checked_us;
    char owner_uid[POD_UID_SIZE];
    struct list waiting; /* struct ground_wait */
    struct error
        *trouble; /* owned: what the cluster lacks for claims; NULL: nothing that is known */
};

struct ground_wait;
typedef void ground_fn(struct ground_wait *wait, const struct error *err); /* NULL: it is ready */

/* In the memory of the waiting object; zeroed it waits for nothing. */
struct ground_wait {
    struct list node;
    ground_fn *done;
};

struct kubernetes_backend {
    struct backend base;
    struct backend_ops ops;      /* its own, for the capabilities that depend on settings */
    const struct config *config; /* borrowed */
    int state_dir;               /* borrowed */

    struct kube_client *client; /* owned */
    struct kube_watch watch;    /* of all pods that this daemon may know */
    unsigned round;             /* of lists: which pods the last one had */
    struct error *trouble;      /* owned: why the API server cannot be used now; NULL when it can */
    struct ground ground;
    struct ground_wait first; /* of claims: whether the cluster knows them is asked at the start */
    struct map pods;          /* by the sandbox's id; owned: struct pod */
    struct remote_jobs jobs;  /* owned: struct kube_op */
    struct list strays;       /* owned: struct stray */
    struct line_set lines;    /* to the gates of pods */

    char scope[KUBE_SCOPE_SIZE];     /* begins the names of what all pods share */
    char home[KUBE_LABEL_SIZE];      /* the namespace of the daemon's own pod; "": not known */
    char instance[KUBE_LABEL_SIZE];  /* as labels have them, here and below */
    char state[KUBE_LABEL_SIZE];     /* of the state directory */
    char cluster[KUBE_CLUSTER_SIZE]; /* whose nodes share the pods; or "" */
    char init_name[KUBE_INIT_NAME_SIZE];
    struct relay_secret {
        bool is_known;
        uint8_t bytes[RELAY_SECRET_SIZE];
    } secret;
};

struct kubernetes_backend *kubernetes_from(const struct backend *backend);

int kubernetes_need_secret(struct kubernetes_backend *kube, struct error *err);

/* Whether the pod is of this instance, or of the cluster that it is a node of. */
bool kubernetes_knows(const struct kubernetes_backend *kube, const struct pod_state *state);

/* --- an operation under way ------------------------------------------------------------------- */

/* The base of what is allocated for one backend_op. */
struct kube_op {
    struct remote_job base;
    struct kubernetes_backend *backend; /* borrowed */
    struct kube_call call;
    char pod[POD_FULL_NAME_SIZE]; /* "": that of the sandbox, as far as it is known */
    /* The watch has told of its pod; may be NULL. It ends no job, but by remote_job_done_later(). */
    void (*on_pod)(struct kube_op *job, const struct pod_state *state, bool is_deleted);
    /* The relay of its pod has told what it uses; NULL: it waits for nothing of the kind. */
    void (*on_usage)(struct kube_op *job, const struct relay_usage *usage);
    /* An attempt to reach the gate of its pod has ended; NULL: the job waits for none. It ends no job
     * either. */
    void (*on_line)(struct kube_op *job);
};

/* Allocates `size` bytes that begin with the job. */
void *kube_op_new(size_t size, struct kubernetes_backend *backend, struct backend_op *op,
                  const char *id);
void kube_op_done(struct kube_op *job); /* tells the operation, with op->err as it is */

/* Asks about or deletes the pod of the job. The answer of 404 is ERR_NOT_FOUND. */
void kube_op_get_pod(struct kube_op *job, kube_done_fn *done);
void kube_op_delete_pod(struct kube_op *job, const char *uid, kube_done_fn *done);

/* --- ground.c --------------------------------------------------------------------------------- */

void ground_init(struct kubernetes_backend *kube);
void ground_fini(struct kubernetes_backend *kube);

/* Answers when all of it is there: at once, or from the loop. */
void ground_need(struct kubernetes_backend *kube, struct ground_wait *wait, ground_fn *done);
void ground_forget(struct ground_wait *wait); /* no answer comes */
void ground_look_again(
    struct kubernetes_backend *kube); /* after trouble, if the last look is old */

/* The policy of this name that admits the daemon to the gates of its pods, allocated. */
char *ground_gate_policy(const struct kubernetes_backend *kube, const char *name);

/* "ownerReferences" of an object. */
void ground_put_owner(const struct kubernetes_backend *kube, struct json_writer *json);

/* --- placement.c ------------------------------------------------------------------------------ */

void placement_put(const struct config *config, struct json_writer *json);
int placement_check(const struct config *config, struct error *err);

/* --- a pod ------------------------------------------------------------------------------------ */

/* | state       | leads to                    |
 * | POD_MAKING  | POD_LIVE, gone              |
 * | POD_LIVE    | POD_DYING, POD_OVER, gone   |
 * | POD_DYING   | POD_OVER, gone              |
 * | POD_OVER    | gone                        | */
enum pod_phase {
    POD_MAKING, /* asked for, and not known to run */
    POD_LIVE,   /* as far as is known */
    POD_DYING,  /* its container has ended, and the cause is waited for */
    POD_OVER,
};

struct pod {
    char id[ID_SIZE];                /* of the sandbox */
    char name[POD_FULL_NAME_SIZE];   /* "": a claim of it is not bound yet */
    bool is_claimed;                 /* it comes from a warm pool */
    unsigned restarts;               /* of its container, when it became the sandbox */
    struct kubernetes_backend *kube; /* borrowed */
    enum pod_phase phase;
    struct pod_state last; /* that was told of it, without the labels; of no uid before */
    unsigned round;        /* the last list that had it */
    struct sandbox_limits limits;
    struct kube_call look;
    struct timer again; /* the API server did not answer: it is asked again */
    unsigned looks;
    struct backend_end end;
    struct backend_watch *watch; /* borrowed; NULL: no observer */
    struct deferred late;        /* tells the watch */
    struct bridge *bridge;       /* owned; NULL before it is begun */
    struct tunnel tunnel;
    struct pod_line line;
};

void pod_name(const char *id, char name[POD_NAME_SIZE]);
struct pod *pod_find(const struct kubernetes_backend *kube, const char *id);

/* `name` is "" for one that a claim will find. */
struct pod *pod_new(struct kubernetes_backend *kube, const char *id, const char *name);
void pod_free(struct pod *pod); /* NULL is fine */

/* It runs: opens the way to its init. One that was `claimed` just now is given its key. */
enum pod_origin { POD_MADE, POD_CLAIMED, POD_ADOPTED };
int pod_begin(struct pod *pod, enum pod_origin origin, struct error *err);

/* What was told of it: it may end with that. */
void pod_note(struct pod *pod, const struct pod_state *state, bool is_deleted);

void pod_on_usage(struct bridge *bridge, const struct relay_usage *usage);

/* How its relay is reached: by its address where the settings say so and the pod was made for that, with
 * a gate at their port; by exec otherwise. */
bool pod_has_line(const struct pod *pod);
struct pump *pod_pump(struct pod *pod);

/* A sign of its end: the API server is asked. */
void pod_suspect(struct pod *pod);

/* The handle: "UID,NODE", of a claimed pod "UID,NODE,RESTARTS,NAME". */
struct pod_handle {
    char uid[POD_UID_SIZE];
    char name[POD_FULL_NAME_SIZE]; /* "": derived from the id */
    bool is_claimed;
    unsigned restarts;
};

void pod_write_handle(const struct pod *pod, struct backend_sandbox *sandbox);
bool pod_parse_handle(const char *text, struct pod_handle *out);

/* --- what a pod is asked for ------------------------------------------------------------------ */

struct pod_order {
    const struct kubernetes_backend *kube;
    const struct sandbox_spec *spec;
    const char *image; /* or the warm pool */
    const char *key;   /* of the relay, as text; NULL for a claim */
};

/* Labels that say whose it is, with this prefix; and what people want to know. */
void pod_put_identity(struct json_writer *json, const struct pod_order *order, const char *prefix);
void pod_put_session(struct json_writer *json, const struct sandbox_spec *spec);

/* The body of the request, allocated; NULL when it is too long. */
char *pod_spec_json(const struct pod_order *order);

/* "" and "host" are the default image; NULL with an error when that is none, or for what is no
 * reference. */
const char *pod_image(const struct kubernetes_backend *kube, const char *name, struct error *err);

/* --- claims ----------------------------------------------------------------------------------- */

#define CLAIM_GROUP "extensions.agents.x-k8s.io/v1beta1"

bool kubernetes_claims(const struct kubernetes_backend *kube); /* what is made is claimed */

/* The name of a warm pool: "" and "host" are the default. NULL with an error, as pod_image(). */
const char *claim_pool(const struct kubernetes_backend *kube, const char *name, struct error *err);

char *claim_json(const struct pod_order *order); /* allocated; NULL when it is too long */

struct claim_state {
    char uid[POD_UID_SIZE];
    char sandbox[POD_FULL_NAME_SIZE]; /* the Sandbox that it is bound to, and its pod; or "" */
    bool is_terminating;
    bool is_ours;  /* of this instance or cluster, and of the sandbox that was asked about */
    bool is_stuck; /* it will not be bound */
    char reason[POD_REASON_SIZE]; /* why it is not ready, in the controller's words */
    char words[POD_WORDS_SIZE];
};

/* False for a document that describes no claim. */
bool claim_read(const struct kubernetes_backend *kube, const char *id, const json_t *claim,
                struct claim_state *out);

void claims_path(const struct kubernetes_backend *kube, char path[KUBE_PATH_SIZE]);
void kube_op_get_claim(struct kube_op *job, kube_done_fn *done);

/* Whether the pod that was claimed is what was asked for: -1 names what differs. */
int claim_check_pod(const struct pod_order *order, const struct pod_state *state,
                    struct error *err);
int claim_check_network(const struct config *config, const struct sandbox_spec *spec,
                        struct error *err);
int claim_check_settings(const struct config *config, struct error *err);

void claim_destroy(struct kubernetes_backend *kube, const char *id, struct backend_op *op);
void pod_destroy(struct kubernetes_backend *kube, const char *id, struct backend_op *op);

/* --- the operations --------------------------------------------------------------------------- */

void kubernetes_create(struct backend *backend, const struct sandbox_spec *spec,
                       struct backend_op *op);
void kubernetes_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                      struct backend_op *op);
void kubernetes_watch(struct backend *backend, const char *id, struct backend_watch *watch);
void kubernetes_unwatch(struct backend *backend, struct backend_watch *watch);
bool kubernetes_is_ending(const struct backend *backend, const struct backend_watch *watch);
bool kubernetes_connect(struct backend *backend, const char *id, struct backend_op *op);
void kubernetes_update(struct backend *backend, const char *id, const struct sandbox_limits *limits,
                       struct backend_op *op);
void kubernetes_freeze(struct backend *backend, const char *id, bool frozen, struct backend_op *op);
void kubernetes_inspect(struct backend *backend, const char *id, struct backend_op *op);
void kubernetes_destroy(struct backend *backend, const char *id, struct backend_op *op);
void kubernetes_list(struct backend *backend, struct backend_op *op);
bool kubernetes_report(struct backend *backend, const char *id, struct backend_op *op);

/* Deletes a pod of ours that appeared after its create was given up. */
void stray_consider(struct kubernetes_backend *kube, const struct pod_state *state);
void strays_fini(struct kubernetes_backend *kube);

/* -1 when something that sandbox.require names is not in force for pods. */
int pod_check_required(const struct config *config, struct error *err);
