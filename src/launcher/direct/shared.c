/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/direct/shared.h"

#include "launcher/sys.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void remove_segment(int id)
{
    (void)shmctl(id, IPC_RMID, NULL);
}

static void remove_semaphores(int id)
{
    (void)semctl(id, 0, IPC_RMID);
}

static void remove_queue(int id)
{
    (void)msgctl(id, IPC_RMID, NULL);
}

static const struct {
    const char *path;
    const char *format; /* of a line: its id, and the ids of its owner and of its creator */
    void (*remove)(int id);
} kinds[] = {
    { "/proc/sysvipc/shm", "%*d %d %*o %*u %*u %*u %*u %u %*u %u", remove_segment },
    { "/proc/sysvipc/sem", "%*d %d %*o %*u %u %*u %u", remove_semaphores },
    { "/proc/sysvipc/msg", "%*d %d %*o %*u %*u %*u %*u %u %*u %u", remove_queue },
};

static void remove_objects(uid_t uid)
{
    char line[512];

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        FILE *list = fopen(kinds[i].path, "re");

        while (list && fgets(line, sizeof(line), list)) {
            unsigned owner;
            unsigned creator;
            int id;

            /* The creator of an object never changes; its owner may. */
            if (sscanf(line, kinds[i].format, &id, &owner, &creator) == 3 && creator == uid)
                kinds[i].remove(id);
        }
        if (list)
            fclose(list);
    }
}

/* Landlock keeps sandboxes from making directories there. */
static void remove_files(uid_t uid)
{
    int dir = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = dir < 0 ? NULL : fdopendir(dir);
    struct dirent *entry;
    struct stat status;

    while (stream && (entry = readdir(stream))) {
        if (fstatat(dir, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            status.st_uid == uid && !S_ISDIR(status.st_mode))
            (void)unlinkat(dir, entry->d_name, 0);
    }
    if (stream)
        closedir(stream);
    else if (dir >= 0)
        close(dir);
}

void shared_remove(int mounts, uid_t uid)
{
    pid_t child = fork();

    if (child == 0) {
        /* As that user, which may remove its own objects and nothing else. */
        if ((mounts < 0 || setns(mounts, CLONE_NEWNS) == 0) &&
            syscall(SYS_setresuid, uid, uid, uid) == 0) {
            remove_objects(uid);
            remove_files(uid);
        }
        _exit(0);
    }
    if (child > 0)
        (void)waitpid(child, NULL, 0);
}

enum { LOAD_NUMBER = 0x20, IF_EQUAL = 0x15, RETURN = 0x06 };
enum { ALLOW = 0x7fff0000, REFUSE = 0x00050000 };

/* Numbers of other processors' calls are refused by the filter that all sandboxes have. */
int shared_forbid(void)
{
    static const struct sys_filter filter[] = {
        { LOAD_NUMBER, 0, 0, 0 },          { IF_EQUAL, 4, 0, SYS_shmget },
        { IF_EQUAL, 3, 0, SYS_semget },    { IF_EQUAL, 2, 0, SYS_msgget },
        { IF_EQUAL, 1, 0, SYS_mq_open },   { RETURN, 0, 0, ALLOW },
        { RETURN, 0, 0, REFUSE | EACCES },
    };
    const struct {
        unsigned short length;
        const struct sys_filter *filter;
    } program = { .length = sizeof(filter) / sizeof(filter[0]), .filter = filter };

    return prctl(PR_SET_SECCOMP, 2, &program);
}
