/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "face/rename.h"
#include "face/request.h"

#include <stdio.h>
#include <string.h>

/* RFC 9745: since when. 2026-11-17. */
#define DEPRECATED_SINCE "@1794873600"

static void note(struct request *request, const struct rename *row)
{
    char *before = request->renamed;

    request->renamed = xasprintf("%s%s%s=%s", before ? before : "", before ? ", " : "",
                                 row->old_name, row->new_name);
    free(before);
}

static int refuse_both(const char *code, const struct rename *row, struct error *err)
{
    error_named(err, ERR_INVALID, code, "%s and %s are two names of one thing", row->old_name,
                row->new_name);
    return error_hint(err, "leave out %s, the old name", row->old_name);
}

int request_rename_parameters(struct request *request, struct error *err)
{
    const struct rename *table = request->face->renames;

    for (size_t i = 0; i < request->parameter_count && table; i++) {
        const struct rename *row =
            rename_find(table, request->route, request->parameters[i].name, false);

        if (!row)
            continue;
        if (request_parameter(request, row->new_name))
            return refuse_both("invalid_parameter", row, err);
        free(request->parameters[i].name);
        request->parameters[i].name = xstrdup(row->new_name);
        note(request, row);
    }
    return 0;
}

/* A row for each old name that the body has: a body cannot be changed while it is walked through. */
int request_rename_fields(struct request *request, struct error *err)
{
    const struct rename *row = request->face->renames;

    for (; row && row->old_name; row++) {
        json_t *value = json_object_get(request->body, row->old_name);

        if (!value ||
            rename_find(request->face->renames, request->route, row->old_name, true) != row)
            continue;
        if (json_object_get(request->body, row->new_name))
            return refuse_both("invalid_field", row, err);
        json_object_set(request->body, row->new_name, value);
        json_object_del(request->body, row->old_name);
        note(request, row);
    }
    return 0;
}

static bool was_renamed(const struct request *request, const struct rename *row)
{
    scoped(free) char *pair = xasprintf("%s=%s", row->old_name, row->new_name);

    return strstr(request->renamed, pair) != NULL;
}

void request_restore_names(const struct request *request, struct error *err)
{
    const struct rename *row = request->renamed ? request->face->renames : NULL;
    char text[sizeof(err->message)];

    for (; row && row->old_name; row++) {
        char *place = strstr(err->message, row->new_name);

        if (!place || !was_renamed(request, row))
            continue;
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(place - err->message), err->message,
                 row->old_name, place + strlen(row->new_name));
        memcpy(err->message, text, sizeof(text));
        return;
    }
}

void request_put_deprecation(const struct request *request)
{
    if (!request->renamed)
        return;
    http_respond_header(request->exchange, "Deprecation", DEPRECATED_SINCE);
    http_respond_header(request->exchange, "X-Sandglass-Deprecated", request->renamed);
}
