#pragma once

/*
 * What the routes of files share. The daemon never opens a path inside a sandbox: init does, with
 * the sandbox's rights, and hands a descriptor over.
 */

#include "agent/agent.h"
#include "agent/files.h"
#include "agent/listing.h"
#include "api/private.h"

struct file_call;
typedef void file_call_fn(struct file_call *call);

/* One request about files: a use of the session, and one operation of init after another. It goes
 * when the exchange is over. */
struct file_call {
    struct request *request;
    struct session_hold hold;
    bool in_use;
    struct agent_request operation;
    file_call_fn *next; /* after the operation, when it succeeded */
    bool (*on_failure)(struct file_call *call, int number); /* true when it has answered; NULL */
    struct listing listing;

    const char *path;   /* borrowed from the request */
    const char *second; /* borrowed; NULL without one */

    /* upload */
    int fd; /* owned; -1 without */
    char *temporary;
    uint64_t size;
    uint32_t flags;
    struct protocol_version expected; /* with FILE_EXPECT */

    void *extra; /* of the route's own; released by `release` */
    void (*release)(struct file_call *call);
};

/* Begins: `start` is called when the sandbox is there. */
void file_call_begin(struct request *request, const char *path, const char *second,
                     file_call_fn *start);

/* One operation on call->path; failure is answered, success goes on with `next`. */
void file_call_do(struct file_call *call, const struct agent_file *file, file_call_fn *next);
void file_call_fail(struct file_call *call, int number, const char *path);

enum { ETAG_SIZE = 80 };
void file_etag(const struct protocol_stat *stat, char etag[ETAG_SIZE]);
void file_write_json(struct json_writer *json, const char *key, const char *path,
                     size_t path_length, const struct protocol_stat *stat);

/* The path that the query names; NULL with an error. */
const char *file_path(const struct request *request, struct error *err);

/* A bytes=START-END header for a file of `size`: 1 when there is one range, 0 when the whole file
 * is meant, -1 when it lies outside. */
int file_range(const char *header, uint64_t size, uint64_t *out_start, uint64_t *out_end);

/* Whether a list of tags, or "*", names this one. */
bool file_etag_is_in(const char *header, const char *etag);

/* One entry of a list as JSON. */
void file_write_entry(struct json_writer *json, const struct protocol_entry_view *entry);
