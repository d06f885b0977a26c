/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few files of /etc that are of this sandbox: its users, its name, its resolver. Written into
 * the upper layer by the child, with the launcher's power, so every step stays inside the new root:
 * one directory is opened without following any link, and files in it are replaced, not followed.
 */

#include "launcher/sys.h"
#include "launcher/walls/ids.h"
#include "launcher/walls/native.h"
#include "launcher/walls/walls.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_ACCOUNTS = 64 * 1024 };

static int open_etc(void)
{
    int fd = open(HOST_ROOT "/etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT && mkdir(HOST_ROOT "/etc", 0755) == 0)
        fd = open(HOST_ROOT "/etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd;
}

/* Removes an existing entry of that name and makes a new file. */
static int replace(struct spawn *spawn, int etc, const char *name, const char *text, size_t length)
{
    const struct context *context = spawn->spawner->context;
    uid_t owner = ids_first(context, spawn->mark.slot);
    ssize_t written;
    int fd;

    if (unlinkat(etc, name, 0) < 0 && errno != ENOENT)
        return -1;
    fd = openat(etc, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    written = write(fd, text, length);
    if (fchmod(fd, 0644) < 0 || (ids_are_many(context) && fchown(fd, owner, owner) < 0))
        written = -1;
    close(fd);
    return written == (ssize_t)length ? 0 : -1;
}

static bool has_user(const char *text)
{
    return strncmp(text, "user:", 5) == 0 || strstr(text, "\nuser:");
}

/* The template's own accounts stay; "user" is added when it is not among them. */
static int add_user(struct spawn *spawn, int etc, const char *name, const char *root,
                    const char *user)
{
    static char text[MAX_ACCOUNTS + 256];
    struct stat status;
    ssize_t length = 0;
    int fd = openat(etc, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0) {
        if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
            length = read(fd, text, MAX_ACCOUNTS);
        close(fd);
    }
    text[length > 0 ? length : 0] = '\0';
    if (has_user(text))
        return 0;
    if (length <= 0)
        length = snprintf(text, sizeof(text), "%s", root);
    else if (text[length - 1] != '\n')
        text[length++] = '\n';
    length += snprintf(text + length, sizeof(text) - (size_t)length, "%s", user);
    return replace(spawn, etc, name, text, (size_t)length);
}

static int make_home(struct spawn *spawn)
{
    const struct context *context = spawn->spawner->context;
    uid_t owner = ids_first(context, spawn->mark.slot) + IDS_USER;
    int home;
    int result = 0;

    if (mkdir(HOST_ROOT "/home", 0755) < 0 && errno != EEXIST)
        return -1;
    home = open(HOST_ROOT "/home", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (home < 0)
        return -1;
    if (mkdirat(home, "user", 0755) < 0)
        result = errno == EEXIST ? 0 : -1;
    else if (ids_are_many(context))
        result = fchownat(home, "user", owner, owner, AT_SYMLINK_NOFOLLOW);
    close(home);
    return result;
}

static int make_accounts(struct spawn *spawn, int etc)
{
    const char *hostname = spawn->spawner->context->setup.hostname;
    char text[2 * LAUNCH_NAME_SIZE + 128];
    int length;

    if (add_user(spawn, etc, "passwd", "root:x:0:0:root:/root:/bin/sh\n",
                 "user:x:1000:1000:user:/home/user:/bin/sh\n") < 0 ||
        add_user(spawn, etc, "group", "root:x:0:\n", "user:x:1000:\n") < 0 || make_home(spawn) < 0)
        return -1;
    length = snprintf(text, sizeof(text), "%s\n", hostname);
    if (replace(spawn, etc, "hostname", text, (size_t)length) < 0)
        return -1;
    length = snprintf(text, sizeof(text),
                      "127.0.0.1 localhost %s\n::1 localhost ip6-localhost ip6-loopback\n",
                      hostname);
    return replace(spawn, etc, "hosts", text, (size_t)length);
}

int passwd_write(struct spawn *spawn)
{
    const char *resolver =
        spawn->mark.network == LAUNCH_NETWORK_OPEN ? spawn->walls->network.resolver : "";
    int result = 0;
    int etc;

    /* The skeleton of the host template has all of this already. */
    if (spawn->template->kind != TEMPLATE_WHOLE && !*resolver)
        return 0;
    etc = open_etc();
    if (etc < 0)
        return fail_sys(&spawn->fail, "open /etc of the template");
    if (spawn->template->kind == TEMPLATE_WHOLE)
        result = make_accounts(spawn, etc);
    if (result == 0)
        result = replace(spawn, etc, "resolv.conf", resolver, strlen(resolver));
    if (result < 0)
        fail_sys(&spawn->fail, "write accounts of the sandbox");
    close(etc);
    return result;
}
