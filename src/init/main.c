/*
 * sandglass-init: the program inside every sandbox. It is PID 1 of its namespace, or with --direct
 * a plain child that keeps its descendants together, and does what the daemon asks over a socket.
 * It allocates nothing, opens no file of the sandbox itself except in the children it makes for
 * that, and goes on when the daemon goes away.
 *
 *     sandglass-init [--direct] [--prepared] [--seccomp=4] [--user=NAME] [--bounding=HEX]
 *
 * Descriptor 3 is a listening SOCK_SEQPACKET socket.
 */

#include "init/connection.h"
#include "init/credentials.h"
#include "init/files/file.h"
#include "init/init.h"
#include "init/request.h"
#include "init/start.h"
#include "init/storage.h"
#include "init/supervisor.h"
#include "init/sys.h"
#include "init/text.h"
#include "init/tree.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

enum {
    OWN_DESCRIPTORS = 4096, /* as many as the table of processes can need, and some */
    MAX_FILTER = 4096,
    REAPS_PER_TURN = 1024,
    SHUTDOWN_PERIOD_MS = 2,
    SHUTDOWN_PATIENCE_US = 10 * 1000 * 1000,
    EXIT_USAGE = 2,
};

static int signal_fd = -1;

/* --- preparing ------------------------------------------------------------------------------ */

static const char *value_of(const char *argument, const char *option)
{
    size_t length = strlen(option);

    return strncmp(argument, option, length) ? NULL : argument + length;
}

static int parse_arguments(char **argv, bool *out_has_filter)
{
    settings.default_user = "";
    settings.keep_capabilities = ~0ull;
    for (argv++; *argv; argv++) {
        const char *value;

        if (!strcmp(*argv, "--direct"))
            settings.direct = true;
        else if (!strcmp(*argv, "--prepared"))
            settings.prepared = true;
        else if (!strcmp(*argv, "--seccomp=4"))
            *out_has_filter = true;
        else if ((value = value_of(*argv, "--user=")) && strlen(value) < PROTOCOL_MAX_USER)
            settings.default_user = value;
        else if (!(value = value_of(*argv, "--bounding=")) ||
                 !text_to_hex64(value, &settings.keep_capabilities))
            return -1;
    }
    return 0;
}

/* The kernel's layout of struct sigaction. */
struct signal_action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static void reset_signals(void)
{
    struct signal_action by_default = { 0 };

    for (int number = 1; number <= 64; number++)
        (void)sys(rt_sigaction, number, &by_default, NULL, SIGNAL_SET_SIZE);
}

/* All blocked, none ignored: what is started inherits that and unblocks, nothing more. */
static void prepare_signals(void)
{
    uint64_t all = ~0ull;
    uint64_t watched = 1ull << (SIGCHLD - 1);

    if (!settings.prepared)
        reset_signals();
    (void)sys(rt_sigprocmask, SIG_SETMASK, &all, NULL, SIGNAL_SET_SIZE);
    if (settings.direct)
        watched |= 1ull << (SIGTERM - 1);
    signal_fd = (int)sys(signalfd4, -1, &watched, SIGNAL_SET_SIZE, O_CLOEXEC | O_NONBLOCK);
}

static int open_null(void)
{
    struct stat status;
    int fd = sys_open(AT_FDCWD, "/dev/null", O_RDWR | O_NONBLOCK | O_NOCTTY, 0, 0);

    if (fd < 0)
        return -1;
    if (sys(fstat, fd, &status) < 0 || !S_ISCHR(status.st_mode) ||
        status.st_rdev != makedev(1, 3)) {
        sys_close(fd);
        return -1;
    }
    return fd;
}

static int open_proc(void)
{
    struct statfs status;
    int fd = sys_open(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY, 0, 0);

    if (fd < 0)
        return -1;
    if (sys(fstatfs, fd, &status) < 0 || status.f_type != PROC_MAGIC) {
        sys_close(fd);
        return -1;
    }
    return fd;
}

/* 0, 1 and 2 stay taken, by nothing of value, so that the ends of pipes never get these numbers. */
static void prepare_descriptors(bool has_filter)
{
    (void)sys(close_range, has_filter ? FD_SECCOMP + 1 : FD_LISTEN + 1, ~0u, 0);
    settings.event_fd = (int)sys(eventfd2, 0, O_CLOEXEC | O_NONBLOCK);
    for (int fd = 0; fd <= 2; fd++)
        (void)sys(dup2, settings.event_fd, fd);
    settings.null_fd = open_null();
    settings.proc_fd = open_proc();
    for (int fd = 0; fd <= 2 && settings.null_fd >= 0; fd++)
        (void)sys(dup2, settings.null_fd, fd);
    (void)sys(fcntl, FD_LISTEN, F_SETFD, FD_CLOEXEC);
    (void)sys(fcntl, FD_LISTEN, F_SETFL, O_RDWR | O_NONBLOCK);
}

static int prepare_filter(void)
{
    struct stat status;
    long address;

    if (sys(fstat, FD_SECCOMP, &status) < 0 || status.st_size <= 0 || status.st_size % 8 ||
        status.st_size / 8 > MAX_FILTER)
        return -1;
    address = sys(mmap, NULL, status.st_size, PROT_READ, MAP_PRIVATE, FD_SECCOMP, 0);
    if (address < 0 && address > -4096)
        return -1;
    settings.filter = (const void *)address;
    settings.filter_length = (uint16_t)(status.st_size / 8);
    sys_close(FD_SECCOMP);
    return 0;
}

static void prepare_limits(void)
{
    struct rlimit none = { 0, 0 };
    struct rlimit own;

    if (sys(prlimit64, 0, RLIMIT_NOFILE, NULL, &settings.nofile) < 0)
        return;
    own = settings.nofile;
    if (own.rlim_cur < OWN_DESCRIPTORS) {
        own.rlim_cur = own.rlim_max < OWN_DESCRIPTORS ? own.rlim_max : OWN_DESCRIPTORS;
        (void)sys(prlimit64, 0, RLIMIT_NOFILE, &own, NULL);
    }
    if (settings.prepared)
        return;
    (void)sys(prlimit64, 0, RLIMIT_CORE, &none, NULL);
    (void)sys(setpriority, PRIO_PROCESS, 0, 0);
    (void)sys(umask, 022);
}

/* We were started on one processor, to be there soon. */
static void prepare_affinity(void)
{
    uint64_t all[16];

    memset(all, 0xff, sizeof all);
    (void)sys(sched_setaffinity, 0, sizeof all, all);
}

static int prepare(char **argv)
{
    bool has_filter = false;
    int listening = 0;
    socklen_t length = sizeof listening;

    if (parse_arguments(argv, &has_filter) < 0)
        return -1;
    (void)sys(prctl, PR_SET_NAME, "sandglass-init", 0, 0, 0);
    settings.is_root = !sys(geteuid);
    settings.own_pid = (int)sys(getpid);
    if (settings.direct) {
        (void)sys(setsid);
        (void)sys(prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        if (sys(getcwd, settings.workspace, sizeof settings.workspace) < 0)
            settings.workspace[0] = 0;
    }
    prepare_descriptors(has_filter);
    storage_prepare();
    if (settings.direct && !settings.is_root)
        credentials_volunteer_for_the_oom_killer();
    (void)sys(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    prepare_signals();
    prepare_limits();
    prepare_affinity();
    credentials_prepare();
    if (has_filter && prepare_filter() < 0)
        return -1;
    if (sys(getsockopt, FD_LISTEN, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) < 0)
        return -1;
    return listening ? 0 : -1;
}

/* --- running -------------------------------------------------------------------------------- */

static struct process *find_by_supervisor(int pid)
{
    for (unsigned i = 0; i < process_places(); i++)
        if (processes[i].state != PROCESS_FREE && processes[i].supervisor == pid)
            return &processes[i];
    return NULL;
}

/* One whose supervisor was killed before it could tell that it had started it. */
static struct process *find_orphan(int pid)
{
    for (unsigned i = 0; i < process_places(); i++)
        if (processes[i].state == PROCESS_STARTING && !processes[i].supervisor &&
            processes[i].main_pid == pid)
            return &processes[i];
    return NULL;
}

static void handle_end(int pid)
{
    struct process *process = find_by_supervisor(pid);
    struct job *job = job_find_helper(pid);

    supervisor_reaped(pid);
    if (process)
        start_lose_supervisor(process);
    else if (job)
        file_end(job);
    else if ((process = find_orphan(pid)))
        start_lose_main(process);
}

static void handle_child(int pid, int status)
{
    if (!WIFSTOPPED(status))
        handle_end(pid);
    else if (supervisor_is(pid) || job_find_helper(pid))
        (void)sys(kill, pid, SIGCONT); /* a program may have stopped one of init's clones */
}

/* False when there is no child at all. */
static bool reap(void)
{
    for (unsigned i = 0; i < REAPS_PER_TURN; i++) {
        int status;
        long pid = sys(wait4, -1, &status, WNOHANG | WUNTRACED | __WALL, NULL);

        if (pid <= 0)
            return pid != -ECHILD;
        handle_child((int)pid, status);
    }
    return true;
}

static void drain(int fd)
{
    char bytes[1024];

    while (sys(read, fd, bytes, sizeof bytes) == sizeof bytes)
        ;
}

static bool take_signals(void)
{
    struct {
        uint32_t number;
        char rest[124];
    } info;
    bool terminated = false;

    while (sys(read, signal_fd, &info, sizeof info) == sizeof info)
        terminated |= info.number == SIGTERM;
    return terminated;
}

/* While init waits for requests alone, what is only noted can wait for the next one. */
static bool must_hear_all(void)
{
    return !connection_can_receive() || tree_is_killing();
}

static const struct connection_handler connection_handler = {
    .on_arrival = start_take_all_reports,
    .on_message = request_handle,
};

static int connection_events(void)
{
    return (connection_can_receive() ? POLLIN : 0) | (connection.congested ? POLLOUT : 0);
}

static void handle_connection(int events)
{
    if (connection_can_receive())
        connection_receive(&connection_handler);
    else if (events & (POLLHUP | POLLERR))
        connection_close();
}

static void turn(int timeout_ms)
{
    struct pollfd polls[] = {
        { .fd = settings.event_fd, .events = POLLIN },
        { .fd = signal_fd, .events = POLLIN },
        { .fd = FD_LISTEN, .events = POLLIN },
        { .fd = connection.fd, .events = (short)connection_events() },
        { .fd = storage_poll_fd(), .events = POLLIN },
    };
    bool must_hear = must_hear_all();
    bool has_reports = report_expect(must_hear);
    long ready =
        sys(poll, polls, sizeof polls / sizeof polls[0], must_hear && has_reports ? 0 : timeout_ms);

    start_take_all_reports();
    if (ready <= 0)
        return;
    if (polls[0].revents)
        drain(settings.event_fd);
    if (polls[1].revents && take_signals())
        request_begin_shutdown(0);
    if (polls[1].revents)
        (void)reap();
    if (polls[3].revents)
        handle_connection(polls[3].revents);
    if (polls[2].revents)
        connection_accept();
    if (polls[4].revents)
        storage_accept();
}

static void kill_everything(void)
{
    if (!settings.direct)
        (void)sys(kill, -1, SIGKILL);
    else if (settings.proc_fd >= 0)
        (void)tree_kill(settings.own_pid);
    else
        for (unsigned i = 0; i < process_places(); i++)
            if (processes[i].supervisor)
                (void)sys(kill, -processes[i].main_pid, SIGKILL);
}

/* What cannot be killed keeps init alive, but not whoever waits for it to say so. */
static __attribute__((noreturn)) void finish(void)
{
    int64_t deadline_us = sys_now_us() + SHUTDOWN_PATIENCE_US;

    for (;;) {
        kill_everything();
        if (!reap())
            break;
        (void)sys(poll, NULL, 0, SHUTDOWN_PERIOD_MS);
        if (deadline_us && sys_now_us() > deadline_us) {
            connection_say_goodbye(request_shutdown_number(), ETIMEDOUT);
            deadline_us = 0;
        }
    }
    if (deadline_us)
        connection_say_goodbye(request_shutdown_number(), 0);
    sys_exit(0);
}

int main(int argc, char **argv)
{
    int timeout_ms = -1;

    if (argc < 1 || prepare(argv) < 0)
        sys_exit(EXIT_USAGE);
    for (;;) {
        turn(timeout_ms);
        if (request_is_shutdown())
            finish();
        timeout_ms = tree_continue_kills();
        connection_flush();
    }
}
