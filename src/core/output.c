#include "core/output.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/journal.h"
#include "loop/flow.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum {
    TURN_BYTES = 1024 * 1024,   /* taken from one stream at a time, if it has that share */
    SCRATCH_BYTES = 128 * 1024, /* where splice cannot be used */
    PIPE_BYTES = 1024 * 1024,   /* of a stream that proves busy */
    BUSY_TURNS = 4,             /* turns in a row that found a full pipe */
    PIPE_FULL_BYTES = 64 * 1024,
    AHEAD_BYTES = 16 * 1024,     /* room made in the file for one read */
    TERMINAL_BYTES = 128 * 1024, /* at most this much is on its way through a terminal */
    LEAST_CAP_BYTES = 64 * 1024, /* of a stream, whatever quota is exceeded */
    PUNCH_BYTES = 4 * 1024 * 1024,
    ON_ITS_WAY_BYTES = 8 * 1024 * 1024, /* sent to a follower, and perhaps not received */
    PAGE_BYTES = 4096,

    /* Sockets that bytes were sent to refer to the very pages of the file. A hole takes whole
     * folios of the page cache away, which does them no harm, but it fills the rest of one that it
     * cuts with zeros. None is larger than this. */
    FOLIO_BYTES = 4 * 1024 * 1024,
};

struct output {
    struct output_options options;
    struct io_watch source;   /* fd: the pipe or terminal, owned; -1 without */
    struct flow_source share; /* of the turns of the loop */
    struct timer stall;       /* armed while the pipe waits for a follower */
    struct journal *journal;  /* borrowed; may be NULL */
    unsigned stream;          /* which one it is there */
    struct list followers;
    uint64_t passed;              /* by the reader that has come furthest */
    struct output_follower ghost; /* the place of one that vanished; not linked without one */
    int file;                     /* owned; -1 until the first byte */
    uint64_t length;              /* bytes that came */
    uint64_t stored;     /* bytes of them that have a place in the file: all, unless it failed */
    uint64_t hole_start; /* where the dropped middle begins and ends; both 0 without one */
    uint64_t hole_end;
    uint64_t finish_at;  /* complete when this much has come, or the pipe is empty */
    uint64_t cap_bytes;  /* as in the options, or less */
    uint64_t told_bytes; /* to on_kept */
    unsigned busy_turns;
    bool is_sent; /* sockets may refer to pages of the file */
    bool is_terminal;
    bool cannot_splice;
    bool is_marked; /* as being followed, by the sticky bit */
    bool is_grown;
    bool is_ahead;   /* marked: the file may be longer than its bytes, by zeros */
    bool is_waiting; /* for a reader: the source is not watched */
    bool finishing;
    bool finished;
    struct error error;  /* of writing: nothing is kept any more */
    struct error unread; /* of reading */
};

int output_full_parse(const char *name)
{
    static const char *const names[OUTPUT_FULL_KINDS] = { "drop", "block", "stop" };

    for (int i = 0; i < OUTPUT_FULL_KINDS; i++) {
        if (str_equal(names[i], name))
            return i;
    }
    return -1;
}

bool output_may_be_sent(struct output *output)
{
    bool may = output->source.fd < 0 || output->cap_bytes >= 8 * (uint64_t)FOLIO_BYTES;

    output->is_sent = output->is_sent || may;
    return may;
}

/* Where a hole may begin and end. */
static uint64_t hole_floor(const struct output *output, uint64_t bytes)
{
    uint64_t unit = output->is_sent ? FOLIO_BYTES : PAGE_BYTES;

    return bytes / unit * unit;
}

static uint64_t head_bytes(const struct output *output)
{
    return hole_floor(output, output->cap_bytes / 2);
}

/* --- the file ------------------------------------------------------------------------------ */

/* Marks for the next daemon. */
static void write_marks(const struct output *output)
{
    mode_t mode = 0600 | (output->is_marked ? S_ISVTX : 0) | (output->is_ahead ? S_IXUSR : 0);

    if (output->file >= 0)
        (void)fchmod(output->file, mode);
}

/* A daemon that died while it read a terminal has left room behind the last byte. That ends at a
 * page, and is zeros, which programs hardly write to terminals. */
static off_t cut_room(const struct output *output, off_t size)
{
    static char bytes[AHEAD_BYTES + PAGE_BYTES];
    off_t start = MAX(size - (off_t)sizeof(bytes), (off_t)0);
    ssize_t count;

    if (size % PAGE_BYTES || (count = pread(output->file, bytes, sizeof(bytes), start)) <= 0)
        return size;
    while (count > 0 && bytes[count - 1] == 0)
        count--;
    (void)!ftruncate(output->file, start + count);
    return start + count;
}

/* What an earlier daemon wrote, with the hole that it punched. */
static void find_earlier(struct output *output)
{
    off_t hole, data;
    struct stat status;

    output->file =
        openat(output->options.directory, output->options.name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (output->file < 0)
        return;
    if (fstat(output->file, &status) < 0 || !S_ISREG(status.st_mode)) {
        fd_close(steal_fd(&output->file));
        return;
    }
    if (status.st_mode & S_IXUSR)
        status.st_size = cut_room(output, status.st_size);
    output->length = output->stored = (uint64_t)status.st_size;
    output->is_ahead = status.st_mode & S_IXUSR;
    output->is_marked = status.st_mode & S_ISVTX;
    hole = lseek(output->file, 0, SEEK_HOLE);
    if (hole < 0 || hole >= status.st_size)
        return;
    data = lseek(output->file, hole, SEEK_DATA);
    output->hole_start = (uint64_t)hole;
    output->hole_end = data < 0 ? output->stored : (uint64_t)data;
    output->passed = output->hole_end;
}

/* The record knows of more than the file has. */
static void note_missing(struct output *output)
{
    output->length = output->options.recorded_bytes;
    error_named(&output->error, ERR_NO_SPACE, "output_not_kept",
                "%llu of %llu bytes were not kept: the spool had no room for them",
                (unsigned long long)(output->length - output->stored),
                (unsigned long long)output->length);
}

static int make_folder(const struct output *output)
{
    char folder[OUTPUT_NAME_SIZE];
    char *slash;

    memcpy(folder, output->options.name, sizeof(folder));
    slash = strrchr(folder, '/');
    if (!slash)
        return -1;
    *slash = '\0';
    return mkdirat(output->options.directory, folder, 0700);
}

static int create_file(struct output *output)
{
    const char *name = output->options.name;
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;

    if (output->file >= 0)
        return 0;
    output->file = openat(output->options.directory, name, flags, 0600);
    if (output->file < 0 && errno == ENOENT && make_folder(output) == 0)
        output->file = openat(output->options.directory, name, flags, 0600);
    return output->file < 0 ? error_sys(&output->error, "create the spool %s", name) : 0;
}

/* Whether nothing may be lost that no reader has passed. The program's own bytes count: a child
 * that it left in the background blocks nobody for ever. */
static bool is_blocking(const struct output *output)
{
    return output->options.full == OUTPUT_BLOCK && !output->finished;
}

/* How far the middle may be dropped: the tail stays, and what a follower has yet to read. What was
 * sent to it but perhaps not received stays too: a client that is cut off asks for it again. */
static uint64_t drop_limit(const struct output *output)
{
    uint64_t tail = output->cap_bytes - head_bytes(output);
    uint64_t limit = output->stored > tail ? output->stored - tail : 0;
    uint64_t margin = MIN(output->cap_bytes / 4, (uint64_t)ON_ITS_WAY_BYTES);
    const struct output_follower *follower;

    list_for_each (follower, &output->followers, node)
        limit = MIN(limit, follower->offset > margin ? follower->offset - margin : 0);
    if (is_blocking(output))
        limit = MIN(limit, output->passed > margin ? output->passed - margin : 0);
    return hole_floor(output, limit);
}

/* One hole: the ranges of two punches touch. */
static void punch(struct output *output, uint64_t start, uint64_t end)
{
    if (fallocate(output->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start,
                  (off_t)(end - start)) < 0) {
        error_sys(&output->error, "drop the middle of the spool %s", output->options.name);
        return;
    }
    output->hole_start = output->hole_end ? MIN(output->hole_start, start) : start;
    output->hole_end = MAX(output->hole_end, end);
}

/* In big steps, because each one costs about the same. */
static void drop_middle(struct output *output)
{
    uint64_t start = MAX(output->hole_end, head_bytes(output));
    uint64_t limit = drop_limit(output);
    uint64_t step = MIN(MAX(output->cap_bytes / 8, (uint64_t)PAGE_BYTES), (uint64_t)PUNCH_BYTES);

    if (limit >= start + step)
        punch(output, start, limit);
}

/* Half as much is kept from now on; of the head, too, unless a follower has yet to read it. */
static void shrink(struct output *output)
{
    uint64_t head, limit;

    output->cap_bytes = MAX(output->cap_bytes / 2, (uint64_t)LEAST_CAP_BYTES);
    head = head_bytes(output);
    limit = drop_limit(output);
    if (output->file >= 0 && !output->error.code && head < limit &&
        (!output->hole_end || (head < output->hole_start && limit >= output->hole_start)))
        punch(output, head, limit);
    else if (output->file >= 0 && !output->error.code)
        drop_middle(output);
}

static uint64_t kept_bytes(const struct output *output)
{
    return output->stored - (output->hole_end - output->hole_start);
}

static bool tell_kept(struct output *output)
{
    uint64_t kept = kept_bytes(output);
    int64_t more = (int64_t)(kept - output->told_bytes);

    output->told_bytes = kept;
    return more && output->options.on_kept &&
           output->options.on_kept(output->options.context, more);
}

/* A cap that is over its least only becomes smaller when it has to. */
static void keep_quota(struct output *output)
{
    while (tell_kept(output) && output->cap_bytes > LEAST_CAP_BYTES)
        shrink(output);
}

/* --- taking bytes -------------------------------------------------------------------------- */

static char scratch[SCRATCH_BYTES]; /* one loop, one thread */

/* What was written has its place, also when the rest cannot be. */
static int write_all(struct output *output, const char *data, size_t length)
{
    size_t done = 0;

    while (done < length) {
        ssize_t count =
            pwrite(output->file, data + done, length - done, (off_t)(output->stored + done));

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    output->stored += done;
    return done == length ? 0 : -1;
}

static ssize_t take_by_copy(struct output *output, size_t room)
{
    ssize_t count = read(output->source.fd, scratch, MIN(room, sizeof(scratch)));

    if (count <= 0)
        return count;
    if (!output->error.code && create_file(output) == 0 &&
        write_all(output, scratch, (size_t)count) < 0)
        error_sys(&output->error, "write the spool %s", output->options.name);
    return count;
}

static bool is_ready(int fd)
{
    struct pollfd ready = { .fd = fd, .events = POLLIN };

    return poll(&ready, 1, 0) > 0;
}

/* Room for one read at the end of the file, as memory; NULL without. Its pages are there already:
 * the kernel does not bring one in for a process that is being killed, and drops the bytes. */
static char *map_room(struct output *output, off_t page, size_t length)
{
    volatile char *window;

    if (!output->is_ahead) {
        output->is_ahead = true;
        write_marks(output);
    }
    if (fallocate(output->file, 0, page, (off_t)length) < 0)
        return NULL;
    window = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, output->file, page);
    if (window == MAP_FAILED)
        return NULL;
    for (size_t at = 0; at < length; at += PAGE_BYTES)
        window[at] = window[at];
    return (char *)(uintptr_t)window;
}

/*
 * Where splice cannot be used, as with terminals: bytes are read straight into the page cache of
 * the file, where they survive us, however soon we die. Room is made for them first, and what they
 * did not need is cut off behind them.
 */
static ssize_t take_by_map(struct output *output, size_t room)
{
    off_t page = (off_t)(output->stored / PAGE_BYTES * PAGE_BYTES);
    size_t before = (size_t)(output->stored - (uint64_t)page);
    size_t length = AHEAD_BYTES + (before ? PAGE_BYTES : 0);
    ssize_t count;
    char *window;
    int number;

    if (!is_ready(output->source.fd)) {
        errno = EAGAIN;
        return -1;
    }
    if (output->error.code || create_file(output) < 0)
        return take_by_copy(output, room);
    window = map_room(output, page, length);
    if (!window)
        return take_by_copy(output, room);
    count = read(output->source.fd, window + before, MIN(room, (size_t)AHEAD_BYTES));
    number = errno;
    (void)munmap(window, length);
    output->stored += (uint64_t)MAX(count, (ssize_t)0);
    (void)!ftruncate(output->file, (off_t)output->stored);
    errno = number;
    return count;
}

/* Readiness has to be real before the file is made: a program without output leaves none. */
static bool has_bytes(const struct output *output)
{
    int count = 0;

    return output->file >= 0 || ioctl(output->source.fd, FIONREAD, &count) < 0 || count > 0;
}

/*
 * One transfer: bytes taken, 0 at the end, -1 with errno. A failure of the file is noted and
 * answered with the copy, which drops from then on; EIO is the end of a terminal.
 */
static ssize_t take_some(struct output *output, size_t room)
{
    off_t place = (off_t)output->stored;
    ssize_t count;

    if (output->cannot_splice)
        return take_by_map(output, room);
    if (output->error.code || !has_bytes(output))
        return take_by_copy(output, room);
    if (create_file(output) < 0)
        return take_by_copy(output, room);
    count = splice(output->source.fd, NULL, output->file, &place, room, SPLICE_F_NONBLOCK);
    if (count > 0)
        output->stored += (uint64_t)count;
    if (count >= 0 || errno == EAGAIN || errno == EINTR)
        return count;
    if (errno == EINVAL)
        output->cannot_splice = true;
    else
        error_sys(&output->error, "write the spool %s", output->options.name);
    return output->cannot_splice ? take_by_map(output, room) : take_by_copy(output, room);
}

static uint64_t room_behind(const struct output *output, uint64_t offset)
{
    uint64_t limit = offset + output->cap_bytes;

    return limit > output->length ? limit - output->length : 0;
}

/* Bytes that may be taken before a follower would be left too far behind. */
static uint64_t follower_room(const struct output *output)
{
    uint64_t room = TURN_BYTES;
    const struct output_follower *follower;

    if (output->error.code)
        return room;
    list_for_each (follower, &output->followers, node)
        room = MIN(room, room_behind(output, follower->offset));
    if (is_blocking(output) && !output->finishing)
        room = MIN(room, room_behind(output, output->passed));
    return room;
}

static void on_source_ready(struct io_watch *watch, unsigned events);

static void close_source(struct output *output)
{
    int fd = output->source.fd;

    io_watch_stop(&output->source);
    flow_stop_waiting(&output->share);
    output->source.fd = -1;
    timer_stop(&output->stall);
    fd_close(fd);
    output->finished = output->finished || output->finishing;
}

/* It has been read to its end: the file is as long as its bytes, or marked for good. */
static void end_source(struct output *output)
{
    close_source(output);
    if (!output->is_ahead || ftruncate(output->file, (off_t)output->stored) < 0)
        return;
    output->is_ahead = false;
    write_marks(output);
}

/* Waiting for a follower: the first one to have stalled is given up when its time is over. */
static void wait_for_followers(struct output *output)
{
    int64_t first_us = INT64_MAX;
    const struct output_follower *follower;

    io_watch_stop(&output->source);
    list_for_each (follower, &output->followers, node) {
        if (follower->offset + output->cap_bytes <= output->length)
            first_us = MIN(first_us, follower->moved_at_us);
    }
    output->is_waiting = true;
    if (first_us < INT64_MAX)
        timer_arm_at(&output->stall, first_us + output->options.stall_timeout_us);
}

static void watch_source(struct output *output)
{
    output->is_waiting = false;
    timer_stop(&output->stall);
    io_watch_start(&output->source, output->options.loop, output->source.fd, IO_READ,
                   on_source_ready);
}

/* A bigger pipe means fewer turns for the same bytes; only streams that need it get one. */
static void grow_pipe(struct output *output, uint64_t taken)
{
    output->busy_turns = taken >= PIPE_FULL_BYTES ? output->busy_turns + 1 : 0;
    if (output->busy_turns < BUSY_TURNS || output->is_grown)
        return;
    output->is_grown = true;
    if (!output->is_terminal)
        (void)fcntl(output->source.fd, F_SETPIPE_SZ, PIPE_BYTES);
}

/* Takes up to `limit` bytes: 1 when more may be there, 0 when the source is empty, -1 at its end.
 */
static int take_turn(struct output *output, uint64_t limit)
{
    uint64_t taken = 0;
    int result = 1;

    while (taken < limit) {
        ssize_t count = take_some(output, (size_t)(limit - taken));

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            result = count < 0 && errno == EAGAIN ? 0 : -1;
            break;
        }
        taken += (uint64_t)count;
        output->length += (uint64_t)count;
        if (output->journal)
            journal_took(output->journal, output->stream, output->length);
        if (output->file >= 0 && !output->error.code)
            drop_middle(output);
    }
    grow_pipe(output, taken);
    return result;
}

static void changed(struct output *output)
{
    if (output->options.on_change)
        output->options.on_change(output->options.context);
}

/* Whether somebody follows who must not lose bytes even if the daemon goes meanwhile. */
static void mark_followed(struct output *output)
{
    bool followed = !list_is_empty(&output->followers);

    if (output->is_marked == followed || output->file < 0)
        return;
    output->is_marked = followed;
    write_marks(output);
}

/* A follower that has read everything begins to stall only when there is something to read. The
 * place of one that vanished is not kept for longer than it would be waited for. */
static void restart_stall_clocks(struct output *output)
{
    int64_t now_us = loop_now_us(output->options.loop);
    struct output_follower *follower;

    if (list_is_linked(&output->ghost.node) &&
        output->ghost.moved_at_us + output->options.stall_timeout_us <= now_us)
        list_remove(&output->ghost.node);
    list_for_each (follower, &output->followers, node) {
        if (follower->offset >= output->length && follower != &output->ghost)
            follower->moved_at_us = now_us;
    }
    mark_followed(output);
}

/* After a transfer: what the source waits for now. */
static void wait_for_more(struct output *output, uint64_t taken, int result)
{
    bool has_room = result <= 0 || follower_room(output);
    bool waits = flow_took(&output->share, taken, result > 0 && has_room);

    if (output->source.fd < 0)
        return;
    if (!has_room)
        wait_for_followers(output);
    else if (waits)
        io_watch_stop(&output->source);
    else
        watch_source(output);
}

static void drain(struct output *output)
{
    uint64_t before = output->length;
    bool was_finished = output->finished;
    uint64_t room, share;
    int result;

    restart_stall_clocks(output);
    room = follower_room(output);
    share = room ? flow_ask(&output->share) : 0;
    if (room && !share) {
        io_watch_stop(&output->source);
        return;
    }
    result = room ? take_turn(output, MIN(room, share)) : 1;
    if (result < 0)
        end_source(output);
    else if (output->finishing && (result == 0 || output->length >= output->finish_at))
        output->finished = true;
    keep_quota(output);
    wait_for_more(output, output->length - before, result);
    if (output->length != before || output->finished != was_finished || result < 0)
        changed(output);
}

static void on_served(struct flow_source *source)
{
    drain(container_of(source, struct output, share));
}

static void on_source_ready(struct io_watch *watch, unsigned events UNUSED)
{
    drain(container_of(watch, struct output, source));
}

static void continue_source(struct output *output)
{
    if (output->source.fd >= 0 && output->is_waiting)
        watch_source(output);
}

/* --- life ---------------------------------------------------------------------------------- */

static void on_stall(struct timer *timer)
{
    struct output *output = container_of(timer, struct output, stall);
    int64_t since_us = loop_now_us(output->options.loop) - output->options.stall_timeout_us;
    struct output_follower *follower, *following;
    struct list stalled = LIST_INIT(stalled);

    list_for_each_safe (follower, following, &output->followers, node) {
        if (follower->offset + output->cap_bytes > output->length ||
            follower->moved_at_us > since_us)
            continue;
        list_remove(&follower->node);
        list_append(&stalled, &follower->node);
    }
    while ((follower = list_first(&stalled, struct output_follower, node))) {
        list_remove(&follower->node);
        if (follower->on_stalled)
            follower->on_stalled(follower);
    }
    if (output->source.fd >= 0)
        drain(output);
}

struct output *output_new(const struct output_options *options)
{
    struct output *output = xnew(struct output);

    output->options = *options;
    output->options.cap_bytes = MAX(options->cap_bytes, (uint64_t)(4 * PAGE_BYTES));
    output->cap_bytes = output->options.cap_bytes;
    output->file = -1;
    output->source.fd = -1;
    list_init(&output->followers);
    timer_init(&output->stall, options->loop, on_stall);
    flow_join(&output->share, options->flows, options->flow, on_served);
    if (!options->is_new)
        find_earlier(output);
    if (options->recorded_bytes > output->length)
        note_missing(output);
    return output;
}

void output_free(struct output *output)
{
    if (!output)
        return;
    close_source(output);
    flow_leave(&output->share);
    while (!list_is_empty(&output->followers))
        list_remove(output->followers.next);
    fd_close(output->file);
    free(output);
}

static void keep_place(struct output *output, uint64_t offset)
{
    bool is_kept = list_is_linked(&output->ghost.node);

    output->ghost.offset = is_kept ? MIN(output->ghost.offset, offset) : offset;
    output->ghost.moved_at_us = loop_now_us(output->options.loop);
    if (!is_kept)
        list_append(&output->followers, &output->ghost.node);
}

void output_set_journal(struct output *output, struct journal *journal, unsigned stream)
{
    output->journal = journal;
    output->stream = stream;
}

void output_take(struct output *output, int fd, bool is_terminal)
{
    assert(output->source.fd < 0 && fd >= 0);
    output->is_terminal = output->cannot_splice = is_terminal;
    output->source.fd = fd;
    if (output->is_marked)
        keep_place(output, output->hole_end);
}

void output_attach(struct output *output, int fd)
{
    struct stat status;
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0 && !(flags & O_NONBLOCK))
        (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    output_take(output, fd, fstat(fd, &status) < 0 || !S_ISFIFO(status.st_mode));
    watch_source(output);
}

void output_finish(struct output *output)
{
    int waiting = 0;

    if (output->finishing)
        return;
    output->finishing = true;
    if (output->source.fd < 0) {
        output->finished = true;
        return;
    }
    if (output->is_terminal || ioctl(output->source.fd, FIONREAD, &waiting) < 0)
        waiting = TERMINAL_BYTES;
    output->finish_at = output->length + (uint64_t)waiting;
    drain(output);
}

bool output_is_finished(const struct output *output)
{
    return output->finished;
}

bool output_is_closed(const struct output *output)
{
    return output->source.fd < 0;
}

uint64_t output_length(const struct output *output)
{
    return output->length;
}

bool output_is_over(const struct output *output)
{
    return output->length > output->options.cap_bytes;
}

bool output_has_hole(const struct output *output, uint64_t *out_start, uint64_t *out_end)
{
    bool is_short = output->stored < output->length;

    if (!output->hole_end && !is_short)
        return false;
    *out_start = output->hole_end ? output->hole_start : output->stored;
    *out_end = is_short ? output->length : output->hole_end;
    return true;
}

bool output_extent(const struct output *output, uint64_t offset, uint64_t *out_start,
                   uint64_t *out_end)
{
    bool before_hole = output->hole_end && offset < output->hole_start;

    if (output->hole_end && !before_hole)
        offset = MAX(offset, output->hole_end);
    if (offset >= output->stored)
        return false;
    *out_start = offset;
    *out_end = before_hole ? output->hole_start : output->stored;
    return true;
}

const struct error *output_error(const struct output *output)
{
    if (output->error.code)
        return &output->error;
    return output->unread.code ? &output->unread : NULL;
}

void output_note_unread(struct output *output)
{
    error_sys(&output->unread, "read the spool %s", output->options.name);
}

int output_fd(const struct output *output)
{
    return output->file;
}

/* --- followers ----------------------------------------------------------------------------- */

void output_follow(struct output *output, struct output_follower *follower, uint64_t offset)
{
    list_remove(&output->ghost.node);
    follower->offset = follower->start = offset;
    follower->moved_at_us = loop_now_us(output->options.loop);
    output->passed = MAX(output->passed, MIN(offset, output->length));
    list_append(&output->followers, &follower->node);
    mark_followed(output);
    continue_source(output);
}

void output_follower_moved(struct output *output, struct output_follower *follower, uint64_t offset)
{
    if (offset <= follower->offset)
        return;
    follower->offset = offset;
    follower->moved_at_us = loop_now_us(output->options.loop);
    output->passed = MAX(output->passed, MIN(offset, output->length));
    if (list_is_linked(&follower->node))
        continue_source(output);
}

void output_unfollow(struct output *output, struct output_follower *follower)
{
    list_remove(&follower->node);
    mark_followed(output);
    continue_source(output);
}

/* Whether a later one has gone on where this one was: its client came back before we knew that it
 * had left. */
static bool is_resumed(const struct output *output, const struct output_follower *vanished)
{
    const struct list *node = vanished->node.next;

    for (; node != &output->followers; node = node->next) {
        const struct output_follower *later = container_of(node, struct output_follower, node);

        if (later->start + ON_ITS_WAY_BYTES >= vanished->offset &&
            later->start <= vanished->offset + ON_ITS_WAY_BYTES)
            return true;
    }
    return false;
}

void output_follower_vanished(struct output *output, struct output_follower *follower)
{
    bool was_waited_for = list_is_linked(&follower->node) && !is_resumed(output, follower);

    list_remove(&follower->node);
    if (was_waited_for && output->source.fd >= 0)
        keep_place(output, follower->offset);
    else
        output_unfollow(output, follower);
}
