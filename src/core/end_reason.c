/* SPDX-License-Identifier: Apache-2.0 */
#include "core/end_reason.h"

#include <stdio.h>
#include <string.h>

static const char *const end_kinds[END_KINDS] = {
    [END_NONE] = "",
    [END_IDLE] = "idle",
    [END_LEASE] = "lease",
    [END_LIFETIME] = "lifetime",
    [END_DELETED] = "deleted",
    [END_EVICTED] = "evicted",
    [END_CRASHED] = "crashed",
    [END_SHUTDOWN] = "shutdown",
    [END_BUDGET] = "budget",
    [END_REPLACED] = "replaced",
    [END_FAILED] = "failed",
    [END_TEARDOWN] = "teardown",
    [END_NODE_LOST] = "node lost",
};

const char *end_kind_name(enum end_kind kind)
{
    return end_kinds[kind];
}

void end_reason_text(const struct end_reason *reason, char text[END_TEXT_SIZE])
{
    snprintf(text, END_TEXT_SIZE, "%s%s%.47s", end_kinds[reason->kind], *reason->detail ? ": " : "",
             reason->detail);
}

const char *end_reason_text_or_null(const struct end_reason *reason, char text[END_TEXT_SIZE])
{
    if (reason->kind == END_NONE)
        return NULL;
    end_reason_text(reason, text);
    return text;
}

struct end_reason end_reason_parse(const char *text)
{
    struct end_reason reason = { 0 };

    for (unsigned kind = END_NONE + 1; text && kind < END_KINDS; kind++) {
        size_t length = strlen(end_kinds[kind]);

        if (strncmp(text, end_kinds[kind], length) != 0)
            continue;
        if (text[length] != '\0' && text[length] != ':')
            continue;
        reason.kind = kind;
        text += length + strspn(text + length, ": ");
        snprintf(reason.detail, sizeof(reason.detail), "%s", text);
        break;
    }
    return reason;
}
