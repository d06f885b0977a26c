/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The upper border of core/sandbox: what a sandbox reports to the session that it belongs to and to
 * the programs that run in it, and the few things that it has to ask them. The assembly of the core
 * sets both tables; nothing in this directory includes a header of the rooms that implement them.
 *
 * A member of the pool has no session: its reports go to the pool, which is of this directory.
 */

#include "core/end_reason.h"
#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct agent;
struct agent_exit;
struct agent_pipes;
struct error;
struct sandbox;
struct session;
struct python_zygote;

/* The wish of a session for its sandbox. */
enum sandbox_wish { WISH_RUN, WISH_FREEZE, WISH_END };

/* Implemented by core/session; no member is NULL. */
struct sandbox_observer {
    /* --- its life, in order ------------------------------------------------------------------ */
    void (*on_made)(struct session *session, const char *sandbox_id); /* before that is recorded */
    void (*on_agent)(struct session *session); /* the connection to init is another, or gone */
    void (*on_ready)(struct session *session);
    void (*on_failed)(struct session *session, const struct error *err);
    void (*on_known)(struct session *session);                           /* after it was unknown */
    void (*on_frozen)(struct session *session, const struct error *err); /* or thawed, or not */
    void (*on_leaving)(struct session *session, const struct end_reason *reason);

    /* With each record that it goes, and once more when it is gone; `since` is always the same. */
    void (*on_left)(struct session *session, const char *sandbox_id, const struct stamp *since);
    void (*on_stuck)(struct session *session,
                     const struct error *err); /* not destroyed this time */

    /* Confirmed gone: the sandbox can be asked for the last time, and no report follows. */
    void (*on_gone)(struct session *session, const struct sandbox *sandbox);

    /* --- its files, see workspace_archive.h --------------------------------------------------- */
    void (*on_archived)(struct session *session, uint64_t bytes, uint64_t generation);

    /* --- for clients that follow the session -------------------------------------------------- */
    void (*on_event)(struct session *session, const char *type, const char *data_json);
    void (*on_changed)(struct session *session); /* its record is to be written again */

    /* --- questions ----------------------------------------------------------------------------- */
    enum sandbox_wish (*wish)(const struct session *session);
    bool (*keeps_files)(const struct session *session);
    bool (*has_archive)(const struct session *session);

    /* It died while it was started: whether the session asks for another one instead of failing. */
    bool (*forgives_death)(struct session *session);

    /* OOM kills in this sandbox that programs have been charged with already. */
    uint32_t (*known_oom_kills)(const struct session *session, const char *sandbox_id);

    /* Until a clock ends the session; -1 when none is running. */
    int64_t (*ends_in_ms)(const struct session *session);
};

/* Implemented by core/run; no member is NULL. */
struct sandbox_programs {
    void (*on_exited)(struct sandbox *sandbox, uint64_t number, const struct agent_exit *end);

    /* Init remembers this process; `end` is NULL while it runs. The pipes are the callee's. */
    void (*on_process)(struct sandbox *sandbox, uint64_t number, int pid,
                       const struct agent_pipes *pipes, const struct agent_exit *end);
    /* Bytes of a process's input that are inside, since its start. */
    void (*on_taken)(struct sandbox *sandbox, uint64_t number, uint64_t total);
    void (*on_listed)(
        struct session *session); /* all processes that init remembers were reported */
    void (*on_storage)(struct session *session, uint64_t number, int fd); /* fd is the callee's */

    /* Starts a Python that waits for code, see python_zygote.h; nothing where that is off. */
    void (*prepare_python)(struct sandbox *sandbox);
    void (*free_python)(struct python_zygote *zygote); /* NULL is fine */
};
