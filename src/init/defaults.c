/* SPDX-License-Identifier: Apache-2.0 */
#include "init/defaults.h"

#include "init/init.h"
#include "init/path.h"
#include "init/sys.h"

#include <errno.h>
#include <string.h>

enum { DIRECTORY_MODE = 0755 };

static char *no_variables[] = { NULL };
static char **variables = no_variables;

/* The ids of the default user, when a directory was given; the rest is looked up again each time. */
static struct {
    bool is_known;
    uint32_t uid;
    uint32_t gid;
} owner;

/* --- variables -------------------------------------------------------------------------------- */

static bool is_of_a_user(const char *variable)
{
    static const char *const prefixes[] = { "HOME=", "USER=", "LOGNAME=", "SHELL=" };

    for (unsigned i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (!strncmp(variable, prefixes[i], strlen(prefixes[i])))
            return true;
    return false;
}

static bool is_for_programs(const char *variable)
{
    return variable[0] != '=' && strchr(variable, '=') && !is_of_a_user(variable) &&
           strncmp(variable, "SANDGLASS_", strlen("SANDGLASS_")) != 0;
}

int defaults_select_variables(char **environment)
{
    size_t bytes = 0;
    unsigned count = 0;

    for (char **from = environment; *from; from++) {
        if (!is_for_programs(*from))
            continue;
        bytes += strlen(*from) + 1;
        if (count == MAX_VARIABLES || bytes > DEFAULTS_MAX_BYTES)
            return -1;
        environment[count++] = *from;
    }
    environment[count] = NULL;
    return 0;
}

const char *const *defaults_environment(void)
{
    return (const char *const *)variables;
}

/* --- the user --------------------------------------------------------------------------------- */

static bool is_owner(const struct user *user)
{
    return owner.is_known && user->uid == owner.uid;
}

int defaults_find_user(const char *text, bool wants_details, struct user *out_user)
{
    bool is_default = !text[0];
    int error = is_default && settings.default_user[0]
                    ? user_find_default(settings.default_user, out_user)
                    : user_find(text, wants_details, out_user);

    if (!error && settings.default_home && (is_default || is_owner(out_user)))
        memcpy(out_user->home, settings.default_home, strlen(settings.default_home) + 1);
    return error;
}

/* --- directories ------------------------------------------------------------------------------ */

static bool is_directory(const char *path)
{
    int fd = sys_open(AT_FDCWD, path, O_PATH | O_DIRECTORY, 0, 0);

    sys_close(fd);
    return fd >= 0;
}

/* Only a directory that was made here is given to the user. */
static int make_for(int dir, const char *name, uint32_t uid, uint32_t gid)
{
    int result = (int)sys(mkdirat, dir, name, DIRECTORY_MODE);
    int fd;

    if (result < 0)
        return result;
    fd = sys_open(dir, name, O_DIRECTORY | O_NOFOLLOW, 0, 0);
    if (fd >= 0)
        (void)sys(fchown, fd, uid, gid);
    sys_close(fd);
    return 0;
}

/* Called before any program runs, so that no program can change the path meanwhile. */
static bool provide(const char *path)
{
    char name[PATH_NAME_SIZE];
    int result;
    int dir;

    if (is_directory(path))
        return true;
    dir = path_open_parent(path, true, name);
    result = dir < 0 ? dir : make_for(dir, name, owner.uid, owner.gid);
    sys_close(dir);
    return !result;
}

static void find_owner(void)
{
    struct user user;

    owner.is_known = !defaults_find_user("", false, &user);
    owner.uid = owner.is_known ? user.uid : (uint32_t)sys(geteuid);
    owner.gid = owner.is_known ? user.gid : (uint32_t)sys(getegid);
}

int defaults_prepare(char **environment)
{
    if (settings.takes_environment) {
        variables = environment;
        if (defaults_select_variables(variables) < 0)
            return -1;
    }
    if (settings.direct || (!settings.workspace[0] && !settings.default_home))
        return 0;
    find_owner();
    if (settings.workspace[0] && !provide(settings.workspace))
        settings.workspace = "";
    if (settings.default_home && !provide(settings.default_home))
        settings.default_home = NULL;
    return 0;
}

const char *defaults_directory(const struct user *user)
{
    return settings.workspace[0] ? settings.workspace : user->home;
}

/* Only root can replace an entry that root makes in the directory. */
static bool belongs_to_root(int dir)
{
    struct stat status;

    return sys(fstat, dir, &status) >= 0 && !status.st_uid &&
           (status.st_mode & S_ISVTX || !(status.st_mode & (S_IWGRP | S_IWOTH)));
}

void defaults_restore_directory(const struct user *user)
{
    const char *path = defaults_directory(user);
    bool is_workspace = path == settings.workspace;
    char name[PATH_NAME_SIZE];
    int dir;

    if (settings.direct || !settings.is_root || sys(faccessat, AT_FDCWD, path, F_OK) != -ENOENT)
        return;
    dir = path_open_parent(path, false, name);
    if (dir >= 0 && belongs_to_root(dir))
        (void)make_for(dir, name, is_workspace ? owner.uid : user->uid,
                       is_workspace ? owner.gid : user->gid);
    sys_close(dir);
}

/* Root does not make a directory below one of the user's; the caller has the user's rights and
 * may. */
static long enter_or_make(const char *path)
{
    long result = path_change_directory(path);

    if (result != -ENOENT || sys(mkdirat, AT_FDCWD, path, DIRECTORY_MODE) < 0)
        return result;
    return path_change_directory(path);
}

long defaults_enter_directory(const struct user *user)
{
    if (settings.direct || !enter_or_make(defaults_directory(user)) ||
        !path_change_directory(user->home))
        return 0;
    return path_change_directory("/");
}
