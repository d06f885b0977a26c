/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/image_manifest.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/macros.h"
#include "base/str.h"
#include "wire/json.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

enum { PLATFORMS_SHOWN = 20, DIGITS = 64, INDEX_MAXIMUM = 1000 };

#define OCI_INDEX "application/vnd.oci.image.index.v1+json"
#define OCI_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define DOCKER_LIST "application/vnd.docker.distribution.manifest.list.v2+json"
#define DOCKER_MANIFEST "application/vnd.docker.distribution.manifest.v2+json"

const char image_manifest_types[] = OCI_INDEX ", " OCI_MANIFEST ", " DOCKER_LIST
                                              ", " DOCKER_MANIFEST;

static const char *const layer_types[] = {
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
};

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text ? text : "";
}

/* Only such text may stand in a message that a terminal shows. */
static bool is_printable(const char *text)
{
    while (*text > ' ' && *text <= '~')
        text++;
    return !*text;
}

/* --- platforms ------------------------------------------------------------------------------- */

static bool is_word(const char *text, size_t length)
{
    static const char alphabet[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    return length > 0 && strspn(text, alphabet) >= length;
}

bool image_platform_is_valid(const char *platform)
{
    unsigned words = 0;

    if (strlen(platform) >= IMAGE_PLATFORM_SIZE)
        return false;
    for (;;) {
        size_t length = strcspn(platform, "/");

        if (!is_word(platform, length) || ++words > 3)
            return false;
        platform += length;
        if (!*platform)
            return words >= 2;
        platform++;
    }
}

static void platform_read(const json_t *object, char platform[IMAGE_PLATFORM_SIZE])
{
    const char *variant = text_of(object, "variant");
    char text[IMAGE_PLATFORM_SIZE] = "";
    int length = snprintf(text, sizeof(text), "%s/%s%s%s", text_of(object, "os"),
                          text_of(object, "architecture"), *variant ? "/" : "", variant);

    if (length < 0 || length >= IMAGE_PLATFORM_SIZE || !image_platform_is_valid(text))
        text[0] = '\0';
    memcpy(platform, text, sizeof(text));
}

bool image_platform_fits(const char *offered, const char *wanted)
{
    size_t length = strlen(wanted);
    const char *slash = strchr(wanted, '/');

    assert(offered);
    if (str_equal(offered, wanted))
        return true;
    /* linux/arm64 is linux/arm64/v8 as well. */
    return slash && !strchr(slash + 1, '/') && strncmp(offered, wanted, length) == 0 &&
           offered[length] == '/';
}

void image_platform_here(char platform[IMAGE_PLATFORM_SIZE])
{
    static const struct {
        const char *machine, *architecture;
    } known[] = {
        { "x86_64", "amd64" },  { "aarch64", "arm64" }, { "armv7l", "arm/v7" },
        { "armv6l", "arm/v6" }, { "i686", "386" },      { "i586", "386" },
    };
    struct utsname name = { 0 };
    const char *architecture = name.machine;

    (void)uname(&name);
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++)
        if (str_equal(name.machine, known[i].machine))
            architecture = known[i].architecture;
    snprintf(platform, IMAGE_PLATFORM_SIZE, "linux/%.40s", architecture);
}

/* --- descriptors ----------------------------------------------------------------------------- */

bool image_digest_is_valid(const char *digest)
{
    return str_starts_with(digest, "sha256:") && strlen(digest) == IMAGE_DIGEST_SIZE - 1 &&
           strspn(digest + strlen("sha256:"), "0123456789abcdef") == DIGITS;
}

static int descriptor_read(const json_t *object, struct image_descriptor *out, struct error *err)
{
    const char *digest = text_of(object, "digest");
    const char *type = text_of(object, "mediaType");
    const json_t *size = json_object_get(object, "size");

    if (!image_digest_is_valid(digest))
        return error_set(err, ERR_INVALID, "the manifest has a digest that is not sha256");
    if (!json_is_integer(size) || json_integer_value(size) < 0 ||
        (uint64_t)json_integer_value(size) > IMAGE_BYTES_MAXIMUM)
        return error_set(err, ERR_INVALID, "the manifest has a size that is missing or too large");
    if (strlen(type) >= IMAGE_TYPE_SIZE || !is_printable(type))
        return error_set(err, ERR_INVALID, "the manifest has a malformed media type");
    *out = (struct image_descriptor){ .size = (uint64_t)json_integer_value(size) };
    snprintf(out->digest, sizeof(out->digest), "%s", digest);
    snprintf(out->type, sizeof(out->type), "%s", type);
    platform_read(json_object_get(object, "platform"), out->platform);
    return 0;
}

static int descriptors_read(struct image_manifest *manifest, const json_t *array, size_t maximum,
                            const char *what, struct error *err)
{
    const json_t *item;
    size_t i;

    if (!json_is_array(array) || json_array_size(array) == 0)
        return error_set(err, ERR_INVALID, "the manifest names no %s", what);
    if (json_array_size(array) > maximum)
        return error_set(err, ERR_TOO_LARGE, "the manifest names more than %zu %s", maximum, what);
    manifest->items = xcalloc(json_array_size(array), sizeof(*manifest->items));
    json_array_foreach(array, i, item)
    {
        if (descriptor_read(item, &manifest->items[i], err) < 0)
            return -1;
        manifest->count++;
    }
    return 0;
}

/* --- a manifest ------------------------------------------------------------------------------ */

static int layer_check(const struct image_descriptor *layer, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LENGTH(layer_types); i++)
        if (str_equal(layer->type, layer_types[i]))
            return 0;
    error_set(err, ERR_INVALID, "the image has a layer of the unsupported media type \"%s\"",
              layer->type);
    return error_hint(err, "layers have to be tar archives, plain or gzipped%s",
                      strstr(layer->type, "zstd") ? "; push the image with gzip compression" : "");
}

static int layers_read(struct image_manifest *manifest, const json_t *document, struct error *err)
{
    if (descriptor_read(json_object_get(document, "config"), &manifest->config, err) < 0)
        return error_wrap(err, "config of the image");
    if (manifest->config.size > IMAGE_MANIFEST_MAXIMUM)
        return error_set(err, ERR_TOO_LARGE, "the configuration of the image is larger than 4 MB");
    if (descriptors_read(manifest, json_object_get(document, "layers"), IMAGE_LAYERS_MAXIMUM,
                         "layers", err) < 0)
        return -1;
    for (size_t i = 0; i < manifest->count; i++) {
        if (layer_check(&manifest->items[i], err) < 0)
            return -1;
        manifest->bytes += manifest->items[i].size;
        if (manifest->bytes > IMAGE_BYTES_MAXIMUM)
            return error_set(err, ERR_TOO_LARGE, "the layers are larger than 64 GB");
    }
    return 0;
}

/* "type; parameters" without the parameters. */
static void plain_type(const char *type, char out[IMAGE_TYPE_SIZE])
{
    size_t length = MIN(strcspn(type, "; \t"), (size_t)IMAGE_TYPE_SIZE - 1);

    memcpy(out, type, length);
    out[length] = '\0';
    if (!is_printable(out))
        snprintf(out, IMAGE_TYPE_SIZE, "malformed");
}

/* The media type of the document. A header and a document that disagree would be two images with
 * one digest, one for us and one for other clients. */
static int type_find(const json_t *document, const char *sent, char out[IMAGE_TYPE_SIZE],
                     struct error *err)
{
    char own[IMAGE_TYPE_SIZE];

    plain_type(text_of(document, "mediaType"), own);
    plain_type(sent, out);
    if (*own && *out && !str_equal(own, out) && !str_equal(out, "application/json"))
        return error_set(err, ERR_INVALID, "the manifest is sent as \"%s\" and calls itself \"%s\"",
                         out, own);
    if (*own)
        memcpy(out, own, sizeof(own));
    if (json_is_array(json_object_get(document, "layers")) &&
        json_is_array(json_object_get(document, "manifests")))
        return error_set(err, ERR_INVALID, "the manifest names both layers and manifests");
    return 0;
}

static int manifest_read(struct image_manifest *manifest, const json_t *document, const char *sent,
                         struct error *err)
{
    char type[IMAGE_TYPE_SIZE];

    if (type_find(document, sent, type, err) < 0)
        return -1;
    if (str_equal(type, OCI_MANIFEST) || str_equal(type, DOCKER_MANIFEST))
        return layers_read(manifest, document, err);
    if (!str_equal(type, OCI_INDEX) && !str_equal(type, DOCKER_LIST))
        return error_set(err, ERR_INVALID, "the manifest has the unsupported media type \"%s\"",
                         type);
    manifest->is_index = true;
    return descriptors_read(manifest, json_object_get(document, "manifests"), INDEX_MAXIMUM,
                            "manifests", err);
}

int image_manifest_parse(struct image_manifest *manifest, const void *data, size_t length,
                         const char *type, struct error *err)
{
    scoped(json_decref) json_t *document = NULL;
    scoped(image_manifest_fini) struct image_manifest parsed = { 0 };

    if (length > IMAGE_MANIFEST_MAXIMUM)
        return error_set(err, ERR_TOO_LARGE, "the manifest is larger than 4 MB");
    document = json_read(data, length, err);
    if (!document)
        return error_wrap(err, "manifest");
    if (manifest_read(&parsed, document, type, err) < 0)
        return -1;
    *manifest = parsed;
    parsed.items = NULL;
    return 0;
}

void image_manifest_fini(struct image_manifest *manifest)
{
    free(manifest->items);
    *manifest = (struct image_manifest){ 0 };
}

/* --- choosing -------------------------------------------------------------------------------- */

static int refuse_platform(const struct image_manifest *index, const char *platform,
                           struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    size_t shown = 0;

    for (size_t i = 0; i < index->count && shown < PLATFORMS_SHOWN; i++) {
        const char *name = index->items[i].platform;

        assert(index->items);
        /* Attestations are listed as manifests of the platform "unknown/unknown". */
        if (*name && !str_equal(name, "unknown/unknown"))
            buffer_appendf(&text, "%s%s", shown++ ? ", " : "", name);
    }
    return error_set(err, ERR_NOT_FOUND, "the image is not there for %s; it is there for %s",
                     platform, shown ? buffer_text(&text) : "no platform");
}

const struct image_descriptor *image_manifest_choose(const struct image_manifest *index,
                                                     const char *platform, struct error *err)
{
    const struct image_descriptor *fitting = NULL;

    for (size_t i = 0; i < index->count; i++) {
        const struct image_descriptor *item = &index->items[i];

        if (str_equal(item->platform, platform))
            return item;
        if (!fitting && image_platform_fits(item->platform, platform))
            fitting = item;
    }
    if (!fitting)
        refuse_platform(index, platform, err);
    return fitting;
}

int image_config_parse(struct image_config *config, const void *data, size_t length,
                       struct error *err)
{
    scoped(json_decref) json_t *document = json_read(data, length, err);

    if (!document)
        return error_wrap(err, "configuration of the image");
    platform_read(document, config->platform);
    return 0;
}
