/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Content of files, ports and connections, against an init that is played by the test: once as one
 * on this kernel, which passes files, and once as a bridge does it, with pipes and sockets only.
 */

#include "agent/files.h"

#include "agent/listing.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "stage.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STREAMS = FEATURE_CONNECT | FEATURE_STREAMS, TURNS = 20000 };

/* A stage, and what was asked on it last. */
struct play {
    struct stage *on;
    struct protocol_header heard;
    struct protocol_file file;
    char path[64], second[64];
};

/* Runs the loop until the condition holds; nothing here waits for another process. */
#define turn_until(play, condition)                                           \
    do {                                                                      \
        int turns_ = 0;                                                       \
        while (!(condition)) {                                                \
            if (turns_++ > TURNS)                                             \
                fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #condition); \
            loop_turn((play)->on->loop, 0);                                   \
        }                                                                     \
    } while (0)

static void open_play(struct play *play, uint32_t features)
{
    void *state;

    assert_int_equal(open_stage(&state), 0);
    *play = (struct play){ .on = state };
    greet_as(play->on, features);
    assert_non_null(agent_hello(play->on->agent));
}

static void scoped_play_close(struct play *play)
{
    void *state = play->on;

    close_stage(&state);
}

/* What the agent has asked for; false when it is nothing. */
static bool hear_any(struct play *play)
{
    static _Alignas(8) char bytes[PROTOCOL_MAX_MESSAGE];
    ssize_t length;
    struct protocol_file_texts texts;
    const struct protocol_file *file;

    turn(play->on);
    length = recv(play->on->init, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (length <= 0)
        return false;
    assert_true(protocol_peek(bytes, (size_t)length) > 0);
    memcpy(&play->heard, bytes, sizeof(play->heard));
    file = protocol_file_decode(bytes, (size_t)length, &texts);
    if (!file)
        return true;
    play->file = *file;
    snprintf(play->path, sizeof(play->path), "%s", texts.path);
    snprintf(play->second, sizeof(play->second), "%s", texts.second);
    return true;
}

static void expect(struct play *play, enum protocol_file_kind kind)
{
    assert_true(hear_any(play));
    assert_int_equal(play->heard.type, PROTOCOL_FILE);
    assert_int_equal(play->file.kind, kind);
    assert_string_equal(play->path, "/f");
}

/* Answers what was heard last; the descriptor stays with the test. */
static void answer(struct play *play, int error, const struct protocol_stat *stat,
                   const char *temporary, int fd)
{
    _Alignas(8) char bytes[512];
    struct protocol_file_done done = { .header.request = play->heard.request, .error = error };
    long length;

    if (stat)
        done.stat = *stat;
    length = protocol_file_done_encode(bytes, sizeof(bytes), &done, temporary);
    assert_true(length > 0);
    say(play->on, bytes, (size_t)length, &fd, fd >= 0);
    turn(play->on);
}

static void hang_up(struct play *play)
{
    fd_close(steal_fd(&play->on->init));
    turn(play->on);
}

static struct protocol_stat stat_of(uint64_t size, uint64_t inode)
{
    return (struct protocol_stat){
        .size = size, .inode = inode, .modified_us = 7, .mode = S_IFREG | 0644
    };
}

static int file_with(const char *text)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    return fd;
}

/* Answers with a pipe or a socket: the test's end. */
static int answer_with_pipe(struct play *play, const struct protocol_stat *stat)
{
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    answer(play, 0, stat, "", ends[0]);
    close(ends[0]);
    return ends[1];
}

static int answer_with_socket(struct play *play, const char *temporary)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    answer(play, 0, NULL, temporary, ends[0]);
    close(ends[0]);
    return ends[1];
}

static void put(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* --- reading a whole file --------------------------------------------------------------------- */

struct reading {
    struct file_reader reader;
    unsigned answers;
};

static void on_read(struct file_reader *reader)
{
    container_of(reader, struct reading, reader)->answers++;
}

static void begin_reading(struct play *play, struct reading *reading, size_t maximum)
{
    reading->answers = 0;
    file_reader_start(&reading->reader, play->on->agent, "/f", maximum, false, on_read);
}

static void assert_content(const struct reading *reading, const char *text)
{
    assert_int_equal(reading->answers, 1);
    assert_int_equal(reading->reader.err.code, ERR_NONE);
    assert_int_equal(reading->reader.content.length, strlen(text));
    assert_memory_equal(reading->reader.content.data, text, strlen(text));
}

static void a_file_is_read_from_its_descriptor(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct protocol_stat stat = stat_of(5, 3);
    struct reading reading;
    int fd = file_with("hello");

    open_play(&play, FEATURE_CONNECT);
    begin_reading(&play, &reading, 100);
    expect(&play, FILE_OPEN_READ);
    answer(&play, 0, &stat, "", fd);
    assert_content(&reading, "hello");
    assert_int_equal(reading.reader.stat.inode, 3);
    file_reader_fini(&reading.reader);
    close(fd);
}

static void a_file_is_read_through_a_pipe(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct protocol_stat stat = stat_of(11, 3);
    struct reading reading;
    size_t before;
    int pipe;

    open_play(&play, STREAMS);
    before = count_descriptors();
    begin_reading(&play, &reading, 100);
    expect(&play, FILE_READ);
    assert_int_equal(play.file.offset, 0);
    assert_int_equal(play.file.bytes, 0);
    pipe = answer_with_pipe(&play, &stat);
    for (const char *at = "hello world"; *at; at++) {
        assert_int_equal(reading.answers, 0);
        assert_int_equal(write(pipe, at, 1), 1);
        turn(play.on);
    }
    assert_int_equal(reading.answers, 0);
    close(pipe);
    turn(play.on);
    assert_content(&reading, "hello world");
    file_reader_fini(&reading.reader);
    assert_int_equal(count_descriptors(), before);
}

static void a_file_that_grew_is_read_to_its_end(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct protocol_stat stat = stat_of(0, 3); /* as those of /proc have it */
    struct reading reading;
    int pipe;

    open_play(&play, STREAMS);
    begin_reading(&play, &reading, 100);
    expect(&play, FILE_READ);
    pipe = answer_with_pipe(&play, &stat);
    put(pipe, "more");
    close(pipe);
    turn(play.on);
    assert_content(&reading, "more");
    file_reader_fini(&reading.reader);
}

static void a_pipe_that_ends_early_is_no_file(void **state UNUSED)
{
    struct protocol_stat stat = stat_of(5, 3);

    for (unsigned count = 0; count < 5; count++) {
        scoped(play_close) struct play play;
        struct reading reading;
        int pipe;

        open_play(&play, STREAMS);
        begin_reading(&play, &reading, 100);
        expect(&play, FILE_READ);
        pipe = answer_with_pipe(&play, &stat);
        assert_int_equal(write(pipe, "hello", count), count);
        close(pipe);
        turn(play.on);
        assert_int_equal(reading.answers, 1);
        assert_int_equal(reading.reader.sys_errno, EIO);
        assert_int_equal(reading.reader.err.code, ERR_BACKEND);
        file_reader_fini(&reading.reader);
    }
}

static void a_size_that_no_file_can_have_ends_the_connection(void **state UNUSED)
{
    for (int mode = 0; mode < 2; mode++) {
        scoped(play_close) struct play play;
        struct protocol_stat stat = stat_of((uint64_t)INT64_MAX + 1, 3);
        struct reading reading;
        int fd = file_with("hello");

        open_play(&play, mode ? STREAMS : FEATURE_CONNECT);
        begin_reading(&play, &reading, 100);
        expect(&play, mode ? FILE_READ : FILE_OPEN_READ);
        if (mode)
            close(answer_with_pipe(&play, &stat));
        else
            answer(&play, 0, &stat, "", fd);
        assert_int_equal(reading.answers, 1);
        assert_int_equal(reading.reader.err.code, ERR_BACKEND);
        assert_int_equal(play.on->lost, 1);
        file_reader_fini(&reading.reader);
        close(fd);
    }
}

static void of_a_file_that_is_too_large_the_beginning_is_kept(void **state UNUSED)
{
    struct protocol_stat stat = stat_of(11, 3);

    for (int mode = 0; mode < 2; mode++) {
        scoped(play_close) struct play play;
        struct reading reading;
        int fd = file_with("hello world");

        open_play(&play, mode ? STREAMS : FEATURE_CONNECT);
        begin_reading(&play, &reading, 5);
        expect(&play, mode ? FILE_READ : FILE_OPEN_READ);
        if (mode) {
            int pipe = answer_with_pipe(&play, &stat);

            put(pipe, "hello world");
            turn(play.on);
            close(pipe);
        } else {
            answer(&play, 0, &stat, "", fd);
        }
        assert_int_equal(reading.answers, 1);
        assert_int_equal(reading.reader.err.code, ERR_TOO_LARGE);
        assert_int_equal(reading.reader.content.length, 5);
        assert_int_equal(reading.reader.stat.size, 11);
        file_reader_fini(&reading.reader);
        close(fd);
    }
}

static void links_and_other_files_of_the_same_name_are_told(void **state UNUSED)
{
    for (int mode = 0; mode < 2; mode++) {
        scoped(play_close) struct play play;
        struct protocol_stat link = stat_of(1, 3), one = stat_of(0, 4), other = stat_of(0, 5);
        struct reading reading = { 0 };

        open_play(&play, mode ? STREAMS : FEATURE_CONNECT);
        link.mode = S_IFLNK | 0777;
        file_reader_start(&reading.reader, play.on->agent, "/f", 10, true, on_read);
        expect(&play, FILE_STAT);
        answer(&play, 0, &link, "", -1);
        assert_int_equal(reading.answers, 1);
        assert_string_equal(reading.reader.err.name, "is_a_link");
        file_reader_fini(&reading.reader);

        file_reader_start(&reading.reader, play.on->agent, "/f", 10, true, on_read);
        expect(&play, FILE_STAT);
        answer(&play, 0, &one, "", -1);
        expect(&play, mode ? FILE_READ : FILE_OPEN_READ);
        if (mode) {
            close(answer_with_pipe(&play, &other));
        } else {
            int fd = file_with("");

            answer(&play, 0, &other, "", fd);
            close(fd);
        }
        assert_int_equal(reading.answers, 2);
        assert_int_equal(reading.reader.sys_errno, ESTALE);
        file_reader_fini(&reading.reader);
    }
}

/* Stages: asked, opened, some of it read. */
static void a_reading_can_be_given_up_or_lost_at_every_stage(void **state UNUSED)
{
    struct protocol_stat stat = stat_of(5, 3);

    for (unsigned at = 0; at < 3; at++) {
        for (int loses = 0; loses < 2; loses++) {
            scoped(play_close) struct play play;
            struct reading reading;
            size_t before;
            int pipe = -1;

            open_play(&play, STREAMS);
            before = count_descriptors() - (loses ? 2 : 0); /* both ends of the connection */
            begin_reading(&play, &reading, 100);
            expect(&play, FILE_READ);
            if (at > 0)
                pipe = answer_with_pipe(&play, &stat);
            if (at > 1)
                put(pipe, "hel");
            turn(play.on);
            if (loses) {
                fd_close(steal_fd(&pipe));
                hang_up(&play);
                assert_int_equal(reading.answers, 1);
                assert_int_equal(reading.reader.err.code, ERR_BACKEND);
                assert_int_equal(play.on->lost, 1);
            }
            file_reader_fini(&reading.reader);
            if (!loses && at == 0)
                pipe = answer_with_pipe(&play, &stat);
            fd_close(pipe);
            turn(play.on);
            assert_int_equal(reading.answers, loses);
            assert_int_equal(count_descriptors(), before);
        }
    }
}

/* --- chosen bytes ----------------------------------------------------------------------------- */

struct choosing {
    struct file_source source;
    uint64_t offset, length;
    bool wants_last; /* the last `length` bytes */
    bool wants_none;
    unsigned choices, answers;
};

static bool choose(struct file_source *source)
{
    struct choosing *choosing = container_of(source, struct choosing, source);

    choosing->choices++;
    source->offset = choosing->wants_last ? source->stat.size - choosing->length : choosing->offset;
    source->length = choosing->length;
    return !choosing->wants_none;
}

static void on_source(struct file_source *source)
{
    container_of(source, struct choosing, source)->answers++;
}

static void begin_choosing(struct play *play, struct choosing *choosing)
{
    file_source_open(&choosing->source, play->on->agent, "/f", choose, on_source);
}

static void chosen_bytes_come_from_the_descriptor(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct choosing choosing = { .length = 5, .wants_last = true };
    struct protocol_stat stat = stat_of(11, 3);
    char bytes[16];
    int fd = file_with("hello world");

    open_play(&play, FEATURE_CONNECT);
    begin_choosing(&play, &choosing);
    expect(&play, FILE_OPEN_READ);
    answer(&play, 0, &stat, "", fd);
    assert_int_equal(choosing.answers, 1);
    assert_int_equal(choosing.source.offset, 6);
    assert_int_equal(file_source_read(&choosing.source, bytes, sizeof(bytes)), 5);
    assert_memory_equal(bytes, "world", 5);
    assert_int_equal(file_source_read(&choosing.source, bytes, sizeof(bytes)), 0);
    file_source_fini(&choosing.source);
    close(fd);
}

static void chosen_bytes_are_asked_for_when_the_size_is_known(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct choosing choosing = { .length = 5, .wants_last = true };
    struct protocol_stat stat = stat_of(11, 3);
    char bytes[16];
    int pipe;

    open_play(&play, STREAMS);
    begin_choosing(&play, &choosing);
    expect(&play, FILE_STAT);
    assert_int_equal(play.file.flags, 0);
    answer(&play, 0, &stat, "", -1);
    expect(&play, FILE_READ);
    assert_int_equal(play.file.offset, 6);
    assert_int_equal(play.file.bytes, 5);
    pipe = answer_with_pipe(&play, &stat);
    assert_int_equal(choosing.answers, 1);
    assert_int_equal(choosing.choices, 1);
    assert_int_equal(file_source_read(&choosing.source, bytes, sizeof(bytes)), -1);
    assert_int_equal(errno, EAGAIN);
    put(pipe, "world and more");
    assert_int_equal(file_source_read(&choosing.source, bytes, sizeof(bytes)), 5);
    assert_memory_equal(bytes, "world", 5);
    assert_int_equal(file_source_read(&choosing.source, bytes, sizeof(bytes)), 0);
    file_source_fini(&choosing.source);
    close(pipe);
}

static void where_no_bytes_are_wanted_none_are_opened(void **state UNUSED)
{
    struct protocol_stat stat = stat_of(5, 3);

    for (int mode = 0; mode < 2; mode++) {
        scoped(play_close) struct play play;
        struct choosing choosing = { .length = 5, .wants_none = true };
        int fd = file_with("hello");

        open_play(&play, mode ? STREAMS : FEATURE_CONNECT);
        begin_choosing(&play, &choosing);
        expect(&play, mode ? FILE_STAT : FILE_OPEN_READ);
        answer(&play, 0, &stat, "", mode ? -1 : fd);
        assert_int_equal(choosing.answers, 1);
        assert_int_equal(choosing.source.err.code, ERR_NONE);
        assert_int_equal(choosing.source.fd, -1);
        assert_int_equal(choosing.source.stat.size, 5);
        assert_false(hear_any(&play));
        file_source_fini(&choosing.source);
        close(fd);
    }
}

static void what_is_no_file_is_refused_as_init_does_it(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct choosing choosing = { .length = 5 };
    struct protocol_stat stat = stat_of(4096, 3);

    open_play(&play, STREAMS);
    stat.mode = S_IFDIR | 0755;
    begin_choosing(&play, &choosing);
    expect(&play, FILE_STAT);
    answer(&play, 0, &stat, "", -1);
    expect(&play, FILE_READ);
    answer(&play, EISDIR, NULL, "", -1);
    assert_int_equal(choosing.answers, 1);
    assert_int_equal(choosing.choices, 0);
    assert_int_equal(choosing.source.sys_errno, EISDIR);
    assert_string_equal(choosing.source.err.name, "is_a_directory");
    file_source_fini(&choosing.source);
}

static void of_a_file_that_changes_meanwhile_the_new_version_is_chosen_from(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct choosing choosing = { .length = 5, .wants_last = true };
    struct protocol_stat first = stat_of(11, 3), second = stat_of(20, 4);
    char bytes[16];
    int pipe;

    open_play(&play, STREAMS);
    begin_choosing(&play, &choosing);
    expect(&play, FILE_STAT);
    answer(&play, 0, &first, "", -1);
    expect(&play, FILE_READ);
    close(answer_with_pipe(&play, &second)); /* bytes 6 to 11 of the second: not the last */
    assert_int_equal(choosing.answers, 0);
    expect(&play, FILE_STAT);
    answer(&play, 0, &second, "", -1);
    expect(&play, FILE_READ);
    assert_int_equal(play.file.offset, 15);
    pipe = answer_with_pipe(&play, &second);
    assert_int_equal(choosing.answers, 1);
    assert_int_equal(choosing.source.stat.inode, 4);
    put(pipe, "right");
    assert_int_equal(file_source_read(&choosing.source, bytes, sizeof(bytes)), 5);
    assert_memory_equal(bytes, "right", 5);
    file_source_fini(&choosing.source);
    close(pipe);
}

static void bytes_that_are_the_same_in_both_versions_are_not_asked_for_again(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct choosing choosing = { .offset = 2, .length = 5 };
    struct protocol_stat first = stat_of(11, 3), second = stat_of(20, 4);
    int pipe;

    open_play(&play, STREAMS);
    begin_choosing(&play, &choosing);
    expect(&play, FILE_STAT);
    answer(&play, 0, &first, "", -1);
    expect(&play, FILE_READ);
    pipe = answer_with_pipe(&play, &second);
    assert_int_equal(choosing.answers, 1);
    assert_int_equal(choosing.choices, 2);
    assert_int_equal(choosing.source.stat.size, 20);
    file_source_fini(&choosing.source);
    close(pipe);
}

static void a_file_that_never_stays_the_same_is_told(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct choosing choosing = { .length = 5, .wants_last = true };
    size_t before;
    uint64_t size = 11;

    open_play(&play, STREAMS);
    before = count_descriptors();
    begin_choosing(&play, &choosing);
    while (!choosing.answers) {
        struct protocol_stat stat = stat_of(size++, 3);

        assert_true(size < 100);
        assert_true(hear_any(&play));
        if (play.file.kind == FILE_STAT)
            answer(&play, 0, &stat, "", -1);
        else
            close(answer_with_pipe(&play, &stat));
    }
    assert_int_equal(choosing.source.sys_errno, ESTALE);
    file_source_fini(&choosing.source);
    assert_int_equal(count_descriptors(), before);
}

/* --- writing ---------------------------------------------------------------------------------- */

struct writing {
    struct file_writer writer;
    unsigned opened, committed, rooms;
};

static void on_opened(struct file_writer *writer)
{
    container_of(writer, struct writing, writer)->opened++;
}

static void on_committed(struct file_writer *writer)
{
    container_of(writer, struct writing, writer)->committed++;
}

static void on_room(struct file_writer *writer)
{
    container_of(writer, struct writing, writer)->rooms++;
}

/* A writer that is open, and the end of init's helper. */
static int begin_writing(struct play *play, struct writing *writing)
{
    int socket;

    *writing = (struct writing){ 0 };
    file_writer_open(&writing->writer, play->on->agent, "/f", 0600, on_opened);
    writing->writer.on_room = on_room;
    expect(play, FILE_WRITE);
    assert_int_equal(play->file.mode, 0600);
    socket = answer_with_socket(play, ".tmp");
    assert_int_equal(writing->opened, 1);
    assert_int_equal(writing->writer.err.code, ERR_NONE);
    return socket;
}

static void tell_note(int socket, enum protocol_note_kind kind, int error, uint64_t amount)
{
    struct protocol_note note = { .kind = (uint16_t)kind, .error = error, .amount = amount };
    _Alignas(8) char bytes[128];
    long length = protocol_note_encode(bytes, sizeof(bytes), &note, "", 0, "", 0);

    assert_true(length > 0);
    assert_int_equal(write(socket, bytes, (size_t)length), length);
}

/* What has come through the socket; true at its end. */
static bool take(int socket, struct buffer *out)
{
    ssize_t count;

    while ((count = read(socket, buffer_reserve(out, 64 << 10), 64 << 10)) > 0)
        buffer_advance(out, (size_t)count);
    return count == 0;
}

static void assert_abandoned(struct play *play)
{
    expect(play, FILE_COMMIT);
    assert_int_equal(play->file.flags, FILE_ABANDON);
    assert_string_equal(play->second, ".tmp");
}

static void a_file_is_written_to_its_descriptor(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct protocol_version expected = { 1, 2, 3 };
    struct protocol_stat stat = stat_of(5, 9);
    struct writing writing = { 0 };
    int fd = file_with("");
    char bytes[16];

    open_play(&play, FEATURE_CONNECT);
    file_writer_open(&writing.writer, play.on->agent, "/f", 0, on_opened);
    expect(&play, FILE_OPEN_WRITE);
    answer(&play, 0, NULL, ".tmp", fd);
    assert_int_equal(file_writer_add(&writing.writer, "hello", 5), 0);
    assert_false(file_writer_is_full(&writing.writer));
    assert_int_equal(pread(fd, bytes, sizeof(bytes), 0), 5);
    file_writer_commit(&writing.writer, play.on->agent, FILE_EXPECT, &expected, on_committed);
    expect(&play, FILE_COMMIT);
    assert_int_equal(play.file.flags, FILE_EXPECT);
    assert_int_equal(play.file.expected.inode, 2);
    assert_string_equal(play.second, ".tmp");
    answer(&play, 0, &stat, "", -1);
    assert_int_equal(writing.committed, 1);
    assert_int_equal(writing.writer.stat.inode, 9);
    file_writer_fini(&writing.writer, play.on->agent);
    assert_false(hear_any(&play));
    close(fd);
}

static void a_file_is_committed_when_init_has_all_of_it(void **state UNUSED)
{
    scoped(play_close) struct play play;
    scoped(buffer_fini) struct buffer got = BUFFER_INIT(1 << 20);
    struct protocol_stat stat = stat_of(11, 9);
    struct writing writing;
    size_t before;
    int socket;

    open_play(&play, STREAMS);
    before = count_descriptors();
    socket = begin_writing(&play, &writing);
    assert_int_equal(file_writer_add(&writing.writer, "hello ", 6), 0);
    assert_int_equal(file_writer_add(&writing.writer, "", 0), 0);
    assert_int_equal(file_writer_add(&writing.writer, "world", 5), 0);
    assert_false(take(socket, &got));
    file_writer_commit(&writing.writer, play.on->agent, FILE_SYNC, NULL, on_committed);
    turn(play.on);
    assert_true(take(socket, &got));
    assert_int_equal(got.length, 11);
    assert_memory_equal(got.data, "hello world", 11);
    assert_false(hear_any(&play)); /* it is not in the file yet */
    tell_note(socket, NOTE_LAST, 0, 11);
    expect(&play, FILE_COMMIT);
    assert_int_equal(play.file.flags, FILE_SYNC);
    assert_string_equal(play.second, ".tmp");
    answer(&play, 0, &stat, "", -1);
    assert_int_equal(writing.committed, 1);
    assert_int_equal(writing.writer.err.code, ERR_NONE);
    assert_int_equal(writing.writer.stat.inode, 9);
    assert_int_equal(writing.rooms, 0);
    file_writer_fini(&writing.writer, play.on->agent);
    assert_false(hear_any(&play));
    close(socket);
    assert_int_equal(count_descriptors(), before);
}

static void an_empty_file_is_a_file(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct protocol_stat stat = stat_of(0, 9);
    struct writing writing;
    int socket;

    open_play(&play, STREAMS);
    socket = begin_writing(&play, &writing);
    file_writer_commit(&writing.writer, play.on->agent, 0, NULL, on_committed);
    tell_note(socket, NOTE_LAST, 0, 0);
    expect(&play, FILE_COMMIT);
    answer(&play, 0, &stat, "", -1);
    assert_int_equal(writing.committed, 1);
    file_writer_fini(&writing.writer, play.on->agent);
    close(socket);
}

static void the_last_word_may_come_byte_by_byte(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct protocol_note note = { .kind = NOTE_LAST, .error = ENOSPC };
    _Alignas(8) char bytes[128];
    long length = protocol_note_encode(bytes, sizeof(bytes), &note, "", 0, "full", 4);
    struct writing writing;
    int socket;

    open_play(&play, STREAMS);
    socket = begin_writing(&play, &writing);
    file_writer_commit(&writing.writer, play.on->agent, 0, NULL, on_committed);
    for (long i = 0; i < length; i++) {
        assert_int_equal(writing.committed, 0);
        assert_int_equal(write(socket, bytes + i, 1), 1);
        turn(play.on);
    }
    assert_int_equal(writing.committed, 1);
    assert_int_equal(writing.writer.sys_errno, ENOSPC);
    assert_int_equal(writing.writer.err.code, ERR_NO_SPACE);
    file_writer_fini(&writing.writer, play.on->agent);
    assert_abandoned(&play);
    close(socket);
}

static void a_full_disk_is_told_while_bytes_are_added(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct writing writing;
    int socket;

    open_play(&play, STREAMS);
    socket = begin_writing(&play, &writing);
    assert_int_equal(file_writer_add(&writing.writer, "hello", 5), 0);
    tell_note(socket, NOTE_LAST, ENOSPC, 0);
    close(socket);
    turn(play.on);
    assert_int_equal(writing.rooms, 1);
    assert_int_equal(writing.writer.err.code, ERR_NO_SPACE);
    assert_int_equal(file_writer_add(&writing.writer, "hello", 5), -1);
    assert_int_equal(writing.writer.err.code, ERR_NO_SPACE);
    file_writer_commit(&writing.writer, play.on->agent, 0, NULL, on_committed);
    assert_int_equal(writing.committed, 0);
    turn(play.on);
    assert_int_equal(writing.committed, 1);
    assert_int_equal(writing.writer.err.code, ERR_NO_SPACE);
    assert_false(hear_any(&play));
    file_writer_fini(&writing.writer, play.on->agent);
    assert_abandoned(&play);
}

/* The note lies in the socket when the next bytes find it closed. */
static void a_full_disk_is_told_although_the_socket_is_closed(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct writing writing;
    int socket;

    open_play(&play, STREAMS);
    socket = begin_writing(&play, &writing);
    assert_int_equal(file_writer_add(&writing.writer, "hello", 5), 0);
    tell_note(socket, NOTE_LAST, ENOSPC, 0);
    close(socket);
    assert_int_equal(file_writer_add(&writing.writer, "hello", 5), 0);
    file_writer_commit(&writing.writer, play.on->agent, 0, NULL, on_committed);
    turn(play.on);
    assert_int_equal(writing.committed, 1);
    assert_int_equal(writing.writer.err.code, ERR_NO_SPACE);
    file_writer_fini(&writing.writer, play.on->agent);
    assert_abandoned(&play);
}

/* Each is what a helper may not say: the file is not committed. */
static void a_wrong_last_word_commits_nothing(void **state UNUSED)
{
    static const struct {
        enum protocol_note_kind kind;
        uint64_t amount;
        int number;
        bool is_early, is_garbage;
    } cases[] = {
        { NOTE_LAST, 4, EIO, false, false },   { NOTE_LAST, 6, EIO, false, false },
        { NOTE_LAST, 5, EPROTO, true, false }, { NOTE_REFUSED, 5, EPROTO, false, false },
        { NOTE_PORT, 5, EPROTO, true, false }, { 0, 0, EPROTO, false, true },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        scoped(play_close) struct play play;
        struct writing writing;
        int socket;

        open_play(&play, STREAMS);
        socket = begin_writing(&play, &writing);
        assert_int_equal(file_writer_add(&writing.writer, "hello", 5), 0);
        if (!cases[i].is_early)
            file_writer_commit(&writing.writer, play.on->agent, 0, NULL, on_committed);
        if (cases[i].is_garbage)
            put(socket, "this is not a note, and it is longer than one has to be");
        else
            tell_note(socket, cases[i].kind, 0, cases[i].amount);
        turn(play.on);
        assert_int_equal(writing.committed, !cases[i].is_early);
        assert_int_equal(writing.rooms, cases[i].is_early);
        assert_int_equal(writing.writer.sys_errno, cases[i].number);
        assert_false(hear_any(&play));
        file_writer_fini(&writing.writer, play.on->agent);
        assert_abandoned(&play);
        close(socket);
    }
}

static void a_helper_that_dies_is_noticed_at_every_stage(void **state UNUSED)
{
    for (unsigned at = 0; at < 3; at++) {
        scoped(play_close) struct play play;
        struct writing writing;
        int socket;

        open_play(&play, STREAMS);
        socket = begin_writing(&play, &writing);
        if (at > 0)
            assert_int_equal(file_writer_add(&writing.writer, "hello", 5), 0);
        if (at > 1)
            file_writer_commit(&writing.writer, play.on->agent, 0, NULL, on_committed);
        close(socket);
        turn(play.on);
        assert_int_equal(writing.committed, at > 1);
        assert_int_equal(writing.rooms, at <= 1);
        assert_int_equal(writing.writer.err.code, ERR_BACKEND);
        assert_int_equal(play.on->lost, 0);
        file_writer_fini(&writing.writer, play.on->agent);
        assert_abandoned(&play);
    }
}

/* Stages: asked, open, full, committed, all sent, named. */
static void a_writing_can_be_given_up_at_every_stage(void **state UNUSED)
{
    static char piece[64 << 10];

    for (unsigned at = 0; at < 6; at++) {
        scoped(play_close) struct play play;
        scoped(buffer_fini) struct buffer got = BUFFER_INIT(64 << 20);
        struct writing writing = { 0 };
        size_t before;
        int socket = -1;

        open_play(&play, STREAMS);
        before = count_descriptors();
        if (at == 0) {
            file_writer_open(&writing.writer, play.on->agent, "/f", 0, on_opened);
            expect(&play, FILE_WRITE);
        } else {
            socket = begin_writing(&play, &writing);
        }
        while (at == 2 && !file_writer_is_full(&writing.writer))
            assert_int_equal(file_writer_add(&writing.writer, piece, sizeof(piece)), 0);
        if (at > 2)
            file_writer_commit(&writing.writer, play.on->agent, 0, NULL, on_committed);
        if (at > 3)
            assert_true(take(socket, &got));
        if (at > 4) {
            tell_note(socket, NOTE_LAST, 0, 0);
            expect(&play, FILE_COMMIT);
        }
        file_writer_fini(&writing.writer, play.on->agent);
        if (at == 0)
            socket = answer_with_socket(&play, ".tmp");
        assert_abandoned(&play);
        assert_true(take(socket, &got));
        close(socket);
        assert_int_equal(writing.committed, 0);
        assert_int_equal(count_descriptors(), before);
    }
}

/* Stages as before; the agent may also be freed by its owner, who then says that it is gone. */
static void a_writing_survives_the_loss_of_its_agent(void **state UNUSED)
{
    for (unsigned at = 0; at < 5; at++) {
        for (int frees = 0; frees < 2; frees++) {
            scoped(play_close) struct play play;
            struct writing writing = { 0 };
            int socket = -1;

            open_play(&play, STREAMS);
            if (at == 0) {
                file_writer_open(&writing.writer, play.on->agent, "/f", 0, on_opened);
                expect(&play, FILE_WRITE);
            } else {
                socket = begin_writing(&play, &writing);
                assert_int_equal(file_writer_add(&writing.writer, "hello", 5), 0);
            }
            if (at > 1)
                file_writer_commit(&writing.writer, play.on->agent, 0, NULL, on_committed);
            if (at == 3)
                tell_note(socket, NOTE_LAST, 0, 5); /* lies there unread */
            if (at > 3) {
                tell_note(socket, NOTE_LAST, 0, 5);
                expect(&play, FILE_COMMIT);
            }
            if (frees) {
                agent_free(steal_ptr(&play.on->agent));
                file_writer_fini(&writing.writer, NULL);
                turn(play.on);
                assert_int_equal(writing.committed, 0);
            } else {
                hang_up(&play);
                assert_int_equal(writing.committed, at > 1);
                assert_int_equal(writing.opened, 1);
                assert_int_equal(writing.writer.err.code, at == 1 ? ERR_NONE : ERR_BACKEND);
                file_writer_fini(&writing.writer, play.on->agent);
            }
            fd_close(socket);
        }
    }
}

static void a_commit_without_an_agent_fails(void **state UNUSED)
{
    for (int mode = 0; mode < 2; mode++) {
        scoped(play_close) struct play play;
        struct writing writing = { 0 };
        int fd = file_with("");

        open_play(&play, mode ? STREAMS : FEATURE_CONNECT);
        file_writer_open(&writing.writer, play.on->agent, "/f", 0, on_opened);
        expect(&play, mode ? FILE_WRITE : FILE_OPEN_WRITE);
        if (mode)
            close(answer_with_socket(&play, ".tmp"));
        else
            answer(&play, 0, NULL, ".tmp", fd);
        file_writer_commit(&writing.writer, NULL, 0, NULL, on_committed);
        assert_int_equal(writing.committed, 0);
        turn(play.on);
        assert_int_equal(writing.committed, 1);
        assert_int_equal(writing.writer.err.code, ERR_BACKEND);
        file_writer_fini(&writing.writer, NULL);
        close(fd);
    }
}

/* A caller who waits for room has one piece in memory, however slow the sandbox is. */
static void a_slow_sandbox_holds_its_writer_back(void **state UNUSED)
{
    enum { TOTAL = 32 << 20, PIECE = 64 << 10 };
    static uint8_t piece[PIECE];
    scoped(play_close) struct play play;
    struct protocol_stat stat = stat_of(TOTAL, 9);
    struct writing writing;
    uint64_t added = 0, got = 0;
    unsigned rooms = 0;
    ssize_t count;
    int socket;

    open_play(&play, STREAMS);
    socket = begin_writing(&play, &writing);
    while (got < TOTAL) {
        while (added < TOTAL && !file_writer_is_full(&writing.writer)) {
            for (size_t i = 0; i < PIECE; i++)
                piece[i] = (uint8_t)((added + i) * 31 >> 8);
            assert_int_equal(file_writer_add(&writing.writer, piece, PIECE), 0);
            added += PIECE;
            assert_true(writing.writer.pending.length <= PIECE);
            assert_true(added - got <= (4 << 20));
        }
        count = read(socket, piece, sizeof(piece));
        assert_true(count > 0);
        for (ssize_t i = 0; i < count; i++)
            if (piece[i] != (uint8_t)((got + (uint64_t)i) * 31 >> 8))
                fail_msg("wrong byte at %llu", (unsigned long long)(got + (uint64_t)i));
        got += (uint64_t)count;
        turn(play.on);
        assert_true(writing.rooms >= rooms);
        rooms = writing.rooms;
    }
    assert_true(rooms > 10);
    file_writer_commit(&writing.writer, play.on->agent, 0, NULL, on_committed);
    assert_int_equal(read(socket, piece, sizeof(piece)), 0);
    tell_note(socket, NOTE_LAST, 0, TOTAL);
    expect(&play, FILE_COMMIT);
    answer(&play, 0, &stat, "", -1);
    assert_int_equal(writing.committed, 1);
    file_writer_fini(&writing.writer, play.on->agent);
    close(socket);
}

static void content_that_is_in_memory_is_added_at_once(void **state UNUSED)
{
    enum { TOTAL = 16 << 20 };
    scoped(play_close) struct play play;
    scoped(buffer_fini) struct buffer got = BUFFER_INIT(TOTAL + (64 << 10));
    scoped(free) uint8_t *content = xmalloc(TOTAL);
    struct writing writing;
    int socket;

    for (size_t i = 0; i < TOTAL; i++)
        content[i] = (uint8_t)(i * 31 >> 8);
    open_play(&play, STREAMS);
    socket = begin_writing(&play, &writing);
    assert_int_equal(file_writer_add(&writing.writer, content, TOTAL), 0);
    file_writer_commit(&writing.writer, play.on->agent, 0, NULL, on_committed);
    turn_until(&play, take(socket, &got));
    assert_int_equal(got.length, TOTAL);
    assert_memory_equal(got.data, content, TOTAL);
    tell_note(socket, NOTE_LAST, 0, TOTAL);
    expect(&play, FILE_COMMIT);
    file_writer_fini(&writing.writer, play.on->agent);
    close(socket);
}

/* --- an init that is busy --------------------------------------------------------------------- */

/* Asked for again, whatever became of it before; the pauses are short at first. */
static void expect_later(struct play *play, enum protocol_file_kind kind)
{
    turn_until(play, poll(&(struct pollfd){ .fd = play->on->init, .events = POLLIN }, 1, 1) > 0);
    expect(play, kind);
}

static void content_is_asked_for_again_while_init_has_no_stream_left(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct protocol_stat stat = stat_of(5, 3);
    struct reading reading;
    struct writing writing = { 0 };
    int pipe;

    open_play(&play, STREAMS);
    begin_reading(&play, &reading, 100);
    expect(&play, FILE_READ);
    for (int i = 0; i < 3; i++) {
        answer(&play, EAGAIN, NULL, "", -1);
        assert_int_equal(reading.answers, 0);
        expect_later(&play, FILE_READ);
    }
    pipe = answer_with_pipe(&play, &stat);
    put(pipe, "hello");
    close(pipe);
    turn(play.on);
    assert_content(&reading, "hello");
    file_reader_fini(&reading.reader);

    file_writer_open(&writing.writer, play.on->agent, "/f", 0600, on_opened);
    expect(&play, FILE_WRITE);
    answer(&play, EAGAIN, NULL, "", -1);
    assert_int_equal(writing.opened, 0);
    expect_later(&play, FILE_WRITE);
    assert_int_equal(play.file.mode, 0600);
    close(answer_with_socket(&play, ".tmp"));
    assert_int_equal(writing.opened, 1);
    file_writer_fini(&writing.writer, play.on->agent);
}

static void a_refusal_of_another_kind_is_told_at_once(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct reading reading;

    open_play(&play, FEATURE_CONNECT);
    begin_reading(&play, &reading, 100);
    expect(&play, FILE_OPEN_READ);
    answer(&play, EAGAIN, NULL, "", -1);
    assert_int_equal(reading.answers, 1);
    assert_int_equal(reading.reader.err.code, ERR_LIMIT);
    file_reader_fini(&reading.reader);
}

static void who_waits_for_a_stream_may_leave_or_lose_the_agent(void **state UNUSED)
{
    for (int how = 0; how < 3; how++) {
        scoped(play_close) struct play play;
        struct reading reading;

        open_play(&play, STREAMS);
        begin_reading(&play, &reading, 100);
        expect(&play, FILE_READ);
        answer(&play, EAGAIN, NULL, "", -1);
        if (how == 1)
            hang_up(&play);
        else if (how == 2)
            agent_free(steal_ptr(&play.on->agent));
        assert_int_equal(reading.answers, how == 1);
        file_reader_fini(&reading.reader);
        if (how == 0)
            assert_false(hear_any(&play));
    }
}

/* --- ports and connections -------------------------------------------------------------------- */

struct listed {
    struct listing listing;
    unsigned answers;
};

static void on_listed(struct listing *listing)
{
    container_of(listing, struct listed, listing)->answers++;
}

static void tell_port(int fd, unsigned port)
{
    struct protocol_note note = { .kind = NOTE_PORT, .number = port };
    _Alignas(8) char bytes[128];
    long length = protocol_note_encode(bytes, sizeof(bytes), &note, "", 0, "", 0);

    assert_int_equal(write(fd, bytes, (size_t)length), length);
}

static void the_ports_come_as_a_list(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct protocol_note_view note;
    struct listed listed = { 0 };
    size_t at = 0;
    int pipe;

    open_play(&play, FEATURE_CONNECT);
    listing_start_ports(&listed.listing, play.on->loop, play.on->agent, on_listed);
    assert_true(hear_any(&play));
    assert_int_equal(play.heard.type, PROTOCOL_PORTS);
    pipe = answer_with_pipe(&play, NULL);
    tell_port(pipe, 80);
    tell_port(pipe, 8080);
    turn(play.on);
    assert_int_equal(listed.answers, 0);
    tell_note(pipe, NOTE_LAST, 0, 0);
    close(pipe);
    turn(play.on);
    assert_int_equal(listed.answers, 1);
    assert_int_equal(listed.listing.err.code, ERR_NONE);
    assert_true(listing_next_note(&listed.listing, &at, &note));
    assert_int_equal(note.fixed.number, 80);
    assert_true(listing_next_note(&listed.listing, &at, &note));
    assert_int_equal(note.fixed.number, 8080);
    listing_fini(&listed.listing);
}

static void a_list_of_ports_that_breaks_off_is_none(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct listed listed = { 0 };
    int pipe;

    open_play(&play, FEATURE_CONNECT);
    listing_start_ports(&listed.listing, play.on->loop, play.on->agent, on_listed);
    assert_true(hear_any(&play));
    pipe = answer_with_pipe(&play, NULL);
    tell_port(pipe, 80);
    close(pipe);
    turn(play.on);
    assert_int_equal(listed.answers, 1);
    assert_int_equal(listed.listing.err.code, ERR_BACKEND);
    listing_fini(&listed.listing);
}

static int tcp_listener(struct sockaddr_in *out_address)
{
    socklen_t length = sizeof(*out_address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *out_address =
        (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    assert_int_equal(bind(fd, (struct sockaddr *)out_address, length), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)out_address, &length), 0);
    return fd;
}

static void begin_connecting(struct play *play, struct asked *asked)
{
    *asked = (struct asked){ 0 };
    agent_connect(play->on->agent, "", 80, NULL, &asked->request, on_done);
    assert_true(hear_any(play));
    assert_int_equal(play->heard.type, PROTOCOL_CONNECT);
}

static void a_connection_is_a_stream_socket_of_any_kind(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct sockaddr_in address;
    struct asked asked;
    int listener = tcp_listener(&address);
    int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int ends[2];

    open_play(&play, FEATURE_CONNECT);
    assert_int_equal(connect(tcp, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    for (int i = 0; i < 2; i++) {
        begin_connecting(&play, &asked);
        answer(&play, 0, NULL, "", i ? ends[0] : tcp);
        assert_int_equal(asked.answers, 1);
        assert_int_equal(asked.request.err.code, ERR_NONE);
        assert_true(fcntl(asked.request.result.file.fd, F_GETFL) & O_NONBLOCK);
        close(asked.request.result.file.fd);
    }
    begin_connecting(&play, &asked);
    answer(&play, ECONNREFUSED, NULL, "", -1);
    assert_int_equal(asked.request.sys_errno, ECONNREFUSED);
    assert_int_equal(play.on->lost, 0);
    close(listener);
    close(tcp);
    close(ends[0]);
    close(ends[1]);
}

static void what_is_no_connection_is_refused(void **state UNUSED)
{
    struct sockaddr_in address;
    int ends[2], packets[2], pipe_ends[2];
    int fds[4];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, packets), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(pipe2(pipe_ends, O_CLOEXEC), 0);
    fds[0] = tcp_listener(&address);
    fds[1] = packets[0];
    fds[2] = ends[0];
    fds[3] = pipe_ends[0];
    for (int i = 0; i < 5; i++) {
        scoped(play_close) struct play play;
        struct asked asked;

        open_play(&play, FEATURE_CONNECT);
        begin_connecting(&play, &asked);
        answer(&play, 0, NULL, "", i < 4 ? fds[i] : -1);
        assert_int_equal(asked.answers, 1);
        assert_int_equal(asked.request.err.code, ERR_BACKEND);
        assert_int_equal(play.on->lost, 1);
    }
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    close(packets[1]);
    close(ends[1]);
    close(pipe_ends[1]);
}

static void an_init_of_an_earlier_release_is_not_asked_for_ports(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct asked asked = { 0 };
    struct listed listed = { 0 };

    open_play(&play, 0);
    agent_connect(play.on->agent, "", 80, NULL, &asked.request, on_done);
    turn(play.on);
    assert_int_equal(asked.answers, 1);
    assert_string_equal(asked.request.err.name, "sandbox_too_old");
    listing_start_ports(&listed.listing, play.on->loop, play.on->agent, on_listed);
    turn(play.on);
    assert_int_equal(listed.answers, 1);
    assert_string_equal(listed.listing.err.name, "sandbox_too_old");
    assert_false(hear_any(&play));
    assert_int_equal(play.on->lost, 0);
    listing_fini(&listed.listing);
}

static void a_socket_inside_has_a_path_and_a_port_has_none(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct asked asked = { 0 };

    open_play(&play, FEATURE_CONNECT);
    agent_connect(play.on->agent, "nobody", 0, "", &asked.request, on_done);
    turn(play.on);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_INVALID);
    agent_connect(play.on->agent, "nobody", 0, "/run/app.sock", &asked.request, on_done);
    assert_true(hear_any(&play));
    assert_int_equal(play.heard.type, PROTOCOL_CONNECT);
    agent_cancel(&asked.request);
}

/* An attendant is told of the loss, and of nothing else. */
static void init_cannot_answer_what_was_not_asked(void **state UNUSED)
{
    scoped(play_close) struct play play;
    struct asked asked = { 0 };
    struct protocol_done done = { .value = 0 };

    open_play(&play, FEATURE_CONNECT);
    agent_attend(play.on->agent, &asked.request, on_done);
    assert_false(hear_any(&play));
    done.header = protocol_header(PROTOCOL_DONE, sizeof(done), 0, asked.request.id);
    say(play.on, &done, sizeof(done), NULL, 0);
    turn(play.on);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_BACKEND);
    assert_int_equal(play.on->lost, 1);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_read_from_its_descriptor),
        TEST(a_file_is_read_through_a_pipe),
        TEST(a_file_that_grew_is_read_to_its_end),
        TEST(a_pipe_that_ends_early_is_no_file),
        TEST(a_size_that_no_file_can_have_ends_the_connection),
        TEST(of_a_file_that_is_too_large_the_beginning_is_kept),
        TEST(links_and_other_files_of_the_same_name_are_told),
        TEST(a_reading_can_be_given_up_or_lost_at_every_stage),
        TEST(chosen_bytes_come_from_the_descriptor),
        TEST(chosen_bytes_are_asked_for_when_the_size_is_known),
        TEST(where_no_bytes_are_wanted_none_are_opened),
        TEST(what_is_no_file_is_refused_as_init_does_it),
        TEST(of_a_file_that_changes_meanwhile_the_new_version_is_chosen_from),
        TEST(bytes_that_are_the_same_in_both_versions_are_not_asked_for_again),
        TEST(a_file_that_never_stays_the_same_is_told),
        TEST(a_file_is_written_to_its_descriptor),
        TEST(a_file_is_committed_when_init_has_all_of_it),
        TEST(an_empty_file_is_a_file),
        TEST(the_last_word_may_come_byte_by_byte),
        TEST(a_full_disk_is_told_while_bytes_are_added),
        TEST(a_full_disk_is_told_although_the_socket_is_closed),
        TEST(a_wrong_last_word_commits_nothing),
        TEST(a_helper_that_dies_is_noticed_at_every_stage),
        TEST(a_writing_can_be_given_up_at_every_stage),
        TEST(a_writing_survives_the_loss_of_its_agent),
        TEST(a_commit_without_an_agent_fails),
        TEST(a_slow_sandbox_holds_its_writer_back),
        TEST(content_that_is_in_memory_is_added_at_once),
        TEST(content_is_asked_for_again_while_init_has_no_stream_left),
        TEST(a_refusal_of_another_kind_is_told_at_once),
        TEST(who_waits_for_a_stream_may_leave_or_lose_the_agent),
        TEST(the_ports_come_as_a_list),
        TEST(a_list_of_ports_that_breaks_off_is_none),
        TEST(a_connection_is_a_stream_socket_of_any_kind),
        TEST(what_is_no_connection_is_refused),
        TEST(an_init_of_an_earlier_release_is_not_asked_for_ports),
        TEST(a_socket_inside_has_a_path_and_a_port_has_none),
        TEST(init_cannot_answer_what_was_not_asked),
    };

    return cmocka_run_group_tests_name("agent/files", tests, NULL, NULL);
}
