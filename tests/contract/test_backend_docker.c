/* SPDX-License-Identifier: Apache-2.0 */
/* The contract over a backend that needs a Docker engine, whose name is the argument: docker or gvisor.
 * SANDGLASS_TEST_ENGINE is the path of the engine's socket (tests/run.py sets it, tests/engine/run
 * prints one), SANDGLASS_TEST_IMAGE the image; without an engine the program is skipped. */

#include "backend_contract.h"

#include "ground.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <cmocka.h>

enum { BLIND_MS = 500 };

static const char *name;
static const char *engine; /* the path of its socket */
static char settings[1024];
static struct ground ground;

static int connect_to_engine(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(strlen(engine) < sizeof(address.sun_path));
    strcpy(address.sun_path, engine);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Behind the backend's back. Returns the status; the answer is not looked at. */
static int ask_engine(const char *method, const char *path)
{
    char text[512];
    int fd = connect_to_engine();
    int length = snprintf(text, sizeof(text),
                          "%s %s HTTP/1.1\r\nHost: engine\r\nContent-Length: 0\r\n"
                          "Connection: close\r\n\r\n",
                          method, path);
    int status = 0;

    assert_true(length < (int)sizeof(text));
    assert_int_equal(write(fd, text, (size_t)length), length);
    length = (int)read(fd, text, sizeof(text) - 1);
    assert_true(length > 0);
    text[length] = '\0';
    assert_int_equal(sscanf(text, "HTTP/1.1 %d", &status), 1);
    close(fd);
    return status;
}

static bool send_signal(const struct backend_sandbox *sandbox, const char *which)
{
    char path[256];

    snprintf(path, sizeof(path), "/containers/sandglass-%s/kill?signal=%s", sandbox->id, which);
    return ask_engine("POST", path) == 204;
}

static struct backend *open_docker(struct loop **out_loop)
{
    ground_open(&ground, name, settings);
    *out_loop = ground.loop;
    return ground.backend;
}

static struct backend *restart_docker(void)
{
    ground_restart(&ground);
    return ground.backend;
}

/* The last digit of its start, which stands before the pid: another run of the same container. */
static void make_docker_stale(struct backend_sandbox *sandbox)
{
    char *at = strrchr(sandbox->handle, ',');

    assert_non_null(at);
    while (at > sandbox->handle && !strchr("0123456789", *at))
        at--;
    *at = *at == '0' ? '1' : '0';
}

static void kill_docker(const struct backend_sandbox *sandbox)
{
    char path[256];

    /* A paused one of gVisor does not hear it, and the engine leaves its shim behind. */
    snprintf(path, sizeof(path), "/containers/sandglass-%s/unpause", sandbox->id);
    if (strcmp(name, "gvisor") == 0)
        (void)ask_engine("POST", path);
    assert_true(send_signal(sandbox, "SIGKILL"));
}

static void shut_down_docker(const struct backend_sandbox *sandbox)
{
    assert_true(send_signal(sandbox, "SIGTERM"));
}

/* Not with gVisor, where the sandbox dies with its program, and messages come through this loop:
 * tests/e2e has it. */
static void exhaust_docker(const struct backend_sandbox *sandbox)
{
    static struct outcome outcome;

    ground_run(&ground, sandbox->id, "", "exec python3 -c 'b = bytearray(1 << 30)'", &outcome);
}

/* An engine that is stopped does not answer; another process lets it go on, whatever becomes of us. */
static void make_docker_blind(void)
{
    const struct timespec blind = { .tv_nsec = BLIND_MS * 1000000L };
    struct ucred peer = { 0 };
    int fd = connect_to_engine();

    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &(socklen_t){ sizeof(peer) }),
                     0);
    close(fd);
    assert_true(peer.pid > 1);
    assert_int_equal(kill(peer.pid, SIGSTOP), 0);
    if (fork() == 0) {
        (void)nanosleep(&blind, NULL);
        (void)kill(peer.pid, SIGCONT);
        _exit(0);
    }
}

static void close_docker(void)
{
    ground_close(&ground);
}

int main(int argc, char **argv)
{
    const char *image = getenv("SANDGLASS_TEST_IMAGE");
    char title[64];

    if (argc < 2)
        return 2;
    name = argv[1];
    engine = getenv("SANDGLASS_TEST_ENGINE");
    if (!engine) {
        printf("1..0 # SKIP\n# skip: no engine: SANDGLASS_TEST_ENGINE is not set\n");
        return 0;
    }
    if (!image)
        image = strcmp(name, "gvisor") == 0 ? "sandglass-gvisor:1" : "sandglass-test:1";
    snprintf(settings, sizeof(settings),
             "docker.host: unix://%s\ndocker.image: %s\ndocker.pull: never\n", engine, image);
    snprintf(title, sizeof(title), "backend/%s", name);
    return backend_contract_run(
        &(struct backend_contract){ .name = title,
                                    .template = image,
                                    .open = open_docker,
                                    .restart = restart_docker,
                                    .make_stale = make_docker_stale,
                                    .kill = kill_docker,
                                    .shut_down = shut_down_docker,
                                    .exhaust = strcmp(name, "docker") == 0 ? exhaust_docker : NULL,
                                    .make_blind = make_docker_blind,
                                    .close = close_docker });
}
