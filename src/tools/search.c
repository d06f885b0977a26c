/* SPDX-License-Identifier: Apache-2.0 */
/* The tools that search files: ls, glob and grep. */

#include "agent/listing.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "tools/file.h"
#include "tools/text.h"
#include "wire/glob.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum {
    ENTRIES_SHOWN = 500,
    GLOB_FOUND = 50000, /* sorted before they are cut to what was asked for */
    PATTERN_MAXIMUM = 4000,
};

struct search {
    struct tool_work work;
    struct tool_call *call;
    const char *path;       /* where; borrowed, or `directory` */
    char *directory, *name; /* owned: of a path that is a file; NULL otherwise */
    void (*show)(struct search *search);
    struct listing listing;
    size_t *places; /* owned; in order */
    size_t count;
};

static void search_release(struct tool_work *work)
{
    struct search *search = container_of(work, struct search, work);

    listing_fini(&search->listing);
    free(search->directory);
    free(search->name);
    free(search->places);
    free(search);
}

/* So many that not even their list fits: what has come is shown. */
static bool is_overfull(const struct search *search)
{
    return search->listing.err.code == ERR_TOO_LARGE;
}

/* Where a sandbox without a /tmp of its own keeps what is ours. */
static bool is_ours(const struct search *search, size_t place)
{
    struct protocol_entry_view entry;

    return !search->listing.has_notes && listing_next(&search->listing, &place, &entry) &&
           entry.fixed.path_length >= 10 && memcmp(entry.path, ".sandglass", 10) == 0 &&
           (entry.fixed.path_length == 10 || entry.path[10] == '/');
}

static void leave_out_ours(struct search *search)
{
    size_t kept = 0;

    for (size_t i = 0; i < search->count; i++) {
        if (!is_ours(search, search->places[i]))
            search->places[kept++] = search->places[i];
    }
    search->count = kept;
}

static void on_listed(struct listing *listing)
{
    struct search *search = container_of(listing, struct search, listing);

    if (listing->err.code && !is_overfull(search)) {
        tool_fail_transfer(search->call, listing->sys_errno, &listing->err, search->path);
        return;
    }
    search->places = listing_sort(listing, &search->count);
    leave_out_ours(search);
    search->show(search);
}

static struct search *search_new(struct tool_call *call, void (*show)(struct search *search))
{
    struct search *search = xnew(struct search);

    search->work.release = search_release;
    search->call = call;
    search->path = tool_text(call, "path");
    search->show = show;
    call->work = &search->work;
    return search;
}

static void search_start(struct search *search, const struct agent_file *file,
                         listing_done_fn *done)
{
    listing_start_file(&search->listing, search->call->tools->core->loop, search->call->hold.agent,
                       file, done);
}

static void put_structured(struct search *search, const char *what, uint64_t shown,
                           bool is_truncated)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "path", search->path);
    json_put_int(&json, what, (int64_t)shown);
    json_put_bool(&json, "truncated", is_truncated);
    json_end_object(&json);
    search->call->result.structured = buffer_steal_text(&text);
}

/* As a path that can be used in the next call. */
static void say_path(struct search *search, const char *path, size_t length)
{
    struct buffer *text = &search->call->text;

    if (!str_equal(search->path, ".")) {
        text_append(text, search->path, strlen(search->path));
        if (!str_ends_with(search->path, "/"))
            buffer_append_byte(text, '/');
    }
    text_append(text, path, length);
}

static void say_entry(struct search *search, const struct protocol_entry_view *entry)
{
    struct tool_call *call = search->call;
    char size[STR_UNIT_SIZE];

    say_path(search, entry->path, entry->fixed.path_length);
    if (S_ISDIR(entry->fixed.stat.mode))
        buffer_append_byte(&call->text, '/');
    if (S_ISREG(entry->fixed.stat.mode)) {
        str_format_size(entry->fixed.stat.size, size);
        tool_say(call, "  (%s)", size);
    }
    if (entry->fixed.target_length) {
        tool_say(call, " -> ");
        text_append(&call->text, entry->target, entry->fixed.target_length);
    }
    if (entry->fixed.error)
        tool_say(call, "  [%s]", strerror(entry->fixed.error));
    tool_say(call, "\n");
}

/* How many entries were shown: only so many as fit into a result. */
static size_t say_entries(struct search *search, size_t limit)
{
    struct protocol_entry_view entry;
    size_t shown = 0;

    while (shown < search->count && shown < limit &&
           search->call->text.length < TOOL_OUTPUT_CHARACTERS) {
        size_t at = search->places[shown];

        if (listing_next(&search->listing, &at, &entry))
            say_entry(search, &entry);
        shown++;
    }
    return shown;
}

static void end_entries(struct search *search, size_t shown, const char *advice)
{
    bool is_cut = is_overfull(search) || listing_cut(&search->listing) != 0;

    put_structured(search, "entries", shown, shown < search->count || is_cut);
    if (shown < search->count || is_cut)
        tool_say(search->call, "\n[%zu of %s%zu are shown; %s]", shown, is_cut ? "more than " : "",
                 search->count, advice);
    tool_finish(search->call);
}

/* --- ls -------------------------------------------------------------------------------------- */

static void show_directory(struct search *search)
{
    if (search->count == 0)
        tool_say(search->call, "(%s is empty)",
                 str_equal(search->path, ".") ? "the workspace" : search->path);
    end_entries(search, say_entries(search, ENTRIES_SHOWN),
                "list one of the directories, or use glob");
}

static void start_ls(struct tool_call *call)
{
    struct search *search = search_new(call, show_directory);
    struct agent_file file = {
        .kind = FILE_LIST,
        .user = "",
        .path = search->path,
        .depth = (uint32_t)tool_integer(call, "depth"),
    };

    search_start(search, &file, on_listed);
}

static const struct tool_argument ls_arguments[] = {
    { "path", TOOL_TEXT, "The directory. " TOOL_PATH_HELP, .fallback = ".",
      .max_length = TOOL_PATH_MAXIMUM },
    { "depth", TOOL_INTEGER, "1: what is in it; 2: also what is in its directories; and so on.",
      .fallback = "1", .minimum = 1, .maximum = 16 },
    { 0 },
};

const struct tool tool_ls = {
    .name = "ls",
    .title = "List a directory",
    .description =
        "List a directory of the sandbox: its files with their sizes, directories with a slash "
        "behind, symbolic links with where they lead. At most 500 entries.",
    .arguments = ls_arguments,
    .needs_session = true,
    .is_read_only = true,
    .is_idempotent = true,
    .start = start_ls,
    .needs_sandbox = true,
};

/* --- glob ------------------------------------------------------------------------------------ */

static void show_found(struct search *search)
{
    if (search->count == 0)
        tool_say(search->call,
                 "Nothing matches %s. `**` stands for any directories, as in **/*.py.",
                 tool_text(search->call, "pattern"));
    end_entries(search, say_entries(search, (size_t)tool_integer(search->call, "limit")),
                "use a narrower pattern or path");
}

static bool is_pattern(struct tool_call *call, const char *name)
{
    const char *pattern = tool_text(call, name);
    struct glob glob;

    if (!pattern || glob_parse(&glob, pattern, false) == 0)
        return true;
    tool_fail(call,
              "%s is not a pattern of paths. It is relative to path, has neither . nor .. as a "
              "component, and every [ has its ].",
              name);
    return false;
}

static void start_glob(struct tool_call *call)
{
    struct search *search = search_new(call, show_found);
    struct agent_file file = {
        .kind = FILE_GLOB,
        .user = "",
        .path = search->path,
        .second = tool_text(call, "pattern"),
        .flags = tool_boolean(call, "hidden") ? FILE_HIDDEN : 0,
        .limit = GLOB_FOUND,
    };

    if (is_pattern(call, "pattern"))
        search_start(search, &file, on_listed);
}

static const struct tool_argument glob_arguments[] = {
    { "pattern", TOOL_TEXT,
      "Such as **/*.py, relative to path: * and ? inside of a name, [a-z], "
      "** for any directories.",
      .required = true, .max_length = PATTERN_MAXIMUM },
    { "path", TOOL_TEXT, "The directory to begin in. " TOOL_PATH_HELP, .fallback = ".",
      .max_length = TOOL_PATH_MAXIMUM },
    { "limit", TOOL_INTEGER, "How many to show.", .fallback = "200", .minimum = 1,
      .maximum = 1000 },
    { "hidden", TOOL_BOOLEAN, "Names that begin with a dot are matched as any other.",
      .fallback = "false" },
    { 0 },
};

const struct tool tool_glob = {
    .name = "glob",
    .title = "Find files by name",
    .description = "Find files and directories of the sandbox by a pattern of their paths, sorted "
                   "by path. At most 1000; hidden ones only when asked for.",
    .arguments = glob_arguments,
    .needs_session = true,
    .is_read_only = true,
    .is_idempotent = true,
    .start = start_glob,
    .needs_sandbox = true,
};

/* --- grep ------------------------------------------------------------------------------------ */

static struct protocol_note_view last_note(const struct listing *listing)
{
    struct protocol_note_view note = { 0 };
    size_t at = 0;

    while (listing_next_note(listing, &at, &note) && note.fixed.kind != NOTE_LAST)
        continue;
    return note;
}

static void say_line(struct search *search, const struct protocol_note_view *note)
{
    struct buffer *text = &search->call->text;
    char separator = note->fixed.kind == NOTE_MATCH ? ':' : '-';

    if (search->name)
        text_append(text, tool_text(search->call, "path"), strlen(tool_text(search->call, "path")));
    else
        say_path(search, note->path, note->fixed.path_length);
    tool_say(search->call, "%c%llu%c", separator, (unsigned long long)note->fixed.number,
             separator);
    text_append(text, note->text, note->fixed.text_length);
    tool_say(search->call, note->fixed.flags & NOTE_CUT ? " …\n" : "\n");
}

static void show_lines(struct search *search)
{
    struct tool_call *call = search->call;
    struct protocol_note_view last = last_note(&search->listing), note;
    size_t shown = 0;
    bool is_cut;

    if (last.fixed.error) {
        tool_fail(call,
                  "the expression is malformed: %.*s. It is a POSIX extended regular expression; "
                  "literal=true takes it as plain text.",
                  (int)last.fixed.text_length, last.text);
        return;
    }
    while (shown < search->count && call->text.length < TOOL_OUTPUT_CHARACTERS) {
        size_t at = search->places[shown++];

        if (listing_next_note(&search->listing, &at, &note))
            say_line(search, &note);
    }
    is_cut = shown < search->count || last.fixed.flags & NOTE_CUT;
    put_structured(search, "matches", last.fixed.number, is_cut);
    if (last.fixed.number == 0)
        tool_say(call, "No line matches.");
    if (is_cut)
        tool_say(call, "\n[there are more; use a narrower pattern, path or glob]");
    if (last.fixed.amount)
        tool_say(call, "\n[%llu files were not searched: binary, too large or not readable]",
                 (unsigned long long)last.fixed.amount);
    tool_finish(call);
}

static void search_lines(struct search *search);

/* Only directories are searched: a file is the one of its name in its directory. */
static void search_file(struct search *search)
{
    const char *path = search->path;
    const char *slash = strrchr(path, '/');

    listing_fini(&search->listing);
    search->listing = (struct listing){ 0 };
    search->name = xstrdup(slash ? slash + 1 : path);
    search->directory = slash ? xstrndup(path, slash == path ? 1 : (size_t)(slash - path))
                              : xstrdup(".");
    search->path = search->directory;
    search_lines(search);
}

static void on_searched(struct listing *listing)
{
    struct search *search = container_of(listing, struct search, listing);

    if (listing->sys_errno == ENOTDIR && !search->name && !strpbrk(search->path, "*?[\\") &&
        !tool_text(search->call, "glob"))
        search_file(search);
    else if (listing->sys_errno)
        tool_fail_file(search->call, listing->sys_errno, search->path);
    else if (listing->err.code && !is_overfull(search))
        tool_fail(search->call, "the search took too long. Search fewer files (path, glob), or "
                                "with a simpler expression.");
    else
        on_listed(listing);
}

static void search_lines(struct search *search)
{
    struct tool_call *call = search->call;
    struct agent_file file = {
        .kind = FILE_GREP,
        .user = "",
        .path = search->path,
        .second = tool_text(call, "pattern"),
        .third = search->name ? search->name : tool_text(call, "glob"),
        .flags = (tool_boolean(call, "hidden") || search->name ? FILE_HIDDEN : 0) |
                 (tool_boolean(call, "literal") ? FILE_FIXED : 0) |
                 (tool_boolean(call, "ignore_case") ? FILE_IGNORE_CASE : 0),
        .depth = search->name ? 1 : 0,
        .limit = (uint32_t)tool_integer(call, "limit"),
        .context = (uint32_t)tool_integer(call, "context"),
    };

    search_start(search, &file, on_searched);
}

static void start_grep(struct tool_call *call)
{
    struct search *search = search_new(call, show_lines);

    if (is_pattern(call, "glob"))
        search_lines(search);
}

static const struct tool_argument grep_arguments[] = {
    { "pattern", TOOL_TEXT, "A POSIX extended regular expression.", .required = true,
      .max_length = PATTERN_MAXIMUM },
    { "path", TOOL_TEXT, "The directory to search, or one file. " TOOL_PATH_HELP, .fallback = ".",
      .max_length = TOOL_PATH_MAXIMUM },
    { "glob", TOOL_TEXT, "Only files whose name (or, with a slash, whose path) matches: *.py.",
      .max_length = PATTERN_MAXIMUM },
    { "literal", TOOL_BOOLEAN, "Take the pattern as plain text.", .fallback = "false" },
    { "ignore_case", TOOL_BOOLEAN, "Upper and lower case are the same.", .fallback = "false" },
    { "context", TOOL_INTEGER, "Lines to show before and after each match.", .fallback = "0",
      .minimum = 0, .maximum = PROTOCOL_MAX_CONTEXT },
    { "limit", TOOL_INTEGER, "How many matches to show.", .fallback = "100", .minimum = 1,
      .maximum = 500 },
    { "hidden", TOOL_BOOLEAN, "Search names that begin with a dot too.", .fallback = "false" },
    { 0 },
};

const struct tool tool_grep = {
    .name = "grep",
    .title = "Search in files",
    .description =
        "Find lines in files of the sandbox by an expression: PATH:NUMBER:LINE for each, and "
        "PATH-NUMBER-LINE for lines around. Binary files and hidden names are left out. At most "
        "500 matches.",
    .arguments = grep_arguments,
    .needs_session = true,
    .is_read_only = true,
    .is_idempotent = true,
    .start = start_grep,
    .needs_sandbox = true,
};
