/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandglass-init: the program inside every sandbox. It is PID 1 of its namespace, or with --direct
 * a plain child that keeps its descendants together, and serves requests of the daemon over a
 * socket. It allocates nothing, opens no file of the sandbox itself except in the children it makes
 * for that, and goes on when the daemon goes away.
 *
 *     sandglass-init [--direct] [--prepared] [--seccomp=4] [--bounding=HEX]
 *                    [--user=SPEC] [--workspace=DIR] [--home=DIR] [--environment]
 *                    [--listen=PATH | --relay[=PATH] | --relay=PATH --attached | --dial=PATH]
 *                    [--unbound | --gate=PORT]
 *     sandglass-init --pump=PATH
 *
 * Descriptor 3 is a listening SOCK_SEQPACKET socket, or of SOCK_STREAM with --relay, unless init
 * makes it at PATH, or connects to a socket of the daemon at PATH: see init/dial.h. For --user,
 * --workspace, --home and --environment see init/defaults.h. With --attached the first connection to
 * the relay comes through stdin and stdout. The key of the relay is in SANDGLASS_KEY; with --unbound
 * there is none, and the first connection brings it. With --gate the relay, which then has a PATH, is
 * reached by TCP as well: see init/gate.h. For --pump see init/pump.h.
 */

#include "init/connection.h"
#include "init/credentials.h"
#include "init/defaults.h"
#include "init/dial.h"
#include "init/files/file.h"
#include "init/init.h"
#include "init/listener.h"
#include "init/pump.h"
#include "init/relay.h"
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
    MAX_FILTER = 4096,
    REAPS_PER_TURN = 1024,
    KILL_PERIOD_MS = 2,
    EXIT_USAGE = 2,
};

static int signal_fd = -1;
static bool is_ending;
static int exit_code;

/* --- preparing ------------------------------------------------------------------------------ */

static const char *value_of(const char *argument, const char *option)
{
    size_t length = strlen(option);

    return strncmp(argument, option, length) ? NULL : argument + length;
}

/* At most one of these. */
static bool parse_origin(const char *argument)
{
    static const struct {
        const char *option;
        enum origin origin;
    } rows[] = {
        { "--listen=", ORIGIN_MADE },
        { "--relay=", ORIGIN_RELAY },
        { "--dial=", ORIGIN_DIALLED },
    };

    if (settings.origin != ORIGIN_PASSED)
        return false;
    if (!strcmp(argument, "--relay")) {
        settings.origin = ORIGIN_RELAY;
        return true;
    }
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *path = value_of(argument, rows[i].option);

        if (!path || path[0] != '/')
            continue;
        settings.origin = rows[i].origin;
        settings.socket_path = path;
        return true;
    }
    return false;
}

/* Options with defaults for programs. */
static bool parse_default(const char *argument)
{
    const char *value;

    if (!strcmp(argument, "--environment")) {
        settings.takes_environment = true;
    } else if ((value = value_of(argument, "--user="))) {
        settings.default_user = value;
        return strlen(value) < USER_SPEC_SIZE;
    } else if ((value = value_of(argument, "--home="))) {
        settings.default_home = value;
        return value[0] == '/' && strlen(value) < USER_PATH_SIZE;
    } else if ((value = value_of(argument, "--workspace="))) {
        settings.workspace = value;
        return value[0] == '/' && strlen(value) < WORKSPACE_SIZE;
    } else {
        return false;
    }
    return true;
}

/* A direct sandbox uses init's own directory, so --workspace and --home are refused. */
static bool has_one_workspace(void)
{
    return !settings.direct || (!settings.workspace[0] && !settings.default_home);
}

/* Pump and gate connect to the relay's path. */
static bool relay_has_path(void)
{
    return settings.origin == ORIGIN_RELAY && settings.socket_path;
}

static bool parse_gate(const char *text)
{
    uint32_t port;

    if (!text_to_u32(text, text + strlen(text), UINT16_MAX, &port) || !port)
        return false;
    settings.gate_port = (uint16_t)port;
    return true;
}

/* Whether the options about the relay go together. The gate needs the key from the beginning. */
static bool has_sound_relay(void)
{
    if ((settings.is_attached || settings.gate_port) && !relay_has_path())
        return false;
    return !settings.is_unbound || (settings.origin == ORIGIN_RELAY && !settings.gate_port);
}

static int parse_arguments(char **argv, bool *out_has_filter)
{
    settings.keep_capabilities = ~0ull;
    for (argv++; *argv; argv++) {
        const char *value;

        if (!strcmp(*argv, "--direct"))
            settings.direct = true;
        else if (!strcmp(*argv, "--prepared"))
            settings.prepared = true;
        else if (!strcmp(*argv, "--attached"))
            settings.is_attached = true;
        else if (!strcmp(*argv, "--unbound"))
            settings.is_unbound = true;
        else if (!strcmp(*argv, "--seccomp=4"))
            *out_has_filter = true;
        else if ((value = value_of(*argv, "--bounding="))) {
            if (!text_to_hex64(value, &settings.keep_capabilities))
                return -1;
        } else if ((value = value_of(*argv, "--gate="))) {
            if (!parse_gate(value))
                return -1;
        } else if (!parse_default(*argv) && !parse_origin(*argv))
            return -1;
    }
    return has_sound_relay() && has_one_workspace() ? 0 : -1;
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

/* First of all: a SIGTERM that comes before the descriptor is there waits for it. */
static void block_signals(void)
{
    uint64_t all = ~0ull;

    (void)sys(rt_sigprocmask, SIG_SETMASK, &all, NULL, SIGNAL_SET_SIZE);
}

/* All signals are blocked and none is ignored: a started process only has to unblock them. */
static void prepare_signals(void)
{
    uint64_t watched = 1ull << (SIGCHLD - 1) | 1ull << (SIGTERM - 1);

    if (!settings.prepared)
        reset_signals();
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

/* 0, 1 and 2 stay taken, by nothing of value, so that the ends of pipes never get these numbers. Nor
 * do they get 3: an init without a listening socket has its event descriptor there. */
static void prepare_descriptors(bool has_filter)
{
    sys_close_from(has_filter ? FD_SECCOMP + 1 : FD_LISTEN + 1);
    if (!listener_has_socket())
        sys_close(FD_LISTEN);
    settings.event_fd = (int)sys(eventfd2, 0, O_CLOEXEC | O_NONBLOCK);
    for (int fd = 0; fd <= 2; fd++)
        (void)sys(dup2, settings.event_fd, fd);
    settings.null_fd = open_null();
    settings.proc_fd = open_proc();
    for (int fd = 0; fd <= 2 && settings.null_fd >= 0; fd++)
        (void)sys(dup2, settings.null_fd, fd);
    if (!listener_has_socket())
        return;
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
    if (own.rlim_cur < SYS_MAX_DESCRIPTORS) {
        own.rlim_cur = own.rlim_max < SYS_MAX_DESCRIPTORS ? own.rlim_max : SYS_MAX_DESCRIPTORS;
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

static void prepare_direct(void)
{
    static char directory[WORKSPACE_SIZE];

    (void)sys(setsid);
    (void)sys(prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (sys(getcwd, directory, sizeof directory) >= 0)
        settings.workspace = directory;
}

/* The pump is made first, since it needs the descriptors that init was started with. Gate and relay are
 * made last, so that they inherit all the rest. */
static int prepare(char **argv, char **environment)
{
    struct relay_setup setup = { 0 };
    bool has_filter = false;

    setup.has_key = listener_take_key(environment, &setup);
    block_signals();
    if (parse_arguments(argv, &has_filter) < 0 || listener_open() < 0)
        return -1;
    (void)sys(prctl, PR_SET_NAME, "sandglass-init", 0, 0, 0);
    settings.is_root = !sys(geteuid);
    settings.own_pid = (int)sys(getpid);
    if (settings.is_attached && listener_start_pump(&setup) < 0)
        return -1;
    if (settings.direct)
        prepare_direct();
    prepare_descriptors(has_filter);
    storage_prepare();
    if (!settings.is_root)
        credentials_volunteer_for_the_oom_killer();
    (void)sys(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    prepare_signals();
    prepare_limits();
    prepare_affinity();
    credentials_prepare();
    if (has_filter && prepare_filter() < 0)
        return -1;
    if (!listener_is_right() || defaults_prepare(environment) < 0)
        return -1;
    if (settings.origin == ORIGIN_RELAY && setup.has_key == settings.is_unbound)
        return -1;
    if (settings.gate_port && listener_start_gate(&setup) < 0)
        return -1;
    if (settings.origin == ORIGIN_RELAY)
        return listener_start_relay(&setup);
    explicit_bzero(setup.key, sizeof setup.key);
    return 0;
}

/* --- running -------------------------------------------------------------------------------- */

static struct process *find_by_supervisor(int pid)
{
    for (unsigned i = 0; i < process_places(); i++)
        if (processes[i].state != PROCESS_FREE && processes[i].supervisor == pid)
            return &processes[i];
    return NULL;
}

/* A process whose supervisor was killed before it could report the start. */
static struct process *find_orphan(int pid)
{
    for (unsigned i = 0; i < process_places(); i++)
        if (processes[i].state == PROCESS_STARTING && !processes[i].supervisor &&
            processes[i].main_pid == pid)
            return &processes[i];
    return NULL;
}

/* Without its relay or its gate the sandbox is out of reach and ends. */
static void lose_relay(int *pid)
{
    *pid = 0;
    if (!is_ending)
        exit_code = RELAY_EXIT_CODE;
    is_ending = true;
}

static void handle_end(int pid)
{
    struct process *process = find_by_supervisor(pid);
    struct job *job = job_find_helper(pid);

    supervisor_reaped(pid);
    if (pid == settings.relay_pid)
        lose_relay(&settings.relay_pid);
    else if (pid == settings.gate_pid)
        lose_relay(&settings.gate_pid);
    else if (process)
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
    else if (pid == settings.relay_pid || pid == settings.gate_pid || supervisor_is(pid) ||
             job_find_helper(pid))
        (void)sys(kill, pid, SIGCONT); /* a program may have stopped one of init's own */
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

/* struct signalfd_siginfo of the kernel. */
struct signal_info {
    uint32_t number;
    int32_t error;
    int32_t code;
    uint32_t sender; /* 0 from outside of the namespace */
    char rest[112];
};

/* A container engine ends a sandbox by SIGTERM. Processes inside must not; they can forge a sender,
 * but not together with this code. */
static bool is_order_to_end(const struct signal_info *info)
{
    return info->number == SIGTERM &&
           (settings.direct || (info->code == SI_USER && info->sender == 0));
}

static bool take_signals(void)
{
    struct signal_info info;
    bool is_ordered = false;

    while (sys(read, signal_fd, &info, sizeof info) == sizeof info)
        is_ordered |= is_order_to_end(&info);
    return is_ordered;
}

/* While init waits only for requests, noted reports can wait for the next request. */
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
        { .fd = listener_has_socket() ? FD_LISTEN : -1, .events = POLLIN },
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
        is_ending = true;
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
    if (settings.relay_pid)
        (void)sys(kill, settings.relay_pid, SIGKILL);
    if (settings.gate_pid)
        (void)sys(kill, settings.gate_pid, SIGKILL);
}

/* Init exits when all its children are dead. */
static __attribute__((noreturn)) void finish(void)
{
    for (;;) {
        kill_everything();
        if (!reap())
            sys_exit(exit_code);
        (void)sys(poll, NULL, 0, KILL_PERIOD_MS);
    }
}

/* Either may be -1, for never. */
static int earlier_ms(int one_ms, int other_ms)
{
    return one_ms < 0 || (other_ms >= 0 && other_ms < one_ms) ? other_ms : one_ms;
}

/* Work without a request; returns the milliseconds until there is more. Sending may end the
 * connection, so dialling comes last. */
static int go_on(void)
{
    int kills_ms = tree_continue_kills();

    connection_flush();
    return earlier_ms(kills_ms, connection_dial());
}

/* An engine gives a pump the variables of the container, and root among the programs may read those of
 * a process that is dumpable. */
static __attribute__((noreturn)) void become_pump(const char *path, char **environment)
{
    struct relay_setup setup;

    (void)listener_take_key(environment, &setup);
    explicit_bzero(setup.key, sizeof setup.key);
    (void)sys(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    pump_run(path);
}

int main(int argc, char **argv, char **environment)
{
    if (argc == 2 && value_of(argv[1], "--pump="))
        become_pump(value_of(argv[1], "--pump="), environment);
    if (argc < 1 || prepare(argv, environment) < 0)
        sys_exit(EXIT_USAGE);
    for (;;) {
        turn(go_on());
        if (is_ending || dial_is_given_up())
            finish();
    }
}
