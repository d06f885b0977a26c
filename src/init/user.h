/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The user that a process runs as: names from the sandbox's own /etc/passwd and /etc/group. The files belong
 * to the sandbox and are read as hostile: bounded, line by line, never blocking.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    USER_MAX_GROUPS = 64,
    USER_NAME_SIZE = 64,
    USER_SPEC_SIZE = 2 * USER_NAME_SIZE, /* of name:group */
    USER_PATH_SIZE = 256,
    USER_MAX_ID = 0xfffffffe, /* the last one means "no change" to the kernel */
    USER_FILE_LIMIT = 1024 * 1024,
    USER_LINE_SIZE = 1024,
};

struct user {
    uint32_t uid;
    uint32_t gid;
    uint32_t groups[USER_MAX_GROUPS];
    unsigned group_count;
    bool unchanged; /* init's own ids: nothing is switched */
    char name[USER_NAME_SIZE];
    char home[USER_PATH_SIZE];
    char shell[USER_PATH_SIZE];
};

/* Fills in the user that `text` names: a name, "uid", "uid:gid" or "" for init's own. Name, home
 * and shell are looked up only if they are wanted or needed. Returns 0, or an errno: EINVAL when it
 * names no user. */
int user_find(const char *text, bool wants_details, struct user *out_user);

/* Fills in the default user, in the notation of images: `name` or `uid`, with an optional `:group`
 * or `:gid`, which is the only group then. The rules are those of container engines: a uid without
 * an entry is a user with group 0. Returns 0, or an errno: EINVAL when it names no user or no
 * group. */
int user_find_default(const char *spec, struct user *out_user);

/* The names of a user and of a group by their numbers, or the numbers as text. */
void user_find_name(uint32_t uid, char out_name[USER_NAME_SIZE]);
void user_find_group_name(uint32_t gid, char out_name[USER_NAME_SIZE]);

/* --- pure parts, for user_find and the tests ------------------------------------------------ */

struct user_query {
    const char *name;   /* NULL: by number */
    size_t name_length; /* of `name` */
    uint32_t uid;
};

/* Matches one line without its newline. True when it is the entry of the query; then `user` is
 * filled. */
bool user_match_passwd(const char *line, size_t length, const struct user_query *query,
                       struct user *user);

/* Adds the group of this line when the user is a member of it. */
void user_add_group(const char *line, size_t length, struct user *user);

/* True when the line is that of the group with this name; then out_gid is set. */
bool user_match_group(const char *line, size_t length, const char *name, uint32_t *out_gid);

/* True when the line is that of the group with this number; then its name is set, "" if too
 * long. */
bool user_match_group_number(const char *line, size_t length, uint32_t gid,
                             char out_name[USER_NAME_SIZE]);

/* "12" or "12:34" */
bool user_parse_ids(const char *text, struct user *user, bool *out_has_gid);
