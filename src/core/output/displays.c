/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/displays.h"

#include "base/fd.h"
#include "base/macros.h"
#include "base/str.h"
#include "core/output/spool_files.h"

#include <ctype.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct header {
    uint64_t length;
    char type[DISPLAY_TYPE_SIZE];
    char hash[DISPLAY_HASH_SIZE];
    char unused[7];
};

static int open_file(int state_dir, const char *execution_id, int flags)
{
    char name[SPOOL_NAME_SIZE];

    spool_file_name(name, execution_id, SPOOL_SHOWN);
    return openat(state_dir, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* "image/png": no space, no parameter, nothing that a header of HTTP would misread. */
static bool is_type(const char *type)
{
    const char *slash = strchr(type, '/');

    if (!slash || slash == type || !slash[1] || strlen(type) >= DISPLAY_TYPE_SIZE)
        return false;
    for (const char *at = type; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("/+-.", *at))
            return false;
    return true;
}

static void write_hash(const void *data, size_t length, char out[DISPLAY_HASH_SIZE])
{
    uint8_t digest[SHA256_DIGEST_LENGTH];

    EVP_Digest(data, length, digest, NULL, EVP_sha256(), NULL);
    for (size_t i = 0; i < sizeof(digest); i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* Looks for the hash (NULL: for none) and returns the end of the last whole entry before it. */
static uint64_t walk(int file, const char *hash, bool *out_found, struct header *out_header)
{
    struct stat status;
    uint64_t at = 0;

    *out_found = false;
    if (fstat(file, &status) < 0)
        return 0;
    while (pread(file, out_header, sizeof(*out_header), (off_t)at) == sizeof(*out_header)) {
        uint64_t end = at + sizeof(*out_header) + out_header->length;

        if (out_header->length > DISPLAY_MAXIMUM || end > (uint64_t)status.st_size)
            return at;
        if (hash && memcmp(out_header->hash, hash, DISPLAY_HASH_SIZE) == 0) {
            *out_found = true;
            return at;
        }
        at = end;
    }
    return at;
}

/* A file that cannot be cut keeps an entry that is not whole, which readers pass over. */
static void cut(int file, uint64_t length)
{
    if (ftruncate(file, (off_t)length) < 0)
        return;
}

static int append(int file, uint64_t at, struct header *header, const void *data, struct error *err)
{
    struct iovec parts[] = { { header, sizeof(*header) }, { (void *)data, header->length } };
    ssize_t size = (ssize_t)(sizeof(*header) + header->length);

    if (at + (uint64_t)size > DISPLAYS_MAXIMUM)
        return error_set(err, ERR_TOO_LARGE, "the displays of one interpreter have %d bytes",
                         DISPLAYS_MAXIMUM);
    cut(file, at); /* an entry that is not whole */
    if (pwritev(file, parts, ARRAY_LENGTH(parts), (off_t)at) == size)
        return 0;
    error_sys(err, "write a display");
    cut(file, at);
    return -1;
}

int display_keep(int state_dir, const char *execution_id, const char *type, const void *data,
                 size_t length, char out_hash[DISPLAY_HASH_SIZE], uint64_t *out_grown,
                 struct error *err)
{
    struct header header, found;
    scoped(fd_close) int file = -1;
    bool is_there;
    uint64_t at;

    memset(&header, 0, sizeof(header));
    if (length > DISPLAY_MAXIMUM)
        return error_set(err, ERR_TOO_LARGE, "a display has more than %d bytes", DISPLAY_MAXIMUM);
    if (!is_type(type))
        return error_set(err, ERR_INVALID, "\"%.64s\" is not a media type", type);
    header.length = length;
    memcpy(header.type, type, strlen(type));
    write_hash(data, length, header.hash);
    file = open_file(state_dir, execution_id, O_RDWR | O_CREAT);
    if (file < 0)
        return error_sys(err, "open the displays of %s", execution_id);
    at = walk(file, header.hash, &is_there, &found);
    if (!is_there && append(file, at, &header, data, err) < 0)
        return -1;
    *out_grown = is_there ? 0 : sizeof(header) + length;
    memcpy(out_hash, header.hash, DISPLAY_HASH_SIZE);
    return 0;
}

void display_drop(int state_dir, const char *execution_id, uint64_t grown)
{
    scoped(fd_close) int file = open_file(state_dir, execution_id, O_RDWR);
    struct stat status;

    if (file >= 0 && fstat(file, &status) == 0 && (uint64_t)status.st_size >= grown)
        cut(file, (uint64_t)status.st_size - grown);
}

int display_open(int state_dir, const char *execution_id, const char *hash,
                 struct display_place *out_place)
{
    scoped(fd_close) int file = -1;
    struct header header;
    bool is_there;
    uint64_t at;

    if (strlen(hash) != DISPLAY_HASH_SIZE - 1)
        return -1;
    file = open_file(state_dir, execution_id, O_RDONLY);
    if (file < 0)
        return -1;
    at = walk(file, hash, &is_there, &header);
    if (!is_there)
        return -1;
    *out_place = (struct display_place){ .offset = at + sizeof(header), .length = header.length };
    snprintf(out_place->type, sizeof(out_place->type), "%.*s", DISPLAY_TYPE_SIZE - 1, header.type);
    return steal_fd(&file);
}
