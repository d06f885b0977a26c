/* SPDX-License-Identifier: Apache-2.0 */
/* The walls of the daemon, put up in a child that then tries what a daemon in other hands would. */

#include "daemon/confine.h"

#include "base/landlock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "base/str.h"
#include "confined.h"
#include "daemon/confine_parts.h"
#include "loop/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int take_refused(void)
{
    int number = -1;

    return read(confine_calls_pipe(), &number, sizeof(number)) == sizeof(number) ? number : -1;
}

/* --- system calls -------------------------------------------------------------------------- */

static void try_refused_calls(void)
{
    static const char *const names[] = {
        "execve",
        "execveat",
        "vfork",
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "move_mount",
        "open_tree",
        "mount_setattr",
        "setns",
        "unshare",
        "setuid",
        "setgid",
        "setgroups",
        "setresuid",
        "setresgid",
        "setreuid",
        "setregid",
        "setfsuid",
        "setfsgid",
        "capset",
        "personality",
        "ptrace",
        "kcmp",
        "process_vm_readv",
        "process_vm_writev",
        "pidfd_getfd",
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "keyctl",
        "add_key",
        "request_key",
        "io_uring_setup",
        "io_uring_enter",
        "io_setup",
        "open_by_handle_at",
        "fanotify_init",
        "kexec_load",
        "kexec_file_load",
        "init_module",
        "finit_module",
        "delete_module",
        "swapon",
        "swapoff",
        "reboot",
        "settimeofday",
        "clock_settime",
        "adjtimex",
        "clock_adjtime",
        "sethostname",
        "setdomainname",
        "acct",
        "quotactl",
        "syslog",
        "iopl",
        "ioperm",
        "modify_ldt",
        "vhangup",
        "mknod",
        "mknodat",
        "vmsplice",
    };

    confine_fully();
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        int number = seccomp_syscall_resolve_name(names[i]);
        int got;

        if (number < 0)
            continue; /* not on this architecture */
        /* A sanitizer's check for leaks is allowed to trace. */
        if (str_equal(names[i], "ptrace") && syscall(number, -1, -1, -1, -1) < 0 && errno != EPERM)
            continue;
        errno = 0;
        check(syscall(number, -1L, -1L, -1L, -1L, -1L, -1L) < 0 && errno == EPERM,
              "%s is not refused", names[i]);
        while ((got = take_refused()) >= 0)
            check(got == number, "%s is told as %d", names[i], got);
    }
}

static void calls_that_a_daemon_never_makes_are_refused(void **state)
{
    (void)state;
    in_child(try_refused_calls);
}

static void try_conditional_calls(void)
{
    char letter = 'x';

    confine_fully();
    check(syscall(SYS_clone, (long)SIGCHLD | CLONE_NEWUSER, 0, 0, 0, 0) < 0 && errno == EPERM,
          "a process in a user namespace");
    check(syscall(SYS_clone3, NULL, 0L) < 0 && errno == ENOSYS, "clone3");
    check(socket(AF_PACKET, SOCK_RAW, 0) < 0 && errno == EPERM, "packets");
    check(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) < 0 && errno == EPERM, "raw sockets");
    check(socket(AF_VSOCK, SOCK_STREAM, 0) < 0 && errno == EPERM, "virtual sockets");
    check(socket(AF_ALG, SOCK_SEQPACKET, 0) < 0 && errno == EPERM, "cryptography in the kernel");
    check(socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER) < 0 && errno == EPERM, "netfilter");
    check(ioctl(0, TIOCSTI, &letter) < 0 && errno == EPERM, "typing into a terminal");
    check(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
               0) == MAP_FAILED &&
              errno == EPERM,
          "pages to write and execute");
    check(syscall(1000) < 0 && errno == ENOSYS, "calls of the future");
}

static void arguments_that_a_daemon_never_passes_are_refused(void **state)
{
    (void)state;
    in_child(try_conditional_calls);
}

static void *do_nothing(void *argument)
{
    return argument;
}

static void try_what_is_needed(void)
{
    pthread_t thread;
    void *page;
    int fd;

    confine_fully();
    check(pthread_create(&thread, NULL, do_nothing, NULL) == 0 && pthread_join(thread, NULL) == 0,
          "threads");
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(fd >= 0, "unix sockets");
    fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    check(fd >= 0 || errno == EAFNOSUPPORT, "TCP");
    fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    check(fd >= 0, "addresses of this host");
    fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    check(fd >= 0 || errno == EPROTONOSUPPORT, "whose a connection is");
    check(memfd_create("script", MFD_CLOEXEC) >= 0, "files in memory");
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(page != MAP_FAILED && mprotect(page, 4096, PROT_READ) == 0, "memory");
    check(take_refused() < 0, "something was refused");
}

static void what_a_daemon_needs_works(void **state)
{
    (void)state;
    in_child(try_what_is_needed);
}

struct attempt {
    struct job job;
    int result;
    int reason;
};

static void attempt_unshare(struct job *job)
{
    struct attempt *attempt = container_of(job, struct attempt, job);

    attempt->result = unshare(CLONE_NEWUSER);
    attempt->reason = errno;
}

static void attempt_ended(struct job *job)
{
    (void)job;
}

static void try_in_a_worker(void)
{
    struct loop *loop = loop_new(&clock_system);
    struct worker *worker;
    struct attempt attempt = { .job = { .run = attempt_unshare, .done = attempt_ended } };

    confine_fully();
    worker = worker_new(loop, 1, "test");
    worker_submit(worker, &attempt.job);
    worker_drain(worker);
    check(attempt.result < 0 && attempt.reason == EPERM, "a worker makes a namespace");
    worker_free(worker);
    loop_free(loop);
}

/* Its signals are blocked, and the one that is raised there must not be. */
static void a_refused_call_of_a_worker_fails_and_the_daemon_goes_on(void **state)
{
    (void)state;
    in_child(try_in_a_worker);
}

static void try_the_log(void)
{
    struct loop *loop = loop_new(&clock_system);
    struct confine_watch watch = { 0 };
    char text[4096] = "";
    int pipes[2];
    char *first;

    check(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0, "pipe");
    log_setup(LOG_INFO, LOG_JSON, pipes[1]);
    confine_fully();
    confine_watch_start(&watch, loop);
    for (int i = 0; i < 3; i++)
        check(unshare(CLONE_NEWUSER) < 0, "unshare");
    loop_turn(loop, 0);
    check(read(pipes[0], text, sizeof(text) - 1) > 0, "nothing is logged");
    first = strstr(text, "\"unshare\"");
    check(first && strstr(text, "error"), "logged is: %s", text);
    check(!strstr(first + 1, "\"unshare\""), "logged more than once: %s", text);
    confine_watch_stop(&watch);
    loop_free(loop);
}

static void a_refused_call_is_logged_once(void **state)
{
    (void)state;
    in_child(try_the_log);
}

/* --- files --------------------------------------------------------------------------------- */

static void try_foreign_files(void)
{
    confine_fully();
    check(is_denied(at("other/secret"), O_RDONLY), "a foreign file is read");
    check(is_denied(at("other/secret"), O_WRONLY), "a foreign file is written");
    check(is_denied(at("other/new"), O_WRONLY | O_CREAT), "a file is made elsewhere");
    check(is_denied("/tmp/confine.new", O_WRONLY | O_CREAT), "a file is made in /tmp");
    check(is_denied("/", O_RDONLY | O_DIRECTORY), "the root is listed");
    check(is_denied(at("other"), O_RDONLY | O_DIRECTORY), "a foreign directory is listed");
    check(mkdir(at("other/made"), 0700) < 0 && errno == EACCES, "a directory is made elsewhere");
    check(unlink(at("other/secret")) < 0 && errno == EACCES, "a foreign file is removed");
    check(symlink("/", at("run/link")) < 0 && errno == EACCES, "a link beside the socket");
    check(is_denied(at("tls/certificate"), O_WRONLY), "the certificate is written");
    check(unlink(at("tls/key")) < 0 && errno == EACCES, "the key is removed");
    check(is_denied("/usr/bin", O_RDONLY | O_TMPFILE | O_WRONLY) || errno == EROFS,
          "a program is written");
    check(is_denied("/proc/self/oom_score_adj", O_WRONLY), "/proc is written");
    check(rename(at("state/output"), at("other/output")) < 0, "output is moved away");
}

static void foreign_files_are_out_of_reach(void **state)
{
    (void)state;
    in_child(try_foreign_files);
}

static void try_own_files(void)
{
    confine_fully();
    write_file(at("state/record"), "text");
    check(mkdir(at("state/kept"), 0700) == 0, "a directory in the state");
    check(rename(at("state/record"), at("state/kept/record")) == 0 || errno == EXDEV,
          "a move within the state");
    write_file(at("state/output/1"), "output");
    check(unlink(at("state/output/1")) == 0, "output is removed");
    check(can_open("/proc/meminfo", O_RDONLY) && can_open("/proc/1/status", O_RDONLY), "/proc");
    check(can_open("/sys", O_RDONLY | O_DIRECTORY), "/sys");
    check(can_open("/etc/hosts", O_RDONLY), "/etc/hosts");
    check(can_open("/dev/null", O_RDWR), "/dev/null");
    write_file(at("log/audit.log"), "line");
    check(can_open(at("log/audit.log"), O_RDWR | O_APPEND), "the audit log");
}

static void its_own_files_are_in_reach(void **state)
{
    (void)state;
    in_child(try_own_files);
}

/* The child confines itself, then the parent replaces the files, then the child reads them. */
static void files_that_are_replaced_later_are_read(void **state)
{
    int confined[2], replaced[2];
    char byte = 'x';
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe2(confined, O_CLOEXEC), 0);
    assert_int_equal(pipe2(replaced, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        alarm(30);
        confine_fully();
        check(write(confined[1], &byte, 1) == 1 && read(replaced[0], &byte, 1) == 1, "pipes");
        check(can_open(at("tls/certificate"), O_RDONLY), "the new certificate");
        check(can_open(at("tls/key"), O_RDONLY), "the new key, behind its link");
        check(can_open(at("keys/later/keys"), O_RDONLY), "keys that were not there at the start");
        check(can_open(at("log/audit.log"), O_RDWR | O_APPEND | O_CREAT), "a log that was moved");
        _exit(0);
    }
    assert_int_equal(read(confined[0], &byte, 1), 1);
    write_file(at("tls/new"), "second");
    assert_int_equal(rename(at("tls/new"), at("tls/certificate")), 0);
    write_file(at("issued/2.key"), "second");
    assert_int_equal(symlink(at("issued/2.key"), at("tls/new")), 0);
    assert_int_equal(rename(at("tls/new"), at("tls/key")), 0);
    assert_int_equal(mkdir(at("keys/later"), 0755), 0);
    write_file(at("keys/later/keys"), "keys");
    assert_int_equal(write(replaced[1], &byte, 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* --- sockets and signals ------------------------------------------------------------------- */

static int bind_to(unsigned port)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    scoped(fd_close) int fd = port_socket();

    return bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
}

static void try_ports(void)
{
    unsigned other = free_port();

    if (landlock_version() < 4)
        return;
    confine_fully();
    check(bind_to(ground.port) == 0, "its own port");
    check(bind_to(other) == EACCES, "another port is served");
    check(connect_to(ground.port) == EACCES, "something is connected to");
}

static void only_its_own_ports_are_bound_and_none_is_connected_to(void **state)
{
    (void)state;
    in_child(try_ports);
}

static void try_an_issuer(void)
{
    confine_fully();
    check(connect_to(ground.port) == ECONNREFUSED, "the keys of an issuer cannot be fetched");
    check(can_open("/etc/passwd", O_RDONLY), "names cannot be looked up");
}

static void keys_of_an_issuer_can_be_fetched(void **state)
{
    (void)state;
    set("auth.mode", "jwt");
    set("auth.jwt.jwks_url", "https://127.0.0.1/keys");
    in_child(try_an_issuer);
}

static void try_signals(void)
{
    if (landlock_version() < 6)
        return;
    confine_fully();
    check(kill(getppid(), 0) < 0 && errno == EPERM, "a signal for the parent");
}

static void other_processes_get_no_signals(void **state)
{
    (void)state;
    in_child(try_signals);
}

/* --- hosts that lack something ------------------------------------------------------------- */

/* As on a kernel without that call. */
static void lose_call(int number)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

    check(filter && seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), number, 0) == 0 &&
              seccomp_load(filter) == 0,
          "lose a call");
    seccomp_release(filter);
}

static void check_missing(const char *what, bool is_required)
{
    struct confinement probed, confinement;
    struct error err = { 0 };
    int result;

    confine_probe(&ground.config, &probed);
    result = confine_apply(&ground.config, &confinement, &err);
    check(strstr(confinement.missing, what), "missing: %s", confinement.missing);
    check(str_equal(probed.missing, confinement.missing), "probed: %s", probed.missing);
    check(result == (is_required ? -1 : 0), "confine: %d", result);
    check(!is_required || (strstr(err.message, what) && strstr(err.message, "daemon.confine") &&
                           err.hint[0] && !err.retryable),
          "said: %s", err.message);
}

static void try_without_landlock(void)
{
    lose_call(SYS_landlock_create_ruleset);
    check_missing("landlock", false);
    check(unshare(CLONE_NEWUSER) < 0 && errno == EPERM, "the filter is not there either");
}

static void try_without_seccomp(void)
{
    lose_call(SYS_seccomp);
    check_missing("seccomp", false);
    check(is_denied(at("other/secret"), O_RDONLY), "Landlock is not there either");
}

static void try_required_without_landlock(void)
{
    set("daemon.confine", "required");
    lose_call(SYS_landlock_create_ruleset);
    check_missing("landlock", true);
}

static void try_required_without_seccomp(void)
{
    set("daemon.confine", "required");
    lose_call(SYS_seccomp);
    check_missing("seccomp", true);
}

static void what_the_kernel_lacks_is_named_and_the_rest_is_used(void **state)
{
    (void)state;
    in_child(try_without_landlock);
    in_child(try_without_seccomp);
}

static void what_is_required_and_lacking_is_refused_by_name(void **state)
{
    (void)state;
    in_child(try_required_without_landlock);
    in_child(try_required_without_seccomp);
}

static void try_off(void)
{
    struct confinement confinement;

    set("daemon.confine", "off");
    confinement = confine();
    check(!confinement.seccomp && !confinement.landlock && !confinement.missing[0], "it is on");
    check(prctl(PR_GET_SECCOMP) == 0 && can_open(at("other/secret"), O_RDONLY), "it is on");
}

static void off_is_off(void **state)
{
    (void)state;
    in_child(try_off);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_a_daemon_never_makes_are_refused),
        cmocka_unit_test(arguments_that_a_daemon_never_passes_are_refused),
        cmocka_unit_test(what_a_daemon_needs_works),
        cmocka_unit_test(a_refused_call_of_a_worker_fails_and_the_daemon_goes_on),
        cmocka_unit_test(a_refused_call_is_logged_once),
        cmocka_unit_test(foreign_files_are_out_of_reach),
        cmocka_unit_test(its_own_files_are_in_reach),
        cmocka_unit_test(files_that_are_replaced_later_are_read),
        cmocka_unit_test(only_its_own_ports_are_bound_and_none_is_connected_to),
        cmocka_unit_test(keys_of_an_issuer_can_be_fetched),
        cmocka_unit_test(other_processes_get_no_signals),
        cmocka_unit_test(what_the_kernel_lacks_is_named_and_the_rest_is_used),
        cmocka_unit_test(what_is_required_and_lacking_is_refused_by_name),
        cmocka_unit_test(off_is_off),
    };

    return run_on_grounds(tests, ARRAY_LENGTH(tests));
}
