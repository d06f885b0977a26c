/* SPDX-License-Identifier: Apache-2.0 */
#include "init/payload.h"

#include "init/credentials.h"
#include "init/defaults.h"
#include "init/init.h"
#include "init/path.h"
#include "init/storage.h"
#include "init/sys.h"
#include "init/text.h"
#include "init/zygote.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define OWN_PROGRAMS "/.local/bin:"

enum { FD_SCRIPT = 3, FD_CONTROL = 4 };

static __attribute__((noreturn)) void fail(const struct job *job, enum protocol_stage stage,
                                           long error)
{
    job->process->failed_error = (int)-error;
    job->process->failed_stage = stage;
    sys_exit(127);
}

static void place_descriptors(const struct process *process)
{
    bool has_script = process->script >= 0;
    bool is_zygote = process->inner[3] >= 0;

    for (int i = 0; i < 3; i++) {
        int fd = process->inner[process->flags & START_TTY ? 0 : i];

        if (fd >= 0) /* without one, init's own 0 is /dev/null already */
            (void)sys(dup2, fd, i);
    }
    if (has_script)
        (void)sys(dup2, process->script, FD_SCRIPT);
    if (is_zygote)
        (void)sys(dup2, process->inner[3], FD_CONTROL);
    sys_close_from(is_zygote ? FD_CONTROL + 1 : has_script ? FD_SCRIPT + 1 : FD_SCRIPT);
}

static void take_terminal(const struct job *job)
{
    if (!(job->process->flags & START_TTY))
        return;
    (void)sys(ioctl, 0, TIOCSCTTY, 0);
    if (!job->memory->user.unchanged) {
        (void)sys(fchown, 0, job->memory->user.uid, -1);
        (void)sys(fchmod, 0, 0620);
    }
}

static void set_limits(const struct job *job)
{
    const struct protocol_start *start = job->start;
    struct rlimit files = settings.nofile;
    struct rlimit size = { start->file_size_bytes, start->file_size_bytes };
    long result = 0;

    if (start->nofile && start->nofile <= files.rlim_max)
        files.rlim_cur = files.rlim_max = start->nofile;
    result = sys(prlimit64, 0, RLIMIT_NOFILE, &files, NULL);
    if (!result && start->file_size_bytes)
        result = sys(prlimit64, 0, RLIMIT_FSIZE, &size, NULL);
    if (result < 0)
        fail(job, STAGE_LIMIT, result);

    (void)sys(umask, start->umask);
}

static long copy_script(int target, char *buffer, size_t size)
{
    long offset = 0;

    for (;;) {
        long got = sys(pread64, FD_SCRIPT, buffer, size, offset);

        if (got <= 0)
            return got;
        offset += got;
        if (offset > PROTOCOL_MAX_SCRIPT_BYTES)
            return -EFBIG;
        for (long written = 0; written < got;) {
            long result = sys(write, target, buffer + written, got - written);

            if (result < 0)
                return result;
            written += result;
        }
    }
}

static void write_script(const struct job *job)
{
    char name[PATH_NAME_SIZE];
    char buffer[8192];
    long result;
    int dir;

    if (!(job->process->flags & START_SCRIPT))
        return;
    dir = path_open_parent(job->texts.script_path, true, name);
    if (dir < 0)
        fail(job, STAGE_SCRIPT, dir);
    result = sys_open(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600, 0);
    if (result >= 0) {
        int target = (int)result;

        result = copy_script(target, buffer, sizeof buffer);
        sys_close(target);
        if (result < 0)
            (void)sys(unlinkat, dir, name, 0);
    }
    sys_close(dir);
    sys_close(FD_SCRIPT);
    if (result < 0)
        fail(job, STAGE_SCRIPT, result);
}

static void enter_directory(const struct job *job)
{
    const char *cwd = job->texts.cwd;
    long result = cwd[0] ? path_change_directory(cwd)
                         : defaults_enter_directory(&job->memory->user);

    if (result < 0)
        fail(job, STAGE_CWD, result);
}

/* --- environment ---------------------------------------------------------------------------- */

struct environment {
    const char **entries;
    unsigned count;
    char *spare; /* room for new entries */
    char *spare_end;
};

static void environment_default(struct environment *environment, const char *prefix,
                                const char *value)
{
    size_t length = strlen(prefix);
    size_t size = length + strlen(value) + 1;
    char name[32];

    memcpy(name, prefix, length - 1);
    name[length - 1] = 0;
    if (text_has_variable(environment->entries, name) ||
        size > (size_t)(environment->spare_end - environment->spare))
        return;
    memcpy(environment->spare, prefix, length);
    memcpy(environment->spare + length, value, size - length);
    environment->entries[environment->count++] = environment->spare;
    environment->entries[environment->count] = NULL;
    environment->spare += size;
}

static void environment_inherit(struct environment *environment)
{
    for (const char *const *variable = defaults_environment(); *variable; variable++) {
        if (text_has_same_variable(environment->entries, *variable))
            continue;
        environment->entries[environment->count++] = *variable;
        environment->entries[environment->count] = NULL;
    }
}

static bool has_user_variables(const char *const *env)
{
    return text_has_variable(env, "HOME") && text_has_variable(env, "USER") &&
           text_has_variable(env, "LOGNAME") && text_has_variable(env, "SHELL");
}

/* A direct sandbox sees the host's files, of which it may change none: its home is its workspace,
 * and temporary files go into the directory that the launcher has made beside it. */
static void complete_directories(struct environment *environment)
{
    char path[WORKSPACE_SIZE + 8];
    const char *slash = strrchr(settings.workspace, '/');
    size_t length = slash ? (size_t)(slash - settings.workspace) : 0;

    environment_default(environment, "HOME=", settings.workspace);
    memcpy(path, settings.workspace, length);
    memcpy(path + length, "/tmp", sizeof "/tmp");
    environment_default(environment, "TMPDIR=", path);
}

static const char *find_variable(const char *const *env, const char *prefix, const char *fallback)
{
    for (; *env; env++)
        if (!strncmp(*env, prefix, strlen(prefix)))
            return *env + strlen(prefix);
    return fallback;
}

/* Programs that a user installs without root come first, as in a login. */
static void complete_path(struct environment *environment, const char *user_home)
{
    char path[USER_PATH_SIZE + sizeof OWN_PROGRAMS + sizeof DEFAULT_PATH] = "";
    const char *home = find_variable(environment->entries, "HOME=", user_home);
    size_t length = strlen(home);

    if (!settings.direct && length > 1 && length < USER_PATH_SIZE) {
        memcpy(path, home, length);
        memcpy(path + length, OWN_PROGRAMS, sizeof OWN_PROGRAMS);
    }
    length = strlen(path);
    memcpy(path + length, DEFAULT_PATH, sizeof DEFAULT_PATH);
    environment_default(environment, "PATH=", path);
}

static void complete_environment(const struct job *job)
{
    struct job_memory *memory = job->memory;
    struct environment environment = {
        .entries = memory->strings + job->start->argc + 1,
        .count = job->start->envc,
        .spare = memory->variables,
        .spare_end = memory->variables + sizeof memory->variables,
    };

    environment_inherit(&environment);
    complete_path(&environment, memory->user.home);
    if (settings.direct && settings.workspace[0])
        complete_directories(&environment);
    environment_default(&environment, "HOME=", memory->user.home);
    environment_default(&environment, "USER=", memory->user.name);
    environment_default(&environment, "LOGNAME=", memory->user.name);
    environment_default(&environment, "SHELL=", memory->user.shell);
    if (storage_name()[0])
        environment_default(&environment, "SANDGLASS_STORAGE=", storage_name());
}

/* --- exec ----------------------------------------------------------------------------------- */

static long execute_path(const char *path, const struct protocol_start_texts *texts)
{
    long result = path_check(path);

    return result < 0 ? result : sys(execve, path, texts->argv, texts->env);
}

static long execute_search(const struct protocol_start_texts *texts)
{
    const char *name = texts->argv[0];
    const char *at = find_variable(texts->env, "PATH=", DEFAULT_PATH);
    long verdict = -ENOENT;

    for (;;) {
        size_t length = strcspn(at, ":");
        char path[PROTOCOL_MAX_PATH];

        if (length + strlen(name) + 3 < sizeof path) {
            long result;

            memcpy(path, length ? at : ".", length ? length : 1);
            path[length ? length : 1] = '/';
            memcpy(path + (length ? length : 1) + 1, name, strlen(name) + 1);
            result = sys(execve, path, texts->argv, texts->env);
            if (result == -EACCES)
                verdict = result;
            else if (result != -ENOENT && result != -ENOTDIR)
                return result;
        }
        if (!at[length])
            return verdict;
        at += length + 1;
    }
}

static long execute(const struct protocol_start_texts *texts)
{
    const char *name = texts->argv[0];

    if (!name[0])
        return -ENOENT;
    return strchr(name, '/') ? execute_path(name, texts) : execute_search(texts);
}

static void payload_prepare(void)
{
    credentials_volunteer_for_the_oom_killer();
    (void)sys(setsid);
}

void payload_run(void *argument)
{
    struct job *job = argument;
    struct process *process = job->process;
    uint64_t no_signals = 0;
    long result;

    payload_prepare();
    result = sys(close_range, ~0u, ~0u, CLOSE_RANGE_UNSHARE_);
    if (result == -EINVAL || result == -ENOSYS)
        result = sys(unshare, CLONE_FILES);
    if (result < 0)
        fail(job, STAGE_SPAWN, result);
    place_descriptors(process);
    result = -defaults_find_user(job->texts.user, !has_user_variables(job->texts.env),
                                 &job->memory->user);
    if (result < 0)
        fail(job, STAGE_USER, result);
    process->uid = job->memory->user.uid;
    process->gid = job->memory->user.gid;
    take_terminal(job);
    set_limits(job);
    if (!job->texts.cwd[0])
        defaults_restore_directory(&job->memory->user);
    result = credentials_become(&job->memory->user);
    if (result < 0)
        fail(job, STAGE_USER, result);

    write_script(job);
    enter_directory(job);
    if (process->flags & START_ZYGOTE)
        zygote_note_directory(process, defaults_directory(&job->memory->user));
    complete_environment(job);
    result = credentials_seal(&job->memory->user);
    if (result < 0)
        fail(job, STAGE_SPAWN, result);
    (void)sys(rt_sigprocmask, SIG_SETMASK, &no_signals, NULL, SIGNAL_SET_SIZE);
    fail(job, STAGE_EXEC, execute(&job->texts));
}
