/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/ids.h"

#include "launcher/sys.h"

#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

uint32_t ids_first(const struct context *context, uint32_t slot)
{
    switch (context->ids) {
    case IDS_OWN:
        return context->setup.uid_base + slot * LAUNCH_IDS_STEP;
    case IDS_RANGE:
        return 1; /* behind our own, which is 0 */
    case IDS_SINGLE:
        break;
    }
    return 0;
}

bool ids_are_many(const struct context *context)
{
    return context->ids != IDS_SINGLE;
}

/* --- from outside of the user namespace ------------------------------------------------------ */

struct range {
    unsigned long first, count;
};

/* A line "name:first:count" for this user, by name or by number, with enough ids. */
static bool find_range(const char *path, struct range *out_range)
{
    const struct passwd *entry = getpwuid(getuid());
    FILE *file = fopen(path, "re");
    char line[256];
    char name[128];
    char number[16];
    bool found = false;

    snprintf(number, sizeof(number), "%u", (unsigned)getuid());
    while (file && !found && fgets(line, sizeof(line), file)) {
        found = sscanf(line, "%127[^:]:%lu:%lu", name, &out_range->first, &out_range->count) == 3 &&
                (strcmp(name, number) == 0 || (entry && strcmp(name, entry->pw_name) == 0)) &&
                out_range->count >= LAUNCH_IDS_PER_SLOT;
    }
    if (file)
        fclose(file);
    return found;
}

static int run_tool(const char *tool, pid_t target, unsigned own, const struct range *range)
{
    char texts[4][24];
    const char *argv[] = { tool, texts[0], "0", texts[1], "1", "1", texts[2], texts[3], NULL };
    static const char *const no_environment[] = { NULL };
    int status = 0;
    pid_t child;

    snprintf(texts[0], sizeof(texts[0]), "%d", (int)target);
    snprintf(texts[1], sizeof(texts[1]), "%u", own);
    snprintf(texts[2], sizeof(texts[2]), "%lu", range->first);
    snprintf(texts[3], sizeof(texts[3]), "%u", LAUNCH_IDS_PER_SLOT);
    child = fork();
    if (child == 0) {
        execve(tool, (char *const *)argv, (char *const *)no_environment);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                   WEXITSTATUS(status) == 0
               ? 0
               : -1;
}

/* The helper waits for a byte, maps, and answers with how it went. */
static _Noreturn void help(int channel, pid_t target)
{
    struct range uids;
    struct range gids;
    sigset_t none;
    char answer = IDS_SINGLE;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!find_range("/etc/subuid", &uids) || !find_range("/etc/subgid", &gids) ||
        access("/usr/bin/newuidmap", X_OK) < 0 || access("/usr/bin/newgidmap", X_OK) < 0)
        _exit(0);
    if (read(channel, &answer, 1) != 1)
        _exit(0);
    answer = run_tool("/usr/bin/newuidmap", target, getuid(), &uids) == 0 &&
                     run_tool("/usr/bin/newgidmap", target, getgid(), &gids) == 0
                 ? IDS_RANGE
                 : IDS_SINGLE;
    (void)!write(channel, &answer, 1);
    _exit(0);
}

int ids_prepare(void)
{
    pid_t target = getpid();
    int pair[2];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    child = fork();
    if (child == 0) {
        close(pair[0]);
        help(pair[1], target);
    }
    close(pair[1]);
    if (child < 0) {
        close(pair[0]);
        return -1;
    }
    return pair[0];
}

/* --- from inside ----------------------------------------------------------------------------- */

static int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t written;

    if (fd < 0)
        return -1;
    written = write(fd, text, strlen(text));
    close(fd);
    return written < 0 ? -1 : 0;
}

static int map_single(unsigned uid, unsigned gid, struct fail *fail)
{
    char text[64];

    (void)write_file("/proc/self/setgroups", "deny");
    snprintf(text, sizeof(text), "0 %u 1", uid);
    if (write_file("/proc/self/uid_map", text) < 0)
        return fail_sys(fail, "map the user");
    snprintf(text, sizeof(text), "0 %u 1", gid);
    if (write_file("/proc/self/gid_map", text) < 0)
        return fail_sys(fail, "map the group");
    return 0;
}

int ids_map(struct context *context, int helper, unsigned uid, unsigned gid, struct fail *fail)
{
    char byte = 0;

    context->ids = IDS_SINGLE;
    if (helper >= 0 && send(helper, &byte, 1, MSG_NOSIGNAL) == 1 && read(helper, &byte, 1) == 1 &&
        byte == IDS_RANGE)
        context->ids = IDS_RANGE;
    if (helper >= 0)
        close(helper);
    return context->ids == IDS_RANGE ? 0 : map_single(uid, gid, fail);
}
