/* SPDX-License-Identifier: Apache-2.0 */
#include "ground.h"

#include "base/buffer.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static struct outcome outcome;

static int open_ground(void **state)
{
    static struct ground ground;

    ground_open(&ground, "native", "");
    *state = &ground;
    return 0;
}

static int close_ground(void **state)
{
    ground_close(*state);
    return 0;
}

static struct backend_sandbox make(struct ground *ground, struct sandbox_spec *spec)
{
    struct backend_sandbox sandbox = { 0 };
    struct error err = { 0 };

    if (ground_create(ground, spec, &sandbox, &err) < 0)
        fail_msg("create: %s", err.message);
    return sandbox;
}

static void destroy(struct ground *ground, const char *id)
{
    struct error err = { 0 };

    if (ground_destroy(ground, id, &err) < 0)
        fail_msg("destroy: %s", err.message);
}

/* --- life ---------------------------------------------------------------------------------- */

static void a_program_runs_as_the_user_at_home(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);

    ground_expect(ground, sandbox.id, "", "pwd; id -un; id -u; hostname",
                  "/home/user\nuser\n1000\nsandbox\n");
    ground_expect(ground, sandbox.id, "", "echo kept > file; cat file", "kept\n");
    ground_expect(ground, sandbox.id, "", "python3 -c 'print(6 * 7)'", "42\n");
    destroy(ground, sandbox.id);
    assert_false(process_exists(ground_pid(&sandbox)));
}

static void root_may_change_the_system_of_its_sandbox_alone(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox;

    sandbox = ground_sandbox(ground);
    ground_expect(
        ground, sandbox.id, "root",
        "id -u; echo x > /etc/canary; rm /usr/bin/python3; mv /usr/share/doc /usr/share/d;"
        "mkdir /opt/a; chown user:user /opt/a; stat -c %U /opt/a /etc/passwd /usr/bin",
        "0\nuser\nroot\nroot\n");
    ground_expect(ground, sandbox.id, "user",
                  "touch /opt/a/b; test -e /usr/bin/python3 || echo gone", "gone\n");
    assert_int_equal(access("/etc/canary", F_OK), -1);
    assert_int_equal(access("/usr/bin/python3", F_OK), 0);
    destroy(ground, sandbox.id);
}

static void it_is_found_again_after_a_restart(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);
    struct backend_sandbox next;
    struct error err = { 0 };

    ground_expect(ground, sandbox.id, "", "echo kept > file", "");
    ground_restart(ground);
    assert_int_equal(ground_count(ground), 1);
    assert_int_equal(ground_adopt(ground, &sandbox, &err), 0);
    ground_expect(ground, sandbox.id, "", "cat file", "kept\n");
    next = ground_sandbox(ground);
    assert_int_not_equal(ground_slot(&next), ground_slot(&sandbox));
    destroy(ground, next.id);
    destroy(ground, sandbox.id);
    assert_int_equal(ground_adopt(ground, &sandbox, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
}

static void a_killed_launcher_is_replaced(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);
    struct backend_sandbox other;
    struct sandbox_usage usage;
    struct error err = { 0 };
    pid_t first = launcher_pid(ground->launcher);

    ground_expect(ground, sandbox.id, "", "echo kept > file", "");
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(ground_inspect(ground, sandbox.id, &usage, &err), 0);
    assert_int_not_equal(launcher_pid(ground->launcher), first);
    assert_int_equal(backend_check(ground->backend, &err), 0);
    ground_expect(ground, sandbox.id, "", "cat file", "kept\n");
    other = ground_sandbox(ground);
    assert_int_not_equal(ground_slot(&other), ground_slot(&sandbox));
    assert_int_equal(kill(launcher_pid(ground->launcher), SIGKILL), 0);
    destroy(ground, other.id);
    assert_int_equal(ground_count(ground), 1);
    ground_restart(ground);
    assert_int_equal(ground_adopt(ground, &sandbox, &err), 0);
    ground_expect(ground, sandbox.id, "", "cat file", "kept\n");
    destroy(ground, sandbox.id);
    destroy(ground, ground_sandbox(ground).id);
    assert_int_equal(ground_count(ground), 0);
}

static void a_half_made_one_is_undone(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox;
    struct sandbox_spec spec;
    struct error err = { 0 };

    ground_spec(&spec);
    spec.source.name = "missing";
    assert_int_equal(ground_create(ground, &spec, &sandbox, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(ground_count(ground), 0);
}

static void sandboxes_do_not_meet(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox one = ground_sandbox(ground);
    struct backend_sandbox two = ground_sandbox(ground);

    ground_start(
        ground, one.id, "",
        "python3 -c 'import socket, time\ns = socket.socket()\ns.bind((\"0.0.0.0\", 8000))\n"
        "s.listen()\nu = socket.socket(socket.AF_UNIX)\nu.bind(\"\\0meet\")\nu.listen()\n"
        "open(\"/tmp/up\", \"w\")\ntime.sleep(1000)'");
    ground_expect(ground, one.id, "", "while ! test -e /tmp/up; do sleep 0.01; done", "");
    ground_expect(ground, two.id, "",
                  "python3 -c 'import socket\n"
                  "for f, a in ((2, (\"127.0.0.1\", 8000)), (1, \"\\0meet\")):\n"
                  "    try:\n        socket.socket(f).connect(a)\n        print(\"met\")\n"
                  "    except OSError as e:\n        print(e.errno)'; test -e /tmp/up || echo no",
                  "111\n111\nno\n");
    if (running_as_root())
        assert_int_not_equal(ground_slot(&one), ground_slot(&two));
    destroy(ground, one.id);
    destroy(ground, two.id);
}

static void a_server_inside_is_reached(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);

    ground_expect_servers(ground, sandbox.id);
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
}

/* --- escapes ------------------------------------------------------------------------------- */

struct planted {
    int tcp;
    int abstract;
    char arguments[1024];
};

static int plant_tcp(char address[64])
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
    socklen_t length = sizeof(name);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &length), 0);
    snprintf(address, 64, "127.0.0.1:%u", ntohs(name.sin_port));
    return fd;
}

static int plant_abstract(const char *text)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(name.sun_path + 1, text, strlen(text));
    assert_int_equal(bind(fd, (struct sockaddr *)&name,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(text))),
                     0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static void plant(struct ground *ground, struct planted *planted)
{
    char abstract[64];
    char address[64];
    char canary[128];
    int fd;

    snprintf(abstract, sizeof(abstract), "sandglass-test-%d", (int)getpid());
    snprintf(canary, sizeof(canary), "%s/canary", ground->path);
    fd = open(canary, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(write(fd, "canary", 6), 6);
    close(fd);
    planted->tcp = plant_tcp(address);
    planted->abstract = plant_abstract(abstract);
    snprintf(
        planted->arguments, sizeof(planted->arguments),
        "ranged=%d canaries=%s,/etc/hostname.canary,/root/.ssh,/var/lib/sandglass secret=hush-%d "
        "words=%s,sbx_,/var,sandglass listeners=%s abstract=%s",
        running_as_root(), canary, (int)getpid(), ground->path, address, abstract);
}

static void uproot(struct ground *ground, struct planted *planted)
{
    (void)unlinkat(ground->state_dir, "canary", 0);
    close(planted->tcp);
    close(planted->abstract);
}

static void probe(struct ground *ground, const char *user)
{
    scoped(buffer_fini) struct buffer command = BUFFER_INIT(128 * 1024);
    struct backend_sandbox sandbox;
    struct planted planted;
    char text[4096];
    ssize_t got;
    int fd;

    setenv("SANDGLASS_TEST_SECRET", "hush", 1);
    sandbox = ground_sandbox(ground);
    plant(ground, &planted);
    buffer_appendf(&command, "python3 - %s %s 2>&1 <<'PROBE'\n", user, planted.arguments);
    fd = open(PROBE_PATH, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    while ((got = read(fd, text, sizeof(text))) > 0)
        buffer_append(&command, text, (size_t)got);
    close(fd);
    buffer_append_text(&command, "\nPROBE\n");
    ground_run(ground, sandbox.id, user, buffer_text(&command), &outcome);
    uproot(ground, &planted);
    unsetenv("SANDGLASS_TEST_SECRET");
    destroy(ground, sandbox.id);
    if (strcmp(outcome.output, "done\n") != 0)
        fail_msg("as %s: %s", user, outcome.output);
}

static void the_user_finds_no_way_out(void **state)
{
    probe(*state, "user");
}

static void root_finds_no_way_out(void **state)
{
    probe(*state, "root");
}

/* --- limits -------------------------------------------------------------------------------- */

static void memory_is_limited_and_init_survives(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox;
    struct sandbox_usage usage;
    struct sandbox_spec spec;

    ground_spec(&spec);
    spec.limits.memory_bytes = 64 << 20;
    sandbox = make(ground, &spec);
    ground_run(ground, sandbox.id, "", "exec python3 -c 'b = bytearray(512 << 20)'", &outcome);
    assert_int_equal(outcome.signal, 9);
    ground_run(ground, sandbox.id, "",
               "exec python3 -c 'import os, mmap\nf = os.memfd_create(\"x\")\n"
               "os.posix_fallocate(f, 0, 512 << 20)'",
               &outcome);
    assert_int_equal(outcome.signal, 9);
    ground_expect(ground, sandbox.id, "", "echo alive", "alive\n");
    assert_int_equal(ground_inspect(ground, sandbox.id, &usage, NULL), 0);
    assert_true(usage.oom_kills >= 2);
    assert_in_range(usage.memory_peak_bytes, 32 << 20, (64 << 20) * 1.1);
    destroy(ground, sandbox.id);
}

static void processes_are_limited(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox;
    struct sandbox_spec spec;
    int count;

    ground_spec(&spec);
    spec.limits.pids = 32;
    sandbox = make(ground, &spec);
    ground_run(
        ground, sandbox.id, "",
        "exec python3 -c 'import os\nn = 0\ntry:\n  while n < 500:\n"
        "    if os.fork() == 0: os.execv(\"/bin/sleep\", [\"sleep\", \"1000\"])\n    n += 1\n"
        "except OSError: pass\nprint(n)'",
        &outcome);
    count = atoi(outcome.output);
    assert_in_range(count, 20, 32);
    destroy(ground, sandbox.id);
}

static void disk_is_limited_however_it_is_used(void **state)
{
    static const char *const places[] = { "/home/user/x", "/tmp/x", "/dev/shm/x", "/var/tmp/x" };
    struct ground *ground = *state;
    struct backend_sandbox sandbox;
    struct sandbox_usage usage;
    struct sandbox_spec spec;
    char command[256];

    ground_spec(&spec);
    spec.limits.disk_bytes = 32 << 20;
    sandbox = make(ground, &spec);
    for (size_t i = 0; i < ARRAY_LENGTH(places); i++) {
        snprintf(command, sizeof(command),
                 "head -c 100M /dev/zero > %s 2>/dev/null; stat -c %%s %s; rm %s", places[i],
                 places[i], places[i]);
        ground_run(ground, sandbox.id, "", command, &outcome);
        assert_in_range(atoi(outcome.output), 28 << 20, 32 << 20);
    }
    ground_run(ground, sandbox.id, "",
               "exec python3 -c 'import os\nf = os.open(\"/tmp/y\", os.O_RDWR | os.O_CREAT)\n"
               "os.unlink(\"/tmp/y\")\nn = 0\ntry:\n  while n < 100: n += os.write(f, b\"x\" * (1 "
               "<< 20)) >> 20\n"
               "except OSError: pass\nprint(n)'",
               &outcome);
    assert_in_range(atoi(outcome.output), 26, 32);
    ground_run(
        ground, sandbox.id, "",
        "exec python3 -c 'n = 0\ntry:\n  while n < 100000: open(f\"/tmp/f{n}\", \"w\"); n += 1\n"
        "except OSError: pass\nprint(n)'",
        &outcome);
    assert_in_range(atoi(outcome.output), 1000, 4096);
    assert_int_equal(ground_inspect(ground, sandbox.id, &usage, NULL), 0);
    assert_true(usage.disk_bytes <= 32 << 20);
    destroy(ground, sandbox.id);
}

/* Files live in memory: bytes, names and a program's own memory all at their ends together. */
static void a_full_disk_is_an_error_and_nobodys_death(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox;
    struct sandbox_usage usage;
    struct sandbox_spec spec;

    ground_spec(&spec);
    spec.limits.memory_bytes = 128 << 20;
    spec.limits.disk_bytes = 256 << 20;
    sandbox = make(ground, &spec);
    ground_run(ground, sandbox.id, "", "e=$(head -c 1G /dev/zero 2>&1 > x); stat -c %s x; echo $e",
               &outcome);
    assert_non_null(strstr(outcome.output, "No space left on device"));
    assert_in_range(atoi(outcome.output), 58 << 20, 64 << 20);
    ground_run(ground, sandbox.id, "",
               "rm x; exec python3 -c 'import errno\nn = 0\ntry:\n"
               "  while n < 100000: open(f\"/tmp/f{n}\", \"w\"); n += 1\n"
               "except OSError as e: print(n, errno.errorcode[e.errno])'",
               &outcome);
    assert_non_null(strstr(outcome.output, "ENOSPC"));
    assert_in_range(atoi(outcome.output), 15500, 16384);
    ground_run(ground, sandbox.id, "", "head -c 1G /dev/zero > /tmp/f1 2>/dev/null; echo on",
               &outcome);
    assert_string_equal(outcome.output, "on\n");
    ground_expect(ground, sandbox.id, "", "python3 -c 'print(len(bytearray(24 << 20)))'",
                  "25165824\n");
    assert_int_equal(ground_inspect(ground, sandbox.id, &usage, NULL), 0);
    assert_int_equal(usage.oom_kills, 0);
    destroy(ground, sandbox.id);
}

/* What does not fit into memory lies on the host's disk. */
static void a_large_disk_is_a_disk(void **state)
{
    scoped(buffer_fini) struct buffer json = BUFFER_INIT(65536);
    struct backend_sandbox sandbox;
    struct sandbox_limits limits;
    struct sandbox_usage usage;
    struct sandbox_spec spec;
    struct ground opened;
    struct ground *ground = &opened;
    int64_t begin;

    (void)state;
    ground_open(ground, "native", "sandbox.disk_kind: image\n");
    ground_spec(&spec);
    spec.limits.memory_bytes = 64 << 20;
    spec.limits.disk_bytes = 256 << 20;
    sandbox = make(ground, &spec);
    ground_run(ground, sandbox.id, "",
               "e=$(head -c 1G /dev/zero 2>&1 > x); stat -c %s x; echo $e; id -u", &outcome);
    assert_non_null(strstr(outcome.output, "No space left on device"));
    assert_in_range(atoi(outcome.output), 230 << 20, 256 << 20);
    assert_int_equal(ground_report(ground, sandbox.id, &json, NULL), 0);
    assert_non_null(strstr(buffer_text(&json), "\"disk_bytes\":268435456,\"disk_kind\":\"image\""));
    assert_int_equal(ground_inspect(ground, sandbox.id, &usage, NULL), 0);
    assert_int_equal(usage.oom_kills, 0);
    assert_in_range(usage.disk_bytes, 230 << 20, 256 << 20);
    ground_run(ground, sandbox.id, "root",
               "rm /home/user/x; echo x > /etc/x && rm /usr/bin/python3 && cat /etc/x; cd /tmp;"
               "seq 20000 | xargs touch 2> /dev/null; ls | wc -l",
               &outcome);
    assert_int_equal(strncmp(outcome.output, "x\n", 2), 0);
    assert_in_range(atoi(outcome.output + 2), 15000, 16384);
    limits = spec.limits;
    limits.disk_bytes *= 2;
    assert_int_equal(ground_update(ground, sandbox.id, &limits, NULL), -1);
    /* With all that is not written yet. */
    ground_run(ground, sandbox.id, "", "head -c 100M /dev/urandom > /home/user/y", &outcome);
    begin = ground_now_ms();
    destroy(ground, sandbox.id);
    assert_true(ground_now_ms() - begin < 30000);
    ground_close(ground);
}

static void limits_change_while_it_lives(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);
    struct sandbox_limits limits = {
        .memory_bytes = 128 << 20, .disk_bytes = 16 << 20, .cpu_millis = 500, .pids = 20
    };
    struct error err = { 0 };

    if (ground_update(ground, sandbox.id, &limits, &err) < 0)
        fail_msg("update: %s", err.message);
    ground_run(ground, sandbox.id, "", "head -c 100M /dev/zero > x 2>/dev/null; stat -c %s x",
               &outcome);
    assert_in_range(atoi(outcome.output), 12 << 20, 16 << 20);
    destroy(ground, sandbox.id);
}

/* Its files do not fit any more, but its groups have the new limits already. */
static void a_change_that_failed_is_not_left_to_the_next_ones(void **state)
{
    enum { MORE_THAN_ARE_KEPT = 24 };
    struct ground *ground = *state;
    struct backend_sandbox sandbox;
    struct sandbox_limits limits;
    struct sandbox_spec spec;

    ground_spec(&spec);
    sandbox = make(ground, &spec);
    limits = spec.limits;
    limits.disk_bytes = 1 << 20;
    limits.pids = 8;
    ground_run(ground, sandbox.id, "", "head -c 8M /dev/zero > x; sync", &outcome);
    assert_int_equal(ground_update(ground, sandbox.id, &limits, NULL), -1);
    destroy(ground, sandbox.id);
    for (unsigned i = 0; i < MORE_THAN_ARE_KEPT; i++) {
        sandbox = ground_sandbox(ground);
        ground_expect(ground, sandbox.id, "",
                      "for i in $(seq 12); do sleep 0.1 & done; wait; echo all", "all\n");
        destroy(ground, sandbox.id);
    }
}

static void frozen_means_not_running(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox;
    struct sandbox_usage before;
    struct sandbox_usage after;
    int64_t deadline = ground_now_ms() + 60000;

    sandbox = ground_sandbox(ground);
    ground_start(ground, sandbox.id, "", "while :; do :; done");
    assert_int_equal(ground_freeze(ground, sandbox.id, true, NULL), 0);
    /* One that waits for its share of the processor freezes when it gets it. */
    do {
        assert_int_equal(ground_inspect(ground, sandbox.id, &before, NULL), 0);
        for (int64_t end = ground_now_ms() + 150; ground_now_ms() < end;)
            loop_turn(ground->loop, 10);
        assert_int_equal(ground_inspect(ground, sandbox.id, &after, NULL), 0);
        assert_true(ground_now_ms() < deadline);
    } while (before.cpu_us != after.cpu_us);
    assert_int_equal(ground_freeze(ground, sandbox.id, false, NULL), 0);
    ground_expect(ground, sandbox.id, "", "echo thawed", "thawed\n");
    /* Destroyed while frozen. */
    assert_int_equal(ground_freeze(ground, sandbox.id, true, NULL), 0);
    destroy(ground, sandbox.id);
    assert_false(process_exists(ground_pid(&sandbox)));
}

/* --- the end ------------------------------------------------------------------------------- */

static void whatever_clings_is_gone_in_time(void **state)
{
    static const char *const clinging[] = {
        "setsid sleep 1000 &",
        "(sleep 1000 &) &",
        "nohup sleep 1000 > /dev/null 2>&1 &",
        "trap '' HUP INT TERM QUIT; while :; do sleep 1000; done",
        "sleep 1000 & kill -STOP $!; wait",
        "kill -STOP $$",
        "b() { b | b & }; b; b; sleep 1000",
        "while :; do sleep 0.001 & done",
        "exec python3 -c 'import os, time\nwhile True:\n  if os.fork(): os._exit(0)\n'",
        "exec python3 -c 'import threading as t\nfor i in range(30): t.Timer(1000, print).start()'",
        "head -c 1G /dev/zero > x; sleep 1000",
        "mkfifo p; cat p",
        "exec python3 -c 'import os, ctypes\nctypes.CDLL(None).vfork()\n'",
        "while :; do mkdir d; cd d; done 2>/dev/null; sleep 1000",
    };
    struct ground *ground = *state;

    for (size_t i = 0; i < ARRAY_LENGTH(clinging); i++) {
        struct backend_sandbox sandbox = ground_sandbox(ground);
        int64_t begin;

        ground_start(ground, sandbox.id, "", clinging[i]);
        begin = ground_now_ms();
        destroy(ground, sandbox.id);
        if (ground_now_ms() - begin > 30000)
            fail_msg("`%s` took %d ms", clinging[i], (int)(ground_now_ms() - begin));
        assert_false(process_exists(ground_pid(&sandbox)));
    }
}

static size_t count_lines(const char *path)
{
    FILE *file = fopen(path, "re");
    size_t count = 0;
    int c;

    while (file && (c = fgetc(file)) != EOF)
        count += c == '\n';
    if (file)
        fclose(file);
    return count;
}

static size_t count_files(const char *path)
{
    DIR *stream = opendir(path);
    size_t count = 0;

    while (stream && readdir(stream))
        count++;
    if (stream)
        closedir(stream);
    return count;
}

/* What the launcher and this process have open, and the launcher's mounts. */
struct holdings {
    size_t launcher, own, mounts;
};

static struct holdings count_holdings(struct ground *ground)
{
    struct holdings now = { .own = count_files("/proc/self/fd") };
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)launcher_pid(ground->launcher));
    now.launcher = count_files(path);
    snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)launcher_pid(ground->launcher));
    now.mounts = count_lines(path);
    return now;
}

static bool are_same(struct holdings a, struct holdings b)
{
    return a.launcher == b.launcher && a.own == b.own && a.mounts == b.mounts;
}

/* Spares that the launcher makes ahead come and go; once it is idle their number is always the same.
 */
static struct holdings settle(struct ground *ground)
{
    struct holdings before = { 0 };
    struct holdings now;

    for (int same = 0; same < 20; same++) {
        loop_turn(ground->loop, 10);
        now = count_holdings(ground);
        if (!are_same(now, before))
            same = 0;
        before = now;
    }
    return before;
}

/* A launcher that stood still for a while was not idle: what it has is then compared once more. What
 * sandboxes leave behind grows with each of them. */
static void nothing_is_left_behind(void **state)
{
    enum { COMPARISONS = 6 };
    struct ground *ground = *state;
    struct holdings before, after;

    destroy(ground, ground_sandbox(ground).id);
    after = settle(ground);
    for (int i = 0; i < COMPARISONS; i++) {
        before = after;
        for (int j = 0; j < 20; j++) {
            struct backend_sandbox sandbox = ground_sandbox(ground);

            ground_start(ground, sandbox.id, "", "sleep 1000");
            destroy(ground, sandbox.id);
        }
        after = settle(ground);
        if (are_same(after, before))
            return;
    }
    fail_msg(
        "descriptors of the launcher: %zu, then %zu; own: %zu, then %zu; mounts: %zu, then %zu",
        before.launcher, after.launcher, before.own, after.own, before.mounts, after.mounts);
}

static void many_at_once_are_made_and_destroyed(void **state)
{
    enum { COUNT = 32 };
    struct ground *ground = *state;
    struct backend_sandbox sandboxes[COUNT];

    for (int i = 0; i < COUNT; i++)
        sandboxes[i] = ground_sandbox(ground);
    assert_int_equal(ground_count(ground), COUNT);
    for (int i = 0; i < COUNT; i++)
        ground_expect(ground, sandboxes[i].id, "", "echo yes", "yes\n");
    for (int i = 0; i < COUNT; i++)
        destroy(ground, sandboxes[i].id);
    assert_int_equal(ground_count(ground), 0);
}

/* --- the report ---------------------------------------------------------------------------- */

static bool is_missing(const char *report, const char *layer)
{
    const char *missing = strstr(report, "\"missing\":[");
    const char *end = missing ? strchr(missing, ']') : NULL;
    const char *at;
    char quoted[32];

    assert_non_null(end);
    snprintf(quoted, sizeof(quoted), "\"%s\"", layer);
    at = strstr(missing, quoted);
    return at && at < end;
}

/* By what /proc says, not by what we believe. */
static void expect_own_namespaces(pid_t pid)
{
    static const char *const names[] = { "user", "pid", "mnt", "net", "ipc", "uts", "cgroup" };
    char path[64];
    char own[64] = "";
    char theirs[64] = "";

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        assert_true(readlink(path, own, sizeof(own) - 1) > 0);
        snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, names[i]);
        assert_true(readlink(path, theirs, sizeof(theirs) - 1) > 0);
        assert_string_not_equal(own, theirs);
    }
}

static void the_report_tells_what_is_in_force(void **state)
{
    static const char *const always[] = { "namespaces", "seccomp", "no_new_privs", "landlock",
                                          "disk" };
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);
    scoped(buffer_fini) struct buffer json = BUFFER_INIT(65536);
    struct error err = { 0 };
    const char *text;

    ground_expect(ground, sandbox.id, "", "echo up", "up\n");
    assert_int_equal(ground_report(ground, sandbox.id, &json, &err), 0);
    text = buffer_text(&json);
    assert_non_null(strstr(text, "\"namespaces\":[\"user\",\"pid\",\"mnt\",\"net\",\"ipc\",\"uts\","
                                 "\"cgroup\"]"));
    assert_non_null(strstr(text, "\"seccomp\":\"filter\""));
    assert_non_null(strstr(text, "\"no_new_privs\":true"));
    assert_non_null(strstr(text, "\"network\":\"none\""));
    assert_non_null(strstr(text, "\"disk_bytes\":268435456,\"disk_kind\":\"tmpfs\""));
    if (running_as_root()) {
        assert_non_null(strstr(text, "\"bounding\":\"00000000800404fb\""));
        expect_own_namespaces(ground_pid(&sandbox));
    }
    if (running_with_groups())
        assert_non_null(strstr(text, "\"memory_bytes\":536870912,\"cpu_millis\":1000,\"pids\":64"));
    assert_int_equal(is_missing(text, "uid_range"), !running_as_root());
    assert_int_equal(is_missing(text, "memory"), !running_with_groups());
    assert_int_equal(is_missing(text, "cpu"), !running_with_groups());
    assert_int_equal(is_missing(text, "pids"), !running_with_groups());
    for (size_t i = 0; i < ARRAY_LENGTH(always); i++)
        assert_false(is_missing(text, always[i]));
    destroy(ground, sandbox.id);
}

/* Something that is not in memory yet, and read past the page cache. */
static void disks_are_read_at_the_rate_that_is_set(void **state)
{
    static const char read_slowly[] =
        "exec python3 -c 'import os, mmap, time\nm = mmap.mmap(-1, 1 << 20)\n"
        "f = os.open(\"/data/file\", os.O_RDONLY | os.O_DIRECT)\nt = time.monotonic()\n"
        "for i in range(3): os.preadv(f, [m], i << 20)\nprint(int((time.monotonic() - t) * 1000))'";
    scoped(buffer_fini) struct buffer json = BUFFER_INIT(65536);
    struct backend_sandbox sandbox;
    struct ground ground;
    char settings[256];
    char path[64] = "/var/tmp/sandglass-io.XXXXXX";
    int fd = mkstemp(path);

    (void)state;
    assert_int_equal(fchmod(fd, 0644), 0);
    for (int i = 0; i < 4 * 256; i++)
        assert_int_equal(write(fd, outcome.output, 4096), 4096);
    assert_int_equal(fsync(fd), 0);
    close(fd);
    snprintf(settings, sizeof(settings),
             "sandbox.io.bytes_per_second: 2m\n"
             "sandbox.mounts: [{host_path: %s, path: /data/file, read_only: true}]\n",
             path);
    ground_open(&ground, "native", settings);
    sandbox = ground_sandbox(&ground);
    ground_run(&ground, sandbox.id, "", read_slowly, &outcome);
    assert_int_equal(ground_report(&ground, sandbox.id, &json, NULL), 0);
    destroy(&ground, sandbox.id);
    ground_close(&ground);
    assert_int_equal(unlink(path), 0);
    /* Three MB at two in a second. */
    assert_int_equal(outcome.code, 0);
    assert_true(atoi(outcome.output) >= 900);
    assert_non_null(strstr(buffer_text(&json), "\"io_bytes_per_second\":2097152"));
    assert_false(is_missing(buffer_text(&json), "io"));
}

static void what_is_required_and_missing_stops_the_start(void **state)
{
    struct ground ground;
    struct backend *backend;
    struct error err = { 0 };

    (void)state;
    ground_open(&ground, "native", "sandbox.require: [seccomp, landlock, net]\n");
    destroy(&ground, ground_sandbox(&ground).id);
    /* Looked for only where a limit is set. */
    assert_int_equal(config_set(&ground.config, "sandbox.require", "seccomp io", "test", &err), 0);
    backend = backend_open("native",
                           &(struct backend_options){ .loop = ground.loop,
                                                      .config = &ground.config,
                                                      .state_dir = ground.state_dir,
                                                      .state_path = ground.path,
                                                      .launcher = ground.launcher },
                           &err);
    assert_null(backend);
    assert_non_null(strstr(err.message, "\"io\""));
    assert_int_equal(ground_count(&ground), 0);
    ground_close(&ground);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_ground, close_ground)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_program_runs_as_the_user_at_home),
        TEST(it_is_found_again_after_a_restart),
        TEST(a_killed_launcher_is_replaced),
        TEST(a_half_made_one_is_undone),
        TEST(sandboxes_do_not_meet),
        TEST(a_server_inside_is_reached),
        TEST(the_user_finds_no_way_out),
        TEST(processes_are_limited),
        TEST(disk_is_limited_however_it_is_used),
        TEST(a_full_disk_is_an_error_and_nobodys_death),
        TEST(limits_change_while_it_lives),
        TEST(a_change_that_failed_is_not_left_to_the_next_ones),
        TEST(whatever_clings_is_gone_in_time),
        TEST(nothing_is_left_behind),
        TEST(many_at_once_are_made_and_destroyed),
        TEST(the_report_tells_what_is_in_force),
        cmocka_unit_test(what_is_required_and_missing_stops_the_start),
        /* a control group */
        TEST(memory_is_limited_and_init_survives),
        TEST(frozen_means_not_running),
        cmocka_unit_test(disks_are_read_at_the_rate_that_is_set),
        /* more than one id */
        TEST(root_may_change_the_system_of_its_sandbox_alone),
        TEST(root_finds_no_way_out),
        cmocka_unit_test(a_large_disk_is_a_disk),
    };

    return run_ground_tests("native", tests, 3, 3);
}
