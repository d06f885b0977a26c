/* SPDX-License-Identifier: Apache-2.0 */
/* doctor --fix, and the checks of what it can set up: things that belong to Sandglass alone. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/operator/doctor.h"
#include "config/config.h"
#include "daemon/place.h"
#include "wire/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST_SUBORDINATE = 100000, RANGE = 65536 };

extern char **environ;

/* Runs a program of the host; its own message on stderr says what went wrong. */
static int run_program(const char *const *argv, struct error *err)
{
    posix_spawn_file_actions_t actions;
    int status = 0;
    int number;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    number = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (number) {
        errno = number;
        return error_sys(err, "run %s", argv[0]);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return error_set(err, ERR_INTERNAL, "%s failed", argv[0]);
}

/* --- the user of the daemon ------------------------------------------------------------------ */

static void check_user(const struct doctor *doctor, struct finding *finding)
{
    struct identity identity;
    struct error err;

    if (!doctor->config)
        finding_set(finding, FINDING_WARN, NULL, "not known: the settings are invalid");
    else if (identity_find(doctor->config->user, &identity, &err) < 0)
        finding_set(finding, FINDING_FAIL, *err.hint ? err.hint : NULL, "%s", err.message);
    else if (identity.kind == IDENTITY_SELF)
        finding_set(finding, FINDING_OK, NULL, "the daemon stays uid %u", (unsigned)identity.uid);
    else if (identity.kind == IDENTITY_NAMED)
        finding_set(finding, FINDING_OK, NULL, "the daemon becomes %s (uid %u)", identity.name,
                    (unsigned)identity.uid);
    else
        finding_set(finding, FINDING_WARN, "run 'sandglass doctor --fix', which creates the user",
                    "there is no user %s: the daemon becomes uid %u, which has no name",
                    identity.name, (unsigned)identity.uid);
}

static int fix_user(const struct doctor *doctor, char *did, size_t size, struct error *err)
{
    const char *const argv[] = {
        "useradd", "--system",          "--user-group", "--no-create-home",   "--home-dir", "/",
        "--shell", "/usr/sbin/nologin", "--",           doctor->config->user, NULL
    };
    struct identity identity;

    if (identity_find(doctor->config->user, &identity, err) < 0)
        return -1;
    if (identity.kind != IDENTITY_FALLBACK || getpwnam(identity.name))
        return 0;
    if (run_program(argv, err) < 0)
        return -1;
    snprintf(did, size, "created the system user %s", identity.name);
    return 1;
}

/* --- subordinate ids, for daemons without root ----------------------------------------------- */

/* The user who has a daemon of their own: the caller, or the one who has called sudo; NULL: root. */
static const struct passwd *plain_user(void)
{
    const char *name = getenv("SUDO_USER");

    if (geteuid() != 0)
        return getpwuid(geteuid());
    return str_is_empty(name) || str_equal(name, "root") ? NULL : getpwnam(name);
}

/* Whether the file gives the user enough ids; `out_free` is behind all ranges of all users. */
static bool has_range(const char *path, const struct passwd *user, unsigned long *out_free)
{
    FILE *file = fopen(path, "re");
    char line[256], name[128];
    unsigned long first, count;
    bool found = false;

    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%127[^:]:%lu:%lu", name, &first, &count) != 3)
            continue;
        if (first + count > *out_free)
            *out_free = first + count;
        if (count >= LAUNCH_IDS_PER_SLOT &&
            (str_equal(name, user->pw_name) || strtoul(name, NULL, 10) == user->pw_uid))
            found = true;
    }
    if (file)
        fclose(file);
    return found;
}

static void check_subordinate(const struct doctor *doctor UNUSED, struct finding *finding)
{
    const struct passwd *user = plain_user();
    unsigned long behind = 0;

    if (!user)
        finding_set(finding, FINDING_OK, NULL, "not needed by root");
    else if (!has_range("/etc/subuid", user, &behind) || !has_range("/etc/subgid", user, &behind))
        finding_set(finding, FINDING_WARN, "run 'sudo sandglass doctor --fix'",
                    "%s has no range in /etc/subuid and /etc/subgid: sandboxes of a daemon without "
                    "root have one user only",
                    user->pw_name);
    else if (access("/usr/bin/newuidmap", X_OK) < 0 || access("/usr/bin/newgidmap", X_OK) < 0)
        finding_set(finding, FINDING_WARN, "install the package uidmap",
                    "newuidmap and newgidmap are missing: sandboxes of a daemon without root have "
                    "one user only");
    else
        finding_set(finding, FINDING_OK, NULL, "%s has a range", user->pw_name);
}

/* Only root can, and only for the user who has asked through sudo. */
static int fix_subordinate(const struct doctor *doctor UNUSED, char *did, size_t size,
                           struct error *err)
{
    const struct passwd *user = plain_user();
    unsigned long behind = FIRST_SUBORDINATE;
    const char *add_uids[] = { "usermod", "--add-subuids", NULL, NULL, NULL };
    const char *add_gids[] = { "usermod", "--add-subgids", NULL, NULL, NULL };
    bool has_uids, has_gids;
    char range[64];

    if (geteuid() != 0 || !user)
        return 0;
    add_uids[3] = add_gids[3] = user->pw_name;
    has_uids = has_range("/etc/subuid", user, &behind);
    has_gids = has_range("/etc/subgid", user, &behind);
    if (has_uids && has_gids)
        return 0;
    snprintf(range, sizeof(range), "%lu-%lu", behind, behind + RANGE - 1);
    add_uids[2] = add_gids[2] = range;
    if ((!has_uids && run_program(add_uids, err) < 0) ||
        (!has_gids && run_program(add_gids, err) < 0))
        return -1;
    snprintf(did, size, "gave %s the subordinate ids %s", user->pw_name, range);
    return 1;
}

/* --- directories, as `serve` makes them ------------------------------------------------------ */

static int fix_state(const struct doctor *doctor, char *did, size_t size, struct error *err)
{
    const char *path = doctor->config->state_dir;
    struct identity identity;

    if (access(path, F_OK) == 0)
        return 0;
    if (identity_find(doctor->config->user, &identity, err) < 0 ||
        place_prepare_state(path, &identity, err) < 0)
        return -1;
    snprintf(did, size, "created %s", path);
    return 1;
}

static int fix_runtime(const struct doctor *doctor, char *did, size_t size, struct error *err)
{
    const char *path = doctor->config->runtime_dir;
    scoped(free) char *socket = path_join(path, "sandglass.sock");
    struct identity identity;

    if (access(path, F_OK) == 0)
        return 0;
    if (identity_find(doctor->config->user, &identity, err) < 0 ||
        place_prepare_socket(socket, &identity, err) < 0)
        return -1;
    snprintf(did, size, "created %s", path);
    return 1;
}

const struct check identity_checks[] = {
    { "user", check_user },
    { "subordinate ids", check_subordinate },
    { 0 },
};

const struct repair repairs[] = {
    { "user", fix_user },
    { "subordinate ids", fix_subordinate },
    { "state dir", fix_state },
    { "runtime dir", fix_runtime },
    { 0 },
};
