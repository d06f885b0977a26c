/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "base/str.h"
#include "cli/operator/doctor.h"
#include "config/config.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define DOCKER "{\"Version\":\"20.10.24\",\"Components\":[{\"Name\":\"Engine\"}]}"
#define PODMAN "{\"Version\":\"4.3.1\",\"Components\":[{\"Name\":\"Podman Engine\"}]}"
#define INFO(security, live_restore)                                                           \
    "{\"Driver\":\"overlay2\",\"DriverStatus\":[[\"Backing Filesystem\",\"extfs\"]],"          \
    "\"CgroupVersion\":\"2\",\"LiveRestoreEnabled\":" live_restore                             \
    ",\"SecurityOptions\":[\"name=seccomp,profile=default\"" security "],\"Runtimes\":{\"runc" \
    "\":{}}}"

static char root[] = "/tmp/doctor.XXXXXX";
static char socket_path[64];
static struct config config;
static char seen[8192]; /* "status name: detail -> remedy", a line each */

/* --- an engine that says what the test tells it -------------------------------------------- */

struct engine_part {
    const char *version;
    const char *info; /* NULL: the engine takes the question and never answers */
};

static void answer(int fd, const char *body)
{
    dprintf(fd,
            "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\n"
            "Content-Length: %zu\r\n\r\n%s",
            strlen(body), body);
}

static void serve(int fd, const struct engine_part *part)
{
    char request[4096];
    ssize_t got;

    while ((got = read(fd, request, sizeof(request) - 1)) > 0) {
        request[got] = '\0';
        if (strstr(request, "/_ping"))
            answer(fd, "{}");
        else if (!part->info)
            pause();
        else
            answer(fd, strstr(request, "/info") ? part->info : part->version);
    }
}

static pid_t start_engine(const struct engine_part *part)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    scoped(fd_close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_t pid;

    strcpy(address.sun_path, socket_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(chmod(socket_path, 0666), 0); /* the doctor asks as the daemon's user */
    assert_int_equal(listen(fd, 8), 0);
    pid = fork();
    if (pid == 0) {
        (void)setpgid(0, 0);
        alarm(60);
        for (;;) {
            int peer = accept(fd, NULL, NULL);

            if (fork() == 0) {
                alarm(60);
                serve(peer, part);
                _exit(0);
            }
            close(peer);
        }
    }
    (void)setpgid(pid, pid); /* with all that it forks */
    return pid;
}

static void stop_engine(pid_t pid)
{
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(socket_path);
}

/* --- what the doctor says -------------------------------------------------------------------- */

static void on_finding(void *user UNUSED, const char *name, const struct finding *finding)
{
    static const char *const words[] = { "ok", "info", "warn", "fail" };
    size_t used = strlen(seen);

    snprintf(seen + used, sizeof(seen) - used, "%s %s: %s -> %s\n", words[finding->status], name,
             finding->detail, finding->remedy);
}

static void examine(const char *backend)
{
    const struct doctor doctor = { .config = &config };

    free(config.sandbox.backend);
    config.sandbox.backend = xstrdup(backend);
    seen[0] = '\0';
    doctor_check_engine(&doctor, on_finding, NULL);
}

static void examine_engine(const char *backend, const char *version, const char *info)
{
    pid_t pid = start_engine(&(struct engine_part){ .version = version, .info = info });

    examine(backend);
    stop_engine(pid);
}

static void assert_says(const char *text)
{
    if (!strstr(seen, text))
        fail_msg("\"%s\" is not said by:\n%s", text, seen);
}

static void assert_does_not_say(const char *text)
{
    if (strstr(seen, text))
        fail_msg("\"%s\" is said by:\n%s", text, seen);
}

static void an_engine_is_described(void **state UNUSED)
{
    examine_engine("docker", DOCKER, INFO("", "true"));
    assert_says("ok engine: Docker 20.10.24 at unix:///tmp/doctor.");
    assert_says("API 1.41, storage overlay2 on extfs, cgroup v2 -> \n");
    assert_says("warn engine access: access to the engine is root's power on its machine");
    assert_says("-> prefer a rootless engine");
    assert_says("ok engine restart: sandboxes survive");
    assert_does_not_say("engine runtime");
}

static void power_over_the_engine_s_machine_is_told(void **state UNUSED)
{
    examine_engine("docker", DOCKER, INFO(",\"name=rootless\"", "false"));
    assert_says("ok engine access: the engine is rootless");
    assert_says("warn engine restart: a restart of the engine ends its sandboxes -> set "
                "\"live-restore\": true");
    examine_engine("docker", DOCKER, INFO(",\"name=userns\"", "false"));
    assert_says("warn engine access: access to the engine is root's power");
    assert_says("userns-remap");
}

static void a_runtime_that_is_missing_is_named(void **state UNUSED)
{
    examine_engine("gvisor", DOCKER, INFO("", "true"));
    assert_says("fail engine runtime: the engine has no runtime runsc -> install runsc");
    free(config.docker.runtime);
    config.docker.runtime = xstrdup("runc");
    examine_engine("docker", DOCKER, INFO("", "true"));
    assert_says("ok engine runtime: the engine has the runtime runc");
    free(config.docker.runtime);
    config.docker.runtime = xstrdup("");
}

static void podman_is_told_apart(void **state UNUSED)
{
    examine_engine("gvisor", PODMAN, INFO("", "false"));
    assert_says("ok engine: Podman 4.3.1");
    assert_says("ok engine restart: sandboxes survive");
    assert_says("warn engine runtime: Podman ignores");
}

static void an_engine_that_is_not_wanted_is_only_mentioned(void **state UNUSED)
{
    examine("native");
    assert_string_equal(seen, "");
    examine_engine("native", DOCKER, INFO("", "true"));
    assert_says("ok engine: Docker 20.10.24");
    assert_says("; docker and gvisor are not enabled -> \n");
    assert_does_not_say("engine access");
}

static void an_engine_that_is_away_is_a_failure(void **state UNUSED)
{
    examine("docker");
    assert_says("fail engine: container engine: ");
    assert_says("No such file or directory");
    assert_says("-> no engine listens at this socket");
    assert_does_not_say("engine access");
}

static void an_engine_that_hangs_does_not_hang_the_doctor(void **state UNUSED)
{
    time_t begin = time(NULL);

    examine_engine("docker", DOCKER, NULL);
    assert_says("fail engine: ");
    assert_says("has not answered within 3s");
    assert_in_range(time(NULL) - begin, 0, 20);
}

static int set_up(void **state UNUSED)
{
    char host[80];
    struct error err = { 0 };

    signal(SIGCHLD, SIG_DFL);
    if (!mkdtemp(root) || chmod(root, 0755) < 0 ||
        config_load_text(&config, "", 0, "test.yaml", &err) < 0)
        return -1;
    snprintf(socket_path, sizeof(socket_path), "%s/engine.sock", root);
    snprintf(host, sizeof(host), "unix://%s", socket_path);
    return config_set(&config, "docker.host", host, "test", &err);
}

static int tear_down(void **state UNUSED)
{
    config_fini(&config);
    return rmdir(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_is_described),
        cmocka_unit_test(power_over_the_engine_s_machine_is_told),
        cmocka_unit_test(a_runtime_that_is_missing_is_named),
        cmocka_unit_test(podman_is_told_apart),
        cmocka_unit_test(an_engine_that_is_not_wanted_is_only_mentioned),
        cmocka_unit_test(an_engine_that_is_away_is_a_failure),
        cmocka_unit_test(an_engine_that_hangs_does_not_hang_the_doctor),
    };

    return cmocka_run_group_tests_name("cli/doctor_engine", tests, set_up, tear_down);
}
