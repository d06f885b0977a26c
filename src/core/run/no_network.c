/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/no_network.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "core/output/spool.h"
#include "core/run/execution_private.h"
#include "core/session/session.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

static const char warning[] =
    "this sandbox has no network, so nothing can be downloaded. Use a session with network "
    "\"open\" "
    "(on the command line: --network open), or a template that has the packages";

static const char *const sentences[] = {
    "Temporary failure in name resolution", /* libc */
    "Temporary failure resolving",          /* apt */
    "Could not resolve host",               /* curl, git */
    "unable to resolve host address",       /* wget */
    "Network is unreachable",
    "EAI_AGAIN", /* node, npm */
};

void output_tail_add(struct output_tail *tail, const void *data, size_t length)
{
    size_t kept = MIN(length, sizeof(tail->bytes));
    size_t old = MIN(tail->length, sizeof(tail->bytes) - kept);

    if (kept == 0)
        return;
    memmove(tail->bytes, tail->bytes + tail->length - old, old);
    memcpy(tail->bytes + old, (const char *)data + length - kept, kept);
    tail->length = old + kept;
}

bool no_network_applies(const struct session *session)
{
    return str_equal(session_network_name(session), "none");
}

const char *no_network_warning(const struct session *session, const struct output_tail *tail)
{
    if (!no_network_applies(session))
        return NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(sentences); i++)
        if (memmem(tail->bytes, tail->length, sentences[i], strlen(sentences[i])))
            return warning;
    return NULL;
}

static void add_end(struct output_tail *tail, struct spool *spool)
{
    char bytes[OUTPUT_TAIL_BYTES];
    uint64_t start, end, from;
    ssize_t count;

    if (!spool)
        return;
    from = spool_length(spool) > sizeof(bytes) ? spool_length(spool) - sizeof(bytes) : 0;
    if (!spool_extent(spool, from, &start, &end))
        return;
    count = spool_read(spool, start, bytes, (size_t)MIN(end - start, (uint64_t)sizeof(bytes)));
    if (count > 0)
        output_tail_add(tail, bytes, (size_t)count);
}

static bool has_blamed_it(const struct execution *execution)
{
    struct output_tail tail = { 0 };

    add_end(&tail, execution->output.out);
    if (no_network_warning(execution->session, &tail))
        return true;
    tail.length = 0;
    add_end(&tail, execution->output.err);
    return no_network_warning(execution->session, &tail) != NULL;
}

void no_network_note(struct execution *execution)
{
    struct execution_facts *facts = &execution->facts;
    scoped(json_decref) json_t *request = NULL;
    char *text;

    if (!execution->session || facts->state != EXECUTION_EXITED || facts->exit_code == 0 ||
        !facts->request_json || !has_blamed_it(execution))
        return;
    request = json_read(facts->request_json, strlen(facts->request_json), NULL);
    if (!request || json_object_get(request, "warning"))
        return;
    json_object_set_new(request, "warning", json_string(warning));
    text = json_dumps(request, JSON_COMPACT);
    if (!text)
        return;
    free(facts->request_json);
    facts->request_json = text;
}
