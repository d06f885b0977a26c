/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/fake_agent.h"

#include "base/alloc.h"
#include "base/scoped.h"

#include <string.h>

struct agent {
    struct loop *loop;                   /* borrowed */
    const struct agent_handler *handler; /* borrowed */
    void *user;                          /* borrowed */
    int fd;                              /* owned */
    struct agent_request *open;          /* borrowed; a list */
    struct deferred answer, retire;
    bool silent;
    bool lost;
};

static bool silent_from_now;
static bool is_foreign;
static size_t alive;

static void finish_all(struct agent *agent, const struct error *err)
{
    struct agent_request *request;

    while ((request = agent->open)) {
        agent->open = request->next;
        request->agent = NULL;
        request->err = err ? *err : (struct error){ 0 };
        request->done(request);
    }
}

static void on_answer(struct deferred *deferred)
{
    struct agent *agent = container_of(deferred, struct agent, answer);
    struct error err = { 0 };

    if (is_foreign) {
        agent->lost = true;
        error_named(&err, ERR_BACKEND, AGENT_OTHER_VERSION, "it speaks another version");
    } else if (agent->lost) {
        error_set(&err, ERR_BACKEND, "the connection is lost");
    }
    finish_all(agent, agent->lost ? &err : NULL);
}

static void submit(struct agent *agent, struct agent_request *request, agent_done_fn *done)
{
    *request = (struct agent_request){ .done = done, .agent = agent, .next = agent->open };
    agent->open = request;
    if (!agent->silent)
        loop_defer(agent->loop, &agent->answer, on_answer);
}

struct agent *agent_new(struct loop *loop, int fd, const struct agent_handler *handler, void *user)
{
    struct agent *agent = xnew(struct agent);

    *agent = (struct agent){
        .loop = loop, .handler = handler, .user = user, .fd = fd, .silent = silent_from_now
    };
    alive++;
    return agent;
}

void agent_free(struct agent *agent)
{
    if (!agent)
        return;
    alive--;
    for (struct agent_request *request = agent->open; request; request = request->next)
        request->agent = NULL;
    loop_undefer(agent->loop, &agent->answer);
    fd_close(agent->fd);
    free(agent);
}

static void on_retired(struct deferred *deferred)
{
    struct agent *agent = container_of(deferred, struct agent, retire);
    struct error err = { 0 };

    error_set(&err, ERR_BACKEND, "the connection was given up");
    finish_all(agent, &err);
    agent_free(agent);
}

void agent_retire(struct agent *agent)
{
    if (!agent)
        return;
    agent->lost = true;
    loop_defer(agent->loop, &agent->retire, on_retired);
}

int agent_release(struct agent *agent)
{
    int fd = steal_fd(&agent->fd);

    agent_free(agent);
    return fd;
}

struct loop *agent_loop(const struct agent *agent)
{
    return agent->loop;
}

void *agent_user(const struct agent *agent)
{
    return agent->user;
}

int64_t agent_heard_us(const struct agent *agent UNUSED)
{
    return 0;
}

bool agent_is_lost(const struct agent *agent)
{
    return agent->lost;
}

bool agent_has_hung_up(const struct agent *agent)
{
    return agent->lost;
}

bool agent_is_untaken(const struct agent_request *request UNUSED)
{
    return false;
}

bool agent_has_streams(const struct agent *agent UNUSED)
{
    return false;
}

void agent_assume_scratch(struct agent *agent UNUSED, char *path)
{
    free(path);
}

const struct protocol_hello *agent_hello(const struct agent *agent)
{
    static const struct protocol_hello hello = { .scratch = "/tmp/.sandglass" };

    (void)agent;
    return &hello;
}

void agent_start(struct agent *agent, const struct agent_start *start,
                 struct agent_request *request, agent_done_fn *done)
{
    (void)start;
    submit(agent, request, done);
    request->result.started.pipes = (struct agent_pipes){ .input = -1, .output = -1, .errors = -1 };
}

void agent_signal(struct agent *agent, uint64_t number, int signal_number,
                  enum protocol_scope scope, struct agent_request *request, agent_done_fn *done)
{
    (void)number;
    (void)signal_number;
    (void)scope;
    submit(agent, request, done);
}

void agent_resize(struct agent *agent, uint64_t number, unsigned columns, unsigned rows,
                  struct agent_request *request, agent_done_fn *done)
{
    (void)number;
    (void)columns;
    (void)rows;
    if (request)
        submit(agent, request, done);
}

void agent_close_stdin(struct agent *agent, uint64_t number, struct agent_request *request UNUSED,
                       agent_done_fn *done UNUSED)
{
    (void)agent;
    (void)number;
}

void agent_forget(struct agent *agent, uint64_t number)
{
    (void)agent;
    (void)number;
}

void agent_list(struct agent *agent, struct agent_request *request, agent_done_fn *done)
{
    submit(agent, request, done);
}

void agent_file(struct agent *agent, const struct agent_file *file, struct agent_request *request,
                agent_done_fn *done)
{
    (void)file;
    submit(agent, request, done);
    request->result.file.fd = -1;
}

void agent_ports(struct agent *agent, struct agent_request *request, agent_done_fn *done)
{
    submit(agent, request, done);
    request->result.file.fd = -1;
}

void agent_connect(struct agent *agent, const char *user UNUSED, unsigned port UNUSED,
                   const char *path UNUSED, struct agent_request *request, agent_done_fn *done)
{
    submit(agent, request, done);
    request->result.file.fd = -1;
}

void agent_attend(struct agent *agent, struct agent_request *request, agent_done_fn *done)
{
    submit(agent, request, done);
}

void agent_cancel_write(struct agent_request *request, const char *path)
{
    (void)path;
    agent_cancel(request);
}

void agent_cancel(struct agent_request *request)
{
    struct agent_request **link;

    if (!request->agent)
        return;
    for (link = &request->agent->open; *link != request; link = &(*link)->next)
        ;
    *link = request->next;
    request->agent = NULL;
}

void fake_agent_lose(struct agent *agent)
{
    struct error err = { 0 };

    error_set(&err, ERR_BACKEND, "the connection is lost");
    agent->lost = true;
    finish_all(agent, &err);
    agent->handler->on_lost(agent, &err);
}

void fake_agent_be_foreign(bool foreign)
{
    is_foreign = foreign;
}

void fake_agent_be_silent(bool silent)
{
    silent_from_now = silent;
}

size_t fake_agent_count(void)
{
    return alive;
}
