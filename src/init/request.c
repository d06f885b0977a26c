/* SPDX-License-Identifier: Apache-2.0 */
#include "init/request.h"

#include "init/connection.h"
#include "init/files/file.h"
#include "init/init.h"
#include "init/start.h"
#include "init/sys.h"
#include "init/tree.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

static void answer(const struct protocol_header *header, int error, unsigned value)
{
    connection_answer_done(header->process, header->request, error, value);
}

static void signal_tree(struct process *process, const struct protocol_signal *signal)
{
    if (!process->supervisor) {
        answer(&signal->header, signal->number == SIGKILL ? 0 : ESRCH, 0);
    } else if (signal->number == SIGKILL) {
        if (process->killing && process->kill_request)
            answer(&signal->header, EALREADY, 0);
        else
            tree_begin_kill(process, signal->header.request);
    } else if (settings.proc_fd < 0) {
        answer(&signal->header, (int)-sys(kill, -process->main_pid, signal->number), 1);
    } else {
        answer(&signal->header, 0, tree_signal(process_root(process), signal->number));
    }
}

static int handle_signal(const void *message, size_t length)
{
    const struct protocol_signal *signal = protocol_signal_decode(message, length);
    struct process *process = signal ? process_find(signal->header.process) : NULL;

    if (!signal)
        return -1;
    if (!process || process->state == PROCESS_STARTING)
        answer(&signal->header, ESRCH, 0);
    else if (signal->scope == SCOPE_TREE)
        signal_tree(process, signal);
    else if (process->state != PROCESS_RUNNING)
        answer(&signal->header, ESRCH, 0);
    else
        answer(&signal->header, (int)-sys(kill, process->main_pid, signal->number), 1);
    return 0;
}

/* gVisor has no foreground process group of a terminal and sends no SIGWINCH. */
static int set_size(const struct process *process, const struct winsize *size)
{
    int error = (int)-sys(ioctl, process->output, TIOCSWINSZ, size);

    if (!error && tree_is_weak())
        (void)tree_signal(process_root(process), SIGWINCH);
    return error;
}

static int handle_resize(const void *message, size_t length)
{
    const struct protocol_resize *resize = protocol_resize_decode(message, length);
    struct process *process = resize ? process_find(resize->header.process) : NULL;
    struct winsize size = { 0 };

    if (!resize)
        return -1;
    size.ws_col = resize->columns;
    size.ws_row = resize->rows;
    if (!process)
        answer(&resize->header, ESRCH, 0);
    else if (!(process->flags & START_TTY))
        answer(&resize->header, ENOTTY, 0);
    else
        answer(&resize->header, set_size(process, &size), 0);
    return 0;
}

static void list(const struct protocol_header *header)
{
    connection.wants_list = true;
    connection.list_place = 0;
    connection.list_request = header->request;
}

static void forget(const struct protocol_header *header, struct process *process)
{
    bool is_starting = process && process->state == PROCESS_STARTING;

    if (process && !is_starting)
        start_forget(process);
    if (is_starting)
        answer(header, EBUSY, 0);
    else
        answer(header, process ? 0 : ESRCH, 0);
}

static int handle_forget_many(const void *message, size_t length)
{
    const struct protocol_forget_many *forget = protocol_forget_many_decode(message, length);

    if (!forget)
        return -1;
    for (unsigned i = 0; i < forget->count; i++) {
        struct process *process = process_find(forget->processes[i]);

        if (process && process->state != PROCESS_STARTING)
            start_forget(process);
    }
    return 0;
}

static int handle_plain(const void *message, size_t length)
{
    const struct protocol_plain *plain = protocol_plain_decode(message, length);
    const struct protocol_header *header;
    struct process *process;

    if (!plain)
        return -1;
    header = &plain->header;
    process = process_find(header->process);
    switch (header->type) {
    case PROTOCOL_LIST:
        list(header);
        return 0;
    case PROTOCOL_CLOSE_STDIN:
        if (process)
            sys_drop(&process->input);
        answer(header, process ? 0 : ESRCH, 0);
        return 0;
    case PROTOCOL_FORGET:
        forget(header, process);
        return 0;
    default:
        return -1;
    }
}

int request_handle(struct job *job, size_t length, int *fds, unsigned fd_count)
{
    const void *message = job->memory->message;
    int type = protocol_peek(message, length);

    if (fd_count && type != PROTOCOL_START)
        return -1;
    switch (type) {
    case PROTOCOL_START:
        return start_begin(job, length, fds, fd_count);
    case PROTOCOL_SIGNAL:
        return handle_signal(message, length);
    case PROTOCOL_RESIZE:
        return handle_resize(message, length);
    case PROTOCOL_FILE:
        return file_begin(job, length);
    case PROTOCOL_CONNECT:
        return file_begin_connect(job, length);
    case PROTOCOL_PORTS:
        return file_begin_ports(job, length);
    case PROTOCOL_FORGET_MANY:
        return handle_forget_many(message, length);
    default:
        return handle_plain(message, length);
    }
}
