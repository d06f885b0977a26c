/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The connection to the daemon. There is at most one: a new connection replaces it.
 *
 * Nothing is queued when the daemon does not read: messages about processes wait as bits in the
 * table of processes, a list waits at its index, and the one answer that could not be sent stops
 * init from taking the next request.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connection {
    int fd; /* -1 without one */
    uint64_t generation;
    bool congested; /* the last message did not fit */
    bool wants_list;
    unsigned list_place;
    uint64_t list_request;
    size_t held_length; /* of an answer that is not sent yet; 0 when there is none */
    char held[320];
};

extern struct connection connection;

struct job;
struct process;

/* Callbacks of the connection. main.c connects it with request.c and start.c, which answer through
 * this header; the connection includes neither. */
struct connection_handler {
    /* Called before a message is taken. Reports of supervisors are handled first, since they may
     * have reached the daemon already. */
    void (*on_arrival)(void);

    /* The message is in the job. Descriptors that are taken over become -1; the others stay the
     * caller's. -1 for a message that no daemon sends: the connection is over then. */
    int (*on_message)(struct job *job, size_t length, int *fds, unsigned fd_count);
};

void connection_accept(void); /* and says hello */

/* Of an init that dials and has no connection: tries to get one if an attempt is due. How long to
 * wait for the next one, in ms; -1 when there is nothing to wait for. */
int connection_dial(void);
void connection_close(void);

/* Takes a bounded number of the messages that have arrived. */
void connection_receive(const struct connection_handler *handler);
bool connection_can_receive(void);

/* Sends queued messages until the socket is full. */
void connection_flush(void);

/* The answer to the message at hand: small, without descriptors. */
void connection_answer(const void *message, size_t length);
void connection_answer_done(uint64_t process, uint64_t request, int error, unsigned value);

/* Hands a connection of a program to the daemon. It is not passed if the socket is full; the
 * program may try again. */
void connection_pass_storage(uint64_t process, int fd);

/* For supervisors: that the process has started, has ended, or both. 0 or -errno. */
int connection_tell(int socket, const struct process *process, unsigned reports);

/* For helpers: waits until it is sent. 0 or -errno. */
int connection_send_from_helper(int socket, const void *message, size_t length, int fd);
