/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox costs, measured in one run against posix_spawn of the same program: create, run,
 * destroy, the whole cycle, and many idle ones at once. Times are in microseconds.
 *
 *     bench_native [cycles] [idle sandboxes]
 */

#include "backend/backend.h"
#include "backend/launcher.h"
#include "base/alloc.h"
#include "config/config.h"
#include "wire/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static struct loop *loop;
static struct backend *backend;

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static _Noreturn void die(const char *what, const struct error *err)
{
    fprintf(stderr, "%s: %s\n", what, err ? err->message : strerror(errno));
    exit(1);
}

/* --- samples ------------------------------------------------------------------------------- */

struct samples {
    const char *name;
    double *values;
    size_t count;
};

static void samples_add(struct samples *samples, double value)
{
    samples->values = xrealloc(samples->values, samples->count + 1, sizeof(double));
    samples->values[samples->count++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double samples_show(struct samples *samples, double floor)
{
    double median;

    qsort(samples->values, samples->count, sizeof(double), by_value);
    median = samples->values[samples->count / 2];
    printf("%-26s best %7.0f  p10 %7.0f  p50 %7.0f  p99 %7.0f  %6.2f F0\n", samples->name,
           samples->values[0], samples->values[samples->count / 10], median,
           samples->values[samples->count * 99 / 100], floor > 0 ? median / floor : 1.0);
    free(samples->values);
    return median;
}

/* --- operations ---------------------------------------------------------------------------- */

struct waited {
    struct backend_op op;
    bool finished;
};

static void on_done(struct backend_op *op)
{
    container_of(op, struct waited, op)->finished = true;
}

static void wait_for(struct waited *waited, const char *what)
{
    while (!waited->finished)
        loop_turn(loop, 1000);
    if (waited->op.err.code != ERR_NONE)
        die(what, &waited->op.err);
}

static void create(char id[ID_SIZE])
{
    struct waited waited = { .op.done = on_done };
    struct sandbox_spec spec = {
        .template_name = "host",
        .limits = { .memory_bytes = (uint64_t)2 << 30,
                    .disk_bytes = (uint64_t)4 << 30,
                    .cpu_millis = 1000,
                    .pids = 256 },
    };

    id_make(spec.id, ID_SANDBOX);
    memcpy(id, spec.id, ID_SIZE);
    backend_create(backend, &spec, &waited.op);
    wait_for(&waited, "create");
    fd_close(waited.op.result.made.pidfd);
}

static void destroy(const char *id)
{
    struct waited waited = { .op.done = on_done };

    backend_destroy(backend, id, &waited.op);
    wait_for(&waited, "destroy");
}

/* --- running a program --------------------------------------------------------------------- */

static _Alignas(8) char message[PROTOCOL_MAX_MESSAGE];

static int receive(int fd, int *fds)
{
    char control[CMSG_SPACE(sizeof(int) * PROTOCOL_MAX_FDS)];
    struct iovec part = { .iov_base = message, .iov_len = sizeof(message) };
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    struct pollfd watch = { .fd = fd, .events = POLLIN };
    ssize_t length;

    if (poll(&watch, 1, 10000) != 1)
        die("init does not answer", NULL);
    length = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    if (length <= 0)
        die("init", NULL);
    if (fds && CMSG_FIRSTHDR(&header))
        memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(int) * 2);
    return protocol_peek(message, (size_t)length);
}

static int connect_to(const char *id)
{
    struct error err = { 0 };
    int fd = backend_connect(backend, id, &err);

    if (fd < 0)
        die("connect", &err);
    if (receive(fd, NULL) != PROTOCOL_HELLO)
        die("hello", NULL);
    return fd;
}

static void run(int fd, const char *program)
{
    static _Alignas(8) char request[PROTOCOL_MAX_MESSAGE];
    static uint64_t number;
    const char *argv[] = { program, NULL };
    const char *env[] = { "PATH=/usr/bin:/bin", NULL };
    struct protocol_start fixed = { .umask = 022 };
    struct protocol_start_texts texts = {
        .user = "", .cwd = "", .script_path = "", .argv = argv, .env = env
    };
    struct protocol_plain forget;
    int fds[2] = { -1, -1 };
    long length;
    int type;

    fixed.header.process = fixed.header.request = ++number;
    length = protocol_start_encode(request, sizeof(request), &fixed, &texts);
    if (send(fd, request, (size_t)length, 0) != length)
        die("send", NULL);
    type = receive(fd, fds);
    if (type != PROTOCOL_STARTED && type != PROTOCOL_RAN)
        die("start", NULL);
    while (type != PROTOCOL_RAN && type != PROTOCOL_EXITED)
        type = receive(fd, NULL);
    close(fds[0]);
    close(fds[1]);
    forget.header = protocol_header(PROTOCOL_FORGET, sizeof(forget), number, 0);
    (void)!send(fd, &forget, sizeof(forget), 0);
}

static void spawn_plainly(const char *program)
{
    char *argv[] = { (char *)program, NULL };
    pid_t pid;

    if (posix_spawn(&pid, program, NULL, NULL, argv, environ) != 0)
        die("posix_spawn", NULL);
    (void)waitpid(pid, NULL, 0);
}

/* --- measurements -------------------------------------------------------------------------- */

static void measure_cycles(int cycles, const char *program)
{
    struct samples plain = { .name = "posix_spawn (F0)" };
    struct samples creates = { .name = "create" };
    struct samples firsts = { .name = "connect + first run" };
    struct samples laters = { .name = "run in a live sandbox" };
    struct samples destroys = { .name = "destroy" };
    struct samples wholes = { .name = "create + run + destroy" };
    double floor;

    for (int i = 0; i < cycles; i++) {
        double times[6];
        char id[ID_SIZE];
        int fd;

        times[0] = now_us();
        spawn_plainly(program);
        times[1] = now_us();
        create(id);
        times[2] = now_us();
        fd = connect_to(id);
        run(fd, program);
        times[3] = now_us();
        run(fd, program);
        times[4] = now_us();
        close(fd);
        destroy(id);
        times[5] = now_us();
        samples_add(&plain, times[1] - times[0]);
        samples_add(&creates, times[2] - times[1]);
        samples_add(&firsts, times[3] - times[2]);
        samples_add(&laters, times[4] - times[3]);
        samples_add(&destroys, times[5] - times[4]);
        samples_add(&wholes, times[3] - times[1] + times[5] - times[4]);
        loop_turn(loop, 0);
    }
    printf("%s, %d cycles\n", program, cycles);
    floor = samples_show(&plain, 0);
    samples_show(&creates, floor);
    samples_show(&firsts, floor);
    samples_show(&laters, floor);
    samples_show(&destroys, floor);
    samples_show(&wholes, floor);
}

static long available_kb(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    long value = 0;

    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "MemAvailable: %ld", &value) == 1)
            break;
    }
    if (file)
        fclose(file);
    return value;
}

static void destroy_all(char (*ids)[ID_SIZE], int count)
{
    struct waited *waits = xcalloc((size_t)count, sizeof(*waits));

    for (int i = 0; i < count; i++) {
        waits[i].op.done = on_done;
        backend_destroy(backend, ids[i], &waits[i].op);
    }
    for (int i = 0; i < count; i++)
        wait_for(&waits[i], "destroy");
    free(waits);
}

static void measure_idle(int count)
{
    char(*ids)[ID_SIZE] = xcalloc((size_t)count, sizeof(*ids));
    long before = available_kb();
    double begin = now_us();
    long after;

    for (int i = 0; i < count; i++)
        create(ids[i]);
    printf("%d idle sandboxes: made in %.2f s", count, (now_us() - begin) / 1e6);
    after = available_kb();
    printf(", %ld kB each", (before - after) / count);
    begin = now_us();
    for (int i = 0; i<count; i += count / 50> 0 ? count / 50 : 1) {
        int fd = connect_to(ids[i]);

        run(fd, "/bin/true");
        close(fd);
    }
    printf(", 50 of them ran a program in %.0f us each", (now_us() - begin) / 50);
    begin = now_us();
    destroy_all(ids, count);
    printf(", destroyed in %.2f s\n", (now_us() - begin) / 1e6);
    free(ids);
}

int main(int argc, char **argv)
{
    static const char settings[] = "sandbox.backend: native\ninstance: bench\n";
    char path[] = "/tmp/sandglass-bench.XXXXXX";
    int cycles = argc > 1 ? atoi(argv[1]) : 200;
    int idle = argc > 2 ? atoi(argv[2]) : 100;
    struct launcher *launcher;
    struct config config;
    struct error err = { 0 };
    int state_dir;

    if (!mkdtemp(path) || config_load_text(&config, settings, strlen(settings), "bench", &err) < 0)
        die("prepare", &err);
    state_dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    loop = loop_new(&clock_system);
    launcher = launcher_start(&(struct launcher_options){ .loop = loop,
                                                          .config = &config,
                                                          .state_path = path,
                                                          .uid = geteuid(),
                                                          .gid = getegid() },
                              &err);
    if (!launcher)
        die("launcher", &err);
    backend = backend_open("native",
                           &(struct backend_options){ .loop = loop,
                                                      .config = &config,
                                                      .state_dir = state_dir,
                                                      .state_path = path,
                                                      .launcher = launcher },
                           &err);
    if (!backend)
        die("backend", &err);
    if (cycles > 0)
        measure_cycles(cycles, "/bin/true");
    if (idle > 0)
        measure_idle(idle);
    backend_close(backend);
    launcher_stop(launcher);
    loop_free(loop);
    config_fini(&config);
    (void)unlinkat(state_dir, "sandboxes", AT_REMOVEDIR);
    (void)unlinkat(state_dir, "trash", AT_REMOVEDIR);
    (void)unlinkat(state_dir, "ahead", AT_REMOVEDIR);
    close(state_dir);
    return rmdir(path) == 0 ? 0 : 1;
}
