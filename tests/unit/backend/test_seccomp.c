/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/seccomp.h"

#include "backend/native/filter.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cmocka.h>

enum { MAX_INSTRUCTIONS = 4096 };

static struct sock_filter program[MAX_INSTRUCTIONS];
static size_t length;

static void compile_with(const struct seccomp_options *options)
{
    struct error err = { 0 };
    scoped(fd_close) int fd = seccomp_compile(options, &err);
    ssize_t got;

    assert_true(fd >= 0);
    got = pread(fd, program, sizeof(program), 0);
    assert_true(got > 0 && got % (ssize_t)sizeof(program[0]) == 0);
    length = (size_t)got / sizeof(program[0]);
}

static int compile(void **state)
{
    (void)state;
    compile_with(&(struct seccomp_options){ 0 });
    return 0;
}

static uint32_t run(const struct seccomp_data *data)
{
    return program_run(program, length, data);
}

static uint32_t call(long number, uint64_t first, uint64_t second, uint64_t third)
{
    struct seccomp_data data = { .nr = (int)number,
                                 .arch = AUDIT_ARCH_X86_64,
                                 .args = { first, second, third } };

    return run(&data);
}

#define REFUSED (SECCOMP_RET_ERRNO | EPERM)

static void what_programs_need_is_allowed(void **state)
{
    static const long numbers[] = {
        SYS_read,  SYS_openat, SYS_execve, SYS_mmap,      SYS_futex,
        SYS_wait4, SYS_vfork,  SYS_rename, SYS_getrandom, SYS_epoll_wait
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        assert_int_equal(call(numbers[i], 0, 0, 0), SECCOMP_RET_ALLOW);
}

static void what_reaches_into_the_kernel_is_refused(void **state)
{
    static const long numbers[] = { SYS_mount,
                                    SYS_umount2,
                                    SYS_unshare,
                                    SYS_setns,
                                    SYS_bpf,
                                    SYS_keyctl,
                                    SYS_ptrace,
                                    SYS_init_module,
                                    SYS_kexec_load,
                                    SYS_perf_event_open,
                                    SYS_userfaultfd,
                                    SYS_process_vm_readv,
                                    SYS_open_by_handle_at,
                                    SYS_reboot,
                                    425 /* io_uring_setup */,
                                    428 /* open_tree */,
                                    430 /* fsopen */,
                                    438 /* pidfd_getfd */,
                                    9999 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        assert_int_equal(call(numbers[i], 0, 0, 0), REFUSED);
}

static void foreign_entries_are_refused(void **state)
{
    struct seccomp_data data = { .nr = 20, .arch = AUDIT_ARCH_I386 };

    (void)state;
    assert_int_equal(run(&data), REFUSED);
    assert_int_equal(call(0x40000000 + SYS_getpid, 0, 0, 0), REFUSED);
}

static void clone_makes_no_namespace(void **state)
{
    (void)state;
    assert_int_equal(call(SYS_clone, 0x01200011, 0, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_clone, 0x003d0f00, 0, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_clone, 0x10000000 | 17, 0, 0), REFUSED);
    assert_int_equal(call(SYS_clone, 0x00020000 | 17, 0, 0), REFUSED);
    assert_int_equal(call(SYS_clone, 0x40000000 | 17, 0, 0), REFUSED);
    assert_int_equal(call(435, 0, 0, 0), SECCOMP_RET_ERRNO | ENOSYS);
}

static void sockets_are_unix_tcp_udp_and_the_resolver_s_netlink(void **state)
{
    (void)state;
    assert_int_equal(call(SYS_socket, AF_UNIX, SOCK_STREAM, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_socket, AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 17), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_socket, AF_NETLINK, SOCK_RAW, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_socket, AF_NETLINK, SOCK_RAW, 16), REFUSED);
    /* useradd goes on where there is no audit, and fails where it is kept from it */
    assert_int_equal(call(SYS_socket, AF_NETLINK, SOCK_RAW, 9),
                     SECCOMP_RET_ERRNO | EPROTONOSUPPORT);
    assert_int_equal(call(SYS_socket, AF_INET, SOCK_RAW, 1), REFUSED);
    assert_int_equal(call(SYS_socket, AF_INET, SOCK_STREAM, 132), REFUSED);
    assert_int_equal(call(SYS_socket, AF_PACKET, SOCK_RAW, 0), REFUSED);
    assert_int_equal(call(SYS_socket, AF_VSOCK, SOCK_STREAM, 0), REFUSED);
    assert_int_equal(call(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_socketpair, AF_TIPC, SOCK_STREAM, 0), REFUSED);
}

static void no_ioctl_types_into_a_terminal(void **state)
{
    (void)state;
    for (uint64_t request = 0x5400; request < 0x5480; request++) {
        bool types = request == 0x5412 || request == 0x541c /* into a terminal */ ||
                     request == 0x541d /* the console */ || request == 0x5423 /* discipline */;

        assert_int_equal(call(SYS_ioctl, 0, request, 0), types ? REFUSED : SECCOMP_RET_ALLOW);
        assert_int_equal(call(SYS_ioctl, 0, request | (uint64_t)1 << 40, 0),
                         types ? REFUSED : SECCOMP_RET_ALLOW);
    }
    assert_int_equal(call(SYS_ioctl, 0, 0x80045430, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_ioctl, 0, 0, 0), SECCOMP_RET_ALLOW);
}

static void what_the_whole_host_shares_is_left_alone(void **state)
{
    struct seccomp_data huge = { .nr = SYS_mmap,
                                 .arch = AUDIT_ARCH_X86_64,
                                 .args = { 0, 4096, 3, 0x40022 } };

    (void)state;
    assert_int_equal(run(&huge), REFUSED);
    huge.args[3] = 0x22;
    assert_int_equal(run(&huge), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_memfd_create, 0, 4, 0), REFUSED);
    assert_int_equal(call(SYS_memfd_create, 0, 1, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_shmget, 0, 4096, 04000), REFUSED);
    assert_int_equal(call(SYS_prctl, 62, 1, 0), REFUSED);
    assert_int_equal(call(SYS_prctl, 15, 0, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_setsockopt, 3, 6, 31), REFUSED);
    assert_int_equal(call(SYS_setsockopt, 3, 6, 1), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_setsockopt, 3, 17, 100), REFUSED); /* UDP_ENCAP */
    assert_int_equal(call(SYS_setsockopt, 3, 41, 32), REFUSED);  /* IPV6_FLOWLABEL_MGR */
    assert_int_equal(call(SYS_setsockopt, 3, 41, 26), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_io_setup, 1, 0, 0), SECCOMP_RET_ERRNO | ENOSYS);
    assert_int_equal(call(SYS_sync, 0, 0, 0), SECCOMP_RET_ERRNO | 0);
}

static void nothing_is_urgent(void **state)
{
    static const struct {
        long number;
        unsigned flags;
    } calls[] = { { SYS_sendto, 3 },   { SYS_sendmsg, 2 }, { SYS_sendmmsg, 3 },
                  { SYS_recvfrom, 3 }, { SYS_recvmsg, 2 }, { SYS_recvmmsg, 3 } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(calls); i++) {
        struct seccomp_data data = { .nr = (int)calls[i].number, .arch = AUDIT_ARCH_X86_64 };

        assert_int_equal(run(&data), SECCOMP_RET_ALLOW);
        data.args[calls[i].flags] = MSG_DONTWAIT | MSG_NOSIGNAL;
        assert_int_equal(run(&data), SECCOMP_RET_ALLOW);
        data.args[calls[i].flags] |= MSG_OOB;
        assert_int_equal(run(&data), REFUSED);
    }
}

static void pages_of_files_are_handed_on_by_default_only(void **state)
{
    static const long numbers[] = { SYS_splice, SYS_vmsplice, SYS_tee, SYS_sendfile };

    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        assert_int_equal(call(numbers[i], 0, 0, 0), SECCOMP_RET_ALLOW);
    compile_with(&(struct seccomp_options){ .tier = SECCOMP_STRICT });
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        assert_int_equal(call(numbers[i], 0, 0, 0), SECCOMP_RET_ERRNO | ENOSYS);
    assert_int_equal(call(SYS_copy_file_range, 0, 0, 0), SECCOMP_RET_ALLOW);
    compile(state);
}

static void no_device_is_made(void **state)
{
    (void)state;
    assert_int_equal(call(SYS_mknod, 0, S_IFIFO | 0600, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_mknod, 0, S_IFCHR | 0600, 0), REFUSED);
    assert_int_equal(call(SYS_mknodat, 0, 0, S_IFSOCK | 0600), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_mknodat, 0, 0, S_IFBLK | 0600), REFUSED);
}

static void only_one_s_own_limits_can_be_changed(void **state)
{
    (void)state;
    assert_int_equal(call(SYS_prlimit64, 0, 7, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_prlimit64, 1, 7, 0), REFUSED);
    assert_int_equal(call(SYS_personality, 0xffffffff, 0, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_personality, 0x0400000, 0, 0), REFUSED);
}

static void an_init_without_a_namespace_may_ask_for_the_limits_of_others(void **state)
{
    compile_with(&(struct seccomp_options){ .asks_limits = true });
    assert_int_equal(call(SYS_prlimit64, 1, 7, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_prlimit64, 1, 7, 4096), REFUSED);
    compile(state);
}

static void the_tree_is_shallow(void **state)
{
    (void)state;
    /* A chain over all calls would be hundreds deep; the kernel walks it for every number. */
    assert_in_range(length, 50, 200); /* it is compiled anew for each sandbox */
    assert_true(seccomp_allows("read"));
    assert_true(seccomp_allows("ioctl"));
    assert_false(seccomp_allows("mount"));
}

static void every_number_has_the_verdict_of_its_name(void **state)
{
    (void)state;
    for (int number = 0; number < 600; number++) {
        char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, number);
        uint32_t verdict = call(number, 0, 0, 0);

        if (name && number < 451 && strcmp(name, "clone3") != 0 && seccomp_allows(name) &&
            strcmp(name, "socket") != 0 && strcmp(name, "socketpair") != 0)
            assert_int_equal(verdict, SECCOMP_RET_ALLOW);
        else if (name && number < 451 && !seccomp_allows(name) && strcmp(name, "clone3") != 0)
            assert_true(verdict == REFUSED || verdict == (SECCOMP_RET_ERRNO | ENOSYS) ||
                        number == SYS_sync);
        free(name);
    }
}

/* The last that is refused alone before the end of the table: so is what comes after the table. */
static void what_is_behind_all_numbers_is_refused(void **state)
{
    static struct filter filter;

    (void)state;
    for (int number = 0; number < FILTER_CALLS - 1; number++)
        filter_allow(&filter, number);
    assert_int_equal(filter_compile(&filter, AUDIT_ARCH_X86_64), 0);
    memcpy(program, filter.code, sizeof(program[0]) * filter.length);
    length = filter.length;
    assert_int_equal(call(FILTER_CALLS - 2, 0, 0, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(FILTER_CALLS - 1, 0, 0, 0), REFUSED);
    assert_int_equal(call(FILTER_CALLS, 0, 0, 0), REFUSED);
    assert_int_equal(call(0x40000000, 0, 0, 0), REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_programs_need_is_allowed),
        cmocka_unit_test(what_reaches_into_the_kernel_is_refused),
        cmocka_unit_test(foreign_entries_are_refused),
        cmocka_unit_test(clone_makes_no_namespace),
        cmocka_unit_test(sockets_are_unix_tcp_udp_and_the_resolver_s_netlink),
        cmocka_unit_test(no_ioctl_types_into_a_terminal),
        cmocka_unit_test(what_the_whole_host_shares_is_left_alone),
        cmocka_unit_test(nothing_is_urgent),
        cmocka_unit_test(pages_of_files_are_handed_on_by_default_only),
        cmocka_unit_test(no_device_is_made),
        cmocka_unit_test(only_one_s_own_limits_can_be_changed),
        cmocka_unit_test(an_init_without_a_namespace_may_ask_for_the_limits_of_others),
        cmocka_unit_test(the_tree_is_shallow),
        cmocka_unit_test(every_number_has_the_verdict_of_its_name),
        cmocka_unit_test(what_is_behind_all_numbers_is_refused), /* replaces the program */
    };

    return cmocka_run_group_tests_name("backend/seccomp", tests, compile, NULL);
}
