#include "backend/template.h"

#include "backend/native/extract.h"
#include "backend/native/image.h"
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

static int open_folder(int parent, const char *name, mode_t mode)
{
    if (mkdirat(parent, name, mode) < 0 && errno != EEXIST)
        return -1;
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int open_templates(const char *state_path, struct error *err)
{
    scoped(fd_close) int state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int templates = state < 0 ? -1 : open_folder(state, "templates", 0755);

    if (templates < 0)
        return error_sys(err, "open %s/templates", state_path);
    return templates;
}

/* --- import -------------------------------------------------------------------------------- */

static int write_info(int dir, const struct template_info *info, struct error *err)
{
    scoped(fd_close) int fd =
        openat(dir, "info.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (fd < 0 || dprintf(fd, "{\"bytes\":%llu,\"entries\":%llu,\"imported_us\":%lld}\n",
                          (unsigned long long)info->bytes, (unsigned long long)info->entries,
                          (long long)info->imported_us) < 0)
        return error_sys(err, "write info.json");
    return fsync(fd) < 0 ? error_sys(err, "write info.json") : 0;
}

/* `work` becomes the template: files/root with its files, users/ for who uses it. */
static int unpack(int work, int archive, struct template_info *info, struct error *err)
{
    scoped(fd_close) int files = open_folder(work, "files", 0700);
    scoped(fd_close) int users = open_folder(work, "users", 0700);
    scoped(fd_close) int root = files < 0 ? -1 : open_folder(files, "root", 0755);
    struct extract extract = { .root = root, .owners = geteuid() == 0 };

    if (files < 0 || users < 0 || root < 0)
        return error_sys(err, "create the directories of the template");
    if (extract_file(&extract, archive, err) < 0)
        return -1;
    if (image_is_here(root)) {
        scoped(fd_close) int image = -1;

        if (renameat(files, "root", files, "image") < 0)
            return error_sys(err, "rename the image");
        image = steal_fd(&root);
        root = open_folder(files, "root", 0755);
        if (root < 0)
            return error_sys(err, "create the directories of the template");
        extract = (struct extract){ .root = root, .owners = geteuid() == 0 };
        if (image_unpack(image, &extract, err) < 0)
            return -1;
        (void)tree_remove(files, "image");
    }
    if (extract.entries == 0)
        return error_set(err, ERR_INVALID, "the archive is empty");
    (void)fchmod(root, 0755);
    info->bytes = extract.bytes;
    info->entries = extract.entries;
    return write_info(work, info, err);
}

int template_import(const char *state_path, const char *name, int archive,
                    struct template_info *out_info, struct error *err)
{
    scoped(fd_close) int templates = -1;
    scoped(fd_close) int work = -1;
    struct template_info info = { .imported_us = clock_wall_us(&clock_system) };
    char temporary[TEMPLATE_NAME_SIZE + 32];
    int result;

    if (template_check_name(name, err) < 0)
        return -1;
    templates = open_templates(state_path, err);
    if (templates < 0)
        return -1;
    if (faccessat(templates, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(err, ERR_CONFLICT, "the template \"%s\" already exists", name);
    snprintf(info.name, sizeof(info.name), "%s", name);
    snprintf(temporary, sizeof(temporary), ".%s.%d", name, (int)getpid());
    work = open_folder(templates, temporary, 0755);
    if (work < 0)
        return error_sys(err, "make %s/templates/%s", state_path, temporary);
    result = unpack(work, archive, &info, err);
    if (result == 0 && renameat(templates, temporary, templates, name) < 0)
        result = error_sys(err, "rename the template");
    if (result < 0) {
        (void)tree_remove(templates, temporary);
        return error_wrap(err, "import %s", name);
    }
    *out_info = info;
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

/* A name in users/ counts as long as there is a sandbox of that name. */
static size_t count_users(int state, int template)
{
    int fd = openat(template, "users", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    size_t count = 0;

    while (stream && (entry = readdir(stream))) {
        char path[NAME_MAX + 16];

        snprintf(path, sizeof(path), "sandboxes/%s", entry->d_name);
        count += entry->d_name[0] != '.' && faccessat(state, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    }
    if (stream)
        closedir(stream);
    return count;
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
    templates = open_templates(state_path, err);
    state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (templates < 0 || state < 0)
        return -1;
    template = openat(templates, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (template <0)
        return error_set(err, ERR_NOT_FOUND, "unknown template \"%s\"", name);
    /* Renamed first, so that no new sandbox can begin to use it while we look. */
    snprintf(temporary, sizeof(temporary), ".%s.%d", name, (int)getpid());
    if (renameat(templates, name, templates, temporary) < 0)
        return error_sys(err, "remove %s", name);
    users = count_users(state, template);
    if (users > 0) {
        (void)renameat(templates, temporary, templates, name);
        error_named(err, ERR_CONFLICT, "template_in_use", "%zu sandboxes use the template \"%s\"",
                    users, name);
        return error_hint(err, "end their sessions first");
    }
    return tree_remove(templates, temporary) < 0 ? error_sys(err, "remove %s", name) : 0;
}
