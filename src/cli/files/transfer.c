/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/files/transfer.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/files/tree.h"
#include "net/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 256 * 1024,
    PENDING_BYTES = 512 * 1024,
    REFUSAL_MAXIMUM = 512 * 1024,
    PROGRESS_EVERY_US = 200 * 1000,
};

struct progress {
    bool is_shown;
    uint64_t done;
    uint64_t total; /* 0 when it is unknown */
    int64_t began_us, told_us;
};

struct transfer {
    struct cli *cli; /* borrowed */
    int fd;          /* borrowed */
    struct buffer refusal;
    struct error err; /* ERR_NONE on success */
    bool body_ended;
    struct progress progress;
};

/* --- progress -------------------------------------------------------------------------------- */

static void progress_begin(struct transfer *transfer, uint64_t total)
{
    transfer->progress = (struct progress){
        .is_shown = !transfer->cli->json && isatty(STDERR_FILENO) && !isatty(transfer->fd),
        .total = total,
        .began_us = loop_now_us(transfer->cli->loop),
    };
    transfer->progress.told_us = transfer->progress.began_us;
}

/* "42%  420.0 MB of 1.0 GB  210.5 MB/s  3s left". The total of a directory is an estimate. */
static void progress_show(const struct progress *progress, double seconds)
{
    double rate = (double)progress->done / seconds;
    double left = progress->total > progress->done ? (double)(progress->total - progress->done) : 0;
    char done[STR_UNIT_SIZE], total[STR_UNIT_SIZE], speed[STR_UNIT_SIZE], time[STR_UNIT_SIZE];

    str_format_size(progress->done, done);
    str_format_size(progress->total, total);
    str_format_size((uint64_t)rate, speed);
    str_format_duration((int64_t)(left / MAX(rate, 1.0)) * 1000, time);
    if (progress->total)
        fprintf(stderr, "\r%3.0f%%  %s of %s  %s/s  %s left\033[K",
                MIN(100 * (double)progress->done / (double)progress->total, 100.0), done, total,
                speed, time);
    else
        fprintf(stderr, "\r%s  %s/s\033[K", done, speed);
}

static void progress_add(struct transfer *transfer, size_t length)
{
    struct progress *progress = &transfer->progress;
    int64_t now_us = loop_now_us(transfer->cli->loop);

    progress->done += length;
    if (!progress->is_shown || now_us - progress->told_us < PROGRESS_EVERY_US)
        return;
    progress->told_us = now_us;
    progress_show(progress, (double)(now_us - progress->began_us) / 1e6);
}

static void progress_end(const struct progress *progress)
{
    if (progress->is_shown && progress->told_us != progress->began_us)
        fputs("\r\033[K", stderr);
}

/* Our own side failed: the exchange is of no use any more. */
static void transfer_abandon(struct transfer *transfer, struct http_call *call)
{
    http_call_cancel(call);
    loop_stop(transfer->cli->loop);
}

static void on_end(struct http_call *call, const struct error *err)
{
    struct transfer *transfer = http_call_user(call);
    int status = http_call_status(call);

    if (err) {
        transfer->err = *err;
        (void)cli_explain_connection(transfer->cli, &transfer->err);
    } else if (status >= 300) {
        reply_error(&transfer->err, status, transfer->refusal.data, transfer->refusal.length);
    }
    loop_stop(transfer->cli->loop);
}

static int transfer_run(struct transfer *transfer, struct error *err)
{
    loop_run(transfer->cli->loop);
    progress_end(&transfer->progress);
    if (transfer->err.code == ERR_NONE)
        return 0;
    *err = transfer->err;
    return -1;
}

/* --- sending --------------------------------------------------------------------------------- */

static void on_answer(struct http_call *call, const uint8_t *data, size_t length)
{
    struct transfer *transfer = http_call_user(call);

    (void)buffer_append(&transfer->refusal, data, length);
}

static void on_writable(struct http_call *call)
{
    struct transfer *transfer = http_call_user(call);
    scoped(free) uint8_t *piece = xmalloc(PIECE_BYTES);

    while (!transfer->body_ended && http_call_pending(call) < PENDING_BYTES) {
        ssize_t count = read(transfer->fd, piece, PIECE_BYTES);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            error_sys(&transfer->err, "read the file");
            transfer_abandon(transfer, call);
            return;
        }
        if (count == 0) {
            transfer->body_ended = true;
            http_call_end(call);
            return;
        }
        http_call_write(call, piece, (size_t)count);
        progress_add(transfer, (size_t)count);
    }
}

static const struct http_call_handler send_handler = {
    .on_data = on_answer,
    .on_writable = on_writable,
    .on_end = on_end,
};

static uint64_t size_of(int fd)
{
    struct stat status;

    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
}

int transfer_send(struct cli *cli, const char *target, const char *content_type, int fd,
                  uint64_t expected, struct buffer *answer, struct error *err)
{
    struct transfer transfer = { .cli = cli, .fd = fd, .refusal = BUFFER_INIT(REFUSAL_MAXIMUM) };
    int result;

    progress_begin(&transfer, expected ? expected : size_of(fd));
    http_client_request(cli->client, HTTP_PUT, target, content_type, NULL, -1, NULL, &send_handler,
                        &transfer);
    result = transfer_run(&transfer, err);
    if (answer)
        *answer = transfer.refusal;
    else
        buffer_fini(&transfer.refusal);
    return result;
}

/* --- receiving ------------------------------------------------------------------------------- */

static void on_content(struct http_call *call, const uint8_t *data, size_t length)
{
    struct transfer *transfer = http_call_user(call);

    if (http_call_status(call) != 200) {
        (void)buffer_append(&transfer->refusal, data, length);
    } else if (fd_write_all(transfer->fd, data, length) < 0) {
        error_sys(&transfer->err, "write the file");
        transfer_abandon(transfer, call);
    } else {
        progress_add(transfer, length);
    }
}

static void on_content_head(struct http_call *call, const struct http_head *head)
{
    struct transfer *transfer = http_call_user(call);

    if (head->status == 200 && head->content_length > 0)
        transfer->progress.total = (uint64_t)head->content_length;
}

static const struct http_call_handler receive_handler = {
    .on_head = on_content_head,
    .on_data = on_content,
    .on_end = on_end,
};

int transfer_receive_into(struct cli *cli, const char *target, int fd, struct error *err)
{
    struct transfer transfer = { .cli = cli, .fd = fd, .refusal = BUFFER_INIT(REFUSAL_MAXIMUM) };
    int result;

    progress_begin(&transfer, 0);
    http_client_request(cli->client, HTTP_GET, target, NULL, NULL, 0, NULL, &receive_handler,
                        &transfer);
    result = transfer_run(&transfer, err);
    buffer_fini(&transfer.refusal);
    return result;
}

/* A new file has the mode that any new file of the user has; one that is replaced keeps its own. */
static unsigned mode_for(const char *path)
{
    struct stat status;
    mode_t mask;

    if (stat(path, &status) == 0)
        return status.st_mode & 0777;
    mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

/* By these names stdout and stderr may be regular files, and replacing those would replace the links in
 * /dev. */
static int standard_stream(const char *path)
{
    if (str_equal(path, "/dev/stdout"))
        return STDOUT_FILENO;
    return str_equal(path, "/dev/stderr") ? STDERR_FILENO : -1;
}

static bool is_special(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

int transfer_receive(struct cli *cli, const char *target, const char *path, struct error *err)
{
    scoped(free) char *temporary = NULL;
    scoped(fd_close) int fd = -1;

    if (standard_stream(path) >= 0)
        return transfer_receive_into(cli, target, standard_stream(path), err);
    if (is_special(path)) {
        fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? error_sys(err, "open %s", path)
                      : transfer_receive_into(cli, target, fd, err);
    }
    temporary = xasprintf("%s.XXXXXX", path);
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return error_sys(err, "create %s", path);
    if (transfer_receive_into(cli, target, fd, err) < 0) {
        (void)unlink(temporary);
        return -1;
    }
    if (fchmod(fd, mode_for(path)) < 0 || rename(temporary, path) < 0) {
        error_sys(err, "replace %s", path);
        (void)unlink(temporary);
        return -1;
    }
    return 0;
}

int transfer_unpack(struct cli *cli, const char *target, const char *path, struct error *err)
{
    struct tree_child child;
    struct error child_err;
    int result;

    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return error_sys(err, "create %s", path);
    if (tree_unpack_start(&child, path, err) < 0)
        return -1;
    result = transfer_receive_into(cli, target, child.fd, err);
    if (tree_child_wait(&child, &child_err) < 0 && result == 0) {
        *err = child_err;
        return -1;
    }
    return result;
}
