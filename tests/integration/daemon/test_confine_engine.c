/* SPDX-License-Identifier: Apache-2.0 */
/* The walls of a daemon whose sandboxes are made by a container engine. */

#include "base/alloc.h"
#include "base/landlock.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "confined.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <cmocka.h>

/* By the field: settings accept only backends that are built in. */
static void use_engine(const char *host)
{
    free(ground.config.sandbox.backend);
    ground.config.sandbox.backend = xstrdup("docker");
    set("docker.host", host);
}

static void try_an_engine_elsewhere(void)
{
    confine_fully();
    if (landlock_version() >= 4) {
        check(connect_to(ground.port) == ECONNREFUSED, "the engine cannot be connected to");
        check(connect_to(ground.port + 1) == EACCES, "something else is connected to");
    }
    check(can_open(at("tls/certificate"), O_RDONLY), "the certificate of the engine");
    check(can_open(at("tls/key"), O_RDONLY), "the key");
    check(can_open("/etc/passwd", O_RDONLY), "names cannot be looked up");
    check(is_denied(at("other/secret"), O_RDONLY), "another file is read");
}

static void an_engine_elsewhere_can_be_reached_and_nothing_else(void **state)
{
    char host[NAME_SIZE];

    (void)state;
    set("tls.certificate", "");
    set("tls.key", "");
    snprintf(host, sizeof(host), "tcp://127.0.0.1:%u", ground.port);
    use_engine(host);
    set("docker.tls.ca", at("tls/certificate"));
    set("docker.tls.cert", at("tls/certificate"));
    set("docker.tls.key", at("tls/key"));
    in_child(try_an_engine_elsewhere);
}

static void try_an_issuer_and_an_engine(void)
{
    confine_fully();
    check(connect_to(ground.port) == ECONNREFUSED, "the engine cannot be connected to");
}

static void an_issuer_and_an_engine_can_both_be_reached(void **state)
{
    char host[NAME_SIZE];

    (void)state;
    set("auth.mode", "jwt");
    set("auth.jwt.jwks_url", "https://127.0.0.1/keys");
    snprintf(host, sizeof(host), "tcp://127.0.0.1:%u", ground.port);
    use_engine(host);
    in_child(try_an_issuer_and_an_engine);
}

static int listen_at(const char *path, int kind)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, kind | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    check(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 4) == 0,
          "listen at %s", path);
    return fd;
}

static int connect_at(const char *path, int kind)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    scoped(fd_close) int fd = socket(AF_UNIX, kind | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
}

/* The socket of the engine, one for the init of a container, and what is known about that. */
static void try_a_container(void)
{
    static const char *const files[] = { "status", "cgroup", "uid_map" };
    scoped(fd_close) int engine = listen_at(at("other/engine.sock"), SOCK_STREAM);
    scoped(fd_close) int door = -1;
    scoped(fd_close) int pidfd = -1;

    confine_fully();
    check(connect_at(at("other/engine.sock"), SOCK_STREAM) == 0, "connect to the engine");
    check(mkdir(at("state/door"), 0755) == 0, "make a directory");
    door = listen_at(at("state/door/init.sock"), SOCK_SEQPACKET);
    check(chmod(at("state/door/init.sock"), 0666) == 0, "open the door");
    check(connect_at(at("state/door/init.sock"), SOCK_SEQPACKET) == 0, "go through the door");
    pidfd = (int)syscall(SYS_pidfd_open, getppid(), 0);
    check(pidfd >= 0, "watch a process");
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        char path[NAME_SIZE];

        snprintf(path, sizeof(path), "/proc/%d/%s", (int)getppid(), files[i]);
        check(can_open(path, O_RDONLY), "read %s", path);
    }
    check(unlink(at("state/door/init.sock")) == 0, "remove the door");
}

static void an_engine_of_this_host_and_its_containers_can_be_reached(void **state)
{
    char host[NAME_SIZE + 16];

    (void)state;
    snprintf(host, sizeof(host), "unix://%s", at("other/engine.sock"));
    use_engine(host);
    in_child(try_a_container);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_elsewhere_can_be_reached_and_nothing_else),
        cmocka_unit_test(an_issuer_and_an_engine_can_both_be_reached),
        cmocka_unit_test(an_engine_of_this_host_and_its_containers_can_be_reached),
    };

    return run_on_grounds(tests, ARRAY_LENGTH(tests));
}
