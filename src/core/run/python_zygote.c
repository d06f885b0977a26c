/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/python_zygote.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/execution.h"
#include "core/run/execution_prepare.h"
#include "core/run/language.h"
#include "core/sandbox/sandbox.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REFILL_DELAY_US = 20 * 1000 }; /* many sessions end with their first code */

struct python_zygote {
    struct sandbox *sandbox; /* borrowed */
    struct agent_request start;
    struct program program; /* as it was started */
    struct timer refill;
    uint64_t number; /* 0: there is no process */
    bool is_starting;
    bool is_unavailable; /* it could not be started here: not tried again */
};

static void clear(struct python_zygote *zygote)
{
    program_fini(&zygote->program);
    zygote->number = 0;
}

void python_zygote_free(struct python_zygote *zygote)
{
    if (!zygote)
        return;
    if (zygote->is_starting)
        agent_cancel(&zygote->start);
    timer_stop(&zygote->refill);
    clear(zygote);
    free(zygote);
}

/* --- starting --------------------------------------------------------------------------------- */

static void give_up(struct python_zygote *zygote, const struct error *err)
{
    log_debug("no Python zygote, continuing without it", kv("sandbox", sandbox_id(zygote->sandbox)),
              kv("error", err->message));
    zygote->is_unavailable = true;
    clear(zygote);
}

static void on_started(struct agent_request *request)
{
    struct python_zygote *zygote = container_of(request, struct python_zygote, start);

    zygote->is_starting = false;
    if (request->err.code) {
        give_up(zygote, &request->err);
        return;
    }
    fd_close(request->result.started.pipes.output); /* it has nothing to say */
    fd_close(request->result.started.pipes.errors);
}

static uint64_t next_number(const struct sandbox *sandbox)
{
    if (sandbox_session(sandbox))
        return session_new_execution_number(sandbox_session(sandbox));
    return (uint64_t)clock_wall_us(loop_clock(sandbox_core(sandbox)->loop));
}

static void start(struct python_zygote *zygote)
{
    struct sandbox *sandbox = zygote->sandbox;
    char name[ID_SIZE];
    struct error err = { 0 };
    struct agent_start start = { .is_zygote = true };

    id_make(name, ID_EXECUTION);
    program_prepare_zygote(&zygote->program, sandbox_core(sandbox)->parts.config,
                           sandbox_backend(sandbox), name);
    if (program_place_script(&zygote->program, sandbox_agent(sandbox), &err) < 0) {
        give_up(zygote, &err);
        return;
    }
    start.number = zygote->number = next_number(sandbox);
    start.argv = (const char *const *)zygote->program.argv;
    start.env = (const char *const *)zygote->program.env;
    start.user = zygote->program.user;
    start.cwd = zygote->program.cwd;
    start.script_path = zygote->program.argv[1];
    start.script = zygote->program.script;
    start.script_length = zygote->program.script_length;
    zygote->is_starting = true;
    agent_start(sandbox_agent(sandbox), &start, &zygote->start, on_started);
    program_drop_script(&zygote->program);
}

static void on_refill(struct timer *timer)
{
    struct python_zygote *zygote = container_of(timer, struct python_zygote, refill);

    if (sandbox_is_usable(zygote->sandbox))
        python_zygote_prepare(zygote->sandbox);
}

static struct python_zygote *zygote_of(struct sandbox *sandbox)
{
    struct python_zygote *zygote = sandbox_python_zygote(sandbox);

    if (zygote)
        return zygote;
    zygote = xnew(struct python_zygote);
    sandbox_set_python_zygote(sandbox, zygote);
    zygote->sandbox = sandbox;
    timer_init(&zygote->refill, sandbox_core(sandbox)->loop, on_refill);
    return zygote;
}

/* An init that an earlier version left may not know how. */
static bool can_fork(const struct sandbox *sandbox)
{
    const struct protocol_hello *hello = agent_hello(sandbox_agent(sandbox));

    return hello && hello->features & FEATURE_ZYGOTE;
}

void python_zygote_prepare(struct sandbox *sandbox)
{
    struct python_zygote *zygote;

    if (!sandbox_core(sandbox)->parts.config->python.warm || !sandbox_agent(sandbox) ||
        sandbox_core(sandbox)->stopping)
        return;
    zygote = zygote_of(sandbox);
    if (!zygote->number && !zygote->is_unavailable && can_fork(sandbox))
        start(zygote);
}

void python_zygote_prepare_soon(struct sandbox *sandbox)
{
    if (sandbox_core(sandbox)->parts.config->python.warm)
        timer_arm_in(&zygote_of(sandbox)->refill, REFILL_DELAY_US);
}

/* --- using ------------------------------------------------------------------------------------ */

/* The variables that the interpreter, the loader or the C library read when a process starts. */
static bool matters_at_start(const char *variable)
{
    static const char *const names[] = { "PATH=",  "HOME=", "TZ=", "LANG=",   "LANGUAGE=",
                                         "PYTHON", "LC_",   "LD_", "MALLOC_", "GLIBC_" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

static bool has_variable(char **env, const char *variable)
{
    for (; env && *env; env++) {
        if (strcmp(*env, variable) == 0)
            return true;
    }
    return false;
}

/* Every variable of the one that matters is in the other. */
static bool is_covered(char **env, char **other)
{
    for (; env && *env; env++) {
        if (matters_at_start(*env) && !has_variable(other, *env))
            return false;
    }
    return true;
}

bool python_zygote_fits(const struct python_zygote *zygote, const struct program *program)
{
    return zygote && zygote->number && !zygote->is_starting &&
           program->language == language_python() && !*program->cwd && !*program->user &&
           is_covered(program->env, zygote->program.env) &&
           is_covered(zygote->program.env, program->env);
}

bool python_zygote_has(const struct python_zygote *zygote, uint64_t number)
{
    return zygote && zygote->number == number;
}

bool python_zygote_on_exited(struct python_zygote *zygote, uint64_t number)
{
    if (!python_zygote_has(zygote, number))
        return false;
    agent_forget(sandbox_agent(zygote->sandbox), number);
    clear(zygote);
    return true;
}
