/* SPDX-License-Identifier: Apache-2.0 */
#include "init/user.h"

#include "init/sys.h"
#include "init/text.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define PASSWD "/etc/passwd"
#define GROUP "/etc/group"

enum { SETTLE_S = 2 };

struct field {
    const char *text;
    const char *end;
};

/* Splits at colons; returns how many fields there are. */
static unsigned split(const char *line, size_t length, struct field *fields, unsigned maximum)
{
    const char *end = line + length;
    unsigned count = 0;

    while (count < maximum) {
        const char *colon = memchr(line, ':', (size_t)(end - line));

        fields[count++] = (struct field){ line, colon ? colon : end };
        if (!colon)
            break;
        line = colon + 1;
    }
    return count;
}

static void copy_field(char *out, size_t size, const struct field *field)
{
    size_t length = (size_t)(field->end - field->text);

    if (length >= size || memchr(field->text, 0, length))
        length = 0;
    memcpy(out, field->text, length);
    out[length] = 0;
}

bool user_match_passwd(const char *line, size_t length, const struct user_query *query,
                       struct user *user)
{
    struct field fields[7];
    uint32_t uid;
    uint32_t gid;

    if (split(line, length, fields, 7) != 7 ||
        !text_to_u32(fields[2].text, fields[2].end, USER_MAX_ID, &uid) ||
        !text_to_u32(fields[3].text, fields[3].end, USER_MAX_ID, &gid))
        return false;
    if (query->name) {
        if ((size_t)(fields[0].end - fields[0].text) != query->name_length ||
            memcmp(fields[0].text, query->name, query->name_length) != 0)
            return false;
    } else if (uid != query->uid) {
        return false;
    }

    user->uid = uid;
    user->gid = gid;
    copy_field(user->name, sizeof user->name, &fields[0]);
    copy_field(user->home, sizeof user->home, &fields[5]);
    copy_field(user->shell, sizeof user->shell, &fields[6]);
    return true;
}

static bool has_member(const struct field *members, const char *name)
{
    size_t length = strlen(name);
    const char *at = members->text;

    while (at < members->end) {
        const char *comma = memchr(at, ',', (size_t)(members->end - at));
        const char *end = comma ? comma : members->end;

        if ((size_t)(end - at) == length && !memcmp(at, name, length))
            return true;
        at = end + 1;
    }
    return false;
}

void user_add_group(const char *line, size_t length, struct user *user)
{
    struct field fields[4];
    uint32_t gid;

    if (user->group_count == USER_MAX_GROUPS || !user->name[0] ||
        split(line, length, fields, 4) != 4 || !has_member(&fields[3], user->name) ||
        !text_to_u32(fields[2].text, fields[2].end, USER_MAX_ID, &gid))
        return;
    user->groups[user->group_count++] = gid;
}

bool user_match_group(const char *line, size_t length, const char *name, uint32_t *out_gid)
{
    struct field fields[4];

    return split(line, length, fields, 4) == 4 &&
           (size_t)(fields[0].end - fields[0].text) == strlen(name) &&
           !memcmp(fields[0].text, name, strlen(name)) &&
           text_to_u32(fields[2].text, fields[2].end, USER_MAX_ID, out_gid);
}

bool user_match_group_number(const char *line, size_t length, uint32_t gid,
                             char out_name[USER_NAME_SIZE])
{
    struct field fields[4];
    uint32_t number;

    if (split(line, length, fields, 4) != 4 ||
        !text_to_u32(fields[2].text, fields[2].end, USER_MAX_ID, &number) || number != gid)
        return false;
    copy_field(out_name, USER_NAME_SIZE, &fields[0]);
    return true;
}

bool user_parse_ids(const char *text, struct user *user, bool *out_has_gid)
{
    const char *colon = strchr(text, ':');
    const char *end = text + strlen(text);

    *out_has_gid = colon != NULL;
    if (!text_to_u32(text, colon ? colon : end, USER_MAX_ID, &user->uid))
        return false;
    return !colon || text_to_u32(colon + 1, end, USER_MAX_ID, &user->gid);
}

/* --- reading the files ---------------------------------------------------------------------- */

/* Identifies a version of a file. Programs cannot set st_ctime, but two changes may share it: a
 * version counts once its time has passed. */
struct version {
    uint64_t device;
    uint64_t inode; /* 0 without one */
    uint64_t size;
    struct timespec changed;
};

static struct version version_of(const struct stat *status)
{
    return (struct version){
        .device = status->st_dev,
        .inode = status->st_ino,
        .size = (uint64_t)status->st_size,
        .changed = status->st_ctim,
    };
}

static bool is_same(const struct version *one, const struct version *other)
{
    return one->inode && one->inode == other->inode && one->device == other->device &&
           one->size == other->size && one->changed.tv_sec == other->changed.tv_sec &&
           one->changed.tv_nsec == other->changed.tv_nsec;
}

static bool is_settled(const struct version *version)
{
    struct timespec now = { 0 };

    (void)sys(clock_gettime, CLOCK_REALTIME, &now);
    return version->inode && now.tv_sec > version->changed.tv_sec + SETTLE_S;
}

static bool is_unchanged(const char *path, const struct version *version)
{
    struct stat status;
    struct version current;

    if (sys(stat, path, &status) < 0)
        return false;
    current = version_of(&status);
    return is_same(version, &current);
}

struct line_reader {
    int fd;
    struct version version;
    size_t start; /* of the bytes that are not yet returned */
    size_t end;
    size_t total;
    char bytes[2 * USER_LINE_SIZE];
};

static int reader_open(struct line_reader *reader, const char *path)
{
    struct stat status;

    *reader = (struct line_reader){ .fd = -1 };
    reader->fd = sys_open(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, 0);
    if (reader->fd < 0)
        return -1;
    if (sys(fstat, reader->fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        sys_drop(&reader->fd);
        return -1;
    }
    reader->version = version_of(&status);
    return 0;
}

/* Moves the remaining bytes to the front and reads more; false at the end or over the limit. */
static bool reader_fill(struct line_reader *reader)
{
    long got;

    memmove(reader->bytes, reader->bytes + reader->start, reader->end - reader->start);
    reader->end -= reader->start;
    reader->start = 0;
    if (reader->end == sizeof reader->bytes)
        reader->end = 0; /* a line longer than any that counts */
    if (reader->total > USER_FILE_LIMIT)
        return false;
    got = sys(read, reader->fd, reader->bytes + reader->end, sizeof reader->bytes - reader->end);
    if (got <= 0)
        return false;
    reader->end += (size_t)got;
    reader->total += (size_t)got;
    return true;
}

static const char *reader_next(struct line_reader *reader, size_t *out_length)
{
    for (;;) {
        const char *line = reader->bytes + reader->start;
        const char *newline = memchr(line, '\n', reader->end - reader->start);

        if (newline) {
            reader->start = (size_t)(newline + 1 - reader->bytes);
            *out_length = (size_t)(newline - line);
            return line;
        }
        if (!reader_fill(reader)) {
            *out_length = reader->end - reader->start;
            line = reader->bytes + reader->start;
            reader->start = reader->end;
            return *out_length ? line : NULL;
        }
    }
}

static bool find_entry(const struct user_query *query, struct user *user,
                       struct version *out_version)
{
    struct line_reader reader;
    const char *line;
    size_t length;
    bool found = false;

    if (reader_open(&reader, PASSWD) < 0)
        return false;
    while (!found && (line = reader_next(&reader, &length)))
        found = user_match_passwd(line, length, query, user);
    sys_close(reader.fd);
    *out_version = reader.version;
    return found;
}

static void find_groups(struct user *user, struct version *out_version)
{
    struct line_reader reader;
    const char *line;
    size_t length;

    user->groups[0] = user->gid;
    user->group_count = 1;
    if (reader_open(&reader, GROUP) < 0)
        return;
    while ((line = reader_next(&reader, &length)))
        user_add_group(line, length, user);
    sys_close(reader.fd);
    *out_version = reader.version;
}

void user_find_name(uint32_t uid, char out_name[USER_NAME_SIZE])
{
    struct user user = { 0 };
    struct version version;

    if (find_entry(&(struct user_query){ .uid = uid }, &user, &version) && user.name[0])
        memcpy(out_name, user.name, USER_NAME_SIZE);
    else
        (void)text_from_u64(uid, out_name);
}

void user_find_group_name(uint32_t gid, char out_name[USER_NAME_SIZE])
{
    struct line_reader reader;
    const char *line;
    size_t length;
    bool found = false;

    out_name[0] = 0;
    if (reader_open(&reader, GROUP) == 0) {
        while (!found && (line = reader_next(&reader, &length)))
            found = user_match_group_number(line, length, gid, out_name);
        sys_close(reader.fd);
    }
    if (!out_name[0])
        (void)text_from_u64(gid, out_name);
}

static void fill_defaults(struct user *user)
{
    if (!user->name[0])
        text_from_u64(user->uid, user->name);
    if (user->home[0] != '/')
        memcpy(user->home, "/", 2);
    if (user->shell[0] != '/')
        memcpy(user->shell, "/bin/sh", 8);
}

static int find_by_ids(const char *text, bool wants_details, struct user *user)
{
    struct user entry = { 0 };
    struct version version;
    bool has_gid;

    if (!user_parse_ids(text, user, &has_gid))
        return EINVAL;
    if ((wants_details || !has_gid) &&
        find_entry(&(struct user_query){ .uid = user->uid }, &entry, &version)) {
        memcpy(user->name, entry.name, sizeof user->name);
        memcpy(user->home, entry.home, sizeof user->home);
        memcpy(user->shell, entry.shell, sizeof user->shell);
        if (!has_gid)
            user->gid = entry.gid;
    } else if (!has_gid) {
        user->gid = user->uid;
    }

    user->groups[0] = user->gid;
    user->group_count = 1;
    if (!has_gid)
        find_groups(user, &version);
    return 0;
}

static void find_own(bool wants_details, struct user *user)
{
    struct version version;

    user->unchanged = true;
    user->uid = (uint32_t)sys(geteuid);
    if (wants_details)
        (void)find_entry(&(struct user_query){ .uid = user->uid }, user, &version);
    user->gid = (uint32_t)sys(getegid);
}

/* --- by name -------------------------------------------------------------------------------- */

/* The user that was looked up last, shared by all clones. If a clone is killed during a lookup, the
 * cache stays locked and unused. */
static struct {
    atomic_bool is_locked;
    char name[USER_SPEC_SIZE];
    struct version passwd;
    struct version group;
    struct user user;
} known;

static bool recall(const char *name, struct user *out_user)
{
    bool is_known;

    if (atomic_exchange(&known.is_locked, true))
        return false;
    is_known = !strcmp(known.name, name) && is_unchanged(PASSWD, &known.passwd) &&
               is_unchanged(GROUP, &known.group);
    if (is_known)
        *out_user = known.user;
    atomic_store(&known.is_locked, false);
    return is_known;
}

static void remember(const char *name, const struct version *passwd, const struct version *group,
                     const struct user *user)
{
    size_t length = strlen(name);

    if (length >= sizeof known.name || !is_settled(passwd) || !is_settled(group) ||
        atomic_exchange(&known.is_locked, true))
        return;
    memcpy(known.name, name, length + 1);
    known.passwd = *passwd;
    known.group = *group;
    known.user = *user;
    atomic_store(&known.is_locked, false);
}

static int find_by_name(const char *name, struct user *user)
{
    struct user_query query = { .name = name, .name_length = strlen(name) };
    struct version passwd = { 0 };
    struct version group = { 0 };

    if (recall(name, user))
        return 0;
    if (!find_entry(&query, user, &passwd))
        return EINVAL;
    find_groups(user, &group);
    remember(name, &passwd, &group, user);
    return 0;
}

/* --- as images name users --------------------------------------------------------------------- */

/* A number is a group, whether or not it has a line. */
static int find_group(const char *text, uint32_t *out_gid, struct version *out_version)
{
    struct line_reader reader;
    const char *line;
    size_t length;
    bool found = false;

    if (text_to_u32(text, text + strlen(text), USER_MAX_ID, out_gid))
        return 0;
    if (reader_open(&reader, GROUP) < 0)
        return EINVAL;
    while (!found && (line = reader_next(&reader, &length)))
        found = user_match_group(line, length, text, out_gid);
    sys_close(reader.fd);
    *out_version = reader.version;
    return found ? 0 : EINVAL;
}

/* Finds the user of a spec without its group. */
static int find_named(const char *spec, size_t length, struct user *user,
                      struct version *out_version)
{
    struct user_query query = { .name = spec, .name_length = length };
    bool is_number = text_to_u32(spec, spec + length, USER_MAX_ID, &query.uid);

    if (is_number)
        query.name = NULL;
    if (find_entry(&query, user, out_version))
        return 0;
    user->uid = query.uid;
    return is_number ? 0 : EINVAL;
}

static int find_by_spec(const char *spec, struct user *user)
{
    const char *colon = strchr(spec, ':');
    struct version passwd = { 0 };
    struct version group = { 0 };
    int error;

    if (recall(spec, user))
        return 0;
    error = find_named(spec, colon ? (size_t)(colon - spec) : strlen(spec), user, &passwd);
    if (!error && colon) {
        error = find_group(colon + 1, &user->gid, &group);
        user->groups[0] = user->gid;
        user->group_count = 1;
    } else if (!error) {
        find_groups(user, &group);
    }
    if (!error)
        remember(spec, &passwd, &group, user);
    return error;
}

int user_find_default(const char *spec, struct user *out_user)
{
    int error;

    *out_user = (struct user){ 0 };
    error = find_by_spec(spec, out_user);
    if (!error)
        fill_defaults(out_user);
    return error;
}

/* --- as requests name them -------------------------------------------------------------------- */

int user_find(const char *text, bool wants_details, struct user *out_user)
{
    int error = 0;

    *out_user = (struct user){ 0 };
    if (!text[0])
        find_own(wants_details, out_user);
    else if (text[0] >= '0' && text[0] <= '9')
        error = find_by_ids(text, wants_details, out_user);
    else if (strchr(text, ':'))
        error = EINVAL; /* which the default user may have, and is remembered with */
    else
        error = find_by_name(text, out_user);
    if (!error)
        fill_defaults(out_user);
    return error;
}
