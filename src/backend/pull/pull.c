/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/pull/pull.h"

#include "backend/native/image.h"
#include "backend/native/template_build.h"
#include "backend/pull/download.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS_IN_NAME = 12 };

/* One pull, from its beginning to its end. */
struct pull {
    const struct pull_request *request; /* borrowed */
    struct image_ref ref;
    char name[TEMPLATE_NAME_SIZE];
    char platform[IMAGE_PLATFORM_SIZE];
    bool has_platform; /* the user asked for it */
    struct registry_login login;
    struct image_registry *registry; /* owned */
    struct blob_cache cache;
    struct image_manifest manifest;
    char digest[IMAGE_DIGEST_SIZE]; /* of the manifest */
    struct image_config image_config;
    int config;  /* owned: the image's configuration */
    int *layers; /* owned: open blobs, as many as the manifest has layers; -1: not yet */
    struct download download;
};

static void pull_fini(struct pull *pull)
{
    for (size_t i = 0; pull->layers && i < pull->manifest.count; i++)
        fd_close(pull->layers[i]);
    free(pull->layers);
    fd_close(pull->config);
    image_manifest_fini(&pull->manifest);
    blob_cache_close(&pull->cache);
    image_registry_free(pull->registry);
    if (!pull->request->login)
        registry_login_fini(&pull->login);
}

static void scoped_pull_fini(struct pull *pull)
{
    pull_fini(pull);
}

/* --- the request --------------------------------------------------------------------------- */

int pull_derive_name(const struct image_ref *ref, char name[TEMPLATE_NAME_SIZE], struct error *err)
{
    const char *last = strrchr(ref->repository, '/') + 1;
    const char *tag = str_equal(ref->tag, "latest") ? "" : ref->tag;
    int length;

    if (!*ref->tag)
        length = snprintf(name, TEMPLATE_NAME_SIZE, "%s-%.*s", last, DIGITS_IN_NAME,
                          ref->digest + strlen("sha256:"));
    else
        length = snprintf(name, TEMPLATE_NAME_SIZE, "%s%s%s", last, *tag ? "-" : "", tag);
    if (length < TEMPLATE_NAME_SIZE && template_check_name(name, err) == 0)
        return 0;
    error_set(err, ERR_INVALID, "\"%s\" gives no valid name of a template", last);
    return error_hint(err, "give one with --name");
}

static int read_request(struct pull *pull, const char *state_path, struct error *err)
{
    const struct pull_request *request = pull->request;

    if (image_ref_parse(&pull->ref, request->image, err) < 0)
        return -1;
    if (request->name && template_check_name(request->name, err) < 0)
        return -1;
    if (request->name)
        snprintf(pull->name, sizeof(pull->name), "%s", request->name);
    else if (pull_derive_name(&pull->ref, pull->name, err) < 0)
        return -1;
    if (request->platform && !image_platform_is_valid(request->platform))
        return error_set(err, ERR_INVALID,
                         "\"%.64s\" is not a platform (expected OS/ARCHITECTURE[/VARIANT], such as "
                         "linux/amd64)",
                         request->platform);
    pull->has_platform = request->platform != NULL;
    if (request->platform)
        snprintf(pull->platform, sizeof(pull->platform), "%s", request->platform);
    else
        image_platform_here(pull->platform);
    return template_check_free(state_path, pull->name, request->options.replace, err);
}

static int find_login(struct pull *pull, struct error *err)
{
    scoped(free) char *host = xstrndup(pull->ref.repository, pull->ref.host_length);

    return registry_login_find(&pull->login, host, err);
}

static int prepare(struct pull *pull, const char *state_path, struct error *err)
{
    const struct pull_request *request = pull->request;

    if (read_request(pull, state_path, err) < 0)
        return -1;
    if (request->login)
        pull->login = *request->login;
    else if (find_login(pull, err) < 0)
        return -1;
    if (blob_cache_open(&pull->cache, state_path, err) < 0)
        return -1;
    blob_cache_prune(&pull->cache);
    pull->registry = image_registry_new(&pull->ref, &pull->login, request->plain);
    pull->download = (struct download){
        .registry = pull->registry,
        .cache = &pull->cache,
        .on_progress = request->options.on_progress,
        .user = request->options.user,
        .progress = { .phase = TEMPLATE_DOWNLOADING },
    };
    return image_registry_open(pull->registry, err);
}

/* --- the manifest ---------------------------------------------------------------------------- */

/* The manifest with that tag or digest; `expected` is the digest that it has to have, or "". */
static int read_manifest(struct pull *pull, const char *reference, const char *expected,
                         struct error *err)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(IMAGE_MANIFEST_MAXIMUM);
    struct image_manifest manifest;
    struct web_answer answer;

    if (image_registry_manifest(pull->registry, reference, &body, &answer, err) < 0)
        return -1;
    blob_digest(body.data, body.length, pull->digest);
    if (!*expected && image_digest_is_valid(answer.digest))
        expected = answer.digest;
    if (*expected && !str_equal(pull->digest, expected))
        return error_named(err, ERR_INVALID, "digest_differs",
                           "the manifest %s does not have that digest", expected);
    if (image_manifest_parse(&manifest, body.data, body.length, answer.type, err) < 0)
        return -1;
    image_manifest_fini(&pull->manifest);
    pull->manifest = manifest;
    return 0;
}

static int find_manifest(struct pull *pull, struct error *err)
{
    const struct image_ref *ref = &pull->ref;
    const struct image_descriptor *chosen;
    struct image_descriptor copy;

    if (read_manifest(pull, image_ref_version(ref), ref->digest, err) < 0)
        return -1;
    if (!pull->manifest.is_index)
        return 0;
    chosen = image_manifest_choose(&pull->manifest, pull->platform, err);
    if (!chosen)
        return -1;
    copy = *chosen;
    if (read_manifest(pull, copy.digest, copy.digest, err) < 0)
        return -1;
    if (pull->manifest.is_index)
        return error_set(err, ERR_INVALID, "the index of the image names another index");
    return 0;
}

/* --- the blobs ------------------------------------------------------------------------------- */

/* The configuration is a document of the registry as well: it has to be one for this machine. */
static int read_config(struct pull *pull, struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(IMAGE_MANIFEST_MAXIMUM);
    const char *offered = pull->image_config.platform;

    pull->config = download_blob(&pull->download, &pull->manifest.config, err);
    if (pull->config < 0)
        return -1;
    if (fd_read_all(pull->config, &text) < 0)
        return error_sys(err, "read the configuration of the image");
    if (image_config_parse(&pull->image_config, text.data, text.length, err) < 0)
        return -1;
    if (!*offered || image_platform_fits(offered, pull->platform))
        return 0;
    error_set(err, ERR_NOT_FOUND, "the image is not there for %s; it is there for %s",
              pull->platform, offered);
    return pull->has_platform ? -1 : error_hint(err, "take it with --platform %s", offered);
}

static int fetch_layers(struct pull *pull, struct error *err)
{
    struct template_progress *progress = &pull->download.progress;

    pull->layers = xcalloc(pull->manifest.count, sizeof(*pull->layers));
    for (size_t i = 0; i < pull->manifest.count; i++)
        pull->layers[i] = -1;
    progress->layers = (unsigned)pull->manifest.count;
    progress->total = pull->manifest.bytes;
    progress->done = 0;
    for (size_t i = 0; i < pull->manifest.count; i++) {
        progress->layer = (unsigned)i + 1;
        pull->layers[i] = download_blob(&pull->download, &pull->manifest.items[i], err);
        if (pull->layers[i] < 0)
            return -1;
    }
    return 0;
}

static int fetch(struct pull *pull, struct error *err)
{
    if (find_manifest(pull, err) < 0)
        return -1;
    if (read_config(pull, err) < 0)
        return -1;
    pull->download.received = 0;
    return fetch_layers(pull, err);
}

/* --- the template ---------------------------------------------------------------------------- */

static int keep_config(const struct pull *pull, int work, struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(IMAGE_MANIFEST_MAXIMUM);
    scoped(fd_close) int fd =
        openat(work, "config.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (fd < 0 || lseek(pull->config, 0, SEEK_SET) < 0 || fd_read_all(pull->config, &text) < 0 ||
        fd_write_all(fd, text.data, text.length) < 0)
        return error_sys(err, "write config.json");
    return 0;
}

static int fill_from_layers(void *user, int work, int files, struct extract *extract,
                            struct error *err)
{
    struct pull *pull = user;
    scoped(fd_close) int root = template_open_directory(files, "root", 0755);

    if (root < 0)
        return error_sys(err, "create the directories of the template");
    extract->root = root;
    for (size_t i = 0; i < pull->manifest.count; i++) {
        if (lseek(pull->layers[i], 0, SEEK_SET) < 0 ||
            image_unpack_layer(pull->layers[i], (unsigned)i + 1, (unsigned)pull->manifest.count,
                               extract, err) < 0)
            return error_wrap(err, "layer %s", pull->manifest.items[i].digest);
    }
    return keep_config(pull, work, err);
}

static void describe(const struct pull *pull, struct pull_result *out)
{
    image_ref_format(&pull->ref, out->image);
    snprintf(out->digest, sizeof(out->digest), "%s", pull->digest);
    snprintf(out->platform, sizeof(out->platform), "%s",
             *pull->image_config.platform ? pull->image_config.platform : pull->platform);
    out->layers = (unsigned)pull->manifest.count;
    out->bytes = pull->manifest.bytes;
    out->downloaded = pull->download.received;
}

int template_pull(const char *state_path, const struct pull_request *request,
                  struct pull_result *out, struct error *err)
{
    scoped(pull_fini) struct pull pull = { .request = request, .config = -1, .cache.dir = -1 };
    struct template_build build = {
        .state_path = state_path,
        .name = pull.name,
        .options = &request->options,
        .fill = fill_from_layers,
        .user = &pull,
    };

    if (prepare(&pull, state_path, err) < 0 || fetch(&pull, err) < 0 ||
        template_build(&build, &out->info, err) < 0)
        return error_wrap(err, "pull %s", request->image);
    describe(&pull, out);
    return 0;
}
