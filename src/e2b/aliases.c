/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/aliases.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "core/core.h"
#include "wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { BUILDS = 256, NAME_MAXIMUM = 128, FILE_MAXIMUM = 16 * 1024 * 1024 };

static const char file_name[] = "e2b-templates.json";
static const char new_name[] = "e2b-templates.json.new";

struct e2b_aliases {
    struct core *core;       /* borrowed */
    struct e2b_alias *items; /* owned */
    size_t count;
    struct e2b_build builds[BUILDS]; /* a ring */
    size_t next_build;
};

/* --- the file -------------------------------------------------------------------------------- */

static void write_items(const struct e2b_aliases *aliases, struct buffer *text)
{
    struct json_writer json = JSON_WRITER(text);

    json_begin_object(&json, NULL);
    json_begin_array(&json, "templates");
    for (size_t i = 0; i < aliases->count; i++) {
        const struct e2b_alias *item = &aliases->items[i];

        json_begin_object(&json, NULL);
        json_put_text(&json, "owner", item->owner);
        json_put_text(&json, "name", item->name);
        json_put_text(&json, "tag", item->tag);
        json_put_text(&json, "source", item->source);
        json_put_text(&json, "build", item->build_id);
        json_put_int(&json, "created_us", item->created_us);
        json_end_object(&json);
    }
    json_end_array(&json);
    json_end_object(&json);
}

static int save(const struct e2b_aliases *aliases, struct error *err)
{
    int directory = aliases->core->parts.state_dir;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(FILE_MAXIMUM);
    scoped(fd_close) int fd = -1;

    write_items(aliases, &text);
    if (text.overflowed)
        return error_set(err, ERR_LIMIT, "there are too many names of templates");
    fd = openat(directory, new_name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(err, "make %s in the state directory", new_name);
    if (fd_write_all(fd, text.data, text.length) < 0 || fsync(fd) < 0)
        return error_sys(err, "write %s", new_name);
    if (renameat(directory, new_name, directory, file_name) < 0)
        return error_sys(err, "replace %s", file_name);
    return 0;
}

static const char *text_of(const json_t *item, const char *name)
{
    const char *text = json_string_value(json_object_get(item, name));

    return text ? text : "";
}

static struct e2b_alias *add(struct e2b_aliases *aliases, const char *owner, const char *name,
                             const char *tag, const char *source, const char *build_id,
                             int64_t created_us)
{
    struct e2b_alias *item;

    aliases->items = xrealloc(aliases->items, aliases->count + 1, sizeof(*aliases->items));
    item = &aliases->items[aliases->count++];
    *item = (struct e2b_alias){ .owner = xstrdup(owner),
                                .name = xstrdup(name),
                                .tag = xstrdup(tag),
                                .source = xstrdup(source),
                                .created_us = created_us };
    snprintf(item->build_id, sizeof(item->build_id), "%s", build_id);
    return item;
}

static void load_text(struct e2b_aliases *aliases, const char *text, size_t length)
{
    struct error err = { 0 };
    scoped(json_decref) json_t *document = json_read(text, length, &err);
    const json_t *items = json_object_get(document, "templates");
    size_t i;
    json_t *item;

    if (!document)
        log_warn("the names of templates are damaged; continuing without them",
                 kv("file", file_name), kv("error", err.message));
    json_array_foreach(items, i, item) if (aliases->count < E2B_ALIAS_MAXIMUM)
        add(aliases, text_of(item, "owner"), text_of(item, "name"), text_of(item, "tag"),
            text_of(item, "source"), text_of(item, "build"),
            json_integer_value(json_object_get(item, "created_us")));
}

static void load(struct e2b_aliases *aliases)
{
    int directory = aliases->core->parts.state_dir;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(FILE_MAXIMUM);
    scoped(fd_close) int fd = openat(directory, file_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char piece[16384];
    ssize_t got;

    while (fd >= 0 && (got = read(fd, piece, sizeof(piece))) > 0)
        if (buffer_append(&text, piece, (size_t)got) < 0)
            break;
    if (text.length)
        load_text(aliases, (const char *)text.data, text.length);
}

/* --- life ------------------------------------------------------------------------------------ */

static void alias_fini(struct e2b_alias *alias)
{
    free(alias->owner);
    free(alias->name);
    free(alias->tag);
    free(alias->source);
}

static void build_fini(struct e2b_build *build)
{
    free(build->owner);
    free(build->name);
    free(build->tag);
    json_decref(build->tags);
    *build = (struct e2b_build){ 0 };
}

struct e2b_aliases *e2b_aliases_new(struct core *core)
{
    struct e2b_aliases *aliases = xnew(struct e2b_aliases);

    aliases->core = core;
    load(aliases);
    return aliases;
}

void e2b_aliases_free(struct e2b_aliases *aliases)
{
    if (!aliases)
        return;
    for (size_t i = 0; i < aliases->count; i++)
        alias_fini(&aliases->items[i]);
    for (size_t i = 0; i < BUILDS; i++)
        build_fini(&aliases->builds[i]);
    free(aliases->items);
    free(aliases);
}

/* --- names ----------------------------------------------------------------------------------- */

static struct e2b_alias *find(const struct e2b_aliases *aliases, const char *owner,
                              const char *name, const char *tag)
{
    for (size_t i = 0; i < aliases->count; i++) {
        struct e2b_alias *item = &aliases->items[i];

        if (str_equal(item->owner, owner) && str_equal(item->name, name) &&
            str_equal(item->tag, tag))
            return item;
    }
    return NULL;
}

const struct e2b_alias *e2b_alias_find(const struct e2b_aliases *aliases, const char *owner,
                                       const char *name, const char *tag)
{
    return find(aliases, owner, name, tag);
}

const struct e2b_alias *e2b_alias_next(const struct e2b_aliases *aliases, const char *owner,
                                       const struct e2b_alias *alias)
{
    size_t at = alias ? (size_t)(alias - aliases->items) + 1 : 0;

    while (at < aliases->count && !str_equal(aliases->items[at].owner, owner))
        at++;
    return at < aliases->count ? &aliases->items[at] : NULL;
}

static bool is_name(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-_./";

    return *text && strlen(text) <= NAME_MAXIMUM && strspn(text, letters) == strlen(text);
}

static size_t count_of(const struct e2b_aliases *aliases, const char *owner)
{
    size_t count = 0;

    for (size_t i = 0; i < aliases->count; i++)
        count += str_equal(aliases->items[i].owner, owner);
    return count;
}

static int put(struct e2b_aliases *aliases, const char *owner, const char *name, const char *tag,
               const char *source, const char *build_id, struct error *err)
{
    struct e2b_alias *item = find(aliases, owner, name, tag);
    int64_t now_us = clock_wall_us(loop_clock(aliases->core->loop));

    if (!is_name(tag))
        return error_named(
            err, ERR_INVALID, "invalid_field",
            "\"%.64s\" is not a valid tag: lower-case letters, digits, - _ and . are", tag);
    if (!item &&
        (count_of(aliases, owner) >= E2B_ALIAS_PER_OWNER || aliases->count >= E2B_ALIAS_MAXIMUM))
        return error_named(err, ERR_LIMIT, "too_many_templates",
                           "at most %d names and tags of templates are kept", E2B_ALIAS_PER_OWNER);
    if (!item) {
        add(aliases, owner, name, tag, source, build_id, now_us);
        return 0;
    }
    free(item->source);
    item->source = xstrdup(source);
    snprintf(item->build_id, sizeof(item->build_id), "%s", build_id);
    return 0;
}

static int put_tags(struct e2b_aliases *aliases, const char *owner, const char *name,
                    const json_t *tags, const char *source, const char *build_id, struct error *err)
{
    size_t i;
    json_t *tag;

    json_array_foreach((json_t *)tags, i, tag)
    {
        if (!json_is_string(tag))
            return error_named(err, ERR_INVALID, "invalid_field", "tags must be texts");
        if (put(aliases, owner, name, json_string_value(tag), source, build_id, err) < 0)
            return -1;
    }
    return 0;
}

int e2b_alias_tag(struct e2b_aliases *aliases, const struct e2b_alias *alias, const json_t *tags,
                  struct error *err)
{
    scoped(free) char *owner = xstrdup(alias->owner);
    scoped(free) char *name = xstrdup(alias->name);
    scoped(free) char *source = xstrdup(alias->source);
    char build_id[E2B_BUILD_SIZE];

    memcpy(build_id, alias->build_id, sizeof(build_id));
    if (json_array_size(tags) == 0)
        return error_named(err, ERR_INVALID, "invalid_field", "tags must be at least one text");
    return put_tags(aliases, owner, name, tags, source, build_id, err) < 0 ? -1
                                                                           : save(aliases, err);
}

static bool has_tag(const json_t *tags, const char *tag)
{
    size_t i;
    json_t *item;

    if (!tags)
        return true;
    json_array_foreach((json_t *)tags, i,
                       item) if (str_equal(json_string_value(item), tag)) return true;
    return false;
}

int e2b_alias_remove(struct e2b_aliases *aliases, const char *owner, const char *name,
                     const json_t *tags, struct error *err)
{
    size_t kept = 0, before = aliases->count;

    for (size_t i = 0; i < before; i++) {
        struct e2b_alias *item = &aliases->items[i];

        if (str_equal(item->owner, owner) && str_equal(item->name, name) &&
            has_tag(tags, item->tag))
            alias_fini(item);
        else
            aliases->items[kept++] = *item;
    }
    aliases->count = kept;
    if (kept == before)
        return error_named(err, ERR_NOT_FOUND, "template_unknown", "template '%.128s' not found",
                           name);
    return save(aliases, err);
}

/* --- builds ---------------------------------------------------------------------------------- */

static void make_build_id(char id[E2B_BUILD_SIZE])
{
    uint8_t bytes[16];
    size_t at = 0;

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        abort();
    bytes[6] = (uint8_t)(0x40 | (bytes[6] & 0x0f));
    bytes[8] = (uint8_t)(0x80 | (bytes[8] & 0x3f));
    for (size_t i = 0; i < sizeof(bytes); i++)
        at += (size_t)snprintf(id + at, E2B_BUILD_SIZE - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
}

const struct e2b_build *e2b_build_begin(struct e2b_aliases *aliases, const char *owner,
                                        const char *name, const char *tag, const json_t *tags,
                                        struct error *err)
{
    struct e2b_build *build = &aliases->builds[aliases->next_build];

    if (!is_name(name) || !is_name(tag)) {
        error_named(err, ERR_INVALID, "invalid_field",
                    "name must be NAME or NAME:TAG of lower-case letters, digits, - _ . and /");
        return NULL;
    }
    aliases->next_build = (aliases->next_build + 1) % BUILDS;
    build_fini(build);
    *build = (struct e2b_build){ .owner = xstrdup(owner),
                                 .name = xstrdup(name),
                                 .tag = xstrdup(tag),
                                 .tags = json_is_array(tags) ? json_deep_copy(tags) : NULL };
    make_build_id(build->id);
    return build;
}

struct e2b_build *e2b_build_find(struct e2b_aliases *aliases, const char *owner, const char *id)
{
    for (size_t i = 0; i < BUILDS; i++)
        if (aliases->builds[i].owner && str_equal(aliases->builds[i].owner, owner) &&
            str_equal(aliases->builds[i].id, id))
            return &aliases->builds[i];
    return NULL;
}

int e2b_build_finish(struct e2b_aliases *aliases, struct e2b_build *build, const char *source,
                     struct error *err)
{
    if (put(aliases, build->owner, build->name, build->tag, source, build->id, err) < 0 ||
        put_tags(aliases, build->owner, build->name, build->tags, source, build->id, err) < 0 ||
        save(aliases, err) < 0)
        return -1;
    build->state = BUILD_READY;
    return 0;
}

void e2b_build_fail(struct e2b_build *build, const struct error *err)
{
    build->state = BUILD_FAILED;
    snprintf(build->reason, sizeof(build->reason), "%.300s%s%.200s", err->message,
             *err->hint ? "; " : "", err->hint);
}
