/* SPDX-License-Identifier: Apache-2.0 */
#include "confined.h"

#include "base/landlock.h"
#include "base/macros.h"
#include "base/scoped.h"

#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

struct ground ground;

const char *at(const char *name)
{
    static char paths[8][NAME_SIZE];
    static unsigned next;
    char *path = paths[next++ % ARRAY_LENGTH(paths)];

    snprintf(path, NAME_SIZE, "%s/%s", ground.root, name);
    return path;
}

void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

int port_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int yes = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    return fd;
}

static unsigned take_port(int fd)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(address);

    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    return ntohs(address.sin_port);
}

unsigned free_port(void)
{
    scoped(fd_close) int fd = port_socket();

    return take_port(fd);
}

void set(const char *key, const char *value)
{
    struct error err = { 0 };

    if (config_set(&ground.config, key, value, "test", &err) < 0)
        fail_msg("%s", err.message);
}

/* The directories of a daemon with everything, and beside them files that are not its own. */
static int set_up(void **state)
{
    static const char *const directories[] = { "state", "state/output", "run",   "tls",
                                               "keys",  "log",          "other", "issued" };
    struct error err = { 0 };
    char listen[NAME_SIZE * 2];

    (void)state;
    ground = (struct ground){ .root = "/tmp/confine.XXXXXX" };
    assert_non_null(mkdtemp(ground.root));
    for (size_t i = 0; i < ARRAY_LENGTH(directories); i++)
        assert_int_equal(mkdir(at(directories[i]), 0755), 0);
    write_file(at("tls/certificate"), "first");
    write_file(at("issued/1.key"), "first");
    assert_int_equal(symlink(at("issued/1.key"), at("tls/key")), 0);
    write_file(at("other/secret"), "secret");
    write_file(at("config"), "");
    assert_int_equal(config_load(&ground.config, at("config"), &err), 0);
    ground.holder = port_socket();
    ground.port = take_port(ground.holder);
    snprintf(listen, sizeof(listen), "unix:%s 127.0.0.1:%u", at("run/socket"), ground.port);
    set("listen", listen);
    set("state_dir", at("state"));
    set("tls.certificate", at("tls/certificate"));
    set("tls.key", at("tls/key"));
    set("auth.mode", "keys");
    set("auth.keys_file", at("keys/later/keys"));
    set("audit.enabled", "true");
    set("audit.file", at("log/audit.log"));
    return 0;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *position)
{
    (void)status;
    (void)kind;
    (void)position;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    config_fini(&ground.config);
    fd_close(ground.holder);
    return nftw(ground.root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void in_child(void (*body)(void))
{
    pid_t pid = fork();
    int status = 0;

    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(30);
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("the child was killed by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static bool seccomp_is_on(void)
{
    return prctl(PR_GET_SECCOMP) == 2;
}

struct confinement confine(void)
{
    struct confinement confinement;
    struct error err = { 0 };

    check(confine_apply(&ground.config, &confinement, &err) == 0, "confine: %s", err.message);
    return confinement;
}

struct confinement confine_fully(void)
{
    struct confinement confinement = confine();

    check(confinement.seccomp && seccomp_is_on(), "there is no filter");
    check(confinement.landlock > 0, "there is no Landlock");
    check(!confinement.missing[0], "missing: %s", confinement.missing);
    check(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "new privileges are possible");
    return confinement;
}

bool can_open(const char *path, int flags)
{
    scoped(fd_close) int fd = open(path, flags | O_CLOEXEC, 0600);

    return fd >= 0;
}

bool is_denied(const char *path, int flags)
{
    return !can_open(path, flags) && errno == EACCES;
}

int connect_to(unsigned port)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    scoped(fd_close) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
}

int run_on_grounds(const struct CMUnitTest *tests, size_t count)
{
    struct CMUnitTest with_ground[32];

    assert_true(count <= ARRAY_LENGTH(with_ground));
    if (landlock_version() <= 0) {
        puts("1..0 # SKIP this kernel has no Landlock");
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        with_ground[i] = tests[i];
        with_ground[i].setup_func = set_up;
        with_ground[i].teardown_func = tear_down;
    }
    return _cmocka_run_group_tests("daemon/confine", with_ground, count, NULL, NULL);
}
