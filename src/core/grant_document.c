/* SPDX-License-Identifier: Apache-2.0 */
#include "core/grant_document.h"

#include "base/alloc.h"
#include "base/str.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

/* No sum of these overflows. */
enum { NODES_MAXIMUM = 4096 };
#define AMOUNT_MAXIMUM (INT64_MAX / (2 * NODES_MAXIMUM))

/* --- shares --------------------------------------------------------------------------------- */

struct grant_share *grant_document_find(const struct grant_document *document, const char *node)
{
    for (size_t i = 0; i < document->count; i++)
        if (str_equal(document->shares[i].node, node))
            return &document->shares[i];
    return NULL;
}

struct grant_share *grant_document_open(struct grant_document *document, const char *node)
{
    struct grant_share *share = grant_document_find(document, node);

    if (share)
        return share;
    document->shares = xrealloc(document->shares, document->count + 1, sizeof(*document->shares));
    share = &document->shares[document->count++];
    *share = (struct grant_share){ .node = xstrdup(node) };
    return share;
}

void grant_document_remove(struct grant_document *document, const char *node)
{
    struct grant_share *share = grant_document_find(document, node);

    if (!share)
        return;
    free(share->node);
    *share = document->shares[--document->count];
}

int64_t grant_document_others(const struct grant_document *document, const char *node)
{
    int64_t sum = document->base;

    for (size_t i = 0; i < document->count; i++)
        if (!str_equal(document->shares[i].node, node))
            sum += document->shares[i].granted;
    return sum;
}

int64_t grant_document_lack_of_others(const struct grant_document *document, const char *node)
{
    int64_t sum = 0;

    for (size_t i = 0; i < document->count; i++)
        if (!str_equal(document->shares[i].node, node))
            sum += document->shares[i].lack;
    return sum;
}

int64_t grant_document_spent(const struct grant_document *document)
{
    int64_t sum = document->base;

    for (size_t i = 0; i < document->count; i++)
        sum += document->shares[i].spent;
    return sum;
}

void grant_document_fini(struct grant_document *document)
{
    for (size_t i = 0; i < document->count; i++)
        free(document->shares[i].node);
    free(document->shares);
    *document = (struct grant_document){ 0 };
}

void grant_document_copy(struct grant_document *copy, const struct grant_document *document)
{
    *copy = (struct grant_document){ .cap = document->cap,
                                     .base = document->base,
                                     .warning = document->warning };
    for (size_t i = 0; i < document->count; i++) {
        const struct grant_share *from = &document->shares[i];
        struct grant_share *to = grant_document_open(copy, from->node);

        to->granted = from->granted;
        to->spent = from->spent;
        to->lack = from->lack;
        to->life = from->life;
    }
}

/* --- text ----------------------------------------------------------------------------------- */

static int get_amount(const json_t *object, const char *name, int64_t least, int64_t *out,
                      struct error *err)
{
    const json_t *value = json_object_get(object, name);

    if (!value)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > AMOUNT_MAXIMUM)
        return error_set(err, ERR_INTERNAL, "%s is no amount", name);
    *out = json_integer_value(value);
    return 0;
}

static int read_share(struct grant_document *document, const char *node, const json_t *object,
                      struct error *err)
{
    struct grant_share *share = grant_document_open(document, node);

    if (!json_is_object(object))
        return error_set(err, ERR_INTERNAL, "the share of node \"%.64s\" is no object", node);
    if (get_amount(object, "granted", 0, &share->granted, err) < 0 ||
        get_amount(object, "spent", 0, &share->spent, err) < 0 ||
        get_amount(object, "lack", 0, &share->lack, err) < 0)
        return error_wrap(err, "node \"%.64s\"", node);
    share->life = json_integer_value(json_object_get(object, "life"));
    return 0;
}

static int read_all(struct grant_document *document, const json_t *json, struct error *err)
{
    json_t *nodes = json_object_get(json, "nodes");
    const char *node;
    json_t *share;

    if (nodes && (!json_is_object(nodes) || json_object_size(nodes) > NODES_MAXIMUM))
        return error_set(err, ERR_INTERNAL, "nodes is no object, or has too many of them");
    if (get_amount(json, "cap", GRANT_CAP_UNSET, &document->cap, err) < 0 ||
        get_amount(json, "base", 0, &document->base, err) < 0 ||
        get_amount(json, "warning", 0, &document->warning, err) < 0)
        return -1;
    json_object_foreach(nodes, node,
                        share) if (read_share(document, node, share, err) < 0) return -1;
    return 0;
}

int grant_document_read(struct grant_document *document, const char *text, struct error *err)
{
    scoped(json_decref) json_t *json = json_read(text, strlen(text), err);
    struct grant_document read = { .cap = GRANT_CAP_UNSET };

    if (!json || read_all(&read, json, err) < 0) {
        grant_document_fini(&read);
        return error_wrap(err, "the record of a grant is damaged");
    }
    *document = read;
    return 0;
}

void grant_document_write(const struct grant_document *document, struct buffer *out)
{
    struct json_writer json = JSON_WRITER(out);

    json_begin_object(&json, NULL);
    json_put_int(&json, "cap", document->cap);
    json_put_int(&json, "base", document->base);
    if (document->warning)
        json_put_int(&json, "warning", document->warning);
    json_begin_object(&json, "nodes");
    for (size_t i = 0; i < document->count; i++) {
        const struct grant_share *share = &document->shares[i];

        json_begin_object(&json, share->node);
        json_put_int(&json, "granted", share->granted);
        if (share->spent)
            json_put_int(&json, "spent", share->spent);
        if (share->lack)
            json_put_int(&json, "lack", share->lack);
        json_put_int(&json, "life", share->life);
        json_end_object(&json);
    }
    json_end_object(&json);
    json_end_object(&json);
}
