/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/keys.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { FILE_MAXIMUM = 64 << 20 };

/* --- reading --------------------------------------------------------------------------------- */

struct key_line {
    const char *id, *principal, *salt, *hash, *created, *expires, *revoked;
    json_t *roles;
};

#define LINE_FIELD(member, must)                                                              \
    {                                                                                         \
        .name = #member, .kind = JSON_KIND_TEXT, .offset = offsetof(struct key_line, member), \
        .required = must                                                                      \
    }

static const struct json_field line_fields[] = {
    LINE_FIELD(id, true),
    LINE_FIELD(principal, true),
    LINE_FIELD(salt, true),
    LINE_FIELD(hash, true),
    LINE_FIELD(created, true),
    LINE_FIELD(expires, false),
    LINE_FIELD(revoked, false),
    { .name = "roles", .kind = JSON_KIND_TEXT_LIST, .offset = offsetof(struct key_line, roles) },
};

static int read_roles(const json_t *list, unsigned *out_roles)
{
    json_t *name;
    size_t index;

    json_array_foreach(list, index, name)
    {
        unsigned role = role_parse(json_string_value(name));

        if (!role)
            return -1;
        *out_roles |= role;
    }
    return 0;
}

static int read_time(const char *text, int64_t *out_us)
{
    return text ? clock_parse(text, out_us) : 0;
}

static int key_read(struct api_key *key, const char *text, size_t length)
{
    scoped(json_decref) json_t *object = json_read(text, length, NULL);
    struct key_line line = { 0 };

    if (!object || json_decode(object, line_fields, ARRAY_LENGTH(line_fields), &line, NULL) < 0 ||
        !id_is_valid(line.id, ID_KEY) || !*line.principal || !owner_is_valid(line.principal) ||
        hex_decode(line.salt, key->salt, sizeof(key->salt)) < 0 ||
        hex_decode(line.hash, key->hash, sizeof(key->hash)) < 0 ||
        read_roles(line.roles, &key->roles) < 0 || read_time(line.created, &key->created_us) < 0 ||
        read_time(line.expires, &key->expires_us) < 0 ||
        read_time(line.revoked, &key->revoked_us) < 0)
        return -1;
    memcpy(key->id, line.id, sizeof(key->id));
    key->principal = xstrdup(line.principal);
    return 0;
}

static void add_line(struct key_set *set, const char *text, size_t length)
{
    struct api_key key = { 0 };

    if (strspn(text, " \t\r\n") >= length)
        return;
    if (key_read(&key, text, length) == 0) {
        set->items = xrealloc(set->items, set->count + 1, sizeof(set->items[0]));
        set->items[set->count++] = key;
    } else {
        set->damaged = xrealloc(set->damaged, set->damaged_count + 1, sizeof(set->damaged[0]));
        set->damaged[set->damaged_count++] = xstrndup(text, length);
    }
}

static int check_status(int fd, const char *path, struct error *err)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return error_sys(err, "look at %s", path);
    if (!S_ISREG(status.st_mode))
        return error_set(err, ERR_INVALID, "%s is not a file", path);
    if (status.st_mode & 022) {
        error_set(err, ERR_INVALID, "%s can be written by others", path);
        return error_hint(err, "chmod 600 %s", path);
    }
    return 0;
}

static int read_text(int fd, struct buffer *out, const char *path, struct error *err)
{
    if (fd_read_all(fd, out) == 0)
        return 0;
    if (errno == EFBIG)
        return error_set(err, ERR_INVALID, "%s is too large", path);
    return error_sys(err, "read %s", path);
}

int key_set_load(struct key_set *set, const char *path, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(FILE_MAXIMUM);

    if (fd < 0 && errno == ENOENT) {
        *set = (struct key_set){ 0 };
        return 0;
    }
    if (fd < 0)
        return error_sys(err, "open %s", path);
    if (check_status(fd, path, err) < 0 || read_text(fd, &text, path, err) < 0)
        return -1;
    *set = (struct key_set){ 0 };
    for (const char *at = buffer_text(&text); *at;) {
        size_t length = strcspn(at, "\n");

        add_line(set, at, length);
        at += length + (at[length] == '\n');
    }
    return 0;
}

/* --- writing --------------------------------------------------------------------------------- */

static void write_key(struct buffer *text, const struct api_key *key)
{
    struct json_writer json = JSON_WRITER(text);
    char hex[SHA256_TEXT_SIZE];

    json_begin_object(&json, NULL);
    json_put_text(&json, "id", key->id);
    json_put_text(&json, "principal", key->principal);
    json_begin_array(&json, "roles");
    role_for_each(role, key->roles) json_put_text(&json, NULL, role_name(role));
    json_end_array(&json);
    hex_encode(key->salt, sizeof(key->salt), hex);
    json_put_text(&json, "salt", hex);
    hex_encode(key->hash, sizeof(key->hash), hex);
    json_put_text(&json, "hash", hex);
    json_put_time(&json, "created", key->created_us);
    if (key->expires_us)
        json_put_time(&json, "expires", key->expires_us);
    if (key->revoked_us)
        json_put_time(&json, "revoked", key->revoked_us);
    json_end_object(&json);
    buffer_append_byte(text, '\n');
}

static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return xstrdup(".");
    return slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
}

/* The new file is complete and on the disk before it takes the place of the old one. */
static int replace_file(const char *path, const struct buffer *text, uid_t owner, gid_t group,
                        struct error *err)
{
    scoped(free) char *fresh = xasprintf("%s.new", path);
    scoped(free) char *directory = directory_of(path);
    scoped(fd_close) int parent = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped(fd_close) int fd = -1;

    (void)unlink(fresh);
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(err, "create %s", fresh);
    if (fd_write_all(fd, text->data, text->length) < 0 || fsync(fd) < 0 ||
        (geteuid() == 0 && fchown(fd, owner, group) < 0) || rename(fresh, path) < 0) {
        error_sys(err, "write %s", path);
        (void)unlink(fresh);
        return -1;
    }
    if (parent >= 0)
        (void)fsync(parent);
    return 0;
}

int key_set_save(const struct key_set *set, const char *path, uid_t owner, gid_t group,
                 struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(FILE_MAXIMUM);

    for (size_t i = 0; i < set->count; i++)
        write_key(&text, &set->items[i]);
    for (size_t i = 0; i < set->damaged_count; i++)
        buffer_appendf(&text, "%s\n", set->damaged[i]);
    if (text.overflowed)
        return error_set(err, ERR_LIMIT, "%s has no room for another key", path);
    return replace_file(path, &text, owner, group, err);
}

int key_file_lock(const char *path, struct error *err)
{
    scoped(free) char *directory = directory_of(path);
    scoped(fd_close) int fd = -1;

    if (path_make_dirs(directory, 0755, err) < 0)
        return -1;
    fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return error_sys(err, "lock %s", directory);
    return steal_fd(&fd);
}
