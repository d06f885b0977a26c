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

struct warm {
    struct sandbox *sandbox; /* borrowed */
    struct agent_request start;
    struct program program; /* as it was started */
    struct timer refill;
    uint64_t number; /* 0: there is no process */
    bool is_starting;
    bool is_unavailable; /* it could not be started here: not tried again */
};

static void clear(struct warm *warm)
{
    program_fini(&warm->program);
    warm->number = 0;
}

void warm_free(struct warm *warm)
{
    if (!warm)
        return;
    if (warm->is_starting)
        agent_cancel(&warm->start);
    timer_stop(&warm->refill);
    clear(warm);
    free(warm);
}

/* --- starting --------------------------------------------------------------------------------- */

static void on_started(struct agent_request *request)
{
    struct warm *warm = container_of(request, struct warm, start);

    warm->is_starting = false;
    if (request->err.code) {
        log_debug("no warm Python, continuing without it", kv("sandbox", sandbox_id(warm->sandbox)),
                  kv("error", request->err.message));
        warm->is_unavailable = true;
        clear(warm);
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

static void start(struct warm *warm)
{
    struct sandbox *sandbox = warm->sandbox;
    char name[ID_SIZE];
    struct error err = { 0 };
    struct agent_start start = { .is_zygote = true };

    id_make(name, ID_EXECUTION);
    if (program_prepare_zygote(&warm->program, sandbox_core(sandbox)->parts.config, name, &err) < 0)
        return;
    program_place_script(&warm->program, sandbox);
    start.number = warm->number = next_number(sandbox);
    start.argv = (const char *const *)warm->program.argv;
    start.env = (const char *const *)warm->program.env;
    start.user = warm->program.user;
    start.cwd = warm->program.cwd;
    start.script_path = warm->program.argv[1];
    start.script_fd = warm->program.script_fd;
    warm->is_starting = true;
    agent_start(sandbox_agent(sandbox), &start, &warm->start, on_started);
}

static void on_refill(struct timer *timer)
{
    struct warm *warm = container_of(timer, struct warm, refill);

    if (sandbox_is_usable(warm->sandbox))
        warm_prepare(warm->sandbox);
}

static struct warm *warm_of(struct sandbox *sandbox)
{
    struct warm *warm = sandbox_warm(sandbox);

    if (warm)
        return warm;
    warm = xnew(struct warm);
    sandbox_set_warm(sandbox, warm);
    warm->sandbox = sandbox;
    warm->program = PROGRAM_INIT;
    timer_init(&warm->refill, sandbox_core(sandbox)->loop, on_refill);
    return warm;
}

/* An init that an earlier version left may not know how. */
static bool can_fork(const struct sandbox *sandbox)
{
    const struct protocol_hello *hello = agent_hello(sandbox_agent(sandbox));

    return hello && hello->features & FEATURE_ZYGOTE;
}

void warm_prepare(struct sandbox *sandbox)
{
    struct warm *warm;

    if (!sandbox_core(sandbox)->parts.config->python.warm || !sandbox_agent(sandbox) ||
        sandbox_core(sandbox)->stopping)
        return;
    warm = warm_of(sandbox);
    if (!warm->number && !warm->is_unavailable && can_fork(sandbox))
        start(warm);
}

void warm_prepare_soon(struct sandbox *sandbox)
{
    if (sandbox_core(sandbox)->parts.config->python.warm)
        timer_arm_in(&warm_of(sandbox)->refill, REFILL_DELAY_US);
}

/* --- using ------------------------------------------------------------------------------------ */

/* What the interpreter, the loader or the C library looks at when a process starts. */
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

/* All that matters in the one is in the other. */
static bool is_covered(char **env, char **other)
{
    for (; env && *env; env++) {
        if (matters_at_start(*env) && !has_variable(other, *env))
            return false;
    }
    return true;
}

bool warm_fits(const struct warm *warm, const struct program *program)
{
    return warm && warm->number && !warm->is_starting && program->language == language_python() &&
           !*program->cwd && !*program->user && is_covered(program->env, warm->program.env) &&
           is_covered(warm->program.env, program->env);
}

bool warm_has(const struct warm *warm, uint64_t number)
{
    return warm && warm->number == number;
}

bool warm_on_exited(struct warm *warm, uint64_t number)
{
    if (!warm_has(warm, number))
        return false;
    agent_forget(sandbox_agent(warm->sandbox), number);
    clear(warm);
    return true;
}
