/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One incarnation of a session, or a member of the pool.
 *
 *     none → creating → ready → freezing → frozen → thawing → ready, or ready ⇄ frozen by others
 *               │         ⇅          │        │        │
 *               │      unknown ──────┴────────┴────────┴──→ crashed     (the cause is looked for)
 *               └─────────┴───────────────────────────────────┴──→ destroying → none
 *
 * Unknown: it exists, but its init has not answered yet, after a restart of the daemon or a lost
 * connection. Its session alone is concerned: a hold waits for it, for a bounded time. A sandbox
 * that stays silent for `sandbox.silence_timeout` is taken for dead.
 *
 * Frozen by others: not by this daemon but by an operator of the backend's means (docker
 * pause). It is silent by right, for as long as they like; a pause of its session takes it over.
 *
 * Its record is written before it is made and forgotten only after it is confirmed gone. There is
 * one way in, sandbox_start() or sandbox_claim(), and one way out, sandbox_destroy(), for every
 * reason. Destroying is retried with back-off for ever; attempts and the last error are visible.
 */

#include "agent/agent.h"
#include "backend/backends.h"
#include "core/core.h"
#include "core/end_reason.h"
#include "core/sandbox/report.h"
#include "store/store.h"

enum sandbox_state {
    SANDBOX_NONE,
    SANDBOX_CREATING,
    SANDBOX_READY,
    SANDBOX_UNKNOWN,
    SANDBOX_FREEZING,
    SANDBOX_FROZEN,
    SANDBOX_THAWING,
    SANDBOX_FROZEN_BY_OTHERS,
    SANDBOX_CRASHED,
    SANDBOX_DESTROYING,
    SANDBOX_STATES
};

const char *sandbox_state_name(enum sandbox_state state);
/* Of a record. SANDBOX_NONE for an unknown name. */
enum sandbox_state sandbox_state_parse(const char *name);
bool sandbox_may_become(enum sandbox_state from, enum sandbox_state to);

struct sandbox;
struct session;
struct python_zygote;

/* --- what is known of it: all of it may be asked at any time ---------------------------------- */

const char *sandbox_id(const struct sandbox *sandbox); /* ID_SIZE bytes */
struct core *sandbox_core(const struct sandbox *sandbox);
struct session *sandbox_session(const struct sandbox *sandbox); /* NULL for a pool member */
enum sandbox_state sandbox_state(const struct sandbox *sandbox);
struct backend *sandbox_backend(const struct sandbox *sandbox); /* the one that has made it */
uint64_t sandbox_generation(const struct sandbox *sandbox);
const char *sandbox_flavor(const struct sandbox *sandbox); /* of its session, when it was made */
uint32_t sandbox_gpus(const struct sandbox *sandbox);

/* Members that say where it runs; for NULL those of none. */
void sandbox_put_location(const struct core *core, const struct sandbox *sandbox,
                          struct json_writer *json);

/* The connection to its init; NULL while there is none. */
struct agent *sandbox_agent(const struct sandbox *sandbox);

/* Why it is destroyed; END_NONE until then. */
const struct end_reason *sandbox_end(const struct sandbox *sandbox);

/* How often destroying it has failed. */
uint32_t sandbox_attempts(const struct sandbox *sandbox);

/* Of creating, connecting or destroying; NULL when the last attempt succeeded. */
const struct error *sandbox_last_error(const struct sandbox *sandbox);

/* Why this daemon cannot speak to it, however often it tries: its backend is not here, or its init
 * speaks other versions of the protocol. It may live, and can be destroyed. NULL otherwise. */
const struct error *sandbox_out_of_reach(const struct sandbox *sandbox);

/* As it was last measured, see usage.h, and when (wall time; 0: never). */
const struct sandbox_usage *sandbox_usage(const struct sandbox *sandbox);
int64_t sandbox_measured_us(const struct sandbox *sandbox);

/* Since it became ready. */
int64_t sandbox_age_us(const struct sandbox *sandbox);

/* Since when its init has not answered, by the loop's clock; 0 while it is not waited for. */
int64_t sandbox_unknown_since_us(const struct sandbox *sandbox);

/* Its files are being packed or restored: see workspace_archive.h. */
bool sandbox_moves_files(const struct sandbox *sandbox);

/* It has the files of the incarnation before it. */
bool sandbox_has_restored_files(const struct sandbox *sandbox);
void sandbox_note_restored_files(struct sandbox *sandbox);

/* A start in advance: it goes on when all holds that wait for it have been given up. */
bool sandbox_is_preloaded(const struct sandbox *sandbox);

bool sandbox_waits_for_slot(const struct sandbox *sandbox);
bool sandbox_holds_slot(const struct sandbox *sandbox);
const char *sandbox_slot_owner(const struct sandbox *sandbox); /* NULL for the pool */
bool sandbox_is_evictable(const struct sandbox *sandbox);
bool sandbox_waits_to_build(const struct sandbox *sandbox);
bool sandbox_is_building(const struct sandbox *sandbox);

/* The backend has not answered yet. */
bool sandbox_asks_backend(const struct sandbox *sandbox);

/* The backend, the store or a step of its workflow has not answered yet. */
bool sandbox_is_busy(const struct sandbox *sandbox);

/* Neither the backend nor init is asked, and the memory for asking them is freed. */
bool sandbox_is_at_rest(const struct sandbox *sandbox);

/* The Python that waits in it, see python_zygote.h; the sandbox owns it. */
struct python_zygote *sandbox_python_zygote(const struct sandbox *sandbox);
void sandbox_set_python_zygote(struct sandbox *sandbox, struct python_zygote *zygote);

/* The next sandbox in order of creation; the first one for NULL. */
struct sandbox *sandbox_next(const struct core *core, const struct sandbox *sandbox);

/* Made, and neither dead nor going: any state from ready to frozen by others. */
bool sandbox_is_up(const struct sandbox *sandbox);

/* It is up, or will be. */
bool sandbox_is_coming_or_up(const struct sandbox *sandbox);

/* It has failed, for this cause: reported as a crash, and destroyed. */
void sandbox_crash(struct sandbox *sandbox, const char *cause);

/* Looks whether its init is dead before the loop says so. Then it is crashed when this returns. */
bool sandbox_notice_death(struct sandbox *sandbox);

/* For whom a sandbox is made and what it has to be. Texts are borrowed for the call. */
struct sandbox_order {
    struct session *session; /* the observer's; NULL for the pool, as the next two */
    const char *session_id;
    const char *owner;
    const char *flavor;
    struct sandbox_source source;
    struct backend *backend; /* borrowed for as long as the sandbox exists */
    struct sandbox_limits limits;
    struct network_policy network;
    uint32_t gpus;
    const char *mounts_json; /* see core/mounts.h; NULL: none */
    uint64_t generation;
    bool preloaded; /* see sandbox_is_preloaded() */
};

/* Starts a new one. It exists when this returns; on_ready or on_failed of the observer, or of the
 * pool, comes later. */
struct sandbox *sandbox_start(struct core *core, const struct sandbox_order *order);

/* A ready pool member becomes that of the session that ordered it; creating until that is durable.
 */
void sandbox_claim(struct sandbox *sandbox, const struct sandbox_order *order);

/* Destroys it for this reason; the first reason stays. Holds end now, by on_leaving of the observer;
 * on_gone comes when it is confirmed gone. */
void sandbox_destroy(struct sandbox *sandbox, enum end_kind kind, const char *detail);

/* Makes frozen what its session wants: paused or open. */
void sandbox_converge(struct sandbox *sandbox);

/* Whether holds may be granted now. */
bool sandbox_is_usable(const struct sandbox *sandbox);

/* Writes the current state to the store (no commit). */
void sandbox_save(struct sandbox *sandbox);

/* --- recovery ------------------------------------------------------------------------------ */

/* From a record; `order` is what its session would order, or NULL when that is not known. Nothing
 * is done with it yet. */
struct sandbox *sandbox_restore(struct core *core, const struct sandbox_order *order,
                                const struct sandbox_record *record);

/* A sandbox of this backend that exists without a record. */
struct sandbox *sandbox_restore_orphan(struct core *core, const struct backend *backend,
                                       const char *id);

/* A sandbox that is unknown: asks the backend whether it lives and whether it is frozen, and
 * connects to its init. Recovery does not wait for that. */
void sandbox_adopt(struct sandbox *sandbox);

/* Goes on with destroying one whose record says so. */
void sandbox_resume_destroy(struct sandbox *sandbox);

/* Writes its record again, if it has one: the store may have lost it. */
void sandbox_repair(struct sandbox *sandbox);

/* Closes the connection to its init now; at the end of the core, before requests are freed. */
void sandbox_drop_agent(struct sandbox *sandbox);

/* Drops it from memory without touching it. */
void sandbox_free(struct sandbox *sandbox);
