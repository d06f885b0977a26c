/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of the fake engine: fake_engine.c is the server with its faults and streams, fake_routes.c
 * answers requests, fake_container.c is the life of containers.
 */

#include "harness/fake_engine.h"

#include "net/http_server.h"

enum { FAKE_FAULTS = 32 };

struct fake_image {
    struct list node;
    char *name; /* owned: with a tag */
    char *user, *workdir;
};

struct fake_engine {
    struct loop *loop;          /* borrowed */
    char *socket_path;          /* owned */
    struct http_server *server; /* owned; NULL while it is away */
    struct fake_habits habits;
    struct list containers, images;
    struct list requests; /* all that are under way */
    struct fake_fault faults[FAKE_FAULTS];
    size_t fault_count;
    char **log; /* owned: "METHOD PATH" of each request */
    size_t logged;
    char *pull_lines; /* owned; NULL: pulls succeed and say nothing */
    unsigned serial;
    unsigned strays;
};

enum fake_request_state {
    REQUEST_READING,
    REQUEST_HELD,     /* not served yet */
    REQUEST_ANSWERED, /* the answer is held */
    REQUEST_STREAM,   /* of events of containers */
    REQUEST_IMAGES,   /* of events of images */
    REQUEST_ATTACHED, /* to the init of a container */
    REQUEST_DONE,
};

struct fake_request {
    struct list node;
    struct fake_engine *engine;     /* borrowed */
    struct http_exchange *exchange; /* borrowed */
    enum fake_request_state state;
    enum fake_fault_kind fault;
    bool has_fault;
    char *path;  /* owned: without the version */
    char *query; /* owned */
    json_t *body;
    int status; /* of an answer that is held, with its text */
    char *text;
};

/* Takes the answer over; NULL: none. */
void fake_answer(struct fake_request *request, int status, json_t *body);
void fake_refuse(struct fake_request *request, int status, const char *cause, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));
void fake_stream(struct fake_request *request, bool is_of_images); /* of events, until it is cut */
void fake_attach(struct fake_request *request); /* a stream of bytes, until it is cut */
void fake_send_lines(struct fake_request *request, const char *lines);

/* Writes to all streams of events. */
void fake_event(struct fake_container *container, const char *action, const char *key,
                const char *value);

/* fake_routes.c */
void fake_serve(struct fake_request *request);

/* fake_container.c */
struct fake_container *fake_container_new(struct fake_engine *engine, const char *name,
                                          json_t *request);
void fake_container_free(struct fake_container *container); /* kills it */
json_t *fake_container_describe(const struct fake_container *container);
const char *fake_container_label(const struct fake_container *container, const char *label);
bool fake_container_runs(const struct fake_container *container);

/* False while the process of a start that was forgotten lives. */
bool fake_container_may_start(struct fake_container *container);
