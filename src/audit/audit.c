/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/audit.h"

#include "audit/chain.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/macros.h"
#include "loop/worker.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Lines gather for a moment: the thread is not woken for each. */
enum { GATHER_US = 20 * 1000 };
enum { QUEUE_MAXIMUM = 8 << 20, BATCH_MAXIMUM = 64 << 20, TAIL_BYTES = 256 * 1024 };

enum audit_state {
    AUDIT_NEW,         /* the file has nothing that could be gone on with */
    AUDIT_CLOSED,      /* the process before closed it */
    AUDIT_INTERRUPTED, /* the process before was killed */
    AUDIT_OPEN,        /* audit_start() */
};

struct audit {
    enum audit_state state;
    uint64_t event;        /* everything up to this one was queued */
    struct loop *loop;     /* borrowed */
    struct worker *worker; /* owned */
    char *path;            /* owned */
    struct buffer queue;   /* members of lines to come, each with a NUL behind it */
    uint64_t dropped;      /* since the last line that was queued */
    bool failing;          /* and that has been said */

    struct timer gather;
    struct job job;
    bool writing;
    bool reopen; /* before the next batch */

    /* The thread's while it writes. */
    struct buffer batch;
    struct buffer text;
    struct chain chain;
    int fd;   /* owned; -1 when the file has to be opened */
    int head; /* owned */
    bool moved;
    bool begins; /* the file is empty */
    bool lost;   /* the batch was not written */
    struct error err;
};

/* --- opening --------------------------------------------------------------------------------- */

static int open_log(const char *path)
{
    return open(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
}

static int open_files(struct audit *audit, struct error *err)
{
    scoped(free) char *head = xasprintf("%s.head", audit->path);
    struct stat status;

    audit->fd = open_log(audit->path);
    if (audit->fd < 0 || fstat(audit->fd, &status) < 0)
        return error_sys(err, "open the audit log %s", audit->path);
    if (!S_ISREG(status.st_mode))
        return error_set(err, ERR_INVALID, "the audit log %s is not a file", audit->path);
    audit->begins = status.st_size == 0;
    if (audit->head < 0)
        audit->head = open(head, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return audit->head < 0 ? error_sys(err, "open %s", head) : 0;
}

/* The last lines of the file; a half-written one at the end, of a process that was killed, goes. */
static int read_tail(struct audit *audit, struct buffer *out, struct error *err)
{
    off_t size = lseek(audit->fd, 0, SEEK_END);
    off_t from = MAX(size - TAIL_BYTES, (off_t)0);
    char *room = buffer_reserve(out, (size_t)(size - from) + 1);
    ssize_t length = room ? pread(audit->fd, room, (size_t)(size - from), from) : -1;

    if (size < 0 || length != size - from)
        return error_sys(err, "read the audit log %s", audit->path);
    while (length > 0 && room[length - 1] != '\n')
        length--;
    if (from + length < size && ftruncate(audit->fd, from + length) < 0)
        return error_sys(err, "repair the audit log %s", audit->path);
    buffer_advance(out, (size_t)length);
    return 0;
}

/* Where the chain stands: at the last line, or in the file beside the log when that has none. */
static int find_end(struct audit *audit, struct error *err)
{
    scoped(buffer_fini) struct buffer tail = BUFFER_INIT(TAIL_BYTES + 1);
    char head[128] = "";
    const char *text, *last;
    size_t length;

    if (read_tail(audit, &tail, err) < 0)
        return -1;
    audit->chain = CHAIN_START;
    if (tail.length == 0) {
        if (pread(audit->head, head, sizeof(head) - 1, 0) > 0)
            (void)chain_read_head(&audit->chain, head);
        return 0;
    }
    text = buffer_text(&tail);
    length = tail.length - 1;
    while (length > 0 && text[length - 1] != '\n')
        length--;
    last = text + length;
    length = tail.length - 1 - length;
    tail.data[tail.length - 1] = '\0';
    if (chain_check_line(&audit->chain, last, length, false) == CHAIN_MALFORMED)
        log_error("the audit log does not end with a valid line; starting a new chain",
                  kv("file", audit->path));
    return 0;
}

static enum audit_state found_state(const struct chain *chain)
{
    if (chain->event == CHAIN_NO_EVENT)
        return AUDIT_NEW;
    return chain->is_closed ? AUDIT_CLOSED : AUDIT_INTERRUPTED;
}

struct audit *audit_open(struct loop *loop, const char *path, struct error *err)
{
    struct audit *audit = xnew(struct audit);

    audit->loop = loop;
    audit->path = xstrdup(path);
    audit->queue = BUFFER_INIT(QUEUE_MAXIMUM);
    audit->batch = BUFFER_INIT(QUEUE_MAXIMUM);
    audit->text = BUFFER_INIT(BATCH_MAXIMUM);
    audit->fd = audit->head = -1;
    if (open_files(audit, err) < 0 || find_end(audit, err) < 0) {
        audit_close(audit);
        return NULL;
    }
    audit->state = found_state(&audit->chain);
    audit->event = audit->state == AUDIT_NEW ? 0 : audit->chain.event;
    audit->worker = worker_new(loop, 1, "audit");
    return audit;
}

/* --- writing, on the thread ------------------------------------------------------------------ */

/* All of it or nothing: half a line would break the chain for the ones behind it. */
static int write_text(struct audit *audit, struct error *err)
{
    off_t size = lseek(audit->fd, 0, SEEK_END);

    if (fd_write_all(audit->fd, audit->text.data, audit->text.length) == 0)
        return 0;
    error_sys(err, "write the audit log");
    if (size < 0 || ftruncate(audit->fd, size) < 0)
        error_wrap(err, "an incomplete line is left");
    return -1;
}

static void write_head(struct audit *audit)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256);

    chain_write_head(&audit->chain, &text);
    if (pwrite(audit->head, text.data, text.length, 0) != (ssize_t)text.length)
        error_sys(&audit->err, "record the end of the audit log");
}

static void format_batch(struct audit *audit, struct chain *chain)
{
    const char *at = (const char *)audit->batch.data;
    const char *end = at + audit->batch.length;
    char time[CLOCK_TEXT_SIZE];
    char line[160];

    buffer_clear(&audit->text);
    if (audit->begins && chain->sequence) {
        clock_format(clock_wall_us(&clock_system), time);
        snprintf(line, sizeof(line), CHAIN_CONTINUED ",\"event\":%llu,\"time\":\"%s\"",
                 (unsigned long long)chain->event, time);
        chain_append(chain, line, &audit->text);
    }
    for (; at < end; at += strlen(at) + 1)
        chain_append(chain, at, &audit->text);
}

static void write_run(struct job *job)
{
    struct audit *audit = container_of(job, struct audit, job);
    struct chain chain = audit->chain;

    audit->err = (struct error){ 0 };
    audit->lost = true;
    if (audit->moved) {
        fd_close(audit->fd);
        audit->fd = -1;
        audit->moved = false;
    }
    if (audit->fd < 0 && open_files(audit, &audit->err) < 0)
        return;
    format_batch(audit, &chain);
    if (write_text(audit, &audit->err) < 0)
        return;
    audit->lost = false;
    audit->begins = false;
    audit->chain = chain;
    write_head(audit);
}

/* --- on the loop ----------------------------------------------------------------------------- */

static uint64_t lines_in(const struct buffer *batch)
{
    uint64_t count = 0;

    for (size_t i = 0; i < batch->length; i++)
        count += batch->data[i] == '\0';
    return count;
}

static void write_done(struct job *job);

static void write_start(struct audit *audit)
{
    struct buffer batch = audit->batch;

    timer_stop(&audit->gather);
    if (audit->writing || (!audit->queue.length && !audit->reopen))
        return;
    audit->batch = audit->queue;
    audit->queue = batch;
    buffer_clear(&audit->queue);
    audit->moved = audit->reopen;
    audit->reopen = false;
    audit->writing = true;
    audit->job = (struct job){ .run = write_run, .done = write_done };
    worker_submit(audit->worker, &audit->job);
}

static void write_done(struct job *job)
{
    struct audit *audit = container_of(job, struct audit, job);

    assert(audit->writing);
    audit->writing = false;
    if (audit->lost)
        audit->dropped += lines_in(&audit->batch);
    if (audit->err.code && !audit->failing)
        log_error("the audit log cannot be written", kv("error", audit->err.message));
    audit->failing = audit->err.code != ERR_NONE;
    buffer_clear(&audit->batch);
    write_start(audit);
}

static void on_gathered(struct timer *timer)
{
    write_start(container_of(timer, struct audit, gather));
}

static void end_line(struct audit *audit)
{
    char time[CLOCK_TEXT_SIZE];

    clock_format(clock_wall_us(loop_clock(audit->loop)), time);
    if (!audit->queue.overflowed)
        buffer_appendf(&audit->queue, ",\"event\":%llu,\"time\":\"%s\"%c",
                       (unsigned long long)audit->event, time, '\0');
}

static void queue_line(struct audit *audit, const struct buffer *members)
{
    size_t before = audit->queue.length;

    if (audit->dropped) {
        buffer_appendf(&audit->queue, "\"type\":\"audit.dropped\",\"lines\":%llu",
                       (unsigned long long)audit->dropped);
        end_line(audit);
    }
    if (!audit->queue.overflowed)
        buffer_append(&audit->queue, members->data, members->length);
    end_line(audit);
    if (audit->queue.overflowed) {
        audit->queue.length = before;
        audit->queue.overflowed = false;
        audit->dropped++;
        return;
    }
    audit->dropped = 0;
}

void audit_write(struct audit *audit, const struct buffer *members)
{
    if (members->overflowed) {
        audit->dropped++;
        return;
    }
    queue_line(audit, members);
    if (!timer_is_armed(&audit->gather)) {
        timer_init(&audit->gather, audit->loop, on_gathered);
        timer_arm_in(&audit->gather, GATHER_US);
    }
}

struct audit_left audit_left(const struct audit *audit)
{
    return (struct audit_left){ .was_interrupted = audit->state == AUDIT_INTERRUPTED,
                                .event = audit->event };
}

void audit_covers(struct audit *audit, uint64_t event)
{
    audit->event = event;
}

void audit_start(struct audit *audit, uint64_t recovered)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(256);

    buffer_appendf(&line, CHAIN_STARTED ",\"interrupted\":%s,\"recovered\":%llu",
                   audit->state == AUDIT_INTERRUPTED ? "true" : "false",
                   (unsigned long long)recovered);
    audit->state = AUDIT_OPEN;
    audit_write(audit, &line);
    write_start(audit);
}

static void write_end(struct audit *audit)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(256);

    buffer_append_text(&line, CHAIN_STOPPED);
    audit_write(audit, &line);
}

void audit_reopen(struct audit *audit)
{
    audit->reopen = true;
    write_start(audit);
}

void audit_close(struct audit *audit)
{
    if (!audit)
        return;
    if (audit->state == AUDIT_OPEN)
        write_end(audit);
    if (audit->worker)
        write_start(audit);
    worker_free(audit->worker);
    buffer_fini(&audit->queue);
    buffer_fini(&audit->batch);
    buffer_fini(&audit->text);
    fd_close(audit->fd);
    fd_close(audit->head);
    free(audit->path);
    free(audit);
}
