/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A real sandglass-init for a test: started as a plain child or as PID 1 of new namespaces, driven
 * through an agent, over a bridge if it has a relay. Everything waits with a deadline and fails the test when it passes.
 */

#include "agent/agent.h"
#include "base/buffer.h"
#include "box_spawn.h"

#include <stdbool.h>
#include <sys/types.h>

enum { BOX_MAX_ENDS = 4096, BOX_MAX_LISTED = 600 };

struct box_end {
    uint64_t number;
    struct agent_exit end;
};

struct box_listed {
    uint64_t number;
    int pid;
    struct agent_pipes pipes;
    bool has_ended;
    struct agent_exit end;
};

struct box {
    enum box_mode mode;
    char dir[64];
    char socket[80];
    int listener; /* of the test, where init dials; -1 where init listens */
    pid_t init;   /* as the test sees it; 0 once it is gone */
    struct loop *loop;
    struct cutter *cutter; /* owned; only of a box with a bridge, like the next */
    struct bridge *bridge; /* owned */
    char carrier[96];      /* the cutter's socket */
    struct agent *agent;
    bool is_lost;
    uint64_t last_number;
    size_t end_count;
    struct box_end ends[BOX_MAX_ENDS];
    size_t listed_count;
    struct box_listed listed[BOX_MAX_LISTED];
};

/* Whether namespaces can be made here; if not, tests skip. */
bool box_can_have(enum box_mode mode);

/* Extra arguments of init end with NULL; `filter_fd` becomes its descriptor 4, -1 without. */
struct box *box_new(enum box_mode mode, const char *const *arguments, int filter_fd);
struct box *box_new_listening(enum box_mode mode); /* init makes the socket itself */

/* Init connects to a socket of the test's. Of the options, socket and filter_fd do not count. */
struct box *box_new_dialling(const struct box_spawn *options);
struct box *box_new_dialling_nobody(const struct box_spawn *options); /* there is no socket yet */
void box_listen(struct box *box);                                     /* with a new socket */
int box_accept(struct box *box); /* what init has dialled by now; -1 without */

/* Init has a relay, and the agent reaches it by a bridge, through a carrier that can be made to fail. The
 * loop's clock is a quick one: the bridge waits before it connects again. */
struct box *box_new_bridged(enum box_mode mode);
void box_free(struct box *box); /* shuts init down if it runs and expects a clean exit */

void box_connect(struct box *box);    /* a new agent; the old one goes first */
void box_disconnect(struct box *box); /* as a daemon that dies */
int box_connect_raw(struct box *box); /* a bare socket; hello is not read yet */

/* Only init, with a relay that listens at this path, and its key as 64 digits. */
pid_t box_spawn_relayed(enum box_mode mode, const char *path);
#define BOX_KEY "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2"

/* Turns the loop until the condition holds. */
#define box_wait(box, condition)                        \
    do {                                                \
        int64_t box_deadline_ = box_deadline_us(60000); \
        while (!(condition))                            \
            box_turn(box, box_deadline_, #condition);   \
    } while (0)

int64_t box_deadline_us(int ms);
void box_turn(struct box *box, int64_t deadline_us, const char *condition);

const struct agent_exit *box_find_end(const struct box *box, uint64_t number);
size_t box_count_descriptors(const struct box *box); /* of init; 0 when only root may look */
void box_wait_for_exit(struct box *box, int *out_status);

/* --- a process in it -------------------------------------------------------------------------- */

struct run {
    struct box *box;
    uint64_t number;
    struct agent_request request;
    bool answered;
    struct agent_pipes pipes;
    struct buffer out;
    struct buffer errors;
};

void run_begin(struct run *run, struct box *box, struct agent_start *start);
void run_wait_started(struct run *run); /* and succeeded */
void run_wait_end(struct run *run);     /* takes the output meanwhile */
void run_read(struct run *run);         /* what there is now */
void run_finish(struct run *run);       /* forgets it and closes the pipes */
const char *run_out(struct run *run);

/* Runs it to its end. */
void run_all(struct run *run, struct box *box, struct agent_start *start);

/* /bin/sh -c text, with the environment of none. */
#define RUN_SHELL(text) \
    ((struct agent_start){ .argv = (const char *const[]){ "/bin/sh", "-c", text, NULL } })

/* A request that is waited for. */
struct asked {
    struct agent_request request;
    bool answered;
};

void asked_done(struct agent_request *request);
int box_kill_tree(struct box *box, uint64_t number, int signal_number); /* errno of the answer */
void box_list(struct box *box);
