#include "core/warm.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/execution_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    REQUEST_MAXIMUM = 48 * 1024, /* fits into the pipe, so it is written at once */
    REFILL_DELAY_US = 20 * 1000, /* many sessions end with their first code */
    HEAD_LENGTH = 16,
};

struct warm {
    struct sandbox *sandbox; /* borrowed */
    struct agent_request start;
    struct agent_pipes pipes;
    struct launch launch; /* as it was started */
    struct timer refill;
    uint64_t number; /* 0: there is no process */
    bool is_starting;
    bool is_ready;       /* the pipes are ours */
    bool is_unavailable; /* it could not be started here: not tried again */
};

static const struct agent_pipes no_pipes = { .input = -1, .output = -1, .errors = -1 };

static void clear(struct warm *warm)
{
    fd_close(warm->pipes.input);
    fd_close(warm->pipes.output);
    fd_close(warm->pipes.errors);
    warm->pipes = no_pipes;
    launch_fini(&warm->launch);
    warm->number = 0;
    warm->is_ready = false;
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

/* --- starting -------------------------------------------------------------------------------- */

static void on_started(struct agent_request *request)
{
    struct warm *warm = container_of(request, struct warm, start);

    warm->is_starting = false;
    if (request->err.code) {
        log_debug("no warm Python, continuing without it", kv("sandbox", warm->sandbox->id),
                  kv("error", request->err.message));
        warm->is_unavailable = true;
        clear(warm);
        return;
    }
    warm->pipes = request->result.started.pipes;
    warm->is_ready = true;
}

static uint64_t next_number(const struct sandbox *sandbox)
{
    if (sandbox->session)
        return execution_next_number(sandbox->session);
    return (uint64_t)clock_wall_us(loop_clock(sandbox->core->loop));
}

static void start(struct warm *warm)
{
    struct sandbox *sandbox = warm->sandbox;
    char name[ID_SIZE];
    struct error err = { 0 };
    struct agent_start start = { .wants_stdin = true };

    id_make(name, ID_EXECUTION);
    if (launch_prepare_warm(&warm->launch, sandbox->core->parts.config, name, &err) < 0)
        return;
    launch_place_script(&warm->launch, sandbox);
    start.number = warm->number = next_number(sandbox);
    start.argv = (const char *const *)warm->launch.argv;
    start.env = (const char *const *)warm->launch.env;
    start.user = warm->launch.user;
    start.cwd = warm->launch.cwd;
    start.script_path = warm->launch.argv[1];
    start.script_fd = warm->launch.script_fd;
    warm->is_starting = true;
    agent_start(sandbox->agent, &start, &warm->start, on_started);
}

static void on_refill(struct timer *timer)
{
    struct warm *warm = container_of(timer, struct warm, refill);

    if (warm->sandbox->connected && warm->sandbox->state == SANDBOX_READY)
        warm_prepare(warm->sandbox);
}

static struct warm *warm_of(struct sandbox *sandbox)
{
    struct warm *warm = sandbox->warm;

    if (warm)
        return warm;
    warm = sandbox->warm = xnew(struct warm);
    warm->sandbox = sandbox;
    warm->pipes = no_pipes;
    warm->launch.script_fd = -1;
    timer_init(&warm->refill, sandbox->core->loop, on_refill);
    return warm;
}

void warm_prepare(struct sandbox *sandbox)
{
    struct warm *warm;

    if (!sandbox->core->parts.config->python.warm || !sandbox->agent || sandbox->core->stopping)
        return;
    warm = warm_of(sandbox);
    if (!warm->number && !warm->is_unavailable)
        start(warm);
}

void warm_prepare_soon(struct sandbox *sandbox)
{
    if (sandbox->core->parts.config->python.warm)
        timer_arm_in(&warm_of(sandbox)->refill, REFILL_DELAY_US);
}

/* --- taking ---------------------------------------------------------------------------------- */

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

static bool fits(const struct warm *warm, const struct launch *launch)
{
    return launch->is_python && !*launch->cwd && !*launch->user &&
           is_covered(launch->env, warm->launch.env) && is_covered(warm->launch.env, launch->env);
}

/* -1 when it is too large. */
static int append_script(struct buffer *request, int fd)
{
    ssize_t count = 1;

    for (off_t at = 0; count > 0; at += count) {
        uint8_t bytes[8192];

        count = pread(fd, bytes, sizeof(bytes), at);
        if (count < 0 || (count > 0 && buffer_append(request, bytes, (size_t)count) < 0))
            return -1;
    }
    return 0;
}

static int make_request(struct buffer *request, const struct launch *launch, bool keeps_stdin)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(REQUEST_MAXIMUM);

    for (char **variable = launch->env; *variable; variable++)
        buffer_append(&body, *variable, strlen(*variable) + 1);
    buffer_append_byte(&body, 0);
    if (append_script(&body, launch->script_fd) < 0 || body.overflowed)
        return -1;
    buffer_appendf(request, "%012zu %d\n\n", body.length, keeps_stdin);
    return buffer_append(request, body.data, body.length);
}

bool warm_take(struct warm *warm, const struct launch *launch, bool keeps_stdin,
               struct buffer *input, uint64_t *out_number, struct agent_pipes *out_pipes)
{
    scoped(buffer_fini) struct buffer request =
        BUFFER_INIT(input->maximum + REQUEST_MAXIMUM + HEAD_LENGTH);

    if (!warm || !warm->is_ready || !fits(warm, launch) ||
        make_request(&request, launch, keeps_stdin) < 0)
        return false;
    buffer_append(&request, input->data, input->length);
    buffer_fini(input);
    *input = request;
    request = BUFFER_INIT(0);
    *out_number = warm->number;
    *out_pipes = warm->pipes;
    warm->pipes = no_pipes;
    clear(warm);
    return true;
}

bool warm_has(const struct warm *warm, uint64_t number)
{
    return warm && warm->number == number;
}

bool warm_on_exited(struct warm *warm, uint64_t number)
{
    if (!warm_has(warm, number))
        return false;
    agent_forget(warm->sandbox->agent, number);
    clear(warm);
    return true;
}
