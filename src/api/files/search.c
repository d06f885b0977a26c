/* SPDX-License-Identifier: Apache-2.0 */
/* Finding files by their paths and lines by what is in them. */

#include "api/files/files.h"
#include "base/alloc.h"
#include "base/str.h"
#include "wire/glob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    GLOB_FOUND = 50000, /* sorted before they are cut to what was asked for */
    GLOB_LIMIT = 10000,
    GLOB_DEFAULT = 1000,
    GREP_LIMIT = 5000,
    GREP_DEFAULT = 200,
};

/* --- both ------------------------------------------------------------------------------------- */

static bool is_on(const struct request *request, const char *name)
{
    bool value = false;

    (void)request_parameter_bool(request, name, &value, NULL);
    return value;
}

static uint64_t number_or(const struct request *request, const char *name, uint64_t fallback)
{
    (void)request_parameter_u64(request, name, INT32_MAX, &fallback, NULL);
    return fallback;
}

static void fail_search(struct file_call *call)
{
    const struct listing *listing = &file_request_of(call)->listing;

    if (listing->sys_errno)
        file_call_fail(call, listing->sys_errno,
                       listing->sys_errno == EBADMSG ? file_request_of(call)->second : call->path);
    else
        request_fail(file_request_of(call)->request, &listing->err);
}

/* The path and pattern of the query, checked; NULL with an error. */
static const char *read_pattern(const struct request *request, uint64_t limit,
                                const char **out_path, struct error *err)
{
    const char *pattern = request_parameter(request, "pattern");
    const char *path = request_parameter(request, "path");
    uint64_t number = 1;

    if (str_is_empty(pattern) || strlen(pattern) >= PROTOCOL_MAX_PATH) {
        error_named(err, ERR_INVALID, "invalid_parameter",
                    "parameter pattern is missing, empty or too long");
        return NULL;
    }
    if (path && !file_path(request, err))
        return NULL;
    if (request_parameter_limit(request, limit, &number, err) < 0)
        return NULL;
    *out_path = path ? path : ".";
    return pattern;
}

static int check_switches(const struct request *request, const char *const *names,
                          struct error *err)
{
    bool value;

    for (; *names; names++)
        if (request_parameter_bool(request, *names, &value, err) < 0)
            return -1;
    return 0;
}

static int check_glob(const char *name, const char *pattern, struct error *err)
{
    struct glob glob;

    if (glob_parse(&glob, pattern, false) == 0)
        return 0;
    error_named(err, ERR_INVALID, "invalid_pattern", "parameter %s is not a valid path pattern",
                name);
    return error_hint(
        err, "a pattern is relative to path, has neither . nor .. as a component, and every "
             "[ has its ]");
}

/* --- glob ------------------------------------------------------------------------------------- */

/* So many that not even their list fits: what has come is shown. */
static bool is_overfull(const struct listing *listing)
{
    return listing->err.code == ERR_TOO_LARGE;
}

static void on_globbed(struct listing *listing)
{
    struct file_call *call = &container_of(listing, struct file_request, listing)->call;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    scoped(free) size_t *places = NULL;
    struct json_writer json = JSON_WRITER(&text);
    uint64_t limit = number_or(file_request_of(call)->request, "limit", GLOB_DEFAULT);
    struct protocol_entry_view entry;
    size_t count;

    if (listing->err.code && !is_overfull(listing)) {
        fail_search(call);
        return;
    }
    places = listing_sort(listing, &count);
    json_begin_object(&json, NULL);
    json_begin_array(&json, "entries");
    for (size_t i = 0; i < count && i < limit; i++) {
        size_t at = places[i];

        if (listing_next(listing, &at, &entry))
            file_write_entry(&json, &entry);
    }
    json_end_array(&json);
    json_put_bool(&json, "truncated",
                  count > limit || is_overfull(listing) || listing_cut(listing) != 0);
    json_end_object(&json);
    request_reply(file_request_of(call)->request, 200, &text);
}

static void start_glob(struct file_call *call)
{
    struct agent_file file = {
        .kind = FILE_GLOB,
        .user = "",
        .path = call->path,
        .second = file_request_of(call)->second,
        .flags = is_on(file_request_of(call)->request, "hidden") ? FILE_HIDDEN : 0,
        .limit = GLOB_FOUND,
    };

    listing_start_file(&file_request_of(call)->listing, file_request_of(call)->request->core->loop,
                       call->hold.agent, &file, on_globbed);
}

static void get_glob(struct request *request)
{
    static const char *const switches[] = { "hidden", NULL };
    struct error err = { 0 };
    const char *path;
    const char *pattern = read_pattern(request, GLOB_LIMIT, &path, &err);

    if (pattern && check_switches(request, switches, &err) == 0 &&
        check_glob("pattern", pattern, &err) == 0)
        file_request_begin(request, path, pattern, start_glob);
    else
        request_fail(request, &err);
}

/* --- grep ------------------------------------------------------------------------------------- */

static void write_line(struct json_writer *json, const struct protocol_note_view *note)
{
    json_begin_object(json, NULL);
    json_put_bytes(json, "path", note->path, note->fixed.path_length);
    json_put_int(json, "line", (int64_t)note->fixed.number);
    json_put_bytes(json, "text", note->text, note->fixed.text_length);
    json_put_bool(json, "match", note->fixed.kind == NOTE_MATCH);
    if (note->fixed.flags & NOTE_CUT)
        json_put_bool(json, "cut", true);
    json_end_object(json);
}

static struct protocol_note_view last_note(const struct listing *listing)
{
    struct protocol_note_view note = { 0 };
    size_t at = 0;

    while (listing_next_note(listing, &at, &note) && note.fixed.kind != NOTE_LAST)
        continue;
    return note;
}

static void fail_expression(struct file_call *call, const struct protocol_note_view *last)
{
    struct error err = { 0 };

    error_named(&err, ERR_INVALID, "invalid_pattern", "the expression is malformed: %.*s",
                (int)last->fixed.text_length, last->text);
    error_hint(&err, "it is a POSIX extended regular expression; literal=1 takes it as plain text");
    request_fail(file_request_of(call)->request, &err);
}

static void write_lines(const struct listing *listing, struct json_writer *json)
{
    size_t count;
    scoped(free) size_t *places = listing_sort(listing, &count);
    struct protocol_note_view note;

    json_begin_array(json, "lines");
    for (size_t i = 0; i < count; i++) {
        size_t at = places[i];

        if (listing_next_note(listing, &at, &note))
            write_line(json, &note);
    }
    json_end_array(json);
}

static void on_searched(struct listing *listing)
{
    struct file_call *call = &container_of(listing, struct file_request, listing)->call;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    struct protocol_note_view last;
    struct error err = { 0 };

    if (listing->sys_errno || listing->err.code == ERR_TOO_LARGE) {
        fail_search(call);
        return;
    }
    if (listing->err.code) { /* the search has a bound on its time, and ends without a last word */
        error_named(&err, ERR_TIMEOUT, "search_too_expensive", "the search took too long");
        error_hint(&err, "search fewer files (path, glob) or with a simpler expression");
        request_fail(file_request_of(call)->request, &err);
        return;
    }
    last = last_note(listing);
    if (last.fixed.error) {
        fail_expression(call, &last);
        return;
    }
    json_begin_object(&json, NULL);
    write_lines(listing, &json);
    json_put_int(&json, "matches", (int64_t)last.fixed.number);
    json_put_int(&json, "files_skipped", (int64_t)last.fixed.amount);
    json_put_bool(&json, "truncated", last.fixed.flags & NOTE_CUT);
    json_end_object(&json);
    request_reply(file_request_of(call)->request, 200, &text);
}

static void start_grep(struct file_call *call)
{
    const struct request *request = file_request_of(call)->request;
    struct agent_file file = {
        .kind = FILE_GREP,
        .user = "",
        .path = call->path,
        .second = file_request_of(call)->second,
        .third = request_parameter(request, "glob"),
        .flags = (is_on(request, "hidden") ? FILE_HIDDEN : 0) |
                 (is_on(request, "literal") ? FILE_FIXED : 0) |
                 (is_on(request, "ignore_case") ? FILE_IGNORE_CASE : 0),
        .limit = (uint32_t)number_or(request, "limit", GREP_DEFAULT),
        .context = (uint32_t)number_or(request, "context", 0),
    };

    listing_start_file(&file_request_of(call)->listing, request->core->loop, call->hold.agent,
                       &file, on_searched);
}

static void get_grep(struct request *request)
{
    static const char *const switches[] = { "hidden", "literal", "ignore_case", NULL };
    struct error err = { 0 };
    const char *path;
    const char *pattern = read_pattern(request, GREP_LIMIT, &path, &err);
    const char *glob = request_parameter(request, "glob");
    uint64_t context;

    if (pattern && check_switches(request, switches, &err) == 0 &&
        request_parameter_u64(request, "context", PROTOCOL_MAX_CONTEXT, &context, &err) == 0 &&
        (!glob || check_glob("glob", glob, &err) == 0))
        file_request_begin(request, path, pattern, start_grep);
    else
        request_fail(request, &err);
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct route_parameter glob_parameters[] = {
    { "pattern", "string", "relative to path: *, ?, [a-z] inside a name, ** for any directories",
      true },
    { "path", "string", "directory to start in; the workspace by default" },
    { "limit", "integer", "entries, 1000 by default, 10000 at most" },
    { "hidden", "boolean", "1: match names that begin with a dot too" },
    { 0 },
};

static const struct route_parameter grep_parameters[] = {
    { "pattern", "string", "a POSIX extended regular expression", true },
    { "path", "string", "the directory to search; the workspace by default" },
    { "glob", "string", "only files whose path matches; without a slash: whose name matches" },
    { "literal", "boolean", "1: the pattern is plain text" },
    { "ignore_case", "boolean", "1: upper and lower case are the same" },
    { "context", "integer", "lines before and after each match, 20 at most" },
    { "limit", "integer", "matches, 200 by default, 5000 at most" },
    { "hidden", "boolean", "1: search names that begin with a dot too" },
    { 0 },
};

static const struct route_answer glob_answers[] = {
    { 200, "{entries, truncated}, sorted by path" },
    { 400, "invalid_pattern" },
    { 404, "session_not_found, file_not_found, not_a_directory" },
    { 0 },
};

static const struct route_answer grep_answers[] = {
    { 200, "{lines:[{path, line, text, match, cut?}], matches, files_skipped, truncated}" },
    { 400, "invalid_pattern" },
    { 404, "session_not_found, file_not_found, not_a_directory" },
    { 504, "search_too_expensive" },
    { 0 },
};

#define FILES "/api/v1/sessions/{session}/files"

const struct route api_search_routes[] = {
    { HTTP_GET, FILES "/glob", get_glob, "Find files by a path pattern",
      .session = ROUTE_LIVE_SESSION, .parameters = glob_parameters, .answers = glob_answers },
    { HTTP_GET, FILES "/grep", get_grep, "Search files for lines that match an expression",
      .session = ROUTE_LIVE_SESSION, .parameters = grep_parameters, .answers = grep_answers },
    { 0 },
};
