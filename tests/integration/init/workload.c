/* SPDX-License-Identifier: Apache-2.0 */
#include "workload.h"

#include "base/alloc.h"
#include "base/macros.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { CHUNK = 4096, PATIENCE_MS = 120000 };

static uint8_t byte_at(uint64_t offset)
{
    return (uint8_t)(offset * 7 + (offset >> 8) * 13 + (offset >> 16) * 31);
}

/* --- streams ---------------------------------------------------------------------------------- */

struct stream {
    int fd; /* owned; -1 without */
    uint64_t offset, total;
    bool has_ended; /* of one that is read */
};

static bool is_ready(int fd, short events)
{
    struct pollfd ready = { .fd = fd, .events = events };

    return fd >= 0 && poll(&ready, 1, 0) > 0;
}

/* Writes what fits; true when all of it is written. */
static bool feed(struct stream *stream)
{
    uint8_t bytes[CHUNK];

    while (stream->offset < stream->total && is_ready(stream->fd, POLLOUT)) {
        size_t length = (size_t)MIN(stream->total - stream->offset, (uint64_t)sizeof(bytes));
        ssize_t done;

        for (size_t i = 0; i < length; i++)
            bytes[i] = byte_at(stream->offset + i);
        done = write(stream->fd, bytes, length);
        if (done < 0 && errno == EAGAIN)
            break;
        if (done < 0)
            fail_msg("write at %lu: %s", (unsigned long)stream->offset, strerror(errno));
        stream->offset += (uint64_t)done;
    }
    return stream->offset == stream->total;
}

/* Reads what there is and compares it; true when all of it has come. */
static bool check(struct stream *stream)
{
    uint8_t bytes[CHUNK];

    while (!stream->has_ended && is_ready(stream->fd, POLLIN)) {
        ssize_t length = read(stream->fd, bytes, sizeof(bytes));

        if (length < 0 && errno == EAGAIN)
            break;
        if (length < 0)
            fail_msg("read at %lu: %s", (unsigned long)stream->offset, strerror(errno));
        stream->has_ended = length == 0;
        for (ssize_t i = 0; i < length; i++, stream->offset++)
            if (bytes[i] != byte_at(stream->offset))
                fail_msg("byte %lu is %u and should be %u", (unsigned long)stream->offset, bytes[i],
                         byte_at(stream->offset));
        assert_true(stream->offset <= stream->total);
    }
    return stream->offset == stream->total;
}

static void stream_close(struct stream *stream)
{
    fd_close(stream->fd);
    stream->fd = -1;
}

/* --- a program with input and output ----------------------------------------------------------- */

enum part_state { PART_STARTING, PART_READY, PART_FEEDING, PART_CHECKING, PART_ENDING, PART_DONE };

struct program {
    enum part_state state;
    struct run run;
    struct stream in, out;
    size_t greeting; /* bytes that a terminal still has to say before it takes input */
    struct asked killed;
};

static void program_begin(struct program *program, struct box *box, struct agent_start *start,
                          uint64_t bytes)
{
    *program = (struct program){ .in = { .fd = -1, .total = bytes },
                                 .out = { .fd = -1, .total = bytes },
                                 .greeting = start->terminal ? strlen("ready\n") : 0 };
    run_begin(&program->run, box, start);
}

static void take_pipes(struct program *program)
{
    struct agent_pipes *pipes = &program->run.pipes;

    run_wait_started(&program->run);
    program->in.fd = pipes->input;
    program->out.fd = pipes->output;
    pipes->input = pipes->output = -1;
    fd_close(pipes->errors);
    pipes->errors = -1;
    program->state = PART_READY;
}

static bool is_greeted(struct program *program)
{
    char byte;

    while (program->greeting && is_ready(program->out.fd, POLLIN) &&
           read(program->out.fd, &byte, 1) == 1)
        program->greeting--;
    return !program->greeting;
}

/* A terminal in raw mode has no end of input: it is killed. */
static void end_input(struct program *program, bool is_terminal)
{
    struct box *box = program->run.box;

    if (is_terminal) {
        agent_signal(box->agent, program->run.number, SIGKILL, SCOPE_TREE, &program->killed.request,
                     asked_done);
    } else {
        stream_close(&program->in);
        agent_close_stdin(box->agent, program->run.number, NULL, NULL);
    }
}

static bool program_step(struct program *program, bool is_terminal)
{
    switch (program->state) {
    case PART_STARTING:
        if (program->run.answered)
            take_pipes(program);
        break;
    case PART_READY:
        if (is_greeted(program))
            program->state = PART_FEEDING;
        break;
    case PART_FEEDING:
        (void)check(&program->out);
        if (feed(&program->in) && (!is_terminal || check(&program->out))) {
            end_input(program, is_terminal);
            program->state = PART_CHECKING;
        }
        break;
    case PART_CHECKING:
        if (check(&program->out) && box_find_end(program->run.box, program->run.number))
            program->state = PART_ENDING;
        break;
    case PART_ENDING:
        if (is_terminal && !program->killed.answered)
            break;
        if (!is_terminal) { /* the end of the output comes too */
            (void)check(&program->out);
            if (!program->out.has_ended)
                break;
        }
        program->state = PART_DONE;
        break;
    case PART_DONE:
        break;
    }
    return program->state == PART_DONE;
}

static void program_finish(struct program *program, bool is_terminal)
{
    const struct agent_exit *end = box_find_end(program->run.box, program->run.number);

    assert_int_equal(is_terminal ? end->signal : end->code, is_terminal ? SIGKILL : 0);
    stream_close(&program->in);
    stream_close(&program->out);
    run_finish(&program->run);
}

/* --- a file, there and back --------------------------------------------------------------------- */

enum file_state {
    FILE_IS_OPENED,
    FILE_IS_FED,
    FILE_IS_NOTED,
    FILE_IS_COMMITTED,
    FILE_IS_READ,
    FILE_IS_CHECKED,
    FILE_IS_DONE,
};

struct file {
    struct box *box; /* borrowed */
    enum file_state state;
    struct asked asked;
    struct stream content;
    uint64_t total;
    char path[128];
    char temporary[PROTOCOL_MAX_TEMPORARY];
    struct protocol_note note;
    size_t note_length;
};

static void file_ask(struct file *file, const struct agent_file *question, enum file_state state)
{
    file->asked = (struct asked){ 0 };
    file->state = state;
    agent_file(file->box->agent, question, &file->asked.request, asked_done);
}

static void file_begin(struct file *file, struct box *box, uint64_t bytes)
{
    *file = (struct file){ .box = box, .total = bytes, .content = { .fd = -1, .total = bytes } };
    snprintf(file->path, sizeof(file->path), "%s/file", box->dir);
    file_ask(file, &(struct agent_file){ .kind = FILE_WRITE, .path = file->path, .mode = 0644 },
             FILE_IS_OPENED);
}

static bool is_answered(struct file *file)
{
    if (!file->asked.answered)
        return false;
    if (file->asked.request.err.code)
        fail_msg("state %d: %s", file->state, file->asked.request.err.message);
    return true;
}

/* What init says when all of it is in the file. */
static bool is_noted(struct file *file)
{
    ssize_t length;

    if (!is_ready(file->content.fd, POLLIN))
        return false;
    length = recv(file->content.fd, (char *)&file->note + file->note_length,
                  sizeof(file->note) - file->note_length, MSG_DONTWAIT);
    if (length < 0 && errno == EAGAIN)
        return false;
    if (length <= 0)
        fail_msg("the upload ended without a note");
    file->note_length += (size_t)length;
    if (file->note_length < sizeof(file->note))
        return false;
    assert_int_equal(file->note.kind, NOTE_LAST);
    assert_int_equal(file->note.error, 0);
    assert_true(file->note.amount == file->total);
    return true;
}

static void file_step_upload(struct file *file)
{
    struct agent_request *request = &file->asked.request;

    if (file->state == FILE_IS_OPENED && is_answered(file)) {
        file->content.fd = request->result.file.fd;
        memcpy(file->temporary, request->result.file.temporary, sizeof(file->temporary));
        file->state = FILE_IS_FED;
    }
    if (file->state == FILE_IS_FED && feed(&file->content)) {
        assert_int_equal(shutdown(file->content.fd, SHUT_WR), 0);
        file->state = FILE_IS_NOTED;
    }
    if (file->state == FILE_IS_NOTED && is_noted(file)) {
        stream_close(&file->content);
        file_ask(file,
                 &(struct agent_file){
                     .kind = FILE_COMMIT, .path = file->path, .second = file->temporary },
                 FILE_IS_COMMITTED);
    }
}

static void file_step_download(struct file *file)
{
    if (file->state == FILE_IS_COMMITTED && is_answered(file))
        file_ask(
            file,
            &(struct agent_file){ .kind = FILE_READ, .path = file->path, .bytes = file->total },
            FILE_IS_READ);
    if (file->state == FILE_IS_READ && is_answered(file)) {
        file->content =
            (struct stream){ .fd = file->asked.request.result.file.fd, .total = file->total };
        file->state = FILE_IS_CHECKED;
    }
    if (file->state == FILE_IS_CHECKED) {
        (void)check(&file->content);
        if (file->content.has_ended) {
            assert_true(file->content.offset == file->total);
            file->state = FILE_IS_DONE;
        }
    }
}

static bool file_step(struct file *file)
{
    file_step_upload(file);
    file_step_download(file);
    return file->state == FILE_IS_DONE;
}

/* --- all of it --------------------------------------------------------------------------------- */

struct workload {
    struct box *box; /* borrowed */
    struct program copy, terminal;
    struct file file;
};

struct workload *workload_new(struct box *box, uint64_t bytes)
{
    struct workload *workload = xnew(struct workload);
    struct agent_start copy = RUN_SHELL("exec cat");
    struct agent_start terminal = RUN_SHELL("stty raw -echo; echo ready; exec cat");

    workload->box = box;
    copy.wants_stdin = true;
    terminal.terminal = true;
    terminal.columns = 80;
    terminal.rows = 24;
    program_begin(&workload->copy, box, &copy, bytes);
    program_begin(&workload->terminal, box, &terminal, bytes / 4);
    file_begin(&workload->file, box, bytes);
    return workload;
}

bool workload_step(struct workload *workload)
{
    bool copy = program_step(&workload->copy, false);
    bool terminal = program_step(&workload->terminal, true);
    bool file = file_step(&workload->file);

    return copy && terminal && file;
}

void workload_free(struct workload *workload)
{
    program_finish(&workload->copy, false);
    program_finish(&workload->terminal, true);
    stream_close(&workload->file.content);
    assert_int_equal(unlink(workload->file.path), 0);
    workload->box->end_count = 0;
    free(workload);
}

static const char *const part_names[] = { "starting", "ready",  "feeding",
                                          "checking", "ending", "done" };

/* Where it stands, for a test that waits in vain. */
static const char *describe(const struct workload *workload)
{
    static char text[256];

    snprintf(
        text, sizeof(text), "copy %s in %lu out %lu, terminal %s in %lu out %lu, file %d at %lu",
        part_names[workload->copy.state], (unsigned long)workload->copy.in.offset,
        (unsigned long)workload->copy.out.offset, part_names[workload->terminal.state],
        (unsigned long)workload->terminal.in.offset, (unsigned long)workload->terminal.out.offset,
        workload->file.state, (unsigned long)workload->file.content.offset);
    return text;
}

void workload_run(struct box *box, uint64_t bytes)
{
    struct workload *workload = workload_new(box, bytes);
    int64_t deadline_us = box_deadline_us(PATIENCE_MS);

    while (!workload_step(workload)) {
        assert_false(box->is_lost);
        box_turn(box, deadline_us, describe(workload));
    }
    workload_free(workload);
}
