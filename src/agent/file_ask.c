/* SPDX-License-Identifier: Apache-2.0 */
/* A request for content that is repeated while init has no stream left. */

#include "agent/files_private.h"

#include <errno.h>

enum {
    ATTEMPTS = 40, /* about nine seconds in all */
    PAUSE_US = 10 * 1000,
    LONGEST_PAUSE_US = 250 * 1000,
};

static bool goes_through_stream(const struct file_ask *ask)
{
    return ask->file.kind == FILE_READ || ask->file.kind == FILE_WRITE;
}

static void on_answer(struct agent_request *request);

static void on_again(struct timer *timer)
{
    struct file_ask *ask = container_of(timer, struct file_ask, again);

    if (!ask->request.is_open) /* the agent was freed by its owner, who informs the caller */
        return;
    agent_cancel(&ask->request);
    agent_file(ask->agent, &ask->file, &ask->request, on_answer);
}

static void on_lost(struct agent_request *request)
{
    struct file_ask *ask = container_of(request, struct file_ask, request);

    timer_stop(&ask->again);
    ask->done(request);
}

/* Attending to the agent says that it is still there when the time has come. */
static void wait(struct file_ask *ask)
{
    int64_t pause_us = (int64_t)PAUSE_US << MIN(ask->attempts, 5U);

    ask->attempts++;
    agent_attend(ask->agent, &ask->request, on_lost);
    timer_init(&ask->again, agent_loop(ask->agent), on_again);
    timer_arm_in(&ask->again, MIN(pause_us, (int64_t)LONGEST_PAUSE_US));
}

static void on_answer(struct agent_request *request)
{
    struct file_ask *ask = container_of(request, struct file_ask, request);

    if (request->sys_errno == EAGAIN && goes_through_stream(ask) && ask->attempts < ATTEMPTS)
        wait(ask);
    else
        ask->done(request);
}

void file_ask_start(struct file_ask *ask, struct agent *agent, const struct agent_file *file,
                    agent_done_fn *done)
{
    *ask = (struct file_ask){ .agent = agent, .file = *file, .done = done };
    agent_file(agent, file, &ask->request, on_answer);
}

void file_ask_cancel(struct file_ask *ask)
{
    if (!ask->agent)
        return;
    timer_stop(&ask->again);
    agent_cancel_write(&ask->request, ask->file.path);
}
