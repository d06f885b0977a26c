/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/cgroup/cgroup_files.h"

#include "launcher/sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int cgroup_make(int dir, const char *name)
{
    mode_t mask = umask(022);
    int result = mkdirat(dir, name, 0755);

    umask(mask);
    return result < 0 && errno != EEXIST ? -1 : 0;
}

int cgroup_write_text(int dir, const char *name, const char *text)
{
    int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    ssize_t written;
    int error;

    if (fd < 0)
        return -1;
    written = write(fd, text, strlen(text));
    error = errno;
    close(fd);
    errno = error;
    return written < 0 ? -1 : 0;
}

int cgroup_write_number(int dir, const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return cgroup_write_text(dir, name, text);
}

ssize_t cgroup_read_text(int dir, const char *name, char *text, size_t size)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t length;

    text[0] = '\0';
    if (fd < 0)
        return -1;
    length = read(fd, text, size - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length;
}

uint64_t cgroup_read_number(int dir, const char *name)
{
    char text[32];

    return cgroup_read_text(dir, name, text, sizeof(text)) > 0 ? strtoull(text, NULL, 10) : 0;
}

uint64_t cgroup_read_keyed(int dir, const char *name, const char *key)
{
    char text[2048];
    char *save = NULL;
    size_t length = strlen(key);

    if (cgroup_read_text(dir, name, text, sizeof(text)) <= 0)
        return 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            return strtoull(line + length + 1, NULL, 10);
    }
    return 0;
}
