/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A bridge for tests: it speaks frames with a real relay, over a unix socket, and keeps all that
 * comes. It waits with deadlines and fails the test when one passes. It can cut its connection after
 * so many bytes and resume, forget everything as a killed daemon does, or send what no bridge sends.
 */

#include "base/buffer.h"
#include "wire/relay_frame.h"

#include <stdbool.h>
#include <sys/types.h>

/* How it reaches the relay. */
enum client_way {
    CLIENT_DIRECT,
    CLIENT_PUMP_SOCKET,
    CLIENT_PUMP_PIPES,
    CLIENT_ATTACHED, /* through init's stdin and stdout, once; then by pumps with pipes */
    CLIENT_OTHER,    /* as client->connect() does it */
};

enum { CLIENT_MAX_MESSAGES = 4096 };

/* What is known of a channel in this session. */
struct client_channel {
    uint16_t kind;     /* 0: not named in this session */
    struct buffer out; /* from `base` on, unless they are discarded */
    uint64_t base;
    uint64_t come; /* offset behind the last byte that came */
    uint64_t kept; /* acknowledged */
    bool has_end;
    uint64_t total; /* with has_end */
    int error;
    bool is_end_kept; /* RELAY_ACK_END was sent */

    uint64_t sent;    /* input */
    uint64_t taken;   /* acknowledged by the relay */
    uint64_t allowed; /* the relay's window goes up to here */
    bool is_closed;   /* CLOSE came */
    bool is_done;     /* RELAY_ACK_END came */
};

struct client_message {
    struct relay_message_view view; /* its packet is owned */
    bool is_read;
};

struct client {
    char path[108];
    uint8_t key[RELAY_KEY_SIZE];
    bool binds; /* gives the relay the key before the login */
    int fd;     /* -1 between two connections */
    int fd_out; /* to write to: the same, unless a pump with pipes is between */
    enum client_way way;
    void (*connect)(struct client *client); /* sets fd, fd_out and, if it makes a process, pump */
    pid_t pump;
    int attached_in, attached_out; /* owned until they are used: of init, for CLIENT_ATTACHED */
    uint8_t boot[RELAY_BOOT_SIZE];
    uint8_t session[RELAY_SESSION_SIZE];
    uint64_t received; /* sequenced bytes */
    uint64_t told;
    uint64_t kept_from; /* of `unsent`: the relay has received everything before */
    uint64_t written;
    struct buffer sequenced; /* frames from kept_from on */
    struct buffer in;

    bool acknowledges; /* what comes, at once; otherwise client_keep() does */
    bool discards;     /* the bytes of channels */
    bool is_new;       /* no session was begun yet */
    uint32_t window;   /* that its ACKs give */
    long cut_in;       /* bytes until the connection is cut; -1: never */
    unsigned cuts;
    bool was_refused; /* by WELCOME */
    unsigned pongs;
    unsigned usages;
    struct relay_usage usage; /* the last */

    struct client_channel channels[RELAY_CHANNELS];
    struct client_message messages[CLIENT_MAX_MESSAGES];
    unsigned message_count;
};

struct client *client_new(const char *path, const uint8_t key[RELAY_KEY_SIZE]);
void client_free(struct client *client);

/* A new session: all that is known of the old one is gone. */
void client_begin(struct client *client);
int client_resume(struct client *client); /* -1 when the relay has another session */
void client_cut(struct client *client);   /* closes the connection, and no more */

/* Reads and writes what there is. False when the relay has closed the connection. */
bool client_turn(struct client *client, int timeout_ms);

#define client_wait(client, condition)                          \
    do {                                                        \
        int64_t client_deadline_ = client_deadline_ms(60000);   \
        while (!(condition))                                    \
            client_go_on(client, client_deadline_, #condition); \
    } while (0)

int64_t client_deadline_ms(int ms);
void client_go_on(struct client *client, int64_t deadline_ms, const char *condition);

/* --- frames ----------------------------------------------------------------------------------- */

void client_put(struct client *client, const struct relay_frame *frame, const void *payload);
void client_put_raw(struct client *client, const void *bytes, size_t length); /* past everything */
void client_send(struct client *client, const void *packet, size_t length,
                 const struct relay_descriptor *descriptors, unsigned count);
void client_ask(struct client *client, enum protocol_type type, uint64_t process, uint64_t request);
void client_keep(struct client *client, uint16_t channel, uint64_t offset);
void client_close_channel(struct client *client, uint16_t channel);
size_t client_write(struct client *client, uint16_t channel, const void *bytes, size_t length);
void client_end(struct client *client, uint16_t channel);

/* The oldest unread message of this type, and of the process unless it is 0; waits for it. */
const struct relay_message_view *client_take(struct client *client, enum protocol_type type,
                                             uint64_t process);
bool client_has(struct client *client, enum protocol_type type, uint64_t process);

/* --- processes -------------------------------------------------------------------------------- */

struct client_process {
    uint64_t number;
    uint16_t in, out, errors; /* channels; 0 where there is none */
};

/* START of /bin/sh -c text, flags as in the protocol; then STARTED or RAN. */
void client_start(struct client *client, struct client_process *process, uint64_t number,
                  const char *text, uint32_t flags);
void client_begin_start(struct client *client, uint64_t number, const char *text, uint32_t flags);
void client_take_start(struct client *client, struct client_process *process, uint64_t number);

/* --- a real init ------------------------------------------------------------------------------ */

struct host {
    char dir[64];
    char path[80];
    pid_t init;
    uint8_t key[RELAY_KEY_SIZE];
    bool is_unbound; /* init does not get the key */
    uint16_t port;   /* of the gate; 0 without */
};

void host_start(struct host *host);
void host_start_unbound(struct host *host); /* the same with --unbound */

/* The same with --attached: the client's first connection goes through init's stdin and stdout. */
struct client *host_start_attached(struct host *host);

/* The same with --gate, at a free port; returns when the gate listens. */
void host_start_gated(struct host *host);
int host_dial(const struct host *host); /* a TCP connection to it; -1 without a listener */
void host_stop(struct host *host);
pid_t host_find_relay(const struct host *host); /* of an attached one: its pump */
