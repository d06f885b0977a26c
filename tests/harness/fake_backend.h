/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A backend whose sandboxes are entries of a list. What it answers, and when, is the test's
 * choice. It outlives the core, as real sandboxes outlive the daemon.
 */

#include "backend/backend.h"

enum fake_op_kind {
    FAKE_CREATE,
    FAKE_ADOPT,
    FAKE_UPDATE,
    FAKE_FREEZE,
    FAKE_INSPECT,
    FAKE_DESTROY,
    FAKE_LIST,
    FAKE_CONNECT, /* unless it is answered at once, as the next */
    FAKE_REPORT,
    FAKE_FIND_SOURCE,
    FAKE_OPS
};

struct backend *fake_backend_new(struct loop *loop);

/* "fake" until then; the text is borrowed. */
void fake_backend_set_name(struct backend *backend, const char *name);

/* The next `count` operations of this kind fail; without effect. */
void fake_backend_refuse(struct backend *backend, enum fake_op_kind kind, unsigned count,
                         enum error_code code);

/* The same, and the failures say that they may pass. */
void fake_backend_refuse_for_now(struct backend *backend, enum fake_op_kind kind, unsigned count);

/* The next sandbox comes up with this memory, as the backend tells. */
void fake_backend_give_memory(struct backend *backend, uint64_t memory_bytes);

/* How many creations ran at the same time, at most. */
unsigned fake_backend_most_creating(const struct backend *backend);

/* Operations of this kind are not answered while held; letting go answers them. */
void fake_backend_hold(struct backend *backend, enum fake_op_kind kind, bool held);

/* Connections are refused. */
void fake_backend_refuse_connect(struct backend *backend, bool refused);

/* Connects and reports are answered from the loop, as by a backend whose sandboxes are elsewhere. */
void fake_backend_answer_later(struct backend *backend);
void fake_backend_set_capabilities(struct backend *backend, struct backend_capabilities caps);

/* Sources are asked for before a session is made: each is found, unless that is refused. */
void fake_backend_ask_for_sources(struct backend *backend);

/* Its init dies, and the backend does not know how. */
void fake_backend_kill(struct backend *backend, const char *id);

/* Its init dies, and the backend does not tell that before fake_backend_end(). */
void fake_backend_begin_end(struct backend *backend, const char *id);

/* It ends like this. */
void fake_backend_end(struct backend *backend, const char *id, struct backend_end end);

/* Others freeze it, or thaw it. */
void fake_backend_move(struct backend *backend, const char *id, enum backend_motion motion);

/* It does not know who has frozen what is frozen, as a backend after a restart of the daemon. */
void fake_backend_forget_freezers(struct backend *backend);

/* It learns of the end of a sandbox only when it is asked for it. */
void fake_backend_see_no_ends(struct backend *backend);

/* Its sandboxes have no descriptors, so that there can be more of them than a process may have
 * open; none of them dies by itself. Only with an agent that does not use its connection. */
void fake_backend_make_crowd(struct backend *backend);
void fake_backend_set_cpu(struct backend *backend, const char *id, uint64_t cpu_us);
void fake_backend_set_oom_kills(struct backend *backend, const char *id, uint32_t kills);

/* The daemon is gone: nothing is answered any more. With `effect` what it had asked for happens all
 * the same. */
void fake_backend_drop(struct backend *backend, bool effect);

/* A sandbox that nobody recorded. */
void fake_backend_add(struct backend *backend, const char *id);

size_t fake_backend_count(const struct backend *backend); /* that exist, dead ones too */
size_t fake_backend_alive(const struct backend *backend);
bool fake_backend_has(const struct backend *backend, const char *id);
bool fake_backend_is_frozen(const struct backend *backend, const char *id);
uint64_t fake_backend_memory(const struct backend *backend, const char *id);
unsigned fake_backend_calls(const struct backend *backend, enum fake_op_kind kind);
void fake_backend_each(const struct backend *backend, void (*visit)(const char *id, void *data),
                       void *data);
