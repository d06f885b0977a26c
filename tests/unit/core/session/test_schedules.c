/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random schedules of everything that can happen to sessions, over a simulated clock: whatever the
 * order, the invariants at the end of this file's first half hold after every step.
 *
 * SANDGLASS_SCHEDULES says how many, SANDGLASS_SEED where to begin. A failure prints the seed of
 * its schedule: SANDGLASS_SCHEDULES=1 SANDGLASS_SEED=<seed> repeats it.
 */

#include "base/log.h"
#include "base/str.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/sandbox.h"
#include "core/session/clocks.h"
#include "core/session/session_private.h"
#include "harness/fake_agent.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SESSIONS = 6, USES = 12, STEPS = 40, GRACE_MS = 5000 };

#ifdef __SANITIZE_ADDRESS__
enum { SCHEDULES = 2000 };
#else
enum { SCHEDULES = 20000 };
#endif

/* What the test knows of a session, by what it was told. */
struct model {
    bool acknowledged; /* its creation was answered with success */
    bool ended;        /* its end was seen */
    bool deleting;
    char id[ID_SIZE];
    struct opened opened;
    bool opening;
    struct ended deleted;
    int64_t created_us, last_use_us, expires_us;
    int64_t idle_us, lifetime_us;
};

struct schedule {
    struct world world;
    uint64_t seed;
    uint64_t random;
    unsigned step;
    const char *action;
    bool store_held;
    bool store_failed; /* a transaction was made to fail in this schedule */
    bool has_pauses;
    struct model models[SESSIONS];
    struct tried uses[USES];
    struct model *used[USES]; /* NULL: free */
};

#define CHECK(schedule, condition)                                                              \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            print_message("seed %llu step %u (%s): %s\n", (unsigned long long)(schedule)->seed, \
                          (schedule)->step, (schedule)->action, #condition);                    \
            fail();                                                                             \
        }                                                                                       \
    } while (0)

static uint64_t draw(struct schedule *schedule, uint64_t below)
{
    uint64_t x = schedule->random;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    schedule->random = x;
    return (x >> 11) % below;
}

static bool chance(struct schedule *schedule, unsigned percent)
{
    return draw(schedule, 100) < percent;
}

/* --- invariants ---------------------------------------------------------------------------- */

static void check_caps(struct schedule *schedule)
{
    const struct config *config = &schedule->world.config;
    struct core *core = schedule->world.core;
    struct sandbox *sandbox;
    struct sandbox *other;
    size_t held = 0;

    CHECK(schedule,
          fake_backend_count(schedule->world.backend) <= (size_t)config->capacity.max_sandboxes);
    for (sandbox = sandbox_next(core, NULL); sandbox; sandbox = sandbox_next(core, sandbox)) {
        size_t of_owner = 0;

        held += sandbox_holds_slot(sandbox);
        for (other = sandbox_next(core, NULL); other; other = sandbox_next(core, other))
            of_owner += sandbox_holds_slot(other) && sandbox_slot_owner(sandbox) &&
                        str_equal(sandbox_slot_owner(other), sandbox_slot_owner(sandbox));
        CHECK(schedule, of_owner <= (size_t)config->capacity.max_per_owner);
    }
    CHECK(schedule, held == capacity_held(core->capacity));
    CHECK(schedule, held <= (size_t)config->capacity.max_sandboxes);
}

static void check_known(const char *id, void *data)
{
    struct schedule *schedule = data;

    CHECK(schedule, map_get(&schedule->world.core->sandboxes_by_id, id));
}

static void check_one_incarnation(struct schedule *schedule)
{
    struct core *core = schedule->world.core;
    struct sandbox *sandbox;

    for (sandbox = sandbox_next(core, NULL); sandbox; sandbox = sandbox_next(core, sandbox)) {
        if (sandbox_session(sandbox))
            CHECK(schedule, session_sandbox(sandbox_session(sandbox)) == sandbox);
    }
    fake_backend_each(schedule->world.backend, check_known, schedule);
}

/* The timer of each session is armed for exactly what will end it, and that is not in the past. */
static void check_clocks(struct schedule *schedule)
{
    struct session *session;

    session_for_each (session, schedule->world.core) {
        struct clock_deadline next = clocks_next(session);

        if (next.kind == END_NONE) {
            CHECK(schedule, !timer_is_armed(&session->clocks.timer));
            continue;
        }
        CHECK(schedule, timer_is_armed(&session->clocks.timer));
        CHECK(schedule, session->clocks.timer.deadline_us == next.at_us);
        CHECK(schedule, next.at_us > schedule->world.clock.boot_us);
    }
}

static void check_uses(struct schedule *schedule)
{
    for (unsigned i = 0; i < USES; i++) {
        const struct tried *tried = &schedule->uses[i];

        if (!schedule->used[i])
            continue;
        CHECK(schedule, tried->ready <= 1 && tried->lost <= tried->ready);
        if (tried->hold.granted)
            CHECK(schedule, tried->hold.sandbox == session_sandbox(tried->hold.session));
    }
}

/* A clock that ended a session had really run out. */
static void check_not_early(struct schedule *schedule, const struct model *model,
                            const struct world_record *record)
{
    struct end_reason reason = end_reason_parse(record->end_reason);
    int64_t now_us = schedule->world.clock.boot_us;

    if (reason.kind == END_LEASE)
        CHECK(schedule, model->expires_us && model->expires_us <= now_us);
    if (reason.kind == END_IDLE)
        CHECK(schedule, model->last_use_us + model->idle_us <= now_us);
    if (reason.kind == END_LIFETIME)
        CHECK(schedule, model->created_us + model->lifetime_us <= now_us);
}

static void check_end(struct schedule *schedule, struct model *model)
{
    struct world_record record;
    unsigned events;

    model->ended = true;
    CHECK(schedule, world_record(&schedule->world, model->id, &record));
    CHECK(schedule, strcmp(record.state, "ended") == 0);
    CHECK(schedule, end_reason_parse(record.end_reason).kind != END_NONE);
    events = world_events(&schedule->world, model->id, "session.ended");
    CHECK(schedule, events == 1 || (schedule->store_failed && events == 0));
    check_not_early(schedule, model, &record);
}

/* Answers that came, and sessions that have gone since the last step. */
static void follow(struct schedule *schedule)
{
    for (unsigned i = 0; i < SESSIONS; i++) {
        struct model *model = &schedule->models[i];

        if (model->opening && model->opened.done) {
            model->opening = false;
            model->acknowledged = model->opened.op.err.code == ERR_NONE;
        }
        if (model->acknowledged && !model->ended && !world_find(&schedule->world, model->id))
            check_end(schedule, model);
    }
    for (unsigned i = 0; i < USES; i++) {
        struct tried *tried = &schedule->uses[i];

        if (!schedule->used[i])
            continue;
        if (!tried->ready || tried->hold.err.code == ERR_NONE)
            schedule->used[i]->last_use_us = schedule->world.clock.boot_us;
        if (tried->lost || (tried->ready && tried->hold.err.code != ERR_NONE))
            schedule->used[i] = NULL;
    }
}

static void check_all(struct schedule *schedule)
{
    world_settle(&schedule->world);
    follow(schedule);
    check_caps(schedule);
    check_one_incarnation(schedule);
    check_clocks(schedule);
    check_uses(schedule);
}

/* --- steps --------------------------------------------------------------------------------- */

static struct model *draw_live(struct schedule *schedule)
{
    struct model *model = &schedule->models[draw(schedule, SESSIONS)];

    return model->acknowledged && !model->ended ? model : NULL;
}

static struct session *session_of(struct schedule *schedule, const struct model *model)
{
    return model ? world_find(&schedule->world, model->id) : NULL;
}

static int64_t draw_timeout_ms(struct schedule *schedule)
{
    return chance(schedule, 30) ? 0 : 1 + (int64_t)draw(schedule, 60 * 1000);
}

static void step_open(struct schedule *schedule)
{
    static const char *const owners[] = { "", "ann", "bob" };
    struct model *model = &schedule->models[draw(schedule, SESSIONS)];
    struct session_request request = SESSION_REQUEST_INIT;

    if (model->opening || (model->acknowledged && !model->ended))
        return;
    request.owner = owners[draw(schedule, 3)];
    request.preload = chance(schedule, 50);
    request.timeout_ms = draw_timeout_ms(schedule);
    request.idle_timeout_ms = draw_timeout_ms(schedule);
    request.auto_restart = chance(schedule, 80);
    request.on_timeout = chance(schedule, 20) ? TIMEOUT_PAUSE : TIMEOUT_KILL;
    schedule->has_pauses |= request.on_timeout == TIMEOUT_PAUSE;
    *model = (struct model){ .opening = true };
    world_open(&schedule->world, &request, &model->opened);
    memcpy(model->id, model->opened.op.id, sizeof(model->id));
    model->created_us = model->last_use_us = schedule->world.clock.boot_us;
    model->expires_us = request.timeout_ms ? model->created_us + request.timeout_ms * 1000 : 0;
    model->idle_us = request.idle_timeout_ms * 1000;
    model->lifetime_us = schedule->world.config.session.max_lifetime_ms * 1000;
}

static void step_use(struct schedule *schedule)
{
    struct model *model = draw_live(schedule);
    struct session *session = session_of(schedule, model);
    unsigned i = (unsigned)draw(schedule, USES);

    if (!session || schedule->used[i])
        return;
    schedule->used[i] = model;
    world_use_pinned(&schedule->world, session,
                     chance(schedule, 20) ? session_generation(session) : 0, &schedule->uses[i]);
}

static void step_finish(struct schedule *schedule)
{
    unsigned i = (unsigned)draw(schedule, USES);

    if (!schedule->used[i])
        return;
    schedule->used[i]->last_use_us = schedule->world.clock.boot_us;
    schedule->used[i] = NULL;
    session_hold_end(&schedule->uses[i].hold);
}

static struct sandbox *draw_sandbox(struct schedule *schedule)
{
    struct core *core = schedule->world.core;
    size_t skip = draw(schedule, 4);
    struct sandbox *sandbox;

    for (sandbox = sandbox_next(core, NULL); sandbox; sandbox = sandbox_next(core, sandbox)) {
        if (skip-- == 0)
            return fake_backend_has(schedule->world.backend, sandbox_id(sandbox)) ? sandbox : NULL;
    }
    return NULL;
}

static void step_crash(struct schedule *schedule)
{
    const struct sandbox *sandbox = draw_sandbox(schedule);

    if (sandbox)
        fake_backend_kill(schedule->world.backend, sandbox_id(sandbox));
}

static void step_disconnect(struct schedule *schedule)
{
    const struct sandbox *sandbox = draw_sandbox(schedule);

    if (sandbox && sandbox_state(sandbox) == SANDBOX_READY)
        fake_agent_lose(sandbox_agent(sandbox));
}

static void step_extend(struct schedule *schedule)
{
    struct model *model = draw_live(schedule);
    struct session *session = session_of(schedule, model);
    int64_t timeout_ms = 1 + (int64_t)draw(schedule, 90 * 1000);

    if (!session || session_keepalive(session, timeout_ms, true, NULL) < 0)
        return;
    model->expires_us = schedule->world.clock.boot_us + timeout_ms * 1000;
}

static void step_patch(struct schedule *schedule)
{
    struct model *model = draw_live(schedule);
    struct session *session = session_of(schedule, model);
    struct session_patch patch = { .timeout_ms = -1,
                                   .idle_timeout_ms = draw_timeout_ms(schedule),
                                   .max_lifetime_ms = 60 * 1000 + draw_timeout_ms(schedule),
                                   .auto_restart = -1,
                                   .auto_resume = -1,
                                   .on_timeout = -1 };

    if (!session || session_patch(session, &patch, NULL) < 0)
        return;
    model->idle_us = patch.idle_timeout_ms * 1000;
    model->lifetime_us = patch.max_lifetime_ms * 1000;
}

static void step_delete(struct schedule *schedule)
{
    struct model *model = draw_live(schedule);
    struct session *session = session_of(schedule, model);

    if (!session || model->deleting)
        return;
    model->deleting = true;
    world_end(&schedule->world, session, END_DELETED, &model->deleted);
}

static void step_teardown(struct schedule *schedule)
{
    struct session *session = session_of(schedule, draw_live(schedule));

    if (session)
        session_teardown(session, END_TEARDOWN);
}

/* Resuming counts as use, and gives a lease that ran out anew. */
static void step_pause(struct schedule *schedule)
{
    struct model *model = draw_live(schedule);
    struct session *session = session_of(schedule, model);

    if (!session)
        return;
    schedule->has_pauses = true;
    if (chance(schedule, 50))
        session_pause(session, NULL, NULL);
    else
        session_resume(session, NULL, NULL);
}

static void step_wait(struct schedule *schedule)
{
    static const int64_t longest_ms[] = { 10, 1000, 20 * 1000 };
    int64_t ms = (int64_t)draw(schedule, (uint64_t)longest_ms[draw(schedule, 3)]);

    /* In small moves, so that what happens on the way is seen when it happens. */
    for (int i = 0; i < 2; i++) {
        world_advance(&schedule->world, ms / 2);
        check_all(schedule);
    }
}

static void step_backend(struct schedule *schedule)
{
    struct backend *backend = schedule->world.backend;
    enum fake_op_kind kind = (enum fake_op_kind)draw(schedule, FAKE_INSPECT);

    switch (draw(schedule, 4)) {
    case 0:
        fake_backend_hold(backend, chance(schedule, 50) ? kind : FAKE_DESTROY, true);
        break;
    case 1:
        fake_backend_refuse(backend, chance(schedule, 50) ? kind : FAKE_DESTROY,
                            1 + (unsigned)draw(schedule, 3), ERR_BACKEND);
        break;
    default:
        for (unsigned held = 0; held < FAKE_OPS; held++)
            fake_backend_hold(backend, held, false);
    }
}

static void step_store(struct schedule *schedule)
{
    if (chance(schedule, 10)) {
        schedule->store_failed = true;
        fake_store_fail_next(schedule->world.store, ERR_NO_SPACE);
        return;
    }
    schedule->store_held = chance(schedule, 30);
    fake_store_hold(schedule->world.store, schedule->store_held);
}

/* --- kill -9 ------------------------------------------------------------------------------- */

/* What was asked for and not acknowledged may be there or not. */
static void adopt_truth(struct schedule *schedule, struct model *model, bool was_held)
{
    const struct session *session = session_of(schedule, model);
    bool is_over;

    if (model->opening)
        *model = (struct model){ 0 };
    model->deleting = false;
    if (!model->acknowledged || model->ended)
        return;
    is_over = !session || session_state(session) == SESSION_ENDING;
    if (was_held && is_over) { /* by what was durable */
        model->last_use_us = model->created_us;
        model->expires_us = model->created_us;
        model->idle_us = model->lifetime_us = 0;
    }
    if (is_over)
        return;
    if (!was_held && session_state(session) == SESSION_OPEN)
        CHECK(schedule,
              session_expires(session).boot_us == model->expires_us || schedule->has_pauses);
    model->expires_us = session_expires(session).boot_us;
    model->last_use_us = session_last_activity(session).boot_us;
    model->idle_us = session_idle_timeout_ms(session) * 1000;
    model->lifetime_us = session_max_lifetime_ms(session) * 1000;
}

static void step_kill(struct schedule *schedule)
{
    struct world *world = &schedule->world;
    bool was_held = schedule->store_held || schedule->store_failed;

    memset(schedule->used, 0, sizeof(schedule->used));
    for (unsigned held = 0; held < FAKE_OPS; held++)
        fake_backend_hold(world->backend, held, false);
    world_kill(world, chance(schedule, 50));
    schedule->store_held = false;
    fake_backend_refuse(world->backend, FAKE_ADOPT, chance(schedule, 20), ERR_BACKEND);
    if (chance(schedule, 20))
        simulated_clock_advance(&world->clock, (int64_t)draw(schedule, 20 * 1000000));
    world_start(world);
    for (unsigned i = 0; i < SESSIONS; i++)
        adopt_truth(schedule, &schedule->models[i], was_held);
}

/* --- the schedule -------------------------------------------------------------------------- */

static const struct step {
    const char *name;
    void (*run)(struct schedule *schedule);
    unsigned weight;
} steps[] = {
    { "open", step_open, 12 },      { "use", step_use, 20 },
    { "finish", step_finish, 16 },  { "crash", step_crash, 6 },
    { "extend", step_extend, 6 },   { "patch", step_patch, 3 },
    { "delete", step_delete, 5 },   { "teardown", step_teardown, 3 },
    { "pause", step_pause, 5 },     { "wait", step_wait, 16 },
    { "backend", step_backend, 8 }, { "store", step_store, 6 },
    { "kill", step_kill, 4 },       { "disconnect", step_disconnect, 2 },
};

static void run_step(struct schedule *schedule)
{
    unsigned total = 0;
    unsigned drawn;
    size_t i = 0;

    for (size_t k = 0; k < ARRAY_LENGTH(steps); k++)
        total += steps[k].weight;
    drawn = (unsigned)draw(schedule, total);
    while (drawn >= steps[i].weight)
        drawn -= steps[i++].weight;
    schedule->action = steps[i].name;
    if (getenv("SANDGLASS_TRACE"))
        print_message("%u %s\n", schedule->step, schedule->action);
    steps[i].run(schedule);
    check_all(schedule);
}

static void begin(struct schedule *schedule, uint64_t seed)
{
    struct config *config;

    *schedule = (struct schedule){ .seed = seed, .action = "start" };
    schedule->random = seed * 0x9e3779b97f4a7c15U + 1;
    draw(schedule, 1);
    world_init(&schedule->world);
    config = &schedule->world.config;
    config->capacity.max_sandboxes = 4;
    config->capacity.max_per_owner = 2;
    config->capacity.overflow = (int)draw(schedule, 3);
    config->capacity.wait_timeout_ms = 10 * 1000;
    config->session.max_lifetime_ms = 120 * 1000;
    config->session.grace_ms = GRACE_MS;
    config->pool_size = (int64_t)draw(schedule, 3);
    world_start(&schedule->world);
}

/* Everything is let go, and nothing may be left when every clock has run out. */
static void finish(struct schedule *schedule)
{
    struct world *world = &schedule->world;

    schedule->action = "finish all";
    for (unsigned kind = 0; kind < FAKE_OPS; kind++) {
        fake_backend_hold(world->backend, kind, false);
        fake_backend_refuse(world->backend, kind, 0, ERR_NONE);
    }
    fake_store_hold(world->store, false);
    for (unsigned i = 0; i < USES; i++) {
        if (schedule->used[i])
            session_hold_end(&schedule->uses[i].hold);
        schedule->used[i] = NULL;
    }
    check_all(schedule);
    for (int i = 0; i < 10; i++) {
        world_advance(world, 30 * 1000);
        check_all(schedule);
    }
    CHECK(schedule, world->core->sessions_by_id.count == 0);
    CHECK(schedule, fake_backend_count(world->backend) == (size_t)world->config.pool_size);
    CHECK(schedule, pool_ready(world->core->pool) == (size_t)world->config.pool_size);
    CHECK(schedule, capacity_held(world->core->capacity) == (size_t)world->config.pool_size);
    CHECK(schedule, capacity_waiting(world->core->capacity) == 0);
    CHECK(schedule,
          fake_store_count(world->store, STORE_SANDBOXES) == (size_t)world->config.pool_size);
    for (unsigned i = 0; i < SESSIONS; i++)
        CHECK(schedule, !schedule->models[i].acknowledged || schedule->models[i].ended);
    world_fini(world);
    CHECK(schedule, fake_agent_count() == 0);
}

static uint64_t number_from(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : fallback;
}

static void every_schedule_keeps_every_promise(void **state)
{
    uint64_t count = number_from("SANDGLASS_SCHEDULES", SCHEDULES);
    uint64_t first = number_from("SANDGLASS_SEED", 1);
    struct schedule *schedule = calloc(1, sizeof(*schedule));

    (void)state;
    for (uint64_t seed = first; seed < first + count; seed++) {
        begin(schedule, seed);
        for (schedule->step = 1; schedule->step <= STEPS; schedule->step++)
            run_step(schedule);
        finish(schedule);
    }
    free(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_schedule_keeps_every_promise) };

    log_setup((enum log_level)(LOG_ERROR + 1), LOG_TEXT, 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
