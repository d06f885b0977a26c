/* SPDX-License-Identifier: Apache-2.0 */
#include "init/files/ports.h"

#include "init/files/file_output.h"
#include "init/files/file_work.h"
#include "init/sys.h"
#include "init/text.h"

#include <errno.h>
#include <string.h>

enum {
    FIELD_LOCAL = 1, /* of a line, from 0: number, local address, remote address, state, … inode */
    FIELD_STATE = 3,
    FIELD_INODE = 9,
    MAX_LINE = 256,
    DIGITS = 20,
};

static const char socket_prefix[] = "socket:[";

/* --- the kernel's tables ---------------------------------------------------------------------- */

/* The field with this number; NULL when there are fewer. */
static const char *find_field(const char *line, size_t length, unsigned number, size_t *out_length)
{
    const char *end = line + length;

    for (unsigned i = 0;; i++) {
        const char *start;

        while (line < end && *line == ' ')
            line++;
        start = line;
        while (line < end && *line != ' ' && *line != '\n')
            line++;
        if (line == start)
            return NULL;
        if (i == number) {
            *out_length = (size_t)(line - start);
            return start;
        }
    }
}

static bool parse_number(const char *text, size_t length, uint64_t *out)
{
    uint64_t value = 0;

    if (!length || length >= DIGITS)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *out = value;
    return true;
}

static bool parse_port(const char *text, size_t length, uint32_t *out_port)
{
    uint32_t port = 0;

    if (length < 6 || text[length - 5] != ':')
        return false;
    for (size_t i = length - 4; i < length; i++) {
        int digit = text_hex_digit(text[i]);

        if (digit < 0)
            return false;
        port = port << 4 | (uint32_t)digit;
    }
    *out_port = port;
    return port != 0;
}

bool ports_parse_line(const char *line, size_t length, uint32_t *out_port, uint64_t *out_inode)
{
    size_t local_length, state_length, inode_length;
    const char *local = find_field(line, length, FIELD_LOCAL, &local_length);
    const char *state = find_field(line, length, FIELD_STATE, &state_length);
    const char *inode = find_field(line, length, FIELD_INODE, &inode_length);

    return local && state && inode && state_length == 2 && !memcmp(state, "0A", 2) &&
           parse_port(local, local_length, out_port) &&
           parse_number(inode, inode_length, out_inode);
}

/* Takes whole lines; returns how many bytes of the text they were. */
static size_t take_lines(union file_memory *memory, size_t filled, size_t *count)
{
    const char *text = memory->ports.text;
    size_t at = 0;
    const char *end;

    while ((end = memchr(text + at, '\n', filled - at))) {
        size_t length = (size_t)(end - text) - at;
        struct port_listening *listening = &memory->ports.listening[*count];

        if (*count < PORTS_MAX_LISTENING &&
            ports_parse_line(text + at, length, &listening->port, &listening->inode)) {
            listening->is_own = !settings.direct;
            (*count)++;
        }
        at += length + 1;
    }
    return at;
}

static void read_table(union file_memory *memory, const char *path, size_t *count)
{
    char *text = memory->ports.text;
    int fd = sys_open(FD_HELPER_PROC, path, O_RDONLY, 0, 0);
    size_t filled = 0;
    long got;

    while (fd >= 0 && (got = sys(read, fd, text + filled, PORTS_TEXT_SIZE - filled)) > 0) {
        size_t used;

        filled += (size_t)got;
        used = take_lines(memory, filled, count);
        filled -= used;
        if (filled > MAX_LINE)
            filled = 0; /* no line is this long */
        memmove(text, text + used, filled);
    }
    sys_close(fd);
}

/* --- whose sockets they are ------------------------------------------------------------------- */

static void keep_socket(union file_memory *memory, size_t count, const char *target, size_t length)
{
    size_t prefix = sizeof socket_prefix - 1;
    uint64_t inode;

    if (length <= prefix + 1 || memcmp(target, socket_prefix, prefix) != 0 ||
        !parse_number(target + prefix, length - prefix - 1, &inode))
        return;
    for (size_t i = 0; i < count; i++)
        if (memory->ports.listening[i].inode == inode)
            memory->ports.listening[i].is_own = true;
}

static void look_into(union file_memory *memory, size_t count, int pid)
{
    char path[TEXT_NUMBER_SIZE + 4];
    char number[TEXT_NUMBER_SIZE];
    size_t length = text_from_u64((uint64_t)pid, number);
    long filled;
    int dir;

    (void)text_concat(path, sizeof path, number, length, "/fd");
    dir = sys_open(FD_HELPER_PROC, path, O_RDONLY | O_DIRECTORY, 0, 0);
    while (dir >= 0 && (filled = sys(getdents64, dir, memory->ports.text, PORTS_TEXT_SIZE)) > 0)
        for (long at = 0; at < filled;) {
            const struct sys_dirent *entry = (const void *)(memory->ports.text + at);
            char target[64];
            long got = sys(readlinkat, dir, entry->name, target, sizeof target);

            if (got > 0)
                keep_socket(memory, count, target, (size_t)got);
            at += entry->length;
        }
    sys_close(dir);
}

/* The sandbox shares a network namespace: its own sockets are the ones that its processes hold. */
static void find_own(union file_memory *memory, size_t count)
{
    struct tree_entry *entries = memory->ports.processes;
    size_t entry_count = tree_list(FD_HELPER_PROC, entries, PORTS_MAX_PROCESSES);

    (void)tree_mark(entries, entry_count, settings.own_pid);
    for (size_t i = 0; i < entry_count; i++)
        if (entries[i].marked && entries[i].alive)
            look_into(memory, count, entries[i].pid);
}

/* --- notes --------------------------------------------------------------------------------- */

/* One port may have several listeners: one for each address, or for each version of IP. */
static bool is_told(const union file_memory *memory, size_t until, uint32_t port)
{
    for (size_t i = 0; i < until; i++)
        if (memory->ports.listening[i].is_own && memory->ports.listening[i].port == port)
            return true;
    return false;
}

static void ports_write(struct file_work *work)
{
    union file_memory *memory = file_memory(work);
    struct file_output output = {
        .fd = work->stream,
        .bytes = memory->ports.output,
        .size = sizeof memory->ports.output,
    };
    struct protocol_note last = { .kind = NOTE_LAST };
    size_t count = 0;

    read_table(memory, "self/net/tcp", &count);
    read_table(memory, "self/net/tcp6", &count);
    if (settings.direct)
        find_own(memory, count);
    for (size_t i = 0; i < count; i++) {
        const struct port_listening *listening = &memory->ports.listening[i];
        struct protocol_note note = { .kind = NOTE_PORT, .number = listening->port };

        if (!listening->is_own || listening->port == settings.gate_port ||
            is_told(memory, i, listening->port))
            continue;
        file_output_note(&output, &note, NULL, NULL, 0);
        last.number++;
    }
    last.flags = count == PORTS_MAX_LISTENING ? NOTE_CUT : 0;
    file_output_note(&output, &last, NULL, NULL, 0);
    file_output_flush(&output);
}

int ports_open(struct file_work *work)
{
    int ends[2];
    long result;

    if (settings.proc_fd < 0)
        return -ENOSYS;
    result = sys(pipe2, ends, O_CLOEXEC);
    if (result < 0)
        return (int)result;
    work->fd = ends[0];
    work->stream = ends[1];
    work->go_on = ports_write;
    return 0;
}
