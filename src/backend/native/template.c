/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/template.h"

#include "backend/native/extract.h"
#include "backend/native/image.h"
#include "backend/native/template_build.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/scoped.h"
#include "base/str.h"
#include "wire/json.h"
#include "wire/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { MAX_INFO = 4096 };

int template_check_name(const char *name, struct error *err)
{
    char text[LAUNCH_NAME_SIZE] = "";

    if (strlen(name) < sizeof(text))
        memcpy(text, name, strlen(name));
    if (!launch_name_is_valid(text))
        return error_set(err, ERR_INVALID, "\"%s\" is not a valid template name", name);
    if (str_equal(name, "host") || str_equal(name, "configured"))
        return error_set(err, ERR_INVALID, "the template name \"%s\" is reserved", name);
    return 0;
}

/* --- import -------------------------------------------------------------------------------- */

/* The extracted archive is an image: its layers become the root. */
static int unpack_image(int files, struct extract *extract, struct error *err)
{
    scoped(fd_close) int image = -1;
    scoped(fd_close) int root = -1;

    if (renameat(files, "root", files, "image") < 0)
        return error_sys(err, "rename the image");
    image = openat(files, "image", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    root = template_open_directory(files, "root", 0755);
    if (image < 0 || root < 0)
        return error_sys(err, "create the directories of the template");
    extract->root = root;
    extract->bytes = extract->entries = 0;
    if (image_unpack(image, extract, err) < 0)
        return -1;
    (void)tree_remove(files, "image");
    return 0;
}

static int fill_from_archive(void *user, int work, int files, struct extract *extract,
                             struct error *err)
{
    const int *archive = user;
    scoped(fd_close) int root = template_open_directory(files, "root", 0755);

    (void)work;
    if (root < 0)
        return error_sys(err, "create the directories of the template");
    extract->root = root;
    if (extract_file(extract, *archive, err) < 0)
        return -1;
    return image_is_here(root) ? unpack_image(files, extract, err) : 0;
}

int template_import(const char *state_path, const char *name, int archive,
                    const struct template_options *options, struct template_info *out_info,
                    struct error *err)
{
    struct template_build build = {
        .state_path = state_path,
        .name = name,
        .options = options,
        .fill = fill_from_archive,
        .user = &archive,
    };

    if (template_build(&build, out_info, err) < 0)
        return error_wrap(err, "import %s", name);
    return 0;
}

/* --- list and remove ----------------------------------------------------------------------- */

static void read_info(int templates, const char *name, struct template_info *info)
{
    char path[TEMPLATE_NAME_SIZE + 16];
    char text[MAX_INFO];
    scoped(fd_close) int fd = -1;
    scoped(json_decref) json_t *document = NULL;
    ssize_t length;

    snprintf(info->name, sizeof(info->name), "%s", name);
    snprintf(path, sizeof(path), "%s/info.json", name);
    fd = openat(templates, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    length = fd < 0 ? 0 : read(fd, text, sizeof(text));
    document = json_loadb(text, length > 0 ? (size_t)length : 0, 0, NULL);
    info->bytes = (uint64_t)json_integer_value(json_object_get(document, "bytes"));
    info->entries = (uint64_t)json_integer_value(json_object_get(document, "entries"));
    info->imported_us = json_integer_value(json_object_get(document, "imported_us"));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct template_info *)a)->name, ((const struct template_info *)b)->name);
}

int template_list(const char *state_path, struct template_info **out_infos, size_t *out_count,
                  struct error *err)
{
    scoped(free) char *path = path_join(state_path, "templates");
    struct template_info *infos = NULL;
    size_t count = 0;
    struct dirent *entry;
    DIR *stream = opendir(path);

    if (!stream && errno != ENOENT)
        return error_sys(err, "open %s", path);
    while (stream && (entry = readdir(stream))) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= TEMPLATE_NAME_SIZE)
            continue;
        infos = xrealloc(infos, count + 1, sizeof(*infos));
        infos[count] = (struct template_info){ 0 };
        read_info(dirfd(stream), entry->d_name, &infos[count++]);
    }
    if (stream)
        closedir(stream);
    if (count > 1)
        qsort(infos, count, sizeof(*infos), by_name);
    *out_infos = infos;
    *out_count = count;
    return 0;
}

int template_remove(const char *state_path, const char *name, struct error *err)
{
    scoped(fd_close) int templates = -1;
    scoped(fd_close) int state = -1;
    scoped(fd_close) int template = -1;
    char temporary[TEMPLATE_NAME_SIZE + 32];
    size_t users;

    if (template_check_name(name, err) < 0)
        return -1;
    templates = template_open_all(state_path, err);
    state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (templates < 0 || state < 0)
        return -1;
    template = openat(templates, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (template <0)
        return error_set(err, ERR_NOT_FOUND, "unknown template \"%s\"", name);
    /* Without the lock it would count as abandoned; see template_build.c. */
    (void)flock(template, LOCK_EX);
    /* Renamed first, so that no new sandbox can begin to use it while we look. */
    snprintf(temporary, sizeof(temporary), ".%s.%d", name, (int)getpid());
    if (renameat(templates, name, templates, temporary) < 0)
        return error_sys(err, "remove %s", name);
    users = template_count_users(state, template);
    if (users > 0) {
        (void)renameat(templates, temporary, templates, name);
        error_named(err, ERR_CONFLICT, "template_in_use", "%zu sandboxes use the template \"%s\"",
                    users, name);
        return error_hint(err, "end their sessions first");
    }
    return tree_remove(templates, temporary) < 0 ? error_sys(err, "remove %s", name) : 0;
}
