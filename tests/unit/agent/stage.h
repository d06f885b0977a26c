/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An agent whose init is played by the test: its loop, both ends of the socket, and what the
 * handler was told. */

#include "agent/agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct stage {
    struct loop *loop;
    struct agent *agent;
    int daemon; /* borrowed: the agent's end */
    int init;   /* the other end */
    unsigned lost;
    unsigned exited;
    unsigned listed;
    uint64_t taken;
    struct agent_exit end;    /* the last one told, by on_exited or on_process */
    struct agent_bases bases; /* the last ones told */
    bool frees_in_callback;
};

struct asked {
    struct agent_request request;
    unsigned answers;
};

int open_stage(void **state);
int close_stage(void **state);
void on_done(struct agent_request *request); /* of a struct asked */

void turn(struct stage *stage);
void say(struct stage *stage, const void *bytes, size_t length, const int *fds, unsigned count);
void greet(struct stage *stage);
void greet_as(struct stage *stage, uint32_t features);

/* The agent has sent a message of this type: its request number. */
uint64_t hear(struct stage *stage, enum protocol_type type);
size_t count_descriptors(void);

/* Of a process with the number 41. */
void ask_to_start(struct stage *stage, struct asked *asked, bool terminal);
uint64_t begin_start(struct stage *stage, struct asked *asked, bool terminal);
struct protocol_started started_for(uint64_t request, uint32_t flags);

#define ON_STAGE(test) cmocka_unit_test_setup_teardown(test, open_stage, close_stage)
