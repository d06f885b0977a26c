/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the client of the API server: kube_client.c, kube_call.c, kube_error.c, kube_watch.c and
 * kube_exec.c. */

#include "backend/kubernetes/kube_client.h"
#include "base/buffer.h"
#include "base/list.h"
#include "net/http_client.h"
#include "wire/json.h"

enum {
    KUBE_ANSWER_MAXIMUM = 64 * 1024 * 1024,
    KUBE_REFUSAL_MAXIMUM = 64 * 1024,
    KUBE_TEXT_SIZE = 304,
    KUBE_HEADERS = 12, /* names and values of a request's own */
};

struct kube_client {
    struct loop *loop; /* borrowed */
    struct kube_config config;
    char *namespace;          /* owned */
    struct http_client *http; /* owned */
    char *authorization;      /* owned: the value of the header; NULL without a token */
    int64_t token_read_us;
    char *state_path; /* owned: where certificates lie for the moment in which they are read */
    struct kube_stamp {
        int64_t changed_ns;
        uint64_t inode;
    } stamps[3];         /* of the files of certificates that are in use */
    struct list jobs;    /* owned: struct kube_job */
    struct list watches; /* owned: struct kube_watch's */
    struct list execs;   /* owned: struct kube_exec's */
    uint8_t *scratch;    /* owned: what the users of execs have written */
};

/* A call of HTTP with the headers of the client and these (name, value, …, NULL; or NULL). */
struct http_call *kube_client_call(struct kube_client *client, enum http_method method,
                                   const char *path, const char *body, const char *const *headers,
                                   const struct http_call_handler *handler, void *user);

/* Reads the token again: whether it is another one. */
bool kube_client_renew_token(struct kube_client *client);

/* --- kube_error.c ----------------------------------------------------------------------------- */

/* What an answer says that is no success; the body may be anything. */
void kube_error_from_answer(struct error *err, const struct kube_client *client, int status,
                            const void *body, size_t length);

/* What the HTTP client says: adds whose failure it is and the remedy. */
void kube_error_from_http(struct error *err, const struct kube_client *client,
                          const struct error *cause);
void kube_error_timeout(struct error *err, const struct kube_client *client, int64_t timeout_ms);

/* Words of the server for a message: without control characters, of bounded length. */
void kube_text_clean(const char *text, char out_text[KUBE_TEXT_SIZE]);

/* --- what the files of the client free with it ------------------------------------------------ */

void kube_jobs_free(struct kube_client *client);
void kube_watches_free(struct kube_client *client);
void kube_execs_free(struct kube_client *client);
