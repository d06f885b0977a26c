/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the routes of files: a request about files, and files as JSON. */

#include "agent/listing.h"
#include "api/private.h"
#include "service/file_call.h"

/* A request about files: the work, and what its route needs beside it. It goes when the exchange is
 * over. */
struct file_request {
    struct file_call call;
    struct request *request;
    struct listing listing;
    const char *second; /* borrowed from the request: another path; NULL without one */

    /* download */
    struct file_source source;
    int range; /* 1: a part was asked for, -1: one outside of the file */

    /* upload */
    struct file_writer writer;
    uint64_t size;
    bool is_refused; /* the rest of the body is not wanted */
    uint32_t flags;
    struct protocol_version expected; /* with FILE_EXPECT */

    void *extra; /* of the route's own; released by `release` */
    void (*release)(struct file_call *call);
};

static inline struct file_request *file_request_of(struct file_call *call)
{
    return container_of(call, struct file_request, call);
}

/* The work of a request that has begun. */
static inline struct file_call *file_request_call(const struct request *request)
{
    return &((struct file_request *)request->state)->call;
}

/* `start` is called when the sandbox is there; failures are answered. */
void file_request_begin(struct request *request, const char *path, const char *second,
                        file_call_fn *start);

enum { ETAG_SIZE = 80 };
void file_etag(const struct protocol_stat *stat, char etag[ETAG_SIZE]);
void file_write_json(struct json_writer *json, const char *key, const char *path,
                     size_t path_length, const struct protocol_stat *stat);

/* The path that the query names; NULL with an error. */
const char *file_path(const struct request *request, struct error *err);

/* Whether a list of tags, or "*", names this one. */
bool file_etag_is_in(const char *header, const char *etag);

/* One entry of a list as JSON. */
void file_write_entry(struct json_writer *json, const struct protocol_entry_view *entry);
