/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates as the clients see them: those of the product under their own names, `base` and the
 * other names that clients send for a sandbox of the default kind, and names that callers have
 * given (aliases.h). Nothing is built here: a build that only names a template is ready at once, and
 * one with steps of its own ends with an error that says what to do instead.
 */

#include "core/sandbox/templates.h"
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/session/session.h"
#include "e2b/aliases.h"
#include "e2b/private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sent by clients whose caller names none. */
static const char *const default_names[] = { "base", "code-interpreter-v1",
                                             "code-interpreter-stateful" };

static bool is_default_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(default_names); i++)
        if (str_equal(default_names[i], name))
            return true;
    return false;
}

/* A name of the product; borrowed from `names`, NULL when it is none. */
static const char *own_name(char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (str_equal(names[i], name))
            return names[i];
    return NULL;
}

static bool is_own(const struct core *core, const char *name)
{
    size_t count;
    char **names = templates_list(core, &count);
    bool found = own_name(names, count, name) != NULL;

    templates_free(names, count);
    return found;
}

/* NAME or NAME:TAG; `out_tag` is "default" without one. */
static char *split_tag(const char *text, const char **out_tag)
{
    const char *colon = strrchr(text, ':');

    *out_tag = colon ? colon + 1 : E2B_DEFAULT_TAG;
    return colon ? xstrndup(text, (size_t)(colon - text)) : xstrdup(text);
}

static int refuse_unknown(const char *wanted, struct error *err)
{
    error_named(err, ERR_NOT_FOUND, "template_unknown", "template '%.128s' not found", wanted);
    return error_hint(err, "'sandglass template ls' lists the templates");
}

/* The product decides about names that only it knows: images of an engine, say. */
int e2b_template_find(struct request *request, const char *wanted, const char **out_name,
                      struct error *err)
{
    const struct e2b *e2b = request->context;
    const char *tag;
    scoped(free) char *name = split_tag(wanted, &tag);
    const struct e2b_alias *alias = e2b_alias_find(e2b->aliases, request->owner, name, tag);

    if (is_own(request->core, wanted)) {
        *out_name = wanted;
        return 0;
    }
    if (alias) {
        *out_name = *alias->source ? alias->source : NULL;
        return 0;
    }
    if (!str_equal(tag, E2B_DEFAULT_TAG) && !str_equal(tag, "latest"))
        return refuse_unknown(wanted, err);
    *out_name = NULL;
    return is_default_name(name) ? 0 : refuse_unknown(wanted, err);
}

const char *e2b_template_of(const struct session *session, const struct e2b_notes *notes)
{
    return notes->template_name ? notes->template_name : session_template_name(session);
}

/* --- lists ----------------------------------------------------------------------------------- */

static void put_names(struct json_writer *json, const char *key, const char *name)
{
    json_begin_array(json, key);
    json_put_text(json, NULL, name);
    json_end_array(json);
}

static void write_template(struct json_writer *json, const struct config *config, const char *name,
                           const char *build_id, int64_t created_us, bool is_public)
{
    json_begin_object(json, NULL);
    json_put_text(json, "templateID", name);
    json_put_text(json, "buildID", build_id);
    json_put_int(json, "cpuCount", MAX((config->sandbox.cpu_millis + 999) / 1000, 1U));
    json_put_int(json, "memoryMB", (int64_t)(config->sandbox.memory_bytes >> 20));
    json_put_int(json, "diskSizeMB", (int64_t)(config->sandbox.disk_bytes >> 20));
    json_put_bool(json, "public", is_public);
    put_names(json, "aliases", name);
    put_names(json, "names", name);
    json_put_time(json, "createdAt", created_us);
    json_put_time(json, "updatedAt", created_us);
    json_put_null(json, "createdBy");
    json_put_null(json, "lastSpawnedAt");
    json_put_int(json, "spawnCount", 0);
    json_put_int(json, "buildCount", 1);
    json_put_text(json, "buildStatus", "ready");
    json_put_text(json, "envdVersion", E2B_ENVD_VERSION);
    json_end_object(json);
}

static void get_templates(struct request *request)
{
    const struct e2b *e2b = request->context;
    const struct config *config = request->core->parts.config;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const struct e2b_alias *alias = NULL;
    size_t count;
    char **names = templates_list(request->core, &count);

    json_begin_array(&json, NULL);
    write_template(&json, config, default_names[0], "base", e2b->started_us, true);
    for (size_t i = 0; i < count; i++)
        write_template(&json, config, names[i], names[i], e2b->started_us, true);
    while ((alias = e2b_alias_next(e2b->aliases, request->owner, alias)))
        if (str_equal(alias->tag, E2B_DEFAULT_TAG))
            write_template(&json, config, alias->name, alias->build_id, alias->created_us, false);
    json_end_array(&json);
    templates_free(names, count);
    request_reply(request, 200, &text);
}

static void get_alias(struct request *request)
{
    const char *wanted = request_path(request, "id");
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    struct error err = { 0 };
    const char *name;

    if (e2b_template_find(request, wanted, &name, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    json_begin_object(&json, NULL);
    json_put_text(&json, "templateID", wanted);
    json_put_bool(&json, "public", is_own(request->core, wanted) || is_default_name(wanted));
    json_end_object(&json);
    request_reply(request, 200, &text);
}

/* --- builds ---------------------------------------------------------------------------------- */

/* "n[:tag]" and `tags`; the first tag is that of the build. */
static void post_template(struct request *request)
{
    struct e2b *e2b = request->context;
    const char *wanted = json_string_value(json_object_get(request->body, "name"));
    const char *tag;
    scoped(free) char *name = split_tag(wanted ? wanted : "", &tag);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    const struct e2b_build *build;
    struct error err = { 0 };

    build = e2b_build_begin(e2b->aliases, request->owner, name, tag,
                            json_object_get(request->body, "tags"), &err);
    if (!build) {
        request_fail(request, &err);
        return;
    }
    json_begin_object(&json, NULL);
    json_put_text(&json, "templateID", build->name);
    json_put_text(&json, "buildID", build->id);
    json_put_bool(&json, "public", false);
    put_names(&json, "names", build->name);
    put_names(&json, "tags", build->tag);
    put_names(&json, "aliases", build->name);
    json_end_object(&json);
    request_reply(request, 202, &text);
}

static struct e2b_build *find_build(struct request *request)
{
    struct e2b *e2b = request->context;
    struct e2b_build *build =
        e2b_build_find(e2b->aliases, request->owner, request_path(request, "build"));

    if (build && str_equal(build->name, request_path(request, "id")))
        return build;
    e2b_fail_status(request, 404, "build not found");
    return NULL;
}

static const char *image_name(const char *image)
{
    return str_equal(image, "e2bdev/base") || str_equal(image, "e2bdev/base:latest") ? "base"
                                                                                     : image;
}

/* The template or image to which the build gives another name. A build with steps or a start
 * command is refused. */
static int read_source(struct request *request, const char **out_source, struct error *err)
{
    const json_t *body = request->body;
    const char *source = json_string_value(json_object_get(body, "fromTemplate"));
    const char *image = json_string_value(json_object_get(body, "fromImage"));

    if (json_array_size(json_object_get(body, "steps")) ||
        !str_is_empty(json_string_value(json_object_get(body, "startCmd")))) {
        error_named(err, ERR_INVALID, "unsupported_field",
                    "this server runs no build steps and no start commands");
        return error_hint(err, "build an image, make it a template with 'sandglass template pull' "
                               "or 'import', and name it with fromTemplate");
    }
    if (!source && !image)
        return error_named(err, ERR_INVALID, "invalid_field",
                           "fromTemplate or fromImage is required");
    return e2b_template_find(request, source ? source : image_name(image), out_source, err);
}

static void post_build(struct request *request)
{
    struct e2b *e2b = request->context;
    struct e2b_build *build = find_build(request);
    const char *source = NULL;
    struct error err = { 0 };

    if (!build)
        return;
    if (read_source(request, &source, &err) < 0)
        e2b_build_fail(build, &err);
    else if (e2b_build_finish(e2b->aliases, build, source ? source : "", &err) < 0) {
        request_fail(request, &err);
        return;
    }
    e2b_reply_empty(request, 202);
}

static void get_status(struct request *request)
{
    static const char *const states[] = {
        [BUILD_WAITING] = "waiting", [BUILD_READY] = "ready", [BUILD_FAILED] = "error"
    };
    const struct e2b_build *build = find_build(request);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    if (!build)
        return;
    json_begin_object(&json, NULL);
    json_put_text(&json, "templateID", build->name);
    json_put_text(&json, "buildID", build->id);
    json_put_text(&json, "status", states[build->state]);
    json_begin_array(&json, "logs");
    json_end_array(&json);
    json_begin_array(&json, "logEntries");
    json_end_array(&json);
    if (build->state == BUILD_FAILED) {
        json_begin_object(&json, "reason");
        json_put_text(&json, "message", build->reason);
        json_end_object(&json);
    }
    json_end_object(&json);
    request_reply(request, 200, &text);
}

/* No file can be used in a build here: the client is told before it uploads one. */
static void get_files(struct request *request)
{
    e2b_fail_status(request, 501, "this server runs no build steps: files cannot be copied");
}

/* --- tags ------------------------------------------------------------------------------------ */

static void reply_tags(struct request *request, const char *build_id, const json_t *tags)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    scoped(free) char *list = json_dumps(tags, JSON_COMPACT);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "buildID", build_id);
    json_put_raw(&json, "tags", list);
    json_end_object(&json);
    request_reply(request, 201, &text);
}

static void post_tags(struct request *request)
{
    struct e2b *e2b = request->context;
    const char *target = json_string_value(json_object_get(request->body, "target"));
    const json_t *tags = json_object_get(request->body, "tags");
    const char *tag;
    scoped(free) char *name = split_tag(target ? target : "", &tag);
    const struct e2b_alias *alias = e2b_alias_find(e2b->aliases, request->owner, name, tag);
    char build_id[E2B_BUILD_SIZE];
    struct error err = { 0 };

    if (!alias) {
        refuse_unknown(target ? target : "", &err);
        request_fail(request, &err);
        return;
    }
    memcpy(build_id, alias->build_id, sizeof(build_id));
    if (e2b_alias_tag(e2b->aliases, alias, tags, &err) < 0)
        request_fail(request, &err);
    else
        reply_tags(request, build_id, tags);
}

static void delete_tags(struct request *request)
{
    struct e2b *e2b = request->context;
    const char *name = json_string_value(json_object_get(request->body, "name"));
    struct error err = { 0 };

    if (e2b_alias_remove(e2b->aliases, request->owner, name ? name : "",
                         json_object_get(request->body, "tags"), &err) < 0)
        request_fail(request, &err);
    else
        e2b_reply_empty(request, 204);
}

static void get_tags(struct request *request)
{
    const struct e2b *e2b = request->context;
    const char *name = request_path(request, "id");
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const struct e2b_alias *alias = NULL;
    const char *own;
    struct error err = { 0 };

    if (e2b_template_find(request, name, &own, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    json_begin_array(&json, NULL);
    while ((alias = e2b_alias_next(e2b->aliases, request->owner, alias))) {
        if (!str_equal(alias->name, name))
            continue;
        json_begin_object(&json, NULL);
        json_put_text(&json, "tag", alias->tag);
        json_put_text(&json, "buildID", alias->build_id);
        json_put_time(&json, "createdAt", alias->created_us);
        json_end_object(&json);
    }
    json_end_array(&json);
    request_reply(request, 200, &text);
}

/* --- removal --------------------------------------------------------------------------------- */

static void delete_template(struct request *request)
{
    struct e2b *e2b = request->context;
    const char *wanted = request_path(request, "id");
    const char *tag;
    scoped(free) char *name = split_tag(wanted, &tag);
    struct error err = { 0 };

    if (is_own(request->core, wanted) || is_default_name(wanted))
        e2b_fail_status(request, 403,
                        "templates of the server are removed with 'sandglass "
                        "template rm'");
    else if (e2b_alias_remove(e2b->aliases, request->owner, name, NULL, &err) < 0)
        request_fail(request, &err);
    else
        e2b_reply_empty(request, 204);
}

#define PLAIN .answers = e2b_any_answers
#define BODY .body = ROUTE_JSON_BODY, .answers = e2b_any_answers

const struct route e2b_template_routes[] = {
    { HTTP_GET, "/templates", get_templates, "List templates", PLAIN },
    { HTTP_GET, "/v2/templates", get_templates, "List templates", PLAIN },
    { HTTP_GET, "/templates/aliases/{id}", get_alias, "Find a template by its name", PLAIN },
    { HTTP_POST, "/v3/templates", post_template, "Begin a build", BODY },
    { HTTP_POST, "/v2/templates/{id}/builds/{build}", post_build, "Build a template", BODY },
    { HTTP_GET, "/templates/{id}/builds/{build}/status", get_status, "The state of a build",
      PLAIN },
    { HTTP_GET, "/templates/{id}/files/{hash}", get_files, "Where to upload a file", PLAIN },
    { HTTP_POST, "/templates/tags", post_tags, "Give a build more tags", BODY },
    { HTTP_DELETE, "/templates/tags", delete_tags, "Remove tags", BODY },
    { HTTP_GET, "/templates/{id}/tags", get_tags, "List the tags of a template", PLAIN },
    { HTTP_DELETE, "/templates/{id}", delete_template, "Remove a name", PLAIN },
    { 0 },
};
