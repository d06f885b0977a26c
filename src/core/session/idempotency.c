/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/idempotency.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/session/session_private.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP_HOURS = 24 };

struct entry {
    struct list node; /* all are kept equally long: the oldest expires first */
    char *name;       /* owned: "owner\nkey" */
    char session_id[ID_SIZE];
    uint64_t fingerprint;    /* of the request */
    uint64_t version;        /* of its document */
    int64_t expires_boot_us; /* the wall clock may be set; this one only goes on */
};

/* A claim or release on its way; by name, because the entry may go meanwhile. */
struct asked {
    struct store_claim claim;
    struct list node;
    struct idempotency *idempotency; /* borrowed */
    uint64_t before;                 /* the version that it replaces */
    char name[];
};

struct idempotency {
    struct core *core; /* borrowed */
    struct map by_name;
    struct list entries;
    struct list asked; /* struct asked */
};

struct idempotency *idempotency_new(struct core *core)
{
    struct idempotency *idempotency = xnew(struct idempotency);

    idempotency->core = core;
    list_init(&idempotency->entries);
    list_init(&idempotency->asked);
    return idempotency;
}

static void entry_free(struct idempotency *idempotency, struct entry *entry)
{
    map_remove(&idempotency->by_name, entry->name);
    list_remove(&entry->node);
    free(entry->name);
    free(entry);
}

static void asked_free(struct asked *asked)
{
    list_remove(&asked->node);
    free(asked);
}

void idempotency_free(struct idempotency *idempotency)
{
    struct entry *entry;
    struct asked *asked;

    if (!idempotency)
        return;
    while ((asked = list_first(&idempotency->asked, struct asked, node)))
        asked_free(asked);
    while ((entry = list_first(&idempotency->entries, struct entry, node)))
        entry_free(idempotency, entry);
    map_fini(&idempotency->by_name);
    free(idempotency);
}

/* --- what makes two requests the same ------------------------------------------------------ */

static uint64_t mix(uint64_t hash, const void *data, size_t length)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3U;
    return hash;
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
    return mix(hash, text ? text : "", text ? strlen(text) + 1 : 1);
}

static uint64_t fingerprint(const struct session_request *request)
{
    const int64_t numbers[] = { (int64_t)request->limits.memory_bytes,
                                (int64_t)request->limits.disk_bytes,
                                request->limits.cpu_millis,
                                request->limits.pids,
                                request->network,
                                request->timeout_ms,
                                request->idle_timeout_ms,
                                request->max_lifetime_ms,
                                MAX(request->on_timeout, (int)TIMEOUT_KILL),
                                request->preload,
                                request->auto_restart,
                                request->auto_resume };
    /* Not the secrets: nothing that is recorded depends on their values. */
    const char *const texts[] = { request->key,    request->labels_json, request->env_json,
                                  request->flavor, request->backend,     request->template_name };
    uint64_t hash = 0xcbf29ce484222325U;

    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        hash = mix_text(hash, texts[i]);
    if (request->mounts_json) /* requests without are the same as in records of older versions */
        hash = mix_text(hash, request->mounts_json);
    return mix(hash, numbers, sizeof(numbers));
}

char *idempotency_name(const struct session_request *request)
{
    return xasprintf("%s\n%s", request->owner ? request->owner : "", request->idempotency_key);
}

/* --- entries ------------------------------------------------------------------------------- */

static int64_t fresh_deadline_us(const struct idempotency *idempotency)
{
    return loop_now_us(idempotency->core->loop) + KEEP_HOURS * 3600LL * 1000000;
}

static struct asked *asked_new(struct idempotency *idempotency, const struct entry *entry)
{
    size_t size = strlen(entry->name) + 1;
    struct asked *asked = xmalloc(sizeof(*asked) + size);

    asked->idempotency = idempotency;
    list_append(&idempotency->asked, &asked->node);
    asked->before = entry->version;
    memcpy(asked->name, entry->name, size);
    return asked;
}

/* Another node has made a session for this key. */
static void lose(struct idempotency *idempotency, struct entry *entry)
{
    struct session *session = map_get(&idempotency->core->sessions_by_id, entry->session_id);
    struct error err = { 0 };

    error_named(&err, ERR_CONFLICT, "idempotency_key_taken",
                "a session was made for this Idempotency-Key elsewhere at the same time");
    error_hint(&err, "repeat the request: it finds that session");
    err.retryable = true;
    if (session && !session_is_recorded(session))
        session_refuse(session, &err);
    entry_free(idempotency, entry);
}

static void record(struct idempotency *idempotency, struct entry *entry, const char *owner);

static void record_again(struct idempotency *idempotency, struct entry *entry)
{
    const char *end = strchr(entry->name, '\n');
    scoped(free) char *owner = xasprintf("%.*s", end ? (int)(end - entry->name) : 0, entry->name);

    record(idempotency, entry, owner);
}

/* When its transaction has failed, so has the creation of the session, which forgets the entry. */
static void on_claimed(struct store_claim *claim)
{
    struct asked *asked = container_of(claim, struct asked, claim);
    struct entry *entry = map_get(&asked->idempotency->by_name, asked->name);

    if (entry && entry->version == claim->version && claim->outcome == CLAIM_FAILED) {
        entry->version = asked->before;
    } else if (entry && entry->version == claim->version && claim->outcome == CLAIM_LOST &&
               asked->before && !claim->current) {
        entry->version = 0; /* the store had lost it */
        record_again(asked->idempotency, entry);
    } else if (entry && entry->version == claim->version && claim->outcome == CLAIM_LOST) {
        lose(asked->idempotency, entry);
    }
    asked_free(asked);
}

/* In a sole daemon the document has no time of its own: the store would go by the wall clock. */
static void record(struct idempotency *idempotency, struct entry *entry, const char *owner)
{
    struct asked *asked = asked_new(idempotency, entry);
    struct loop *loop = idempotency->core->loop;
    bool is_clustered = core_is_clustered(idempotency->core);
    int64_t left_us = entry->expires_boot_us - loop_now_us(loop);
    char json[192];

    snprintf(json, sizeof(json),
             "{\"session\":\"%s\",\"request\":\"%016llx\",\"until_boot_us\":%lld}",
             entry->session_id, (unsigned long long)entry->fingerprint,
             (long long)entry->expires_boot_us);
    store_claim(
        idempotency->core->parts.store, &asked->claim, entry->version,
        &(struct document_record){
            .kind = IDEMPOTENCY_KIND,
            .id = entry->name,
            .owner = owner,
            .json = json,
            .expires_wall_us = is_clustered ? clock_wall_us(loop_clock(loop)) + left_us : 0 },
        on_claimed);
    store_claim_guard(&asked->claim, entry->session_id);
    entry->version = asked->claim.version;
}

/* A document that stays although it should not is dropped at the next start. */
static void on_released(struct store_claim *claim)
{
    asked_free(container_of(claim, struct asked, claim));
}

static void forget(struct idempotency *idempotency, struct entry *entry)
{
    struct asked *asked = asked_new(idempotency, entry);

    store_release(idempotency->core->parts.store, &asked->claim, entry->version, IDEMPOTENCY_KIND,
                  entry->name, on_released);
    entry_free(idempotency, entry);
}

static void drop_expired(struct idempotency *idempotency)
{
    struct entry *entry;

    while ((entry = list_first(&idempotency->entries, struct entry, node)) &&
           entry->expires_boot_us <= loop_now_us(idempotency->core->loop))
        forget(idempotency, entry);
}

enum idempotency_verdict idempotency_check(struct idempotency *idempotency,
                                           const struct session_request *request,
                                           char out_session_id[ID_SIZE])
{
    scoped(free) char *name = NULL;
    const struct entry *entry;

    if (str_is_empty(request->idempotency_key))
        return IDEMPOTENCY_NEW;
    drop_expired(idempotency);
    name = idempotency_name(request);
    entry = map_get(&idempotency->by_name, name);
    if (!entry)
        return IDEMPOTENCY_NEW;
    if (entry->fingerprint != fingerprint(request))
        return IDEMPOTENCY_DIFFERENT;
    memcpy(out_session_id, entry->session_id, ID_SIZE);
    return IDEMPOTENCY_SAME;
}

enum idempotency_verdict idempotency_compare(const struct session_request *request,
                                             const char *text)
{
    scoped(json_decref) json_t *json = json_read(text, strlen(text), NULL);
    const char *recorded = json_string_value(json_object_get(json, "request"));

    return recorded && strtoull(recorded, NULL, 16) == fingerprint(request) ? IDEMPOTENCY_SAME
                                                                            : IDEMPOTENCY_DIFFERENT;
}

void idempotency_assert(struct idempotency *idempotency)
{
    struct entry *entry, *following;

    if (!core_is_clustered(idempotency->core))
        return;
    list_for_each_safe (entry, following, &idempotency->entries, node)
        record_again(idempotency, entry);
}

static struct entry *add(struct idempotency *idempotency, char *name, const char *session_id)
{
    struct entry *entry = xnew(struct entry);

    entry->name = name;
    snprintf(entry->session_id, sizeof(entry->session_id), "%s", session_id);
    map_put(&idempotency->by_name, entry->name, entry);
    list_append(&idempotency->entries, &entry->node);
    return entry;
}

void idempotency_remember(struct idempotency *idempotency, const struct session_request *request,
                          const char *session_id)
{
    struct entry *entry;

    if (str_is_empty(request->idempotency_key))
        return;
    entry = add(idempotency, idempotency_name(request), session_id);
    entry->fingerprint = fingerprint(request);
    entry->expires_boot_us = fresh_deadline_us(idempotency);
    record(idempotency, entry, request->owner);
}

void idempotency_forget_session(struct idempotency *idempotency, const char *session_id)
{
    struct entry *entry;
    struct entry *following;

    list_for_each_safe (entry, following, &idempotency->entries, node) {
        if (str_equal(entry->session_id, session_id))
            forget(idempotency, entry);
    }
}

/* How much of the day is left is known within one boot; a machine that was started anew begins it
 * again, and so does a record that cannot be true. */
static int64_t restored_deadline_us(const struct idempotency *idempotency, const json_t *json,
                                    bool *out_is_new)
{
    int64_t fresh_us = fresh_deadline_us(idempotency);
    int64_t until_us = json_integer_value(json_object_get(json, "until_boot_us"));

    *out_is_new = !idempotency->core->parts.store->load.same_boot || until_us <= 0 ||
                  until_us > fresh_us;
    return *out_is_new ? fresh_us : until_us;
}

void idempotency_restore(struct idempotency *idempotency, const struct document_record *document)
{
    struct error err = { 0 };
    scoped(json_decref) json_t *json = json_read(document->json, strlen(document->json), &err);
    const char *session_id = json_string_value(json_object_get(json, "session"));
    const char *request = json_string_value(json_object_get(json, "request"));
    struct entry *entry;
    bool is_new;

    if (!session_id || !request || map_get(&idempotency->by_name, document->id))
        return;
    if (core_is_clustered(idempotency->core) &&
        !map_get(&idempotency->core->sessions_by_id, session_id))
        return; /* of another node, or ended: it is found when it is asked for */
    entry = add(idempotency, xstrdup(document->id), session_id);
    entry->fingerprint = strtoull(request, NULL, 16);
    entry->version = document->version;
    entry->expires_boot_us = restored_deadline_us(idempotency, json, &is_new);
    if (is_new)
        record(idempotency, entry, document->owner);
}
