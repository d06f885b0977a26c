/* SPDX-License-Identifier: Apache-2.0 */
#include "init/tree.h"

#include "init/init.h"
#include "init/sys.h"
#include "init/text.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum {
    MAX_ENTRIES = 32768,
    STOP_ROUNDS = 16,
    KILL_PATIENCE_US = 5 * 1000 * 1000,
    KILL_PERIOD_US = 5 * 1000,
    STAT_SIZE = 512,
    FIELD_STATE = 3, /* as proc(5) counts them */
    FIELD_FLAGS = 9,
    FIELD_PENDING = 31,
    FLAG_EXITING = 4,
};

static TABLE_SELDOM_USED alignas(4096) struct tree_entry entries[MAX_ENTRIES];
static size_t entry_count;
static unsigned kills;
static int64_t next_kill_us;

/* The fields behind the name, which is in parentheses and may itself have parentheses. */
static const char *find_fields(const char *text, const char *end)
{
    const char *at = end;

    while (at > text && at[-1] != ')')
        at--;
    return at;
}

bool tree_parse_stat(const char *text, size_t length, int *out_parent, char *out_state)
{
    const char *end = text + length;
    const char *at = find_fields(text, end);
    const char *space;
    uint32_t parent;

    if (at == text || end - at < 4 || at[0] != ' ' || at[2] != ' ')
        return false;
    space = memchr(at + 3, ' ', (size_t)(end - at - 3));
    if (!space || !text_to_u32(at + 3, space, INT32_MAX, &parent))
        return false;
    *out_parent = (int)parent;
    *out_state = at[1];
    return true;
}

static bool parse_field(const char *at, const char *end, unsigned number, uint32_t *out)
{
    const char *space = NULL;

    for (unsigned i = FIELD_STATE; at && i <= number; i++) {
        space = memchr(at, ' ', (size_t)(end - at));
        at = space ? space + 1 : NULL;
    }
    space = at ? memchr(at, ' ', (size_t)(end - at)) : NULL;
    return space && text_to_u32(at, space, UINT32_MAX, out);
}

bool tree_parse_is_dying(const char *text, size_t length)
{
    const char *end = text + length;
    const char *at = find_fields(text, end);
    uint32_t flags, pending;

    return !parse_field(at, end, FIELD_FLAGS, &flags) ||
           !parse_field(at, end, FIELD_PENDING, &pending) || flags & FLAG_EXITING ||
           pending & 1u << (SIGKILL - 1);
}

static size_t read_stat_text(int proc_fd, const char *name, char text[STAT_SIZE])
{
    char path[TEXT_NUMBER_SIZE + 8];
    long length;
    int fd;

    if (text_concat(path, sizeof path, name, strlen(name), "/stat") < 0)
        return 0;
    fd = sys_open_proc(proc_fd, path, O_RDONLY);
    if (fd < 0)
        return 0;
    length = sys(read, fd, text, STAT_SIZE);
    sys_close(fd);
    return length > 0 ? (size_t)length : 0;
}

static bool read_stat(int proc_fd, const char *name, int *out_parent, char *out_state)
{
    char text[STAT_SIZE];
    size_t length = read_stat_text(proc_fd, name, text);

    return length && tree_parse_stat(text, length, out_parent, out_state);
}

static bool read_entry(int proc_fd, const char *name, struct tree_entry *out_entry)
{
    uint32_t pid;
    char state;

    if (!text_to_u32(name, name + strlen(name), INT32_MAX, &pid) ||
        !read_stat(proc_fd, name, &out_entry->parent, &state))
        return false;
    out_entry->pid = (int)pid;
    out_entry->alive = state != 'Z' && state != 'X';
    out_entry->marked = out_entry->spared = false;
    return true;
}

size_t tree_list(int proc_fd, struct tree_entry *out_entries, size_t capacity)
{
    alignas(8) char buffer[4096];
    int fd = sys_open_proc(proc_fd, ".", O_RDONLY | O_DIRECTORY);
    size_t count = 0;
    long length;

    while (fd >= 0 && (length = sys(getdents64, fd, buffer, sizeof buffer)) > 0)
        for (long at = 0; at < length;) {
            const struct sys_dirent *dirent = (const struct sys_dirent *)(buffer + at);

            if (count < capacity)
                count += read_entry(proc_fd, dirent->name, &out_entries[count]);
            at += dirent->length;
        }
    sys_close(fd);
    return count;
}

static void drop_snapshot(void)
{
    entry_count = 0;
    (void)sys(madvise, entries, sizeof entries, MADV_DONTNEED);
}

static struct tree_entry *find_entry(struct tree_entry *sorted, size_t count, int pid)
{
    size_t low = 0;

    while (count > low) {
        size_t middle = low + (count - low) / 2;

        if (sorted[middle].pid == pid)
            return &sorted[middle];
        if (sorted[middle].pid < pid)
            low = middle + 1;
        else
            count = middle;
    }
    return NULL;
}

static bool is_marked(struct tree_entry *sorted, size_t count, int pid)
{
    const struct tree_entry *entry = find_entry(sorted, count, pid);

    return entry && entry->marked;
}

unsigned tree_mark(struct tree_entry *sorted, size_t count, int root)
{
    unsigned alive = 0;
    bool changed;

    do {
        changed = false;
        for (size_t i = 0; i < count; i++) {
            struct tree_entry *entry = &sorted[i];

            if (entry->marked || entry->spared ||
                (entry->parent != root && !is_marked(sorted, count, entry->parent)))
                continue;
            entry->marked = changed = true;
            alive += entry->alive;
        }
    } while (changed);
    return alive;
}

static void spare_others(int root)
{
    for (unsigned i = 0; i < process_places() && root != settings.own_pid; i++) {
        int other = processes[i].root;
        struct tree_entry *entry = other && other != root ? find_entry(entries, entry_count, other)
                                                          : NULL;

        if (entry)
            entry->spared = true;
    }
}

static unsigned look(int root)
{
    entry_count = tree_list(settings.proc_fd, entries, MAX_ENTRIES);
    spare_others(root);
    return tree_mark(entries, entry_count, root);
}

/* The numbers are some milliseconds old at most, too short for the kernel to hand them out again. A
 * zombie is signalled too: it may be a process whose first thread has ended before the others. */
static void signal_marked(int signal_number)
{
    for (size_t i = 0; i < entry_count; i++)
        if (entries[i].marked)
            (void)sys(kill, entries[i].pid, signal_number);
}

bool tree_is_weak(void)
{
    int is_reaper;

    return sys(prctl, PR_GET_CHILD_SUBREAPER, &is_reaper, 0, 0, 0) < 0;
}

unsigned tree_count(int root)
{
    unsigned count = look(root);

    drop_snapshot();
    return count;
}

unsigned tree_signal(int root, int signal_number)
{
    unsigned count = look(root);

    signal_marked(signal_number);
    drop_snapshot();
    return count;
}

unsigned tree_kill(int root)
{
    unsigned found = look(root);
    unsigned before = 0;

    for (int round = 0; found > 1 && found != before && round < STOP_ROUNDS; round++) {
        signal_marked(SIGSTOP);
        before = found;
        found = look(root);
    }
    signal_marked(SIGKILL);
    drop_snapshot();
    return found;
}

int tree_parent(int pid)
{
    char name[TEXT_NUMBER_SIZE];
    int parent;
    char state;

    text_from_u64((uint64_t)pid, name);
    return read_stat(settings.proc_fd, name, &parent, &state) ? parent : 0;
}

int tree_parent_of_living(int pid)
{
    char name[TEXT_NUMBER_SIZE];
    char text[STAT_SIZE];
    size_t length;
    int parent;
    char state;

    text_from_u64((uint64_t)pid, name);
    length = read_stat_text(settings.proc_fd, name, text);
    return length && tree_parse_stat(text, length, &parent, &state) &&
                   !tree_parse_is_dying(text, length)
               ? parent
               : 0;
}

/* --- over several turns --------------------------------------------------------------------- */

void tree_begin_kill(struct process *process, uint64_t request)
{
    kills += !process->killing;
    process->killing = true;
    process->kill_request = request;
    process->kill_error = 0;
    process->kill_count = 0;
    process->kill_deadline_us = sys_now_us() + KILL_PATIENCE_US;
    next_kill_us = 0;
}

static void answer_kill(struct process *process, int error)
{
    process->kill_error = error;
    if (process->kill_request)
        process->pending |= PENDING_KILLED;
}

void tree_end_kill(struct process *process)
{
    if (!process->killing)
        return;
    process->killing = false;
    kills--;
    answer_kill(process, 0);
}

static void continue_kill(struct process *process, int64_t now_us)
{
    unsigned found = 0;

    if (settings.proc_fd < 0)
        (void)sys(kill, -process->main_pid, SIGKILL);
    else
        found = tree_kill(process_root(process));
    if (found > process->kill_count)
        process->kill_count = found;
    if (!found && process->flags & START_ZYGOTE)
        tree_end_kill(process); /* processes that it forked for others live on */
    else if (now_us > process->kill_deadline_us)
        answer_kill(process, ETIMEDOUT);
}

bool tree_is_killing(void)
{
    return kills > 0;
}

int tree_continue_kills(void)
{
    int64_t now_us;

    if (!kills)
        return -1;
    now_us = sys_now_us();
    if (now_us < next_kill_us)
        return (int)((next_kill_us - now_us) / 1000 + 1);

    for (unsigned i = 0; i < process_places(); i++)
        if (processes[i].killing && processes[i].supervisor)
            continue_kill(&processes[i], now_us);
    next_kill_us = sys_now_us() + KILL_PERIOD_US;
    return KILL_PERIOD_US / 1000;
}
