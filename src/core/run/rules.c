/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/rules.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/macros.h"
#include "base/str.h"
#include "core/core.h"
#include "core/events.h"
#include "core/run/execution.h"
#include "wire/json.h"

#include <assert.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a longer line only so much is looked at, in pieces that overlap. */
enum { PIECE = 64 * 1024, OVERLAP = 1024, ARGUMENTS_MAXIMUM = 4 << 20 };

struct rules {
    const struct config *config; /* borrowed */
    regex_t *patterns;           /* owned, one for each rule */
    char *piece;                 /* owned; the text that is being matched */
};

struct rules *rules_new(const struct config *config)
{
    struct rules *rules = xnew(struct rules);

    rules->config = config;
    rules->patterns = xcalloc(config->rules.count + 1, sizeof(*rules->patterns));
    rules->piece = xmalloc(PIECE + 1);
    for (size_t i = 0; i < config->rules.count; i++) {
        int result = regcomp(&rules->patterns[i], config->rules.items[i].pattern,
                             REG_EXTENDED | REG_NOSUB | REG_NEWLINE);

        assert(result == 0);
    }
    return rules;
}

void rules_free(struct rules *rules)
{
    if (!rules)
        return;
    for (size_t i = 0; i < rules->config->rules.count; i++)
        regfree(&rules->patterns[i]);
    free(rules->patterns);
    free(rules->piece);
    free(rules);
}

/* --- matching --------------------------------------------------------------------------------- */

/* Texts need not end with a NUL, and may hold some: the copy ends with one, and the range says
 * where it ends. */
static bool matches_piece(const struct rules *rules, size_t rule, const char *text, size_t length)
{
    regmatch_t range = { .rm_so = 0, .rm_eo = (regoff_t)length };

    memcpy(rules->piece, text, length);
    rules->piece[length] = '\0';
    return regexec(&rules->patterns[rule], rules->piece, 1, &range, REG_STARTEND) == 0;
}

/* Line by line, so that a long text costs no more than many short ones. */
static bool matches(const struct rules *rules, size_t rule, const char *text, size_t length)
{
    const char *end = text + length;

    while (text <= end) {
        const char *newline = text < end ? memchr(text, '\n', (size_t)(end - text)) : NULL;
        size_t line = (size_t)((newline ? newline : end) - text);
        size_t piece = MIN(line, (size_t)PIECE);

        if (matches_piece(rules, rule, text, piece))
            return true;
        text += piece == line ? line + 1 : piece - OVERLAP;
    }
    return false;
}

const struct config_rule *rules_find(const struct rules *rules, const char *text, size_t length)
{
    for (size_t i = 0; i < rules->config->rules.count; i++)
        if (matches(rules, i, text, length))
            return &rules->config->rules.items[i];
    return NULL;
}

/* Arguments are seen with one space between them. */
static const struct config_rule *find_for(const struct rules *rules,
                                          const struct execution_request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(ARGUMENTS_MAXIMUM);

    if (request->command)
        return rules_find(rules, request->command, strlen(request->command));
    if (request->code)
        return rules_find(rules, request->code, request->code_length);
    for (const char *const *argument = request->argv; argument && *argument; argument++) {
        if (text.length)
            buffer_append_byte(&text, ' ');
        buffer_append_text(&text, *argument);
    }
    return rules_find(rules, buffer_text(&text), text.length);
}

/* --- telling ---------------------------------------------------------------------------------- */

void rule_describe(const struct config_rule *rule, char *text, size_t size)
{
    snprintf(text, size, "rule %s%s%s", rule->name, *rule->message ? ": " : "", rule->message);
}

/* The text itself is not reported: it may be long, and secret. */
static void tell(struct core *core, const char *session_id, const char *owner,
                 const struct config_rule *rule)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&data);

    json_begin_object(&json, NULL);
    json_put_text(&json, "rule", rule->name);
    if (*rule->message)
        json_put_text(&json, "message", rule->message);
    json_put_text(&json, "session_id", *session_id ? session_id : NULL);
    json_end_object(&json);
    events_emit(core->events, "", owner, 0,
                rule->verdict == RULE_BLOCK ? "command.blocked" : "command.warned",
                buffer_text(&data));
}

int rules_check(struct core *core, const char *session_id, const char *owner,
                const struct execution_request *request, const struct config_rule **out_warning,
                struct error *err)
{
    const struct config_rule *rule =
        core->parts.config->rules.count ? find_for(core->rules, request) : NULL;
    char text[RULE_TEXT_SIZE];

    if (!rule || rule->verdict == RULE_PASS || (rule->verdict == RULE_WARN && !out_warning))
        return 0;
    tell(core, session_id, owner, rule);
    if (rule->verdict == RULE_WARN) {
        *out_warning = rule;
        return 0;
    }
    rule_describe(rule, text, sizeof(text));
    error_named(err, ERR_FORBIDDEN, "command_blocked", "the command was blocked by %s", text);
    return error_hint(
        err, "the command did not run; use another one, or ask the operator about exec.rules");
}
