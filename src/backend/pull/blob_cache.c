/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/pull/blob_cache.h"

#include "backend/native/template_build.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

enum { NAME_SIZE = 64 + 8, PIECE = 256 * 1024, KEPT_S = 7 * 24 * 3600 };

int blob_cache_open(struct blob_cache *cache, const char *state_path, struct error *err)
{
    scoped(fd_close) int templates = template_open_all(state_path, err);
    scoped(fd_close) int dir = -1;
    struct stat status;

    if (templates < 0)
        return -1;
    dir = template_open_directory(templates, TEMPLATE_BLOBS, 0700);
    if (dir < 0 || fstat(dir, &status) < 0)
        return error_sys(err, "open %s/templates/" TEMPLATE_BLOBS, state_path);
    /* The directory's owner could change a blob between the check and the use. */
    if (status.st_uid != geteuid())
        return error_set(err, ERR_FORBIDDEN,
                         "%s/templates/" TEMPLATE_BLOBS " belongs to uid %u, not to uid %u",
                         state_path, (unsigned)status.st_uid, (unsigned)geteuid());
    cache->dir = steal_fd(&dir);
    return 0;
}

void blob_cache_close(struct blob_cache *cache)
{
    fd_close(cache->dir);
    cache->dir = -1;
}

static void name_blob(const struct image_descriptor *blob, const char *suffix, char name[NAME_SIZE])
{
    assert(image_digest_is_valid(blob->digest));
    snprintf(name, NAME_SIZE, "%s%s", blob->digest + strlen("sha256:"), suffix);
}

/* --- digests --------------------------------------------------------------------------------- */

static EVP_MD_CTX *hash_new(void)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();

    if (!hash || EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1)
        out_of_memory();
    return hash;
}

/* Adds the file from its beginning, at most `most` bytes of it; how many there were, or -1. */
static int64_t hash_file(EVP_MD_CTX *hash, int fd, uint64_t most)
{
    scoped(free) uint8_t *piece = xmalloc(PIECE);
    uint64_t done = 0;

    while (done < most) {
        size_t wanted = (size_t)MIN((uint64_t)PIECE, most - done);
        size_t got = fd_read_at(fd, piece, wanted, (off_t)done);

        if (got < wanted && errno)
            return -1;
        (void)EVP_DigestUpdate(hash, piece, got);
        done += got;
        if (got < wanted)
            break;
    }
    return (int64_t)done;
}

static void hash_finish(EVP_MD_CTX *hash, char digest[IMAGE_DIGEST_SIZE])
{
    uint8_t bytes[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    size_t used = (size_t)snprintf(digest, IMAGE_DIGEST_SIZE, "sha256:");

    (void)EVP_DigestFinal_ex(hash, bytes, &length);
    for (unsigned i = 0; i < length && used + 2 < IMAGE_DIGEST_SIZE; i++, used += 2)
        snprintf(digest + used, 3, "%02x", bytes[i]);
}

static bool hash_is(EVP_MD_CTX *hash, const char *digest)
{
    char found[IMAGE_DIGEST_SIZE];

    hash_finish(hash, found);
    return str_equal(found, digest);
}

void blob_digest(const void *data, size_t length, char digest[IMAGE_DIGEST_SIZE])
{
    EVP_MD_CTX *hash = hash_new();

    (void)EVP_DigestUpdate(hash, data, length);
    hash_finish(hash, digest);
    EVP_MD_CTX_free(hash);
}

/* --- blobs ----------------------------------------------------------------------------------- */

static bool is_intact(int fd, const struct image_descriptor *blob)
{
    EVP_MD_CTX *hash = hash_new();
    struct stat status;
    bool result = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                  status.st_uid == geteuid() && (uint64_t)status.st_size == blob->size &&
                  hash_file(hash, fd, blob->size) == (int64_t)blob->size &&
                  hash_is(hash, blob->digest);

    EVP_MD_CTX_free(hash);
    return result;
}

int blob_cache_find(struct blob_cache *cache, const struct image_descriptor *blob)
{
    scoped(fd_close) int fd = -1;
    char name[NAME_SIZE];

    name_blob(blob, "", name);
    fd = openat(cache->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (!is_intact(fd, blob)) {
        (void)unlinkat(cache->dir, name, 0);
        return -1;
    }
    (void)futimens(fd, NULL);
    return steal_fd(&fd);
}

void blob_cache_prune(struct blob_cache *cache)
{
    int fd = openat(cache->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    time_t oldest = time(NULL) - KEPT_S;
    struct dirent *entry;
    struct stat status;

    while (stream && (entry = readdir(stream)))
        if (fstatat(cache->dir, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(status.st_mode) && status.st_mtime < oldest)
            (void)unlinkat(cache->dir, entry->d_name, 0);
    if (stream)
        closedir(stream);
}

/* --- parts ----------------------------------------------------------------------------------- */

/* Whether the descriptor is still the file of that name: another command may have finished it while
 * we waited for the lock. */
static bool is_named(int dir, const char *name, int fd)
{
    struct stat here;
    struct stat there;

    return fstat(fd, &here) == 0 && fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

static int open_locked(struct blob_cache *cache, const struct image_descriptor *blob)
{
    char name[NAME_SIZE];

    name_blob(blob, ".part", name);
    for (;;) {
        scoped(fd_close) int fd =
            openat(cache->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

        if (fd < 0 || flock(fd, LOCK_EX) < 0)
            return -1;
        if (is_named(cache->dir, name, fd))
            return steal_fd(&fd);
    }
}

int blob_part_open(struct blob_part *part, struct blob_cache *cache,
                   const struct image_descriptor *blob, struct error *err)
{
    scoped(fd_close) int whole = -1;
    struct stat status;
    int64_t length;

    *part = (struct blob_part){ .cache = cache, .blob = blob, .fd = open_locked(cache, blob) };
    if (part->fd < 0 || fstat(part->fd, &status) < 0)
        return error_sys(err, "open the partial blob %s", blob->digest);
    whole = blob_cache_find(cache, blob);
    if (whole >= 0) {
        char name[NAME_SIZE];

        name_blob(blob, ".part", name);
        (void)unlinkat(cache->dir, name, 0);
        return 1;
    }
    part->hash = hash_new();
    if ((uint64_t)status.st_size > blob->size || !S_ISREG(status.st_mode))
        return blob_part_restart(part, err);
    length = hash_file(part->hash, part->fd, blob->size);
    if (length < 0)
        return error_sys(err, "read the partial blob %s", blob->digest);
    part->length = part->resumed = (uint64_t)length;
    return 0;
}

void blob_part_close(struct blob_part *part)
{
    EVP_MD_CTX_free(part->hash);
    part->hash = NULL;
    fd_close(steal_fd(&part->fd));
}

int blob_part_append(struct blob_part *part, const void *data, size_t length, struct error *err)
{
    size_t written;

    if (length > part->blob->size - part->length)
        return error_set(err, ERR_INVALID, "the blob %s is larger than the manifest says",
                         part->blob->digest);
    written = fd_write_at(part->fd, data, length, (off_t)part->length);
    (void)EVP_DigestUpdate(part->hash, data, written);
    part->length += written;
    return written < length ? error_sys(err, "write the blob %s", part->blob->digest) : 0;
}

int blob_part_restart(struct blob_part *part, struct error *err)
{
    EVP_MD_CTX_free(part->hash);
    part->hash = hash_new();
    part->length = part->resumed = 0;
    if (ftruncate(part->fd, 0) < 0)
        return error_sys(err, "empty the partial blob %s", part->blob->digest);
    return 0;
}

int blob_part_finish(struct blob_part *part, struct error *err)
{
    struct blob_cache *cache = part->cache;
    char partial[NAME_SIZE];
    char name[NAME_SIZE];

    assert(part->length == part->blob->size);
    name_blob(part->blob, ".part", partial);
    name_blob(part->blob, "", name);
    if (!hash_is(part->hash, part->blob->digest)) {
        (void)unlinkat(cache->dir, partial, 0);
        return error_named(err, ERR_INVALID, "digest_differs",
                           "the content of the blob %s does not have that digest",
                           part->blob->digest);
    }
    if (renameat(cache->dir, partial, cache->dir, name) < 0)
        return error_sys(err, "rename the blob %s", part->blob->digest);
    return steal_fd(&part->fd);
}
