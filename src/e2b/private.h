/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of this directory. */

#include "base/map.h"
#include "e2b/e2b.h"
#include "e2b/target.h"
#include "e2b/token.h"
#include "face/request.h"

#include <jansson.h>

/* The version that clients are told, so that they use all features that exist here. */
#define E2B_ENVD_VERSION "0.6.13"

enum { E2B_ENV_MAXIMUM = 128 * 1024 }; /* bytes of all variables together */

struct e2b {
    struct e2b_parts parts;
    int64_t started_us;          /* wall clock */
    struct e2b_aliases *aliases; /* owned */
    struct map hidden_runs;      /* size_t by the id of a context; owned: see code.h */
    struct recents *recents;     /* owned: see e2b/envd/recent.h */
    struct watchers *watchers;   /* owned: see e2b/envd/watch.h */
};

/* --- notes.c: what E2B knows of a sandbox, and sessions do not --------------------------------- */

/* Kept with the session as JSON. For a session that was not opened through this face: its
 * defaults, and `exists` is false. */
struct e2b_notes {
    json_t *document; /* owned; may be NULL */
    bool exists;
    bool is_secure;            /* envd wants its token */
    bool is_public;            /* other ports want no token */
    bool auto_resume;          /* traffic wakes a paused sandbox */
    bool auto_pause;           /* it is paused, not killed, when its time is over */
    const char *mask_host;     /* borrowed: what servers inside see as their host; NULL: unset */
    const char *template_name; /* borrowed from the document: as the caller wrote it */
};

void e2b_notes_read(struct e2b_notes *notes, const struct session *session);
void e2b_notes_fini(struct e2b_notes *notes);

static inline void scoped_e2b_notes_fini(struct e2b_notes *notes)
{
    e2b_notes_fini(notes);
}

/* --- face.c ----------------------------------------------------------------------------------- */

enum face_claim e2b_claim_envd(void *context, const struct http_head *head);
/* For session_of of the faces of one sandbox. */
bool e2b_session_of(void *context, const struct http_head *head, char out_id[ID_SIZE]);

enum face_claim e2b_claim_port(void *context, const struct http_head *head);

/* --- identify.c ------------------------------------------------------------------------------- */

/* For `identify` of the faces of sandboxes. A caller who is let in acts for the owner of the
 * sandbox, and request->session_id is its session, which is live and not paused without
 * auto-resume. The session can be found with e2b_session(). */
void e2b_identify_envd(struct request *request, request_fn *then);
void e2b_identify_code(struct request *request, request_fn *then);
void e2b_identify_port(struct request *request, request_fn *then);

/* The live session of such a request; NULL when it has ended meanwhile. */
struct session *e2b_session(const struct request *request);

/* Answers 502 "The sandbox was not found": the clients take that for a sandbox that is gone. */
void e2b_fail_gone(struct request *request, const char *shown_id);

/* --- errors.c --------------------------------------------------------------------------------- */

/* {"code":STATUS,"message":TEXT} */
void e2b_fail(struct request *request, const struct error *err);
void e2b_fail_status(struct request *request, int status, const char *message);

/* Empty, with a length: clients read a JSON document from everything else. */
void e2b_reply_empty(struct request *request, int status);

/* The same when everything that was written to the store until now is recorded. */
void e2b_reply_empty_recorded(struct request *request, int status);

/* --- find.c ----------------------------------------------------------------------------------- */

/* Calls `then` with request->session set to the sandbox {id} of the path, which is live; answers
 * 404 otherwise. */
void e2b_find(struct request *request, request_fn *then);

/* Whether the sandbox of E2B behind this session is gone although the session lives: it crashed or was
 * evicted, and one that took its place would have none of its files. */
bool e2b_is_lost(const struct session *session);

/* Whether the sandbox of E2B behind this session is gone although the session lives: it crashed or
 * was evicted, and another one in its place would have none of its files. */
bool e2b_is_lost(const struct session *session);

/* --- view.c: sandboxes as the clients see them ------------------------------------------------- */

/* The document of create and connect: ids and tokens. The vault is open. */
void e2b_reply_sandbox(struct request *request, int status, const struct session *session);

/* The same when everything that was written to the store until now is recorded. */
void e2b_reply_sandbox_recorded(struct request *request, int status, const struct session *session);

/* An entry of a list; with `in_detail` all of it. */
void e2b_write_listed(struct request *request, const struct session *session, bool in_detail,
                      struct json_writer *json);
bool e2b_is_paused(const struct session *session);

/* Behind the end of everything: when it is killed or paused. */
int64_t e2b_end_wall_us(const struct session *session);

/* --- templates.c ------------------------------------------------------------------------------ */

/* The name that the clients are told for the template of a session. */
const char *e2b_template_of(const struct session *session, const struct e2b_notes *notes);

/* Finds the template that a caller names; NULL in *out_name is the default one. -1: not found. */
int e2b_template_find(struct request *request, const char *wanted, const char **out_name,
                      struct error *err);

/* --- lifecycle.c ------------------------------------------------------------------------------ */

/* Whole seconds above 0, from the body; `fallback_s` without the field. */
int e2b_read_timeout(const struct request *request, const char *field, int64_t fallback_s,
                     int64_t *out_ms, struct error *err);

/* --- tables ----------------------------------------------------------------------------------- */

extern const struct route_answer e2b_any_answers[];
extern const struct route e2b_create_routes[];
extern const struct route e2b_lifecycle_routes[];
extern const struct route e2b_list_routes[];
extern const struct route e2b_metric_routes[];
extern const struct route e2b_log_routes[];
extern const struct route e2b_template_routes[];
extern const struct route e2b_absent_routes[];
extern const struct route e2b_code_routes[];
