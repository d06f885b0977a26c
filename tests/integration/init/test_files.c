/* SPDX-License-Identifier: Apache-2.0 */
/* File operations in a real init, against everything that a sandbox can put in their way. */

#include "both.h"

#include "agent/description.h"
#include "wire/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { PATHS = 256 };

static char *in(struct box *box, const char *name)
{
    static char paths[8][PATHS];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, PATHS, "%s/%s", box->dir, name);
    return path;
}

/* 0 or the errno of the answer. */
static int ask(struct box *box, const struct agent_file *file, struct asked *asked)
{
    *asked = (struct asked){ 0 };
    agent_file(box->agent, file, &asked->request, asked_done);
    box_wait(box, asked->answered);
    if (asked->request.err.code && !asked->request.sys_errno)
        fail_msg("%s", asked->request.err.message);
    return asked->request.sys_errno;
}

static int ask_kind(struct box *box, enum protocol_file_kind kind, const char *path, uint32_t flags)
{
    struct asked asked;
    int error =
        ask(box, &(struct agent_file){ .kind = kind, .path = path, .flags = flags }, &asked);

    if (!error)
        fd_close(asked.request.result.file.fd);
    return error;
}

static void put(struct box *box, const char *path, const char *text, uint32_t mode)
{
    struct asked asked;
    char temporary[PROTOCOL_MAX_TEMPORARY];
    struct agent_file file = { .kind = FILE_OPEN_WRITE, .path = path, .mode = mode };

    assert_int_equal(ask(box, &file, &asked), 0);
    assert_int_equal(write(asked.request.result.file.fd, text, strlen(text)), strlen(text));
    close(asked.request.result.file.fd);
    memcpy(temporary, asked.request.result.file.temporary, sizeof(temporary));
    file = (struct agent_file){ .kind = FILE_COMMIT, .path = path, .second = temporary };
    assert_int_equal(ask(box, &file, &asked), 0);
}

static void expect_content(struct box *box, const char *path, const char *text)
{
    struct asked asked;
    char bytes[256] = "";
    ssize_t got;

    assert_int_equal(ask(box, &(struct agent_file){ .kind = FILE_OPEN_READ, .path = path }, &asked),
                     0);
    assert_int_equal(asked.request.result.file.stat.size, strlen(text));
    got = read(asked.request.result.file.fd, bytes, sizeof(bytes) - 1);
    assert_true(got >= 0);
    assert_string_equal(bytes, text);
    close(asked.request.result.file.fd);
}

static void remove_all(struct box *box, const char *name)
{
    assert_int_equal(ask_kind(box, FILE_REMOVE, in(box, name), FILE_TREE), 0);
    assert_int_equal(access(in(box, name), F_OK), -1);
}

static void a_file_is_written_with_its_parents_and_read_again(void **state)
{
    struct box *box = the_box(state);
    struct stat status;

    put(box, in(box, "a/b/c.txt"), "first", 0640);
    expect_content(box, in(box, "a/b/c.txt"), "first");
    assert_int_equal(stat(in(box, "a/b/c.txt"), &status), 0);
    assert_int_equal(status.st_mode, S_IFREG | 0640);
    put(box, in(box, "a/b/c.txt"), "second", 0);
    expect_content(box, in(box, "a/b/c.txt"), "second");
    assert_int_equal(stat(in(box, "a/b/c.txt"), &status), 0);
    assert_int_equal(status.st_mode, S_IFREG | 0640);
    remove_all(box, "a");
}

static void nothing_is_at_the_name_before_the_commit(void **state)
{
    struct box *box = the_box(state);
    struct asked asked;
    struct agent_file file = { .kind = FILE_OPEN_WRITE, .path = in(box, "d/f") };
    char temporary[PROTOCOL_MAX_TEMPORARY];

    assert_int_equal(ask(box, &file, &asked), 0);
    memcpy(temporary, asked.request.result.file.temporary, sizeof(temporary));
    close(asked.request.result.file.fd);
    assert_int_equal(access(in(box, "d/f"), F_OK), -1);
    file = (struct agent_file){
        .kind = FILE_COMMIT, .path = in(box, "d/f"), .second = temporary, .flags = FILE_ABANDON
    };
    assert_int_equal(ask(box, &file, &asked), 0);
    assert_int_equal(rmdir(in(box, "d")), 0);
}

static void a_commit_over_a_directory_fails_and_leaves_nothing(void **state)
{
    struct box *box = the_box(state);
    struct asked asked;
    struct agent_file file = { .kind = FILE_OPEN_WRITE, .path = in(box, "d/target") };
    char temporary[PROTOCOL_MAX_TEMPORARY];

    assert_int_equal(ask(box, &file, &asked), 0);
    close(asked.request.result.file.fd);
    memcpy(temporary, asked.request.result.file.temporary, sizeof(temporary));
    assert_int_equal(mkdir(in(box, "d/target"), 0755), 0);
    file = (struct agent_file){ .kind = FILE_COMMIT,
                                .path = in(box, "d/target"),
                                .second = temporary };
    assert_int_equal(ask(box, &file, &asked), EISDIR);
    assert_int_equal(asked.request.err.code, ERR_CONFLICT);
    assert_int_equal(rmdir(in(box, "d/target")), 0);
    assert_int_equal(rmdir(in(box, "d")), 0);
    assert_int_equal(ask_kind(box, FILE_OPEN_WRITE, box->dir, 0), EISDIR);
}

static void only_init_names_can_be_committed(void **state)
{
    struct box *box = the_box(state);
    struct asked asked;
    struct agent_file file = { .kind = FILE_COMMIT, .path = in(box, "x"), .second = "init.sock" };

    assert_int_equal(ask(box, &file, &asked), EINVAL);
    file.second = ".sandglass-/../init.sock";
    assert_int_equal(ask(box, &file, &asked), EINVAL);
    assert_int_equal(access(box->socket, F_OK), 0);
}

static void what_is_no_regular_file_is_refused_at_once(void **state)
{
    struct box *box = the_box(state);

    assert_int_equal(mkfifo(in(box, "fifo"), 0666), 0);
    assert_int_equal(symlink("/dev/zero", in(box, "device")), 0);
    assert_int_equal(symlink("loop", in(box, "loop")), 0);
    assert_int_equal(symlink("nowhere", in(box, "dangling")), 0);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, in(box, "fifo"), 0), EINVAL);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, in(box, "fifo/below"), 0), ENOTDIR);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, in(box, "device"), 0), EINVAL);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, in(box, "loop"), 0), ELOOP);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, in(box, "dangling"), 0), ENOENT);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, box->socket, 0), EINVAL);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, box->dir, 0), EISDIR);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, "/dev/null", 0), EINVAL);
    put(box, in(box, "fifo"), "now a file", 0);
    expect_content(box, in(box, "fifo"), "now a file");
    put(box, in(box, "dangling"), "replaced", 0);
    assert_int_equal(access(in(box, "nowhere"), F_OK), -1);
    assert_int_equal(unlink(in(box, "fifo")), 0);
    assert_int_equal(unlink(in(box, "device")), 0);
    assert_int_equal(unlink(in(box, "loop")), 0);
    assert_int_equal(unlink(in(box, "dangling")), 0);
}

static void links_of_proc_lead_nowhere(void **state)
{
    struct box *box = the_box(state);

    assert_int_equal(symlink("/proc/self/root", in(box, "root")), 0);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, "/proc/self/root/etc/passwd", 0), ELOOP);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, in(box, "root/etc/passwd"), 0), ELOOP);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, "/proc/self/exe", 0), ELOOP);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, "/proc/self/fd/3", 0), ELOOP);
    assert_int_equal(ask_kind(box, FILE_LIST, "/proc/self/cwd", 0), ELOOP);
    assert_int_equal(ask_kind(box, FILE_OPEN_WRITE, in(box, "root/tmp/sandglass-x"), 0), ELOOP);
    assert_int_equal(ask_kind(box, FILE_MKDIR, in(box, "root/tmp/sandglass-x"), 0), ELOOP);
    assert_int_equal(ask_kind(box, FILE_REMOVE, in(box, "root/tmp"), FILE_TREE), ELOOP);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, "/proc/self/mem", 0), EACCES);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, "/proc/self/environ", 0), EACCES);
    assert_int_equal(unlink(in(box, "root")), 0);
}

static void names_that_no_file_can_have_are_refused(void **state)
{
    struct box *box = the_box(state);
    char name[300];

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    assert_int_equal(ask_kind(box, FILE_OPEN_WRITE, in(box, "."), 0), EINVAL);
    assert_int_equal(ask_kind(box, FILE_OPEN_WRITE, in(box, ".."), 0), EINVAL);
    assert_int_equal(ask_kind(box, FILE_REMOVE, "/", FILE_TREE), EINVAL);
    assert_int_equal(ask_kind(box, FILE_REMOVE, "..", FILE_TREE), EINVAL);
    assert_int_equal(ask_kind(box, FILE_MKDIR, name, 0), ENAMETOOLONG);
    assert_int_equal(ask_kind(box, FILE_OPEN_READ, in(box, "missing"), 0), ENOENT);
}

static void stat_follows_links_unless_told_otherwise(void **state)
{
    struct box *box = the_box(state);
    struct asked asked;
    struct agent_file file = { .kind = FILE_STAT, .path = in(box, "link") };

    assert_int_equal(symlink("init.sock", in(box, "link")), 0);
    assert_int_equal(ask(box, &file, &asked), 0);
    assert_true(S_ISSOCK(asked.request.result.file.stat.mode));
    file.flags = FILE_NO_FOLLOW;
    assert_int_equal(ask(box, &file, &asked), 0);
    assert_true(S_ISLNK(asked.request.result.file.stat.mode));
    assert_int_equal(unlink(in(box, "link")), 0);
}

static void directories_are_made_and_names_moved(void **state)
{
    struct box *box = the_box(state);
    struct asked asked;
    struct agent_file move = { .kind = FILE_MOVE,
                               .path = in(box, "m/n"),
                               .second = in(box, "m/z") };

    assert_int_equal(ask_kind(box, FILE_MKDIR, in(box, "m/n/o"), 0), 0);
    assert_int_equal(ask_kind(box, FILE_MKDIR, in(box, "m/n/o/"), 0), 0);
    assert_int_equal(ask_kind(box, FILE_MKDIR, in(box, "m/n/o"), FILE_EXCLUSIVE), EEXIST);
    assert_int_equal(ask_kind(box, FILE_MKDIR, in(box, "init.sock"), 0), EEXIST);
    assert_int_equal(ask(box, &move, &asked), 0);
    assert_int_equal(access(in(box, "m/z/o"), F_OK), 0);
    assert_int_equal(ask(box, &move, &asked), ENOENT);
    assert_int_equal(mkdir(in(box, "m/n"), 0755), 0);
    move.flags = FILE_NO_REPLACE;
    assert_int_equal(ask(box, &move, &asked), EEXIST);
    assert_int_equal(ask_kind(box, FILE_REMOVE, in(box, "m"), 0), ENOTEMPTY);
    remove_all(box, "m");
}

/* --- trees ------------------------------------------------------------------------------------ */

static void a_tree_of_any_depth_is_removed_without_following_links(void **state)
{
    enum { LEVELS = 600 };
    struct box *box = the_box(state);
    int dir;

    assert_int_equal(mkdir(in(box, "kept"), 0755), 0);
    assert_int_equal(mkdir(in(box, "kept/inside"), 0755), 0);
    assert_int_equal(mkdir(in(box, "deep"), 0755), 0);
    dir = open(in(box, "deep"), O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < LEVELS; i++) {
        int next;

        assert_int_equal(mkdirat(dir, "sub", 0755), 0);
        assert_int_equal(mkdirat(dir, "other", 0755), 0);
        assert_int_equal(symlinkat(in(box, "kept"), dir, "link"), 0);
        next = openat(dir, "sub", O_RDONLY | O_DIRECTORY);
        close(dir);
        dir = next;
    }
    close(dir);
    remove_all(box, "deep");
    assert_int_equal(access(in(box, "kept/inside"), F_OK), 0);
    remove_all(box, "kept");
}

static void a_tree_with_closed_directories_is_removed_by_its_owner(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start =
        RUN_SHELL("mkdir -p closed/a/b && touch closed/a/f closed/a/b/g && chmod 500 closed/a/b && "
                  "chmod 000 closed/a");
    struct agent_file file = { .kind = FILE_REMOVE, .path = in(box, "closed"), .flags = FILE_TREE };
    struct asked asked;
    struct run run;

    start.cwd = box->dir;
    if (geteuid() == 0) {
        start.user = file.user = "4242:4242";
        assert_int_equal(chmod(box->dir, 0777), 0);
    }
    run_all(&run, box, &start);
    assert_int_equal(box_find_end(box, run.number)->code, 0);
    run_finish(&run);
    assert_int_equal(ask(box, &file, &asked), 0);
    assert_int_equal(access(in(box, "closed"), F_OK), -1);
}

static void a_wide_tree_is_listed_and_removed(void **state)
{
    enum { FILES = 3000 };
    struct box *box = the_box(state);
    struct agent_start start = RUN_SHELL(
        "mkdir -p wide/sub && cd wide && seq 1 3000 | xargs touch && ln -s target link && "
        "echo hello > sub/file");
    struct asked asked;
    struct buffer bytes = BUFFER_INIT(4 * 1024 * 1024);
    struct protocol_entry_view entry = { 0 };
    struct run run;
    unsigned count = 0;
    bool saw_link = false;
    bool saw_inner = false;
    size_t at = 0;
    struct agent_file file = { .kind = FILE_LIST, .path = in(box, "wide"), .depth = 2 };

    start.cwd = box->dir;
    run_all(&run, box, &start);
    run_finish(&run);
    assert_int_equal(ask(box, &file, &asked), 0);
    for (;;) {
        struct pollfd poll_fd = { .fd = asked.request.result.file.fd, .events = POLLIN };
        char chunk[4096];
        ssize_t got;

        assert_int_equal(poll(&poll_fd, 1, 60000), 1);
        got = read(poll_fd.fd, chunk, sizeof(chunk));
        if (got <= 0)
            break;
        buffer_append(&bytes, chunk, (size_t)got);
    }
    close(asked.request.result.file.fd);
    while (!entry.is_last) {
        long used = protocol_entry_decode(bytes.data + at, bytes.length - at, &entry);

        assert_true(used > 0);
        at += (size_t)used;
        count += !entry.is_last;
        if (entry.fixed.path_length == 4 && !memcmp(entry.path, "link", 4))
            saw_link = entry.fixed.target_length == 6 && !memcmp(entry.target, "target", 6);
        if (entry.fixed.path_length == 8 && !memcmp(entry.path, "sub/file", 8))
            saw_inner = entry.fixed.stat.size == 6;
    }
    assert_int_equal(at, bytes.length);
    assert_int_equal(count, FILES + 3);
    assert_int_equal(entry.fixed.stat.size, count);
    assert_true(saw_link);
    assert_true(saw_inner);
    buffer_fini(&bytes);
    remove_all(box, "wide");
}

static void a_directory_that_changes_into_a_link_is_not_left(void **state)
{
    static const char text[] =
        "mkdir -p race/real/x; mkdir -p race/canary; echo secret > race/canary/f; cd race; "
        "ln -s canary lnk; echo ready; "
        "while [ ! -e stop ]; do mv -T real tmp; mv -T lnk real; mv -T real lnk; mv -T tmp real; "
        "mkdir -p real/x/y; done";
    struct box *box = the_box(state);
    struct agent_start start = RUN_SHELL(text);
    struct run run;
    FILE *stop;

    start.cwd = box->dir;
    run_begin(&run, box, &start);
    run_wait_started(&run);
    box_wait(box, (run_read(&run), strstr(run_out(&run), "ready")));
    for (int i = 0; i < 300; i++)
        (void)ask_kind(box, FILE_REMOVE, in(box, "race/real"), FILE_TREE);
    stop = fopen(in(box, "race/stop"), "w");
    fclose(stop);
    run_wait_end(&run);
    assert_int_equal(access(in(box, "race/canary/f"), F_OK), 0);
    run_finish(&run);
    remove_all(box, "race");
}

/* --- rights ----------------------------------------------------------------------------------- */

static void the_users_rights_decide(void **state)
{
    struct box *box = the_box(state);
    struct asked asked;
    struct agent_file file = { .kind = FILE_OPEN_READ, .path = "/etc/shadow", .user = "daemon" };
    struct stat status;

    if (geteuid() != 0)
        skip();
    assert_int_equal(ask(box, &file, &asked), EACCES);
    assert_int_equal(asked.request.err.code, ERR_FORBIDDEN);
    file = (struct agent_file){ .kind = FILE_OPEN_WRITE, .path = "/etc/x", .user = "daemon" };
    assert_int_equal(ask(box, &file, &asked), EACCES);
    file.path = in(box, "x");
    assert_int_equal(ask(box, &file, &asked), EACCES);
    assert_int_equal(chmod(box->dir, 0777), 0);
    file = (struct agent_file){ .kind = FILE_MKDIR, .path = in(box, "mine/too"), .user = "daemon" };
    assert_int_equal(ask(box, &file, &asked), 0);
    assert_int_equal(stat(in(box, "mine"), &status), 0);
    assert_int_equal(status.st_uid, 1);
    assert_int_equal(status.st_gid, 1);
    file.user = "nobody-knows";
    assert_int_equal(ask(box, &file, &asked), EINVAL);
    remove_all(box, "mine");
}

static void many_at_a_time_are_all_answered(void **state)
{
    enum { COUNT = 200 };
    struct box *box = the_box(state);
    static struct asked asked[COUNT];
    struct agent_file file = { .kind = FILE_STAT, .path = box->socket };
    size_t before;

    box_list(box);
    before = box_count_descriptors(box);
    for (int i = 0; i < COUNT; i++) {
        asked[i] = (struct asked){ 0 };
        agent_file(box->agent, &file, &asked[i].request, asked_done);
    }
    for (int i = 0; i < COUNT; i++) {
        box_wait(box, asked[i].answered);
        assert_int_equal(asked[i].request.err.code, ERR_NONE);
    }
    box_list(box);
    box_wait(box, box_count_descriptors(box) == before);
}

/* --- descriptions ----------------------------------------------------------------------------- */

/* Everything that is told of a file, and how many entries there were. */
struct told {
    char bytes[64 * 1024];
    size_t length;
    uint64_t count;
};

static int describe(struct box *box, const char *path, uint32_t depth, struct told *told)
{
    struct agent_file file = {
        .kind = FILE_DESCRIBE, .path = path, .depth = depth, .third = "user."
    };
    struct asked asked;
    struct protocol_note_view note = { 0 };
    int error = ask(box, &file, &asked);
    ssize_t count;

    told->length = 0;
    if (error)
        return error;
    assert_int_equal(fcntl(asked.request.result.file.fd, F_SETFL, O_RDONLY), 0);
    while ((count = read(asked.request.result.file.fd, told->bytes + told->length,
                         sizeof(told->bytes) - told->length)) > 0)
        told->length += (size_t)count;
    close(asked.request.result.file.fd);
    for (size_t at = 0; note.fixed.kind != NOTE_LAST;) {
        long used = protocol_note_decode(told->bytes + at, told->length - at, &note);

        assert_true(used > 0);
        at += (size_t)used;
    }
    told->count = note.fixed.number;
    return 0;
}

/* The entry with this path; NULL: the first. Borrowed. */
static struct file_description entry(const struct told *told, const char *path, char *out_path)
{
    struct file_description description = { 0 };
    struct protocol_note_view note;
    size_t at = 0;
    long used;

    while ((used = protocol_note_decode(told->bytes + at, told->length - at, &note)) > 0) {
        at += (size_t)used;
        if (note.fixed.kind != NOTE_ENTRY ||
            (path && (strlen(path) != note.fixed.path_length ||
                      memcmp(note.path, path, note.fixed.path_length) != 0)))
            continue;
        if (out_path)
            snprintf(out_path, PATHS, "%.*s", (int)note.fixed.path_length, note.path);
        assert_true(file_description_read(&note, &description));
        return description;
    }
    fail_msg("%s was not told", path);
    return description;
}

static void a_file_is_described_with_names_and_attributes(void **state)
{
    struct box *box = the_box(state);
    static struct told told;
    struct file_description description;
    const char *name = "", *value = "";
    char directory[PATHS];

    put(box, in(box, "f"), "content", 0640);
    assert_int_equal(describe(box, in(box, "f"), 0, &told), 0);
    assert_int_equal(told.count, 1);
    description = entry(&told, NULL, directory);
    assert_int_equal(*directory, '/');
    assert_int_equal(description.stat.size, 7);
    assert_int_equal(description.stat.mode, S_IFREG | 0640);
    assert_string_equal(description.target, "");
    if (geteuid() == 0)
        assert_string_equal(description.owner, "root");
    if (setxattr(in(box, "f"), "user.x", "1", 1, 0) == 0) {
        assert_int_equal(describe(box, in(box, "f"), 0, &told), 0);
        description = entry(&told, NULL, NULL);
        assert_true(file_description_next(&description, &name, &value));
        assert_string_equal(name, "user.x");
        assert_string_equal(value, "1");
    }
    assert_int_equal(describe(box, in(box, "nothing"), 0, &told), ENOENT);
    assert_int_equal(describe(box, "/", 0, &told), 0);
    assert_int_equal(describe(box, ".", 0, &told), 0);
    assert_int_equal(unlink(in(box, "f")), 0);
}

static void links_are_described_to_their_end(void **state)
{
    struct box *box = the_box(state);
    static struct told told;
    struct file_description description;

    assert_int_equal(mkdir(in(box, "d"), 0755), 0);
    assert_int_equal(mkdir(in(box, "d/sub"), 0750), 0);
    assert_int_equal(symlink("sub", in(box, "d/one")), 0);
    assert_int_equal(symlink("one", in(box, "d/two")), 0);
    assert_int_equal(symlink("nowhere", in(box, "d/none")), 0);
    assert_int_equal(describe(box, in(box, "d"), 5, &told), 0);
    assert_int_equal(told.count, 5);
    description = entry(&told, "two", NULL);
    assert_true(S_ISLNK(description.stat.mode));
    assert_int_equal(description.target_mode, S_IFDIR | 0750);
    assert_string_equal(strrchr(description.target, '/'), "/sub");
    description = entry(&told, "none", NULL);
    assert_int_equal(description.target_mode, 0);
    assert_string_equal(description.target, "nowhere");
    assert_int_equal(describe(box, in(box, "d/two"), 1, &told), 0);
    assert_int_equal(describe(box, in(box, "d/none"), 1, &told), ENOENT);
    remove_all(box, "d");
}

static void descriptions_follow_no_link_of_proc(void **state)
{
    struct box *box = the_box(state);
    static struct told told;

    assert_int_equal(symlink("/proc/self/root", in(box, "root")), 0);
    assert_int_equal(describe(box, "/proc/self/root/etc/passwd", 0, &told), ELOOP);
    assert_int_equal(describe(box, in(box, "root/etc/passwd"), 0, &told), ELOOP);
    assert_int_equal(describe(box, "/proc/self/cwd", 1, &told), ELOOP);
    assert_int_equal(unlink(in(box, "root")), 0);
}

static void a_commit_sets_attributes(void **state)
{
    struct box *box = the_box(state);
    struct asked asked;
    struct agent_file file = { .kind = FILE_OPEN_WRITE, .path = in(box, "f") };
    char temporary[PROTOCOL_MAX_TEMPORARY], value[8] = "";

    assert_int_equal(ask(box, &file, &asked), 0);
    close(asked.request.result.file.fd);
    memcpy(temporary, asked.request.result.file.temporary, sizeof(temporary));
    file = (struct agent_file){ .kind = FILE_COMMIT,
                                .path = in(box, "f"),
                                .second = temporary,
                                .third = "user.a=1\nuser.b=\n" };
    if (ask(box, &file, &asked) == EOPNOTSUPP)
        skip();
    assert_int_equal(asked.request.sys_errno, 0);
    assert_int_equal(getxattr(in(box, "f"), "user.a", value, sizeof(value)), 1);
    assert_string_equal(value, "1");
    assert_int_equal(getxattr(in(box, "f"), "user.b", value, sizeof(value)), 0);
    assert_int_equal(unlink(in(box, "f")), 0);
}

static void root_works_for_a_user_where_that_is_asked_for(void **state)
{
    struct box *box = the_box(state);
    struct asked asked;
    struct agent_file file = {
        .kind = FILE_MKDIR, .path = in(box, "closed/a/b"), .user = "daemon", .flags = FILE_BY_ROOT
    };
    struct stat status;

    if (geteuid() != 0)
        skip();
    assert_int_equal(mkdir(in(box, "closed"), 0700), 0);
    assert_int_equal(ask(box, &file, &asked), 0);
    assert_int_equal(stat(in(box, "closed/a/b"), &status), 0);
    assert_int_equal(status.st_uid, 1);
    assert_int_equal(status.st_gid, 1);
    file.flags = 0;
    file.path = in(box, "closed/c");
    assert_int_equal(ask(box, &file, &asked), EACCES);
    remove_all(box, "closed");
}

/* --- archives --------------------------------------------------------------------------------- */

/* A member of so many zeros. */
static size_t put_member(char *to, enum tar_type type, const char *path, size_t size)
{
    struct tar_member member = {
        .type = type, .mode = 0644, .size = size, .path = path, .link = ""
    };
    size_t length = tar_write_member(to, TAR_HEADER_SIZE, &member);

    assert_true(length > 0);
    memset(to + length, 0, size + tar_padding(size));
    return length + size + tar_padding(size);
}

/* The last word of an unpacking that may take so many bytes. */
static struct protocol_note unpack(struct box *box, const char *path, uint64_t most,
                                   const char *archive, size_t length)
{
    struct agent_file file = { .kind = FILE_UNPACK, .path = path, .bytes = most };
    struct asked asked;
    struct protocol_note_view note = { 0 };
    char notes[4096];
    size_t filled = 0;
    ssize_t count;
    int fd;

    assert_int_equal(ask(box, &file, &asked), 0);
    fd = asked.request.result.file.fd;
    assert_int_equal(fcntl(fd, F_SETFL, O_RDWR), 0);
    assert_int_equal(write(fd, archive, length), length);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    while ((count = read(fd, notes + filled, sizeof(notes) - filled)) > 0)
        filled += (size_t)count;
    close(fd);
    for (size_t at = 0; note.fixed.kind != NOTE_LAST;) {
        long used = protocol_note_decode(notes + at, filled - at, &note);

        assert_true(used > 0);
        at += (size_t)used;
    }
    return note.fixed;
}

/* Content that is no file counts as well, and cannot make room for more. */
static void an_archive_is_no_larger_than_it_may_be(void **state)
{
    enum { MOST = 20000, LESS = 12000 };
    struct box *box = the_box(state);
    static char archive[8 * (MOST + TAR_HEADER_SIZE)];
    size_t length = put_member(archive, TAR_FILE, "fits", LESS);

    assert_int_equal(unpack(box, in(box, "all"), MOST, archive, length).error, 0);
    length += put_member(archive + length, TAR_FILE, "more", LESS);
    assert_int_equal(unpack(box, in(box, "all"), MOST, archive, length).error, EFBIG);
    length = put_member(archive, TAR_OTHER, "odd", MOST + 1);
    length += put_member(archive + length, TAR_FILE, "large", 4 * MOST);
    assert_int_equal(unpack(box, in(box, "all"), MOST, archive, length).error, EFBIG);
    assert_int_equal(ask_kind(box, FILE_STAT, in(box, "all/large"), 0), ENOENT);
    assert_int_equal(ask_kind(box, FILE_REMOVE, in(box, "all"), FILE_TREE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_BOTH(a_file_is_written_with_its_parents_and_read_again),
        IN_BOTH(nothing_is_at_the_name_before_the_commit),
        IN_BOTH(a_commit_over_a_directory_fails_and_leaves_nothing),
        IN_BOTH(only_init_names_can_be_committed),
        IN_BOTH(what_is_no_regular_file_is_refused_at_once),
        IN_BOTH(links_of_proc_lead_nowhere),
        IN_BOTH(names_that_no_file_can_have_are_refused),
        IN_BOTH(stat_follows_links_unless_told_otherwise),
        IN_BOTH(directories_are_made_and_names_moved),
        IN_BOTH(a_tree_of_any_depth_is_removed_without_following_links),
        IN_BOTH(a_tree_with_closed_directories_is_removed_by_its_owner),
        IN_BOTH(a_wide_tree_is_listed_and_removed),
        IN_BOTH(a_directory_that_changes_into_a_link_is_not_left),
        IN_BOTH(the_users_rights_decide),
        IN_BOTH(many_at_a_time_are_all_answered),
        IN_BOTH(a_file_is_described_with_names_and_attributes),
        IN_BOTH(links_are_described_to_their_end),
        IN_BOTH(descriptions_follow_no_link_of_proc),
        IN_BOTH(a_commit_sets_attributes),
        IN_BOTH(root_works_for_a_user_where_that_is_asked_for),
        IN_BOTH(an_archive_is_no_larger_than_it_may_be),
    };

    return cmocka_run_group_tests_name("init/files", tests, NULL, NULL);
}
