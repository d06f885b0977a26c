/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/operator/doctor.h"

#include "backend/registry.h"
#include "base/alloc.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/operator/store_report.h"
#include "config/config.h"
#include "daemon/confine.h"
#include "daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t least_bytes = 256 << 20;
static const uint64_t good_bytes = (uint64_t)4 << 30;

static void check_settings(const struct doctor *doctor, struct finding *finding)
{
    struct error err;

    if (!doctor->config)
        finding_set(finding, FINDING_FAIL, "correct the file", "%s", doctor->config_problem);
    else if (config_check(doctor->config, &err) < 0)
        finding_set(finding, FINDING_FAIL, *err.hint ? err.hint : "correct the settings", "%s",
                    err.message);
    else
        finding_set(finding, FINDING_OK, NULL, "%s",
                    doctor->config->path ? doctor->config->path : "the defaults");
}

/* The directory itself or the nearest one above it that exists; allocated. */
static char *existing_part(const char *path)
{
    char *part = xstrdup(path);

    while (access(part, F_OK) < 0 && strrchr(part, '/') != part && strrchr(part, '/'))
        *strrchr(part, '/') = '\0';
    if (access(part, F_OK) < 0)
        strcpy(part, "/");
    return part;
}

static void check_directory(const char *path, const char *remedy, struct finding *finding)
{
    scoped(free) char *part = existing_part(path);

    if (access(part, W_OK | X_OK) == 0)
        finding_set(finding, FINDING_OK, NULL, "%s", path);
    else
        finding_set(finding, FINDING_FAIL, remedy, "%s cannot be written: %s", part,
                    strerror(errno));
}

static void check_state(const struct doctor *doctor, struct finding *finding)
{
    if (doctor->config)
        check_directory(doctor->config->state_dir,
                        "choose another directory with --state or state_dir", finding);
    else
        finding_set(finding, FINDING_WARN, NULL, "not known: the settings are invalid");
}

static void check_runtime(const struct doctor *doctor, struct finding *finding)
{
    if (doctor->config)
        check_directory(doctor->config->runtime_dir, "choose another directory with runtime_dir",
                        finding);
    else
        finding_set(finding, FINDING_WARN, NULL, "not known: the settings are invalid");
}

static void check_space(const struct doctor *doctor, struct finding *finding)
{
    scoped(free) char *part = existing_part(doctor->config ? doctor->config->state_dir : "/");
    char free_text[STR_UNIT_SIZE];
    struct statvfs fs;
    uint64_t free_bytes;

    if (statvfs(part, &fs) < 0) {
        finding_set(finding, FINDING_FAIL, NULL, "%s: %s", part, strerror(errno));
        return;
    }
    free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    str_format_size(free_bytes, free_text);
    finding_set(finding,
                free_bytes < least_bytes  ? FINDING_FAIL
                : free_bytes < good_bytes ? FINDING_WARN
                                          : FINDING_OK,
                free_bytes < good_bytes ? "free some space, or move state_dir to a larger disk"
                                        : NULL,
                "%s free at %s", free_text, part);
}

static bool is_in_path(const char *name)
{
    scoped(free) char *directories = xstrdup(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
    char *place = NULL;

    for (char *directory = strtok_r(directories, ":", &place); directory;
         directory = strtok_r(NULL, ":", &place)) {
        scoped(free) char *path = path_join(directory, name);

        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static void check_languages(const struct doctor *doctor UNUSED, struct finding *finding)
{
    bool python = is_in_path("python3"), bash = is_in_path("bash");

    if (python && bash)
        finding_set(finding, FINDING_OK, NULL, "python3 and bash");
    else
        finding_set(finding, FINDING_WARN,
                    "install it on this host, or use a template that includes it: the template "
                    "'host' uses the host's programs",
                    "missing: %s%s%s", python ? "" : "python3", python || bash ? "" : ", ",
                    bash ? "" : "bash");
}

static void check_daemon(const struct doctor *doctor, struct finding *finding)
{
    scoped(reply_fini) struct reply reply = { 0 };
    struct error err;

    if (cli_call(doctor->cli, HTTP_GET, "/readyz", NULL, &reply, &err) == 0 || reply.status == 200)
        finding_set(finding, FINDING_OK, NULL, "running at %s", doctor->cli->url);
    else if (str_equal(err.name, "daemon_not_running"))
        finding_set(finding, FINDING_WARN, "run 'sandglass serve'", "not running at %s",
                    doctor->cli->url);
    else
        finding_set(finding, FINDING_WARN, *err.hint ? err.hint : NULL, "%s: %s", doctor->cli->url,
                    err.message);
}

/* The confinement that this host can give to the daemon itself. */
static void check_confinement(const struct doctor *doctor, struct finding *finding)
{
    struct confinement confinement;

    if (!doctor->config) {
        finding_set(finding, FINDING_WARN, NULL, "not known: the settings are invalid");
        return;
    }
    confine_probe(doctor->config, &confinement);
    if (confinement.mode == CONFINE_OFF)
        finding_set(finding, FINDING_WARN, "set daemon.confine to auto or required",
                    "daemon.confine is off: the daemon itself is not confined");
    else if (confinement.missing[0])
        finding_set(finding, confinement.mode == CONFINE_REQUIRED ? FINDING_FAIL : FINDING_WARN,
                    confinement.landlock ? "use a kernel with CONFIG_SECCOMP_FILTER; in a "
                                           "container: allow seccomp in its profile"
                                         : "boot Linux 5.13 or later with lsm=landlock; in a "
                                           "container: allow landlock_* in its profile",
                    "the daemon cannot use %s", confinement.missing);
    else
        finding_set(finding, FINDING_OK, NULL,
                    "the daemon is confined by seccomp and Landlock (ABI %u)",
                    confinement.landlock);
}

/* --- the proof ------------------------------------------------------------------------------- */

/* Whether sessions may ask for it. */
static bool is_used(const struct doctor *doctor, const char *backend)
{
    return doctor->config && config_offers_backend(doctor->config, backend);
}

static const char word[] = "sandglass"; /* that the program in the sandbox prints */

/* The ends of pipes that a child has as its standard output and error. */
struct child_ends {
    int output;
    int error;
};

/* In the child: `run` uses the daemon that is there, or a private one; a private one for a backend that
 * the daemon does not offer. */
static void run_echo(const struct doctor *doctor, const char *backend,
                     const struct child_ends *ends)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)dup2(null, STDIN_FILENO);
    (void)dup2(ends->output, STDOUT_FILENO);
    (void)dup2(ends->error, STDERR_FILENO);
    if (doctor->config->path)
        (void)setenv("SANDGLASS_CONFIG", doctor->config->path, 1);
    if (!is_used(doctor, backend))
        execl("/proc/self/exe", "sandglass", "run", "--private", "--backend", backend, "--timeout",
              "30s", "--", "echo", word, NULL);
    execl("/proc/self/exe", "sandglass", "run", "--backend", backend, "--timeout", "30s", "--",
          "echo", word, NULL);
    dprintf(STDERR_FILENO, "sandglass: execute /proc/self/exe: %s\n", strerror(errno));
    _exit(127);
}

/* The error that `run` wrote to stderr: its message, and the hint that follows it ("" without). */
struct refusal {
    char message[200];
    char hint[256];
    char output[32]; /* the beginning of what the program printed, without the end of the line */
};

static void read_refusal(int fd, struct refusal *refusal)
{
    static const char mark[] = "sandglass: ";
    static const char hint_mark[] = "hint: ";
    char line[1024];
    FILE *stream = fdopen(fd, "r");

    *refusal = (struct refusal){ 0 };
    while (stream && fgets(line, sizeof(line), stream)) {
        const char *text = line + strlen(mark);

        line[strcspn(line, "\n")] = '\0';
        if (!str_starts_with(line, mark))
            continue;
        text += str_starts_with(text, hint_mark) ? strlen(hint_mark) : 0;
        if (!*refusal->message)
            snprintf(refusal->message, sizeof(refusal->message), "%.199s", text);
        else if (!*refusal->hint && !str_equal(text, DAEMON_PRIVATE_FAILED))
            snprintf(refusal->hint, sizeof(refusal->hint), "%.255s", text);
    }
    if (stream)
        fclose(stream);
}

static void read_output(int fd, struct refusal *refusal)
{
    ssize_t count = read(fd, refusal->output, sizeof(refusal->output) - 1);

    refusal->output[count > 0 ? count : 0] = '\0';
    refusal->output[strcspn(refusal->output, "\n")] = '\0';
}

/* The body of a child process; it does not return. The parent reads what is written to `ends`. */
typedef void child_fn(const struct doctor *doctor, const char *backend,
                      const struct child_ends *ends);

/* True: the child has exited with 0. */
static bool run_child(child_fn *child, const struct doctor *doctor, const char *backend,
                      struct refusal *refusal)
{
    int errors[2];
    int outputs[2];
    int status = 0;
    pid_t pid;

    if (pipe2(errors, O_CLOEXEC) < 0 || pipe2(outputs, O_CLOEXEC) < 0) {
        *refusal = (struct refusal){ .message = "no pipe can be made" };
        return false;
    }
    pid = fork();
    if (pid == 0)
        child(doctor, backend, &(struct child_ends){ outputs[1], errors[1] });
    close(errors[1]);
    close(outputs[1]);
    read_refusal(errors[0], refusal);
    read_output(outputs[0], refusal);
    close(outputs[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Parts that look well are no proof: one sandbox is made, a program runs in it, and its output
 * comes back. */
static bool has_sandbox(const struct doctor *doctor, const char *backend, struct refusal *refusal)
{
    if (!run_child(run_echo, doctor, backend, refusal))
        return false;
    if (str_equal(refusal->output, word))
        return true;
    if (!*refusal->message)
        snprintf(refusal->message, sizeof(refusal->message), "output of a program in it is lost");
    return false;
}

/* A daemon starts without the backends that are not its default. */
static void try_sandbox(const struct doctor *doctor, const char *backend, struct finding *finding)
{
    bool is_in_use = is_used(doctor, backend);
    struct refusal refusal;

    if (!doctor->config)
        finding_set(finding, FINDING_FAIL, NULL, "not tested");
    else if (has_sandbox(doctor, backend, &refusal))
        finding_set(finding, is_in_use ? FINDING_OK : FINDING_INFO,
                    is_in_use || str_equal(backend, "direct")
                        ? NULL
                        : "name it in sandbox.backends to let sessions use it",
                    "the backend %s created one, and a program printed in it%s", backend,
                    is_in_use ? "" : "; it is not enabled");
    else
        finding_set(finding,
                    !is_in_use                                            ? FINDING_INFO
                    : str_equal(backend, doctor->config->sandbox.backend) ? FINDING_FAIL
                                                                          : FINDING_WARN,
                    refusal.hint, "the backend %s cannot create one%s: %s", backend,
                    is_in_use ? "" : " and is not enabled",
                    *refusal.message ? refusal.message : "no reason given");
}

static void check_sandbox(const struct doctor *doctor, struct finding *finding)
{
    try_sandbox(doctor, doctor->config ? doctor->config->sandbox.backend : NULL, finding);
}

static const char *role_of(const struct config *config, const char *backend)
{
    if (str_equal(backend, config->sandbox.backend))
        return " (default)";
    return config_offers_backend(config, backend) ? "" : " (for flavors and templates)";
}

/* Which of those that exist the settings enable. */
static void check_backends(const struct doctor *doctor, struct finding *finding)
{
    scoped(buffer_fini) struct buffer enabled = BUFFER_INIT(200);
    scoped(buffer_fini) struct buffer others = BUFFER_INIT(200);

    if (!doctor->config) {
        finding_set(finding, FINDING_WARN, NULL, "not known: the settings are invalid");
        return;
    }
    for (const struct backend_row *row = backend_rows; row->name; row++) {
        if (config_names_backend(doctor->config, row->name))
            buffer_appendf(&enabled, "%s%s%s", enabled.length ? ", " : "", row->name,
                           role_of(doctor->config, row->name));
        else
            buffer_appendf(&others, "%s %s", others.length ? "," : "; not enabled:", row->name);
    }
    finding_set(finding, FINDING_OK, NULL, "enabled: %s%s", buffer_text(&enabled),
                buffer_text(&others));
}

/* Backends that nothing has to be set up for. An engine needs an image and, for gvisor, a runtime. */
static bool doctor_could_have(const struct doctor *doctor, const char *backend)
{
    if (str_equal(backend, "native") || str_equal(backend, "direct"))
        return true;
    return *doctor->config->docker.image && doctor_engine_has(doctor, backend);
}

void doctor_check_other_backends(const struct doctor *doctor, doctor_report_fn *report, void *user)
{
    for (const struct backend_row *row = backend_rows; row->name; row++) {
        struct finding finding = { 0 };
        scoped(free) char *name = xasprintf("sandbox: %s", row->name);

        if (!doctor->config || str_equal(row->name, doctor->config->sandbox.backend) ||
            !(config_offers_backend(doctor->config, row->name) ||
              doctor_could_have(doctor, row->name)))
            continue;
        try_sandbox(doctor, row->name, &finding);
        report(user, name, &finding);
    }
}

/* --- in a pod -------------------------------------------------------------------------------- */

/* In the child: a private daemon with this backend, which need not be that of the pod's own daemon,
 * makes a sandbox before it serves. */
static void start_private(const struct doctor *doctor UNUSED, const char *backend,
                          const struct child_ends *ends)
{
    struct daemon_setting settings[] = { { "sandbox.backend", backend }, { 0 } };
    struct private_daemon daemon = { .leash_fd = -1 };
    struct error err;

    (void)dup2(ends->error, STDERR_FILENO);
    if (daemon_start_private(&daemon, settings, &err) < 0)
        _exit(EXIT_FAILURE);
    daemon_stop_private(&daemon);
    _exit(EXIT_SUCCESS);
}

void doctor_check_pod(const struct doctor *doctor, doctor_report_fn *report, void *user)
{
    static const struct {
        const char *name, *backend, *shape, *remedy;
    } rows[] = {
        { "pod: native", "native", "walls inside of this pod",
          "hostUsers: false, procMount: Unmasked and seccompProfile: {type: Unconfined}, or root "
          "with the capabilities SYS_ADMIN, SYS_PTRACE and NET_ADMIN: docs/how-to/kubernetes.md" },
        { "pod: direct", "direct", "the pod as the wall",
          "writable directories for state and /tmp, as emptyDir volumes: "
          "docs/how-to/kubernetes.md" },
    };

    if (str_is_empty(getenv("KUBERNETES_SERVICE_HOST")))
        return;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct finding finding = { 0 };
        struct refusal refusal;

        if (run_child(start_private, doctor, rows[i].backend, &refusal))
            finding_set(&finding, FINDING_OK, NULL, "%s can be had", rows[i].shape);
        else
            finding_set(&finding, FINDING_WARN, rows[i].remedy, "%s cannot be had: %s",
                        rows[i].shape, *refusal.message ? refusal.message : "no reason given");
        report(user, rows[i].name, &finding);
    }
}

const struct check sandglass_checks[] = {
    { "settings", check_settings },       { "state dir", check_state },
    { "runtime dir", check_runtime },     { "disk space", check_space },
    { "languages", check_languages },     { "daemon", check_daemon },
    { "confinement", check_confinement }, { "backends", check_backends },
    { "sandbox", check_sandbox },         { 0 },
};

static void check_store(const struct doctor *doctor, struct finding *finding)
{
    scoped(free) char *path =
        path_join(doctor->config ? doctor->config->state_dir : "/", "sandglass.db");
    struct store_report report;
    struct error err = { 0 };

    if (access(path, F_OK) < 0) {
        finding_set(finding, FINDING_OK, NULL, "no database yet at %s", path);
        return;
    }
    if (store_report_run(&report, path, doctor->config ? doctor->config->state_dir : NULL, &err) <
        0)
        finding_set(finding, FINDING_FAIL, *err.hint ? err.hint : NULL, "%s", err.message);
    else if (report.check.findings)
        finding_set(finding, FINDING_FAIL,
                    "run 'sandglass store check' for the complete list; docs/design/store.md "
                    "describes the repair",
                    "%s: %llu findings: %s", path, (unsigned long long)report.check.findings,
                    json_string_value(json_array_get(report.findings, 0)));
    else
        finding_set(finding, FINDING_OK, NULL, "%s: %llu sessions, no damage found", path,
                    (unsigned long long)report.check.sessions);
    store_report_fini(&report);
}

const struct check store_checks[] = {
    { "store", check_store },
    { 0 },
};
