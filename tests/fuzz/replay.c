/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds every file of the directories on the command line to a fuzz target, once. */

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The copy has the exact size, so that a sanitizer sees a read past the end. */
static int replay_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    uint8_t *data;
    int result = -1;

    if (fd < 0 || fstat(fd, &info) < 0)
        return -1;
    data = malloc(info.st_size ? (size_t)info.st_size : 1);
    if (data && read(fd, data, (size_t)info.st_size) == info.st_size) {
        LLVMFuzzerTestOneInput(data, (size_t)info.st_size);
        result = 0;
    }
    free(data);
    close(fd);
    return result;
}

static int replay_directory(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    char file[PATH_MAX];
    unsigned count = 0;
    int result = 0;

    if (!directory)
        return -1;
    while (result == 0 && (entry = readdir(directory))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        result = replay_file(file);
        count++;
    }
    closedir(directory);
    printf("%u inputs from %s\n", count, path);
    return count ? result : -1;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (replay_directory(argv[i]) < 0) {
            perror(argv[i]);
            return 1;
        }
    }
    return argc > 1 ? 0 : 1;
}
