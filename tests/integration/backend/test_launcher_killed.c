/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A launcher that is killed in the middle of its work. The test is the daemon: it asks for a
 * sandbox and for the end of another, kills the launcher at one of its system calls, starts the
 * next one, and asks again what was not answered. Whichever call it was, nothing is left then.
 *
 * Only root may look at a launcher; for others the moments are those of the clock. With
 * SANDGLASS_TEST_MOMENTS=N there are N of them.
 */

#include "backend/launcher_process.h"
#include "backend/launcher_setup.h"
#include "base/id.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "base/str.h"
#include "ground.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MOMENTS = 12,
    STEP_US = 500,
    IDLE_MS = 200,
    BEHIND = 60,
    WAIT_MS = 30000,
    TAG_MADE = 1,
    TAG_GONE = 2
};

struct bed {
    char path[64];
    char instance[64];
    struct config config;
    int socket; /* owned: to the launcher */
    pid_t pid;
    struct launch_host host;
};

/* --- a launcher ---------------------------------------------------------------------------- */

static void start(struct bed *bed)
{
    struct launcher_options options = {
        .config = &bed->config, .state_path = bed->path, .uid = geteuid(), .gid = getegid()
    };
    struct error err = { 0 };

    bed->socket = launcher_process_start(bed->path, &bed->pid, &err);
    if (bed->socket < 0 || launcher_set_up(bed->socket, &options, &bed->host, &err) < 0)
        fail_msg("launcher: %s", err.message);
}

static void end(struct bed *bed, int signal_number)
{
    if (signal_number)
        assert_int_equal(kill(bed->pid, signal_number), 0);
    else
        fd_close(bed->socket);
    assert_int_equal(waitpid(bed->pid, NULL, 0), bed->pid);
    if (signal_number)
        fd_close(bed->socket);
}

static void ask(struct bed *bed, enum launch_type type, uint64_t tag, void *message, size_t length)
{
    *(struct launch_header *)message = (struct launch_header){
        .length = (uint32_t)length, .type = (uint16_t)type, .version = LAUNCH_VERSION, .tag = tag
    };
    assert_int_equal(launcher_process_send(bed->socket, message, length, -1), 0);
}

static void ask_create(struct bed *bed, const char *id, uint32_t mode)
{
    struct launch_create message = {
        .limits = { .memory_bytes = 64 << 20,
                    .disk_bytes = 64 << 20,
                    .cpu_millis = 1000,
                    .pids = 32 },
        .mode = mode,
        .template_name = "host",
    };

    memcpy(message.id, id, LAUNCH_ID_SIZE);
    ask(bed, LAUNCH_CREATE, TAG_MADE, &message, sizeof(message));
}

static void ask_destroy(struct bed *bed, const char *id)
{
    struct launch_destroy message = { 0 };

    memcpy(message.id, id, LAUNCH_ID_SIZE);
    ask(bed, LAUNCH_DESTROY, TAG_GONE, &message, sizeof(message));
}

/* True when the answer came, which then has to be a good one; false when the launcher is gone. */
static bool is_answered(struct bed *bed, uint64_t tag)
{
    struct pollfd watch = { .fd = bed->socket, .events = POLLIN };
    struct launch_reply reply;
    int pidfd = -1;
    int result;

    do {
        assert_int_equal(poll(&watch, 1, WAIT_MS), 1);
        result = launcher_receive(bed->socket, &reply, &pidfd);
        fd_close(pidfd);
        pidfd = -1;
    } while (result >= 0 && !(result > 0 && reply.header.tag == tag));
    if (result > 0 && reply.error)
        fail_msg("%s: %s", reply.step, strerror(reply.error));
    return result > 0;
}

/* --- what is left -------------------------------------------------------------------------- */

/* The first entry with this prefix that does not have the launcher's pid behind it; "" for none. */
static const char *find_entry(const char *path, const char *prefix, pid_t except)
{
    static char found[NAME_MAX + 1];
    DIR *stream = opendir(path);
    struct dirent *entry;

    found[0] = '\0';
    while (stream && !found[0] && (entry = readdir(stream))) {
        if (entry->d_name[0] != '.' && str_starts_with(entry->d_name, prefix) &&
            strtol(entry->d_name + strlen(prefix), NULL, 10) != except)
            snprintf(found, sizeof(found), "%s", entry->d_name);
    }
    if (stream)
        closedir(stream);
    return found;
}

static const char *find_in_groups(const struct bed *bed, const char *prefix, pid_t except)
{
    static const char *const hierarchies[] = { "memory",  "cpu",   "cpuacct", "pids",
                                               "freezer", "blkio", "." };
    const char *delegated = getenv("SANDGLASS_TEST_DELEGATED");
    const char *found = "";
    char path[256];

    for (size_t i = 0; i < ARRAY_LENGTH(hierarchies) && !*found; i++) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/sandglass.%s", hierarchies[i],
                 bed->instance);
        found = find_entry(path, prefix, except);
    }
    if (*found || !delegated)
        return found;
    snprintf(path, sizeof(path), "%s/sandglass.%s", delegated, bed->instance);
    return find_entry(path, prefix, except);
}

static const char *find_in_state(const struct bed *bed, const char *directory, const char *prefix,
                                 pid_t except)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", bed->path, directory);
    return find_entry(path, prefix, except);
}

static const char *find_left(const struct bed *bed)
{
    const char *found = find_in_state(bed, "sandboxes", "sbx_", -1);

    if (!*found)
        found = find_in_groups(bed, "sbx_", -1);
    if (!*found)
        found = find_in_groups(bed, "kit-", bed->pid);
    return *found ? found : find_in_state(bed, "ahead", "", bed->pid);
}

static void expect_nothing_left(const struct bed *bed, unsigned moment)
{
    int64_t deadline = ground_now_ms() + WAIT_MS;
    const char *found;

    while (*(found = find_left(bed))) {
        if (ground_now_ms() > deadline)
            fail_msg("killed at moment %u: %s is left", moment, found);
        usleep(2000);
    }
}

/* --- moments ------------------------------------------------------------------------------- */

static void seize(pid_t pid)
{
    int status;

    if (!running_as_root())
        return;
    assert_int_equal(ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD), 0);
    assert_int_equal(ptrace(PTRACE_INTERRUPT, pid, 0, 0), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* False when it waits for something and does nothing for so long. */
static bool stops_within(pid_t pid, int64_t ms)
{
    int64_t deadline = ground_now_ms() + ms;
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (ground_now_ms() > deadline)
            return false;
        usleep(20);
    }
    return WIFSTOPPED(status);
}

/* Up to so many beginnings and ends of system calls. */
static void go_on(pid_t pid, unsigned moment)
{
    unsigned passed = 0;

    if (!running_as_root())
        usleep(moment * STEP_US);
    else
        while (passed < moment && ptrace(PTRACE_SYSCALL, pid, 0, 0) == 0 &&
               stops_within(pid, IDLE_MS))
            passed++;
}

/* Both answers are there, and what the launcher does behind them has begun. */
static unsigned count_moments(struct bed *bed)
{
    struct launch_reply reply;
    unsigned passed = 0, answers = 0;
    int pidfd = -1;

    while (answers < 2) {
        assert_int_equal(ptrace(PTRACE_SYSCALL, bed->pid, 0, 0), 0);
        assert_true(stops_within(bed->pid, WAIT_MS));
        passed++;
        answers += launcher_receive(bed->socket, &reply, &pidfd) > 0 && reply.header.tag;
        fd_close(pidfd);
        pidfd = -1;
    }
    return passed + BEHIND;
}

/* --- the tests ----------------------------------------------------------------------------- */

static int set_up(void **state)
{
    static struct bed bed;
    struct error err = { 0 };
    char text[128];

    bed = (struct bed){ .path = "/tmp/sandglass-test.XXXXXX", .socket = -1 };
    snprintf(bed.instance, sizeof(bed.instance), "killed-%d", (int)getpid());
    snprintf(text, sizeof(text), "instance: %s\n", bed.instance);
    assert_int_equal(config_load_text(&bed.config, text, strlen(text), "test", &err), 0);
    assert_non_null(mkdtemp(bed.path));
    assert_int_equal(chmod(bed.path, 0711), 0);
    *state = &bed;
    return 0;
}

static void remove_tree(const char *path)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

static int tear_down(void **state)
{
    struct bed *bed = *state;

    config_fini(&bed->config);
    remove_tree(bed->path);
    return 0;
}

static void make_id(char id[LAUNCH_ID_SIZE])
{
    memset(id, 0, LAUNCH_ID_SIZE);
    id_make(id, "sbx_");
}

struct pair {
    char making[LAUNCH_ID_SIZE];
    char ending[LAUNCH_ID_SIZE];
};

/* A launcher that is about to make one and to end the other. */
static void begin(struct bed *bed, uint32_t mode, struct pair *pair)
{
    make_id(pair->making);
    make_id(pair->ending);
    start(bed);
    ask_create(bed, pair->ending, mode);
    assert_true(is_answered(bed, TAG_MADE));
    seize(bed->pid);
    ask_destroy(bed, pair->ending);
    ask_create(bed, pair->making, mode);
}

/* Asks the next one what was not answered. */
static void clean_up(struct bed *bed, const struct pair *pair, bool is_gone, unsigned moment)
{
    start(bed);
    if (!is_gone) {
        ask_destroy(bed, pair->ending);
        assert_true(is_answered(bed, TAG_GONE));
    }
    ask_destroy(bed, pair->making);
    assert_true(is_answered(bed, TAG_GONE));
    expect_nothing_left(bed, moment);
    end(bed, 0);
}

static void kill_at(struct bed *bed, uint32_t mode, unsigned moment)
{
    struct pair pair;
    bool is_gone;

    begin(bed, mode, &pair);
    go_on(bed->pid, moment);
    assert_int_equal(kill(bed->pid, SIGKILL), 0);
    is_gone = is_answered(bed, TAG_GONE);
    assert_int_equal(waitpid(bed->pid, NULL, 0), bed->pid);
    fd_close(bed->socket);
    clean_up(bed, &pair, is_gone, moment);
}

static unsigned all_moments(struct bed *bed, uint32_t mode)
{
    struct pair pair;
    unsigned all;

    begin(bed, mode, &pair);
    all = count_moments(bed);
    end(bed, SIGKILL);
    clean_up(bed, &pair, true, all);
    return all;
}

static void kill_at_many_moments(struct bed *bed, uint32_t mode)
{
    const char *wanted = getenv("SANDGLASS_TEST_MOMENTS");
    unsigned moments = wanted ? (unsigned)atoi(wanted) : MOMENTS;
    unsigned all = running_as_root() ? all_moments(bed, mode) : moments;

    for (unsigned i = 0; i < moments; i++)
        kill_at(bed, mode, all * i / moments);
}

static void a_native_one_leaves_nothing(void **state)
{
    kill_at_many_moments(*state, LAUNCH_NATIVE);
}

static void a_direct_one_leaves_nothing(void **state)
{
    struct bed *bed = *state;
    struct error err = { 0 };

    assert_int_equal(config_set(&bed->config, "sandbox.backend", "direct", "test", &err), 0);
    kill_at_many_moments(bed, LAUNCH_DIRECT);
}

/* Of the same name, with a state directory of its own. */
static void what_another_daemon_has_stays(void **state)
{
    struct bed *bed = *state;
    struct bed other = *bed;
    char id[LAUNCH_ID_SIZE];

    strcpy(other.path, "/tmp/sandglass-test.XXXXXX");
    assert_non_null(mkdtemp(other.path));
    assert_int_equal(chmod(other.path, 0711), 0);
    start(&other);
    make_id(id);
    ask_create(&other, id, LAUNCH_NATIVE);
    assert_true(is_answered(&other, TAG_MADE));
    /* The next one starts, sweeps, and ends, while the other has sandboxes and spares. */
    start(bed);
    end(bed, SIGKILL);
    start(bed);
    end(bed, 0);
    assert_string_equal(find_in_state(&other, "sandboxes", "sbx_", -1), id);
    if (bed->host.features & (LAUNCH_HAS_CGROUP_V1 | LAUNCH_HAS_CGROUP_V2))
        assert_string_equal(find_in_groups(&other, "sbx_", -1), id);
    ask_destroy(&other, id);
    assert_true(is_answered(&other, TAG_GONE));
    make_id(id);
    ask_create(&other, id, LAUNCH_NATIVE);
    assert_true(is_answered(&other, TAG_MADE));
    ask_destroy(&other, id);
    assert_true(is_answered(&other, TAG_GONE));
    expect_nothing_left(&other, 0);
    end(&other, 0);
    remove_tree(other.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_native_one_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_direct_one_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_another_daemon_has_stays, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
