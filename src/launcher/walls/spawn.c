/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/spawn.h"

#include "launcher/sys.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { STACK_SIZE = 128 * 1024, MAX_NOFILE = 16384, FIRST_TABLE = 64 };

static char stack[STACK_SIZE] __attribute__((aligned(16)));

struct call {
    struct spawn *spawn;
    int (*child)(struct spawn *spawn);
    bool enters_unified; /* the clone could not place the child there */
};

/* Runs in the child, on the stack above. */
static int call_child(void *argument)
{
    struct call *call = argument;
    struct spawn *spawn = call->spawn;

    if (call->enters_unified && cgroup_enter_unified(&spawn->cgroup) < 0)
        (void)fail_sys(&spawn->fail, "enter cgroup");
    else if (spawn_enter(spawn) == 0)
        call->child(spawn);
    _exit(127);
}

#if defined(__x86_64__)
static long clone_on_stack(struct sys_clone_args *args, int (*function)(void *), void *argument)
{
    register long result __asm__("rax") = SYS_clone3;
    register int (*r8)(void *) __asm__("r8") = function;
    register void *r9 __asm__("r9") = argument;

    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %%r9, %%rdi\n\t"
                     "call *%%r8\n\t"
                     "ud2\n"
                     "1:"
                     : "+r"(result)
                     : "D"(args), "S"(sizeof(*args)), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static long clone_on_stack(struct sys_clone_args *args, int (*function)(void *), void *argument)
{
    register long x8 __asm__("x8") = SYS_clone3;
    register long x0 __asm__("x0") = (long)args;
    register long x1 __asm__("x1") = sizeof(*args);
    register int (*x9)(void *) __asm__("x9") = function;
    register void *x10 __asm__("x10") = argument;

    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, #0\n\t"
                     "mov x0, x10\n\t"
                     "blr x9\n\t"
                     "brk #0\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x9), "r"(x10)
                     : "memory");
    return x0;
}
#else
#error "clone_on_stack is not written for this processor"
#endif

/* We sleep until the child has executed init, so this processor is free for it and its cache is
 * warm: another processor would have to be woken first, and the kernel's balancing at exec would
 * move the child once more. Init undoes this for itself. */
static bool pin(cpu_set_t *out_before)
{
    cpu_set_t here;
    int cpu = sched_getcpu();

    if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(*out_before), out_before) < 0)
        return false;
    CPU_ZERO(&here);
    CPU_SET(cpu, &here);
    return sched_setaffinity(0, sizeof(here), &here) == 0;
}

/* The kernel copies and closes at least this many for a child that gets a table of its own: places
 * rather than files, which take longer to close. */
static int fill_first_table(void)
{
    int filler = openat(LAUNCH_FD_STATE, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int last = filler;

    while (last >= 0 && last < FIRST_TABLE - 1)
        last = fcntl(filler, F_DUPFD_CLOEXEC, 0);
    return last < 0 ? -1 : 0;
}

/* Output of the launcher has no reader, and a terminal must not be kept open. */
int spawn_open(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 0; null >= 0 && fd < 3; fd++)
        (void)dup2(null, fd);
    if (null < 0 || dup2(null, SPAWN_FD_PASSED) < 0)
        return -1;
    if (null > 2 && null != SPAWN_FD_PASSED)
        close(null);
    return fill_first_table();
}

/* Filters of containers hide clone3, because they cannot see its flags. The pid cannot go to
 * another process before the descriptor is there: only the launcher reaps its children. */
static long clone_without_clone3(struct call *call, uint64_t namespaces)
{
    struct spawn *spawn = call->spawn;
    int flags = (int)namespaces | CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_PARENT_SETTID;
    int pid;

    call->enters_unified = spawn->cgroup.fds[CGROUP_UNIFIED] >= 0;
    pid = clone(call_child, stack + sizeof(stack), flags | SIGCHLD, call, &spawn->mark.pid);
    if (pid < 0)
        return -errno;
    spawn->pidfd = sys_pidfd_open(pid);
    if (spawn->pidfd < 0 && !spawn->fail.step) {
        (void)fail_sys(&spawn->fail, "open the pidfd of init");
        (void)kill(pid, SIGKILL);
    }
    return pid;
}

static long clone_child(struct call *call, uint64_t namespaces)
{
    struct spawn *spawn = call->spawn;
    int unified = spawn->cgroup.fds[CGROUP_UNIFIED];
    struct sys_clone_args args = {
        .flags = namespaces | CLONE_VM | CLONE_VFORK | CLONE_FILES | SYS_CLONE_PIDFD |
                 CLONE_PARENT_SETTID | (unified >= 0 ? SYS_CLONE_INTO_CGROUP : 0),
        .pidfd = (uintptr_t)&spawn->pidfd,
        .parent_tid = (uintptr_t)&spawn->mark.pid, /* as we see it; the child sees it there, too */
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t)stack,
        .stack_size = sizeof(stack),
        .cgroup = unified >= 0 ? (uint64_t)unified : 0,
    };
    long pid = clone_on_stack(&args, call_child, call);

    return pid == -ENOSYS || pid == -EPERM ? clone_without_clone3(call, namespaces) : pid;
}

int spawn_run(struct spawn *spawn, uint64_t namespaces, int (*child)(struct spawn *spawn))
{
    struct call call = { .spawn = spawn, .child = child };
    cpu_set_t before;
    bool pinned;
    long pid;

    spawn->fail = (struct fail){ 0 };
    if (dup2(spawn->socket, SPAWN_FD_PASSED) < 0)
        return fail_sys(&spawn->fail, "pass the socket of init");
    pinned = pin(&before);
    oom_score_lend(&spawn->spawner->oom_score);
    spawn->cloned_after = state_boot_time();
    pid = clone_child(&call, namespaces);
    oom_score_restore(&spawn->spawner->oom_score);
    if (pinned)
        (void)sched_setaffinity(0, sizeof(before), &before);
    (void)dup2(0, SPAWN_FD_PASSED);
    /* A child that changes its ids takes this from the memory that it shares with us. */
    if (spawn->spawner->stays_dumpable)
        (void)prctl(PR_SET_DUMPABLE, 1);
    if (pid < 0)
        return fail_set(&spawn->fail, "clone", (int)-pid);
    if (spawn->fail.step) {
        (void)waitpid((pid_t)pid, NULL, 0);
        if (spawn->pidfd >= 0)
            close(spawn->pidfd);
        spawn->pidfd = -1;
        return -1;
    }
    return 0;
}

int spawn_enter(struct spawn *spawn)
{
    struct mark *mark = &spawn->mark;

    mark->start_time = state_start_between(spawn->cloned_after, state_boot_time());
    if (!mark->start_time)
        mark->start_time = state_start_time(&spawn->spawner->context->state, mark->pid);
    if (!mark->start_time)
        return fail_set(&spawn->fail, "find own start time", ESRCH);
    if (pwrite(spawn->mark_fd, &spawn->mark, sizeof(spawn->mark), 0) != sizeof(spawn->mark))
        return fail_sys(&spawn->fail, "write mark");
    if (cgroup_enter(&spawn->cgroup) < 0)
        return fail_sys(&spawn->fail, "enter cgroup");
    return 0;
}

void spawn_reset(void)
{
    /* No signal is ignored or handled here, and init sets the mask itself. */
    (void)setpriority(PRIO_PROCESS, 0, 0);
    umask(022);
}

/* The hard limit can only go down. */
static int set_rlimit(int resource, rlim_t value, rlim_t most)
{
    struct rlimit limit = { .rlim_cur = value < most ? value : most };

    limit.rlim_max = limit.rlim_cur;
    return setrlimit(resource, &limit);
}

static int lower_rlimit(int resource, rlim_t value)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) < 0)
        return -1;
    return set_rlimit(resource, value, limit.rlim_max);
}

int spawner_load_filter(struct spawner *spawner, int fd)
{
    ssize_t length = pread(fd, spawner->filter, sizeof(spawner->filter), 0);

    if (length < 0 || length % (ssize_t)sizeof(spawner->filter[0]))
        return -1;
    spawner->filter_length = (uint16_t)((size_t)length / sizeof(spawner->filter[0]));
    return 0;
}

int spawner_lower_limits(struct spawner *spawner, bool dumps_are_piped)
{
    const rlim_t megabyte = 1024 * 1024;
    struct rlimit limit;

    if (lower_rlimit(RLIMIT_CORE, dumps_are_piped) < 0 ||
        lower_rlimit(RLIMIT_MEMLOCK, 8 * megabyte) < 0 ||
        lower_rlimit(RLIMIT_MSGQUEUE, 819200) < 0 || lower_rlimit(RLIMIT_SIGPENDING, 4096) < 0 ||
        lower_rlimit(RLIMIT_RTPRIO, 0) < 0 || lower_rlimit(RLIMIT_NICE, 0) < 0)
        return -1;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return -1;
    spawner->most_files = limit.rlim_max;
    if (getrlimit(RLIMIT_NPROC, &limit) < 0)
        return -1;
    spawner->most_processes = limit.rlim_max;
    return 0;
}

int spawn_limit(const struct spawner *spawner, const struct launch_limits *limits)
{
    if (set_rlimit(RLIMIT_NOFILE, MAX_NOFILE, spawner->most_files) < 0)
        return -1;
    /* The group limits processes where there is one; this counts per user and user namespace. */
    return set_rlimit(RLIMIT_NPROC, limits->pids + launch_own_processes(&spawner->context->setup),
                      spawner->most_processes);
}

/* A table of its own, for init: the standard descriptors, which are /dev/null already, and its
 * socket. The launcher may have hundreds of descriptors open, and the child must not hold the last
 * reference to one. */
static int arrange_descriptors(void)
{
    if (sys_close_range(SPAWN_FD_PASSED + 1, ~0U, SYS_CLOSE_RANGE_UNSHARE) < 0 ||
        dup2(SPAWN_FD_PASSED, SPAWN_FD_SOCKET) < 0)
        return -1;
    return sys_close_range(SPAWN_FD_SOCKET + 1, ~0U, SYS_CLOSE_RANGE_CLOEXEC);
}

int spawn_exec(struct spawn *spawn, const char *const argv[])
{
    char *environment[] = { *spawn->key ? spawn->key : NULL, NULL };
    const struct spawner *spawner = spawn->spawner;
    struct {
        unsigned short length;
        const struct sys_filter *filter;
    } program = { .length = spawner->filter_length, .filter = spawner->filter };

    if (arrange_descriptors() < 0)
        return fail_sys(&spawn->fail, "arrange descriptors");
    if (program.length && prctl(PR_SET_SECCOMP, 2, &program) < 0)
        return fail_sys(&spawn->fail, "install seccomp filter");
    syscall(SYS_execveat, spawner->init, "", argv, environment, AT_EMPTY_PATH);
    return fail_sys(&spawn->fail, "execute init");
}

void spawn_init(struct spawn *spawn, const struct spawner *spawner, struct walls *walls)
{
    *spawn = (struct spawn){ .spawner = spawner,
                             .walls = walls,
                             .cgroup = CGROUP_ENTRY_NONE,
                             .dir = -1,
                             .mark_fd = -1,
                             .socket = -1,
                             .userns = -1,
                             .netns = -1,
                             .disk = -1,
                             .root = -1,
                             .pidfd = -1 };
}

void spawn_set_key(struct spawn *spawn, const uint8_t key[LAUNCH_KEY_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    char *text = spawn->key;

    memcpy(text, SPAWN_KEY_NAME "=", sizeof(SPAWN_KEY_NAME));
    text += sizeof(SPAWN_KEY_NAME);
    for (size_t i = 0; i < LAUNCH_KEY_SIZE; i++) {
        *text++ = digits[key[i] >> 4];
        *text++ = digits[key[i] & 15];
    }
    *text = '\0';
}

void spawn_fini(struct spawn *spawn)
{
    int *fds[] = { &spawn->dir,   &spawn->mark_fd, &spawn->socket, &spawn->userns,
                   &spawn->netns, &spawn->disk,    &spawn->root };

    explicit_bzero(spawn->key, sizeof(spawn->key));
    cgroup_entry_close(&spawn->cgroup);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
    while (spawn->bind_count)
        sys_close(spawn->trees[--spawn->bind_count]);
}
