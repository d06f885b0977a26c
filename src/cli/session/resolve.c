/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session/resolve.h"

#include "base/alloc.h"
#include "base/id.h"
#include "base/str.h"
#include "cli/session/sessions.h"

#include <stdlib.h>
#include <string.h>

/* A bare beginning of an id is at least this long: shorter words are more likely misspelt keys. */
enum { LEAST_BARE = 4, CANDIDATES_SHOWN = 6 };

/* --- beginnings of ids ----------------------------------------------------------------------- */

/* The beginning of an id that `given` may stand for, allocated; NULL when it cannot be one. */
static char *id_beginning(const char *given, const char *prefix)
{
    bool is_whole = str_starts_with(given, prefix);
    const char *rest = is_whole ? given + strlen(prefix) : given;

    if (strlen(rest) < (is_whole ? 1 : LEAST_BARE) ||
        rest[strspn(rest, "0123456789abcdefghjkmnpqrstvwxyz")])
        return NULL;
    return xasprintf("%s%s", prefix, rest);
}

/* The documents whose id has this beginning. */
static json_t *matches_of(const json_t *documents, const char *beginning)
{
    json_t *matches = json_array();
    json_t *document;
    size_t i;

    json_array_foreach(documents, i, document)
    {
        if (str_starts_with(field_text(document, "id", ""), beginning))
            json_array_append(matches, document);
    }
    return matches;
}

static int refuse_ambiguous(const char *given, const char *kind, const json_t *matches,
                            struct error *err)
{
    scoped(buffer_fini) struct buffer list = BUFFER_INIT(400);
    const json_t *match;
    size_t i;

    json_array_foreach(matches, i, match)
    {
        const char *key = field_text(match, "key", NULL);

        if (i == CANDIDATES_SHOWN)
            break;
        buffer_appendf(&list, "%s%s", i ? ", " : "", field_text(match, "id", "?"));
        if (key && strlen(key) < 24)
            buffer_appendf(&list, " (key:%s)", key);
    }
    if (json_array_size(matches) > CANDIDATES_SHOWN)
        buffer_appendf(&list, " and %zu more", json_array_size(matches) - CANDIDATES_SHOWN);
    error_named(err, ERR_INVALID, "ambiguous", "\"%.40s\" fits %zu %ss: %s", given,
                json_array_size(matches), kind, buffer_text(&list));
    return error_hint(err, "give more characters of the id");
}

/* 1: one fits and is in `out`; 0: none; -1: several. */
static int take_match(const json_t *documents, const char *given, const char *beginning,
                      const char *kind, char **out, struct error *err)
{
    scoped(json_decref) json_t *matches = matches_of(documents, beginning);
    size_t count = json_array_size(matches);

    if (count > 1)
        return refuse_ambiguous(given, kind, matches, err);
    if (count == 1)
        *out = xstrdup(field_text(json_array_get(matches, 0), "id", ""));
    return (int)count;
}

/* --- sessions -------------------------------------------------------------------------------- */

/* 1: there is one with this key; 0: there is none; -1: the daemon could not be asked. */
static int is_key(struct cli *cli, const char *given, struct error *err)
{
    scoped(free) char *named = xasprintf("key:%s", given);
    scoped(free) char *target = session_own_target(named);
    scoped(reply_fini) struct reply reply = { 0 };

    if (cli_call(cli, HTTP_GET, target, NULL, &reply, err) == 0 || err->code == ERR_GONE)
        return 1;
    return err->code == ERR_NOT_FOUND || err->code == ERR_INVALID ? 0 : -1;
}

static int find_by_beginning(struct cli *cli, const char *given, const char *beginning, char **out,
                             struct error *err)
{
    static const char *const states[] = { NULL, "ended" };
    const struct text_list no_labels = { 0 };
    int found = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(states) && found == 0; i++) {
        const struct sessions_filter filter = { .labels = &no_labels, .state = states[i] };
        scoped(json_decref) json_t *answer = sessions_list(cli, &filter, false, err);

        if (!answer)
            return -1;
        found =
            take_match(json_object_get(answer, "sessions"), given, beginning, "session", out, err);
    }
    return found;
}

char *session_resolve(struct cli *cli, const char *given, struct error *err)
{
    scoped(free) char *beginning = NULL;
    char *found = NULL;
    int answer;

    if (str_is_empty(given) || id_is_valid(given, ID_SESSION) || str_starts_with(given, "key:") ||
        !str_is_utf8(given, strlen(given)))
        return xstrdup(given);
    answer = is_key(cli, given, err);
    if (answer < 0)
        return NULL;
    if (answer > 0)
        return xasprintf("key:%s", given);
    beginning = id_beginning(given, ID_SESSION);
    if (beginning && find_by_beginning(cli, given, beginning, &found, err) < 0)
        return NULL;
    return found ? found : xstrdup(given);
}

/* --- executions ------------------------------------------------------------------------------ */

char *execution_resolve(struct cli *cli, const char *session, const char *given, struct error *err)
{
    scoped(free) char *beginning = id_beginning(given, ID_EXECUTION);
    scoped(free) char *target = session_target(session, "/executions");
    scoped(reply_fini) struct reply reply = { 0 };
    char *found = NULL;

    if (!beginning || id_is_valid(given, ID_EXECUTION))
        return xstrdup(given);
    if (cli_call(cli, HTTP_GET, target, NULL, &reply, err) < 0)
        return NULL;
    if (take_match(json_object_get(reply.json, "executions"), given, beginning, "execution", &found,
                   err) < 0)
        return NULL;
    return found ? found : xstrdup(given);
}

/* --- what a command was given ---------------------------------------------------------------- */

static int replace(struct cli *cli, const char **place, struct error *err)
{
    char *resolved = session_resolve(cli, *place, err);

    if (!resolved)
        return -1;
    text_list_add(&cli->resolved, resolved);
    *place = resolved;
    return 0;
}

static int replace_options(struct cli *cli, const struct option_set *set, void *args,
                           struct error *err)
{
    for (const struct option *option = set->rows; option->name; option++) {
        const char **place = (const char **)((char *)args + set->base + option->offset);

        if (option->kind == OPTION_SESSION && *place && replace(cli, place, err) < 0)
            return -1;
    }
    return 0;
}

int sessions_resolve_given(struct cli *cli, void *args, struct option_result *given,
                           struct error *err)
{
    for (const struct option_set *set = cli->command->sets; set->rows; set++)
        if (replace_options(cli, set, args, err) < 0)
            return -1;
    if ((cli->command->operand == OPERAND_SESSION || cli->command->operand == OPERAND_EXECUTION) &&
        given->operands.count > 0)
        return replace(cli, &given->operands.items[0], err);
    return 0;
}
