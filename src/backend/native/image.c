/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/image.h"

#include "base/buffer.h"
#include "base/fd.h"
#include "base/scoped.h"
#include "base/str.h"
#include "wire/json.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { MAX_DOCUMENT = 8 * 1024 * 1024, MAX_LAYERS = 512, DIGEST_SIZE = 64 };

/* A file of the archive, through no link: docker links layers of equal content to each other, but
 * names the real one too. */
static int open_file(int dir, const char *path)
{
    struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
                            .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

static json_t *read_document(int dir, const char *path, struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(MAX_DOCUMENT);
    scoped(fd_close) int fd = open_file(dir, path);
    json_t *document;
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        error_set(err, ERR_INVALID, "the image has no %s", path);
        return NULL;
    }
    document = fd_read_all(fd, &text) < 0 ? NULL
                                          : json_loadb((char *)text.data, text.length, 0, NULL);
    if (!document)
        error_set(err, ERR_INVALID, "%s of the image is not JSON", path);
    return document;
}

bool image_is_here(int dir)
{
    return faccessat(dir, "manifest.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
           (faccessat(dir, "index.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
            faccessat(dir, "oci-layout", F_OK, AT_SYMLINK_NOFOLLOW) == 0);
}

int image_unpack_layer(int fd, unsigned layer, unsigned layers, struct extract *extract,
                       struct error *err)
{
    extract->whiteouts = true;
    extract->progress =
        (struct template_progress){ .phase = TEMPLATE_UNPACKING, .layer = layer, .layers = layers };
    return extract_file(extract, fd, err);
}

/* The one at `index` of `layers`. */
static int unpack_layer(int dir, const char *path, size_t index, const json_t *layers,
                        struct extract *extract, struct error *err)
{
    scoped(fd_close) int fd = open_file(dir, path);

    if (fd < 0)
        return error_sys(err, "open layer %s", path);
    if (image_unpack_layer(fd, (unsigned)index + 1, (unsigned)json_array_size(layers), extract,
                           err) < 0)
        return error_wrap(err, "layer %s", path);
    return 0;
}

/* --- docker save --------------------------------------------------------------------------- */

static int unpack_docker(int dir, struct extract *extract, struct error *err)
{
    scoped(json_decref) json_t *manifest = read_document(dir, "manifest.json", err);
    json_t *layers;
    json_t *layer;
    size_t i;

    if (!manifest)
        return -1;
    if (json_array_size(manifest) != 1)
        return error_set(err, ERR_INVALID, "the archive has %zu images, not one",
                         json_array_size(manifest));
    layers = json_object_get(json_array_get(manifest, 0), "Layers");
    if (json_array_size(layers) == 0 || json_array_size(layers) > MAX_LAYERS)
        return error_set(err, ERR_INVALID, "manifest.json names no layers");
    json_array_foreach(layers, i, layer)
    {
        if (!json_is_string(layer))
            return error_set(err, ERR_INVALID, "manifest.json has a layer without a name");
        if (unpack_layer(dir, json_string_value(layer), i, layers, extract, err) < 0)
            return -1;
    }
    return 0;
}

/* --- OCI ----------------------------------------------------------------------------------- */

static int blob_path(const json_t *descriptor, char path[16 + DIGEST_SIZE + 1], struct error *err)
{
    const char *digest = json_string_value(json_object_get(descriptor, "digest"));

    if (!digest || !str_starts_with(digest, "sha256:") || strlen(digest + 7) != DIGEST_SIZE ||
        strspn(digest + 7, "0123456789abcdef") != DIGEST_SIZE)
        return error_set(err, ERR_INVALID, "the image has a malformed digest");
    snprintf(path, 16 + DIGEST_SIZE + 1, "blobs/sha256/%s", digest + 7);
    return 0;
}

static int unpack_oci_layers(int dir, const json_t *manifest, struct extract *extract,
                             struct error *err)
{
    json_t *layers = json_object_get(manifest, "layers");
    json_t *layer;
    size_t i;

    if (json_array_size(layers) == 0 || json_array_size(layers) > MAX_LAYERS)
        return error_set(err, ERR_INVALID, "the image names no layers");
    json_array_foreach(layers, i, layer)
    {
        const char *type = json_string_value(json_object_get(layer, "mediaType"));
        char path[16 + DIGEST_SIZE + 1];

        if (type && strstr(type, "zstd"))
            return error_set(err, ERR_INVALID, "layers compressed with zstd are not supported");
        if (blob_path(layer, path, err) < 0 || unpack_layer(dir, path, i, layers, extract, err) < 0)
            return -1;
    }
    return 0;
}

static int unpack_oci(int dir, struct extract *extract, struct error *err)
{
    scoped(json_decref) json_t *index = read_document(dir, "index.json", err);
    scoped(json_decref) json_t *manifest = NULL;
    json_t *manifests = index ? json_object_get(index, "manifests") : NULL;
    char path[16 + DIGEST_SIZE + 1];

    if (!index)
        return -1;
    if (json_array_size(manifests) != 1)
        return error_set(err, ERR_INVALID, "the archive has %zu images, not one",
                         json_array_size(manifests));
    if (blob_path(json_array_get(manifests, 0), path, err) < 0)
        return -1;
    manifest = read_document(dir, path, err);
    if (!manifest)
        return -1;
    return unpack_oci_layers(dir, manifest, extract, err);
}

int image_unpack(int dir, struct extract *extract, struct error *err)
{
    if (faccessat(dir, "manifest.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return unpack_docker(dir, extract, err);
    return unpack_oci(dir, extract, err);
}
