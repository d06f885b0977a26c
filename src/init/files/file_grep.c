/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searching the files of a tree for lines. The expressions are libc's, which allocates: the search
 * therefore runs in a process of its own, forked by the helper, with its own copy of init's memory
 * and limits on its memory and time.
 */

#include "init/files/file_output.h"
#include "init/files/file_work.h"
#include "init/sys.h"
#include "wire/glob.h"

#include <errno.h>
#include <regex.h>
#include <string.h>

enum {
    SEARCH_SECONDS = 15,
    SEARCH_CPU_SECONDS = 20,
    SEARCH_MEMORY = 256 * 1024 * 1024,
    STACK_SIZE = 1024 * 1024,
    WINDOW_SIZE = 1024 * 1024, /* a longer line is searched and shown as far as this */
    BINARY_BYTES = 8 * 1024,
    LINE_SHOWN = 500,
    LOOK_EVERY = 4096, /* lines */
};

struct line {
    uint64_t number; /* 0: none */
    size_t length;
    bool is_cut;
    char text[LINE_SHOWN];
};

struct search {
    const struct protocol_file *file;
    const char *pattern;
    size_t pattern_length;
    regex_t expression;
    struct glob glob;
    bool has_glob;
    struct file_output output;
    struct walk *walk;
    int64_t deadline_us;
    uint64_t matches;
    uint64_t unsearched;
    bool is_full;

    uint64_t number;    /* of the line at hand */
    uint64_t told;      /* the last line of this file that was sent */
    unsigned after;     /* lines of context that are still owed */
    unsigned next_kept; /* index in `kept` */
    struct line kept[PROTOCOL_MAX_CONTEXT];
};

/* Untouched in init itself: they exist in the process that searches. */
static TABLE_SELDOM_USED alignas(16) char stack[STACK_SIZE];
static TABLE_SELDOM_USED char window[WINDOW_SIZE + 1];
static TABLE_SELDOM_USED struct search search;

/* --- lines ----------------------------------------------------------------------------------- */

static bool line_matches(const char *line, size_t length)
{
    if (search.file->flags & FILE_FIXED && !(search.file->flags & FILE_IGNORE_CASE))
        return memmem(line, length, search.pattern, search.pattern_length) != NULL;
    return regexec(&search.expression, line, 0, NULL, 0) == 0;
}

/* A character is not cut in two. */
static size_t shown_length(const char *line, size_t length)
{
    if (length <= LINE_SHOWN)
        return length;
    length = LINE_SHOWN;
    while (length > LINE_SHOWN - 4 && ((unsigned char)line[length] & 0xc0) == 0x80)
        length--;
    return length;
}

static void tell(uint16_t kind, uint64_t number, const char *text, size_t length, bool is_cut)
{
    struct protocol_note note = {
        .kind = kind,
        .flags = is_cut ? NOTE_CUT : 0,
        .number = number,
    };

    file_output_note(&search.output, &note, search.walk->path, text, length);
    search.told = number;
}

static void keep(const char *text, size_t length, bool is_cut)
{
    struct line *line = &search.kept[search.next_kept];

    if (!search.file->context)
        return;
    line->number = search.number;
    line->length = length;
    line->is_cut = is_cut;
    memcpy(line->text, text, length);
    search.next_kept = (search.next_kept + 1) % search.file->context;
}

static void tell_kept(void)
{
    for (unsigned i = 0; i < search.file->context; i++) {
        struct line *line = &search.kept[(search.next_kept + i) % search.file->context];

        if (line->number > search.told)
            tell(NOTE_CONTEXT, line->number, line->text, line->length, line->is_cut);
        line->number = 0;
    }
}

/* The line ends with a NUL. */
static void take_line(const char *line, size_t length)
{
    size_t shown = shown_length(line, length);
    bool is_cut = shown < length;

    search.number++;
    if (search.number % LOOK_EVERY == 0 &&
        (sys_now_us() > search.deadline_us || !file_output_is_wanted(&search.output)))
        search.is_full = true;
    if (line_matches(line, length)) {
        if (search.file->limit && search.matches == search.file->limit) {
            search.is_full = true;
            return;
        }
        search.matches++;
        tell_kept();
        tell(NOTE_MATCH, search.number, line, shown, is_cut);
        search.after = search.file->context;
    } else if (search.after) {
        search.after--;
        tell(NOTE_CONTEXT, search.number, line, shown, is_cut);
    } else {
        keep(line, shown, is_cut);
    }
}

/* A line ends before its CR. */
static size_t end_line(char *line, size_t length)
{
    if (length && line[length - 1] == '\r')
        length--;
    line[length] = 0;
    return length;
}

/* Takes the whole lines of the window; returns how many bytes they are. */
static size_t take_lines(size_t filled, bool is_end)
{
    size_t at = 0;

    while (at < filled && !search.is_full) {
        char *newline = memchr(window + at, '\n', filled - at);
        size_t length = newline ? (size_t)(newline - window) - at : filled - at;

        if (!newline && !is_end && (at || filled < WINDOW_SIZE))
            break;
        take_line(window + at, end_line(window + at, length));
        at += length + (newline ? 1 : 0);
        if (!newline && !is_end) /* longer than the window: the rest of it is passed over */
            return WINDOW_SIZE + 1;
    }
    return at;
}

/* --- files ----------------------------------------------------------------------------------- */

static void begin_file(void)
{
    search.number = search.told = search.after = search.next_kept = 0;
    for (unsigned i = 0; i < PROTOCOL_MAX_CONTEXT; i++)
        search.kept[i].number = 0;
}

/* Discards the rest of a line that is too long, up to its end. */
static size_t skip_line(bool *is_skipping, size_t filled)
{
    char *newline = memchr(window, '\n', filled);
    size_t rest = newline ? filled - (size_t)(newline + 1 - window) : 0;

    *is_skipping = !newline;
    if (newline)
        memmove(window, newline + 1, rest);
    return rest;
}

static void search_file(int fd)
{
    bool is_skipping = false;
    bool is_first = true;
    size_t filled = 0;

    begin_file();
    while (!search.is_full && !search.output.is_broken) {
        long count = sys(read, fd, window + filled, WINDOW_SIZE - filled);
        size_t used;

        if (count < 0)
            count = 0;
        if (memchr(window + filled, 0,
                   is_first && count > BINARY_BYTES ? BINARY_BYTES : (size_t)count)) {
            search.unsearched += is_first;
            return;
        }
        is_first = false;
        filled += (size_t)count;
        if (is_skipping) {
            filled = skip_line(&is_skipping, filled);
            if (count)
                continue;
        }
        used = take_lines(filled, !count);
        if (!count)
            return;
        is_skipping = used > WINDOW_SIZE;
        filled = is_skipping ? 0 : filled - used;
        memmove(window, window + used, filled);
    }
}

static void consider(const struct walk_entry *entry)
{
    struct stat status;
    int fd;

    if (!S_ISREG(entry->status.st_mode) || !entry->status.st_size ||
        (search.has_glob && !glob_match_path(&search.glob, entry->path)))
        return;
    fd = file_open_regular(entry->dir, entry->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
                           &status);
    if (fd < 0) {
        search.unsearched++;
        return;
    }
    search_file(fd);
    sys_close(fd);
}

static void search_tree(int base)
{
    struct walk_entry entry;
    bool hidden = search.file->flags & FILE_HIDDEN;

    walk_begin(search.walk, base, PROTOCOL_MAX_DEPTH);
    search.walk->stays = true;
    search.walk->deadline_us = search.deadline_us;
    while (!search.is_full && !search.output.is_broken && walk_next(search.walk, &entry)) {
        if (!hidden && entry.name[0] == '.')
            continue;
        if (!S_ISDIR(entry.status.st_mode))
            consider(&entry);
        else if (!search.file->depth || search.walk->depth < search.file->depth)
            (void)walk_enter(search.walk, &entry, 0);
    }
}

/* --- the process ------------------------------------------------------------------------------ */

static void end(int error, const char *text)
{
    struct protocol_note last = {
        .kind = NOTE_LAST,
        .flags = search.is_full || search.walk->was_cut ? NOTE_CUT : 0,
        .error = error,
        .number = search.matches,
        .amount = search.unsearched,
    };

    file_output_note(&search.output, &last, NULL, text, strlen(text));
    file_output_flush(&search.output);
    sys_exit(0);
}

/* A fixed text that ignores case is an expression with everything special in it escaped. */
static const char *expression_of(const char *pattern)
{
    char *out = window;

    if (!(search.file->flags & FILE_FIXED))
        return pattern;
    for (; *pattern; pattern++) {
        if (strchr("\\.[]{}()*+?^$|", *pattern))
            *out++ = '\\';
        *out++ = *pattern;
    }
    *out = 0;
    return window;
}

static void compile(void)
{
    int flags = REG_EXTENDED | REG_NOSUB;
    char text[128];
    int error;

    if (search.file->flags & FILE_IGNORE_CASE)
        flags |= REG_ICASE;
    error = regcomp(&search.expression, expression_of(search.pattern), flags);
    if (!error)
        return;
    regerror(error, &search.expression, text, sizeof text);
    end(EINVAL, text);
}

static void limit(int resource, uint64_t value)
{
    struct rlimit wanted = { value, value };

    (void)sys(prlimit64, 0, resource, &wanted, NULL);
}

static __attribute__((noreturn)) void search_run(void *argument)
{
    struct file_work *work = argument;
    union file_memory *memory = file_memory(work);

    limit(RLIMIT_CPU, SEARCH_CPU_SECONDS);
    limit(RLIMIT_AS, SEARCH_MEMORY);
    search.file = work->job->file;
    search.pattern = work->job->file_texts.second;
    search.pattern_length = strlen(search.pattern);
    search.walk = &memory->list.walk;
    search.walk->was_cut = false;
    search.deadline_us = sys_now_us() + SEARCH_SECONDS * 1000000ll;
    search.output = (struct file_output){
        .fd = work->stream,
        .bytes = memory->list.output,
        .size = FILE_OUTPUT_SIZE,
    };
    if (work->job->file_texts.third[0]) {
        search.has_glob = true;
        if (glob_parse(&search.glob, work->job->file_texts.third,
                       search.file->flags & FILE_HIDDEN) < 0)
            end(EBADMSG, "");
    }
    compile();
    search_tree(work->base);
    end(0, "");
    sys_exit(1);
}

void file_grep_write(struct file_work *work)
{
    long pid = sys_clone_call(SIGCHLD, stack + STACK_SIZE, search_run, work, NULL);
    int status;

    sys_drop(&work->stream);
    sys_drop(&work->base);
    while (pid > 0 && sys(wait4, pid, &status, 0, NULL) == -EINTR)
        ;
}
