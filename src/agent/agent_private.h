/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Declarations shared by agent.c, which sends requests, and agent_answer.c, which takes init's
 * messages. */

#include "agent/agent.h"

/* A file that was being opened for writing when its caller gave up: init will name a temporary file. */
struct given_up {
    struct given_up *next;
    uint64_t id; /* of the request */
    char path[]; /* of the file that was to be written */
};

struct forgets;  /* that are not sent yet */
struct outgoing; /* a message that the socket does not take yet */

/* The type of a request that has no message, see agent_attend(): no answer of init fits it. */
#define AGENT_ATTENDS ((enum protocol_type)0)

/* A state leads only to later ones. */
enum agent_state {
    AGENT_CONNECTED,
    AGENT_LOST,    /* open requests fail and on_lost is called at the end of the turn */
    AGENT_TOLD,    /* its owner knows of the loss */
    AGENT_RETIRED, /* by its owner: open requests fail at the end of the turn, then it is freed */
    AGENT_CLOSED,  /* no more callbacks */
};

struct agent {
    struct loop *loop;                   /* borrowed */
    const struct agent_handler *handler; /* borrowed */
    void *user;                          /* borrowed */
    struct io_watch socket;
    struct deferred finish;  /* completes requests that cannot be completed where they failed */
    struct deferred release; /* frees the memory once no caller is left on the stack */
    enum agent_state state;
    struct error *loss; /* owned; NULL unless it was lost */
    bool has_hello;
    struct protocol_hello hello;
    char *first_scratch; /* owned; NULL: as hello says */
    int64_t heard_us;    /* the last message */
    uint64_t last_id;
    uint64_t last_sent;    /* request of the last message that was sent; 0 when it has no answer */
    uint64_t highest_sent; /* the highest request of all messages that were sent */
    bool was_reset; /* init has ended with messages unread: at least the last that was sent */
    struct agent_request *open; /* borrowed: sent or queued, oldest first */
    struct outgoing *queue;     /* owned: in the order they are to be sent */
    struct outgoing *files;     /* owned: file operations that wait for others to end */
    struct forgets *forgets;    /* owned; NULL without */
    struct given_up *given_up;  /* owned */
    size_t queued_bytes;
    unsigned files_in_flight;
};

/* The connection is over; open requests fail and on_lost is called, both from the loop. */
void agent_lose(struct agent *agent, enum error_code code, const char *why);

/* The same: init speaks no version of the protocol that we do. */
void agent_lose_version(struct agent *agent);

/* Init has said hello: a list that was asked for before is empty, or is asked for now. */
void agent_continue_list(struct agent *agent);

/* Removes the request from the open ones; NULL when no open request has this id. */
struct agent_request *agent_take(struct agent *agent, uint64_t id);

/* A request that is not open any more has made this temporary file. */
void agent_discard(struct agent *agent, uint64_t id, const char *temporary);

/* A file operation has ended: the next operation can be sent. */
void agent_file_ended(struct agent *agent);

/* Reads init's messages. */
void agent_receive(struct agent *agent);
