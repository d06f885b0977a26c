/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/skeleton.h"

#include "launcher/sys.h"
#include "launcher/walls/ids.h"
#include "launcher/walls/skeleton_profile.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { COPY_DEPTH = 4, COPY_BYTES = 16 * 1024 * 1024 };

static const struct {
    const char *path;
    mode_t mode;
} directories[] = {
    { "dev", 0755 },
    { "etc", 0755 },
    { "home", 0755 },
    { "home/user", 0755 },
    { "media", 0755 },
    { "mnt", 0755 },
    { "opt", 0755 },
    { "proc", 0555 },
    { "root", 0700 },
    { "run", 0755 },
    { "run/lock", 01777 },
    { "srv", 0755 },
    { "sys", 0555 },
    { "tmp", 01777 },
    { "usr", 0755 },
    { "var", 0755 },
    { "var/cache", 0755 },
    { "var/cache/apt", 0755 },
    { "var/cache/apt/archives", 0755 },
    { "var/cache/apt/archives/partial", 0755 },
    { "var/lib", 0755 },
    { "var/lib/apt", 0755 },
    { "var/lib/apt/lists", 0755 },
    { "var/lib/apt/lists/partial", 0755 },
    { "var/lib/dpkg", 0755 },
    { "var/lib/dpkg/info", 0755 },
    { "var/lib/dpkg/parts", 0755 },
    { "var/lib/dpkg/triggers", 0755 },
    { "var/lib/dpkg/updates", 0755 },
    { "var/local", 0755 },
    { "var/log", 0755 },
    { "var/log/apt", 0755 },
    { "var/mail", 0755 },
    { "var/opt", 0755 },
    { "var/spool", 0755 },
    { "var/tmp", 01777 },
};

static const struct {
    const char *path;
    const char *target;
} links[] = {
    { "bin", "usr/bin" },
    { "sbin", "usr/sbin" },
    { "lib", "usr/lib" },
    { "lib64", "usr/lib64" },
    { "var/run", "/run" },
    { "var/lock", "/run/lock" },
    { "etc/mtab", "../proc/self/mounts" },
};

static const struct {
    const char *path;
    mode_t mode;
    const char *text;
} files[] = {
    { "etc/passwd", 0644,
      "root:x:0:0:root:/root:/bin/bash\n"
      "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
      "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
      "sys:x:3:3:sys:/dev:/usr/sbin/nologin\n"
      "sync:x:4:65534:sync:/bin:/bin/sync\n"
      "games:x:5:60:games:/usr/games:/usr/sbin/nologin\n"
      "man:x:6:12:man:/var/cache/man:/usr/sbin/nologin\n"
      "lp:x:7:7:lp:/var/spool/lpd:/usr/sbin/nologin\n"
      "mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n"
      "news:x:9:9:news:/var/spool/news:/usr/sbin/nologin\n"
      "uucp:x:10:10:uucp:/var/spool/uucp:/usr/sbin/nologin\n"
      "proxy:x:13:13:proxy:/bin:/usr/sbin/nologin\n"
      "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
      "backup:x:34:34:backup:/var/backups:/usr/sbin/nologin\n"
      "list:x:38:38:list:/var/list:/usr/sbin/nologin\n"
      "irc:x:39:39:irc:/run/ircd:/usr/sbin/nologin\n"
      "_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n"
      "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
      "user:x:1000:1000:user:/home/user:/bin/bash\n" },
    { "etc/group", 0644,
      "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nlp:x:7:\n"
      "mail:x:8:\nnews:x:9:\nuucp:x:10:\nman:x:12:\nproxy:x:13:\nkmem:x:15:\ndialout:x:20:\n"
      "fax:x:21:\nvoice:x:22:\ncdrom:x:24:\nfloppy:x:25:\ntape:x:26:\nsudo:x:27:\naudio:x:29:\n"
      "dip:x:30:\nwww-data:x:33:\nbackup:x:34:\noperator:x:37:\nlist:x:38:\nirc:x:39:\n"
      "src:x:40:\nshadow:x:42:\nutmp:x:43:\nvideo:x:44:\nsasl:x:45:\nplugdev:x:46:\n"
      "staff:x:50:\ngames:x:60:\nusers:x:100:\nnogroup:x:65534:\nuser:x:1000:\n" },
    { "etc/shadow", 0640, "root:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\n" },
    { "etc/gshadow", 0640, "root:*::\nuser:!::\n" },
    { "etc/nsswitch.conf", 0644,
      "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
      "protocols: files\nservices: files\n" },
    { "etc/resolv.conf", 0644, "" },
    { "etc/fstab", 0644, "" },
    { "etc/machine-id", 0444, "" },
};

/* Files and directories below /etc; those that are not world-readable are skipped, at any depth. */
static const char *const copied[] = {
    "adduser.conf",
    "alternatives",
    "apt/apt.conf.d",
    "apt/preferences.d",
    "apt/sources.list",
    "apt/sources.list.d",
    "apt/trusted.gpg.d",
    "bash.bashrc",
    "bash_completion.d",
    "ca-certificates",
    "ca-certificates.conf",
    "debconf.conf",
    "debian_version",
    "deluser.conf",
    "dpkg",
    "ethertypes",
    "gai.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "login.defs",
    "lsb-release",
    "magic",
    "magic.mime",
    "mailcap",
    "mime.types",
    "networks",
    "os-release",
    "perl",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "rpc",
    "services",
    "shells",
    "skel",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "wgetrc",
    "xattr.conf",
};

static int write_file(int dir, const char *path, mode_t mode, const char *text)
{
    size_t length = strlen(text);
    int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    ssize_t written;

    if (fd < 0)
        return -1;
    written = write(fd, text, length);
    if (fchmod(fd, mode) < 0)
        written = -1;
    close(fd);
    return written == (ssize_t)length ? 0 : -1;
}

/* --- copies of the host's /etc -------------------------------------------------------------- */

static size_t copied_bytes;

static void copy_bytes(int from, int to)
{
    char bytes[65536];
    ssize_t got;

    while ((got = read(from, bytes, sizeof(bytes))) > 0 && copied_bytes < COPY_BYTES) {
        copied_bytes += (size_t)got;
        if (write(to, bytes, (size_t)got) != got)
            return;
    }
}

/* All users inside may read it, regardless of our umask. */
static int make_directory(int dir, const char *name)
{
    int directory;

    (void)mkdirat(dir, name, 0755);
    directory = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory >= 0)
        (void)fchmod(directory, 0755);
    return directory;
}

static void copy_entry(int from, int to, const char *name, int depth);

static void copy_directory(int from, int to, const char *name, int depth)
{
    int source = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = source < 0 ? NULL : fdopendir(source);
    struct dirent *entry;
    int target;

    target = make_directory(to, name);
    while (stream && target >= 0 && (entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            copy_entry(source, target, entry->d_name, depth + 1);
    }
    if (stream)
        closedir(stream);
    else if (source >= 0)
        close(source);
    if (target >= 0)
        close(target);
}

static void copy_file(int from, int to, const char *name, mode_t mode)
{
    int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int target = source < 0 ? -1 : openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (target >= 0) {
        copy_bytes(source, target);
        (void)fchmod(target, mode & 0755);
        close(target);
    }
    if (source >= 0)
        close(source);
}

static void copy_entry(int from, int to, const char *name, int depth)
{
    struct stat status;
    char link[1024];
    ssize_t length;

    if (depth > COPY_DEPTH || fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (S_ISLNK(status.st_mode)) {
        length = readlinkat(from, name, link, sizeof(link) - 1);
        if (length > 0) {
            link[length] = '\0';
            (void)!symlinkat(link, to, name);
        }
    } else if (!(status.st_mode & S_IROTH)) {
        return;
    } else if (S_ISDIR(status.st_mode)) {
        copy_directory(from, to, name, depth);
    } else if (S_ISREG(status.st_mode)) {
        copy_file(from, to, name, status.st_mode);
    }
}

/* The path is one of the list above: at most one directory and a name. */
static void copy_listed(int from, int to, const char *path)
{
    char directory[64];
    const char *slash = strchr(path, '/');
    int source;
    int target;

    if (!slash) {
        copy_entry(from, to, path, 0);
        return;
    }
    snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
    source = openat(from, directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (source < 0)
        return;
    target = make_directory(to, directory);
    if (target >= 0) {
        copy_entry(source, target, slash + 1, 0);
        close(target);
    }
    close(source);
}

static void copy_settings(int dir)
{
    int source = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int target = openat(dir, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (size_t i = 0; source >= 0 && target >= 0 && i < sizeof(copied) / sizeof(copied[0]); i++)
        copy_listed(source, target, copied[i]);
    if (target >= 0)
        skeleton_profile(target);
    if (source >= 0)
        close(source);
    if (target >= 0)
        close(target);
}

/* --- installed packages -------------------------------------------------------------------- */

/* Which files belong to a package of the host is not needed to add others, but dpkg complains about
 * each list that is missing: they are names of one empty file. */
static void link_lists(int from, int to)
{
    static const char suffix[] = ".list";
    int source = openat(from, "info", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = source < 0 ? NULL : fdopendir(source);
    struct dirent *entry;

    if (!stream) {
        if (source >= 0)
            close(source);
        return;
    }
    (void)write_file(to, "info/format", 0644, "1\n");
    (void)write_file(to, "info/.list", 0644, "");
    while ((entry = readdir(stream))) {
        size_t length = strlen(entry->d_name);
        char path[sizeof(entry->d_name) + 8];

        if (length < sizeof(suffix) || strcmp(entry->d_name + length - strlen(suffix), suffix) != 0)
            continue;
        snprintf(path, sizeof(path), "info/%s", entry->d_name);
        (void)!linkat(to, "info/.list", to, path, 0);
    }
    (void)unlinkat(to, "info/.list", 0);
    closedir(stream);
}

static void copy_packages(int dir)
{
    int source = open("/var/lib/dpkg", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int target = openat(dir, "var/lib/dpkg", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (source >= 0 && target >= 0) {
        copy_entry(source, target, "status", 0);
        link_lists(source, target);
    }
    if (source >= 0)
        close(source);
    if (target >= 0)
        close(target);
}

/* --- all of it ------------------------------------------------------------------------------ */

static int write_names(int dir, const char *hostname)
{
    char text[2 * LAUNCH_NAME_SIZE + 128];

    snprintf(text, sizeof(text), "%s\n", hostname);
    if (write_file(dir, "etc/hostname", 0644, text) < 0)
        return -1;
    snprintf(text, sizeof(text),
             "127.0.0.1 localhost %s\n::1 localhost ip6-localhost ip6-loopback\n", hostname);
    return write_file(dir, "etc/hosts", 0644, text);
}

int skeleton_fill(int dir, const char *hostname, struct fail *fail)
{
    for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
        if (mkdirat(dir, directories[i].path, 0755) < 0 ||
            fchmodat(dir, directories[i].path, directories[i].mode, 0) < 0)
            return fail_sys(fail, "make directories of the skeleton");
    }
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        if (symlinkat(links[i].target, dir, links[i].path) < 0)
            return fail_sys(fail, "make links of the skeleton");
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (write_file(dir, files[i].path, files[i].mode, files[i].text) < 0)
            return fail_sys(fail, "write files of the skeleton");
    }
    if (write_names(dir, hostname) < 0)
        return fail_sys(fail, "write host name");
    copy_settings(dir);
    copy_packages(dir);
    return 0;
}

int skeleton_own(const char *root, uid_t owner)
{
    int dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = dir < 0 ? -1 : 0;

    for (size_t i = 0; result == 0 && i < sizeof(directories) / sizeof(directories[0]); i++) {
        bool home = strcmp(directories[i].path, "home/user") == 0;
        uid_t uid = home ? owner + IDS_USER : owner;

        result = fchownat(dir, directories[i].path, uid, uid, AT_SYMLINK_NOFOLLOW);
    }
    if (result == 0)
        result = fchown(dir, owner, owner);
    if (dir >= 0)
        close(dir);
    return result;
}
