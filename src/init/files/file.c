#include "init/files/file.h"

#include "init/connection.h"
#include "init/credentials.h"
#include "init/files/file_work.h"
#include "init/init.h"
#include "init/sys.h"

#include <errno.h>
#include <string.h>

_Static_assert(FILE_TEXTS + sizeof(union file_memory) <= PROTOCOL_MAX_MESSAGE,
               "a helper works in what its message leaves of the buffer");

static void answer(struct job *job, struct protocol_file_done *done, const char *temporary, int fd)
{
    alignas(8) char message[sizeof *done + PROTOCOL_MAX_TEMPORARY];
    long length;

    done->header.request = job->request;
    length = protocol_file_done_encode(message, sizeof message, done, temporary);
    if (length > 0)
        (void)connection_send_from_helper(FD_HELPER_SOCKET, message, (size_t)length, fd);
    atomic_store(&job->answered, true);
}

/* Of init's descriptors a helper keeps the connection and /proc: an end of a pipe that it held
 * would keep that pipe open. */
static void keep_descriptors(int socket)
{
    int proc = (int)sys(fcntl, settings.proc_fd, F_DUPFD, FD_HELPERS);

    socket = (int)sys(fcntl, socket, F_DUPFD, FD_HELPERS);
    (void)sys(dup2, socket, FD_HELPER_SOCKET);
    (void)sys(dup2, proc, FD_HELPER_PROC);
    (void)sys(close_range, FD_HELPERS, ~0u, 0);
}

static __attribute__((noreturn)) void helper_run(void *argument)
{
    struct job *job = argument;
    struct file_work work = { .job = job, .fd = -1 };
    const char *user = job->file_texts.user[0] ? job->file_texts.user : settings.default_user;
    int error;

    keep_descriptors(job->socket);
    error = user_find(user, false, &job->memory->user);
    if (!error) {
        credentials_restore_home(&job->memory->user);
        error = -credentials_act_for(&job->memory->user);
    }
    /* Relative paths mean the same as for a process: this is a clone with a directory of its own.
     */
    if (!error && !settings.direct)
        (void)sys(chdir, job->memory->user.home);
    if (!error)
        error = -file_work_do(&work);
    work.done.error = error;
    answer(job, &work.done, error ? "" : work.temporary, error ? -1 : work.fd);
    if (!error && work.go_on) {
        sys_drop(&work.fd);
        work.go_on(&work);
    }
    sys_exit(0);
}

static void refuse(uint64_t request, int error)
{
    struct protocol_file_done done = { .header.request = request, .error = error };
    alignas(8) char message[sizeof done + 8];
    long length = protocol_file_done_encode(message, sizeof message, &done, "");

    connection_answer(message, (size_t)length);
}

int file_begin(struct job *job, size_t length)
{
    long pid;

    job->file = protocol_file_decode(job->memory->message, length, &job->file_texts);
    if (!job->file || !job->file->header.request)
        return -1;
    job->request = job->file->header.request;
    if ((file_is_stream(job->file->kind) && job_count_streams() >= MAX_STREAMS) ||
        (job->file->kind == FILE_WATCH && job_count_watches() >= MAX_WATCHES)) {
        refuse(job->request, EAGAIN);
        return 0;
    }

    job->kind = JOB_FILE;
    job->length = length;
    job->connection = connection.generation;
    job->socket = connection.fd;
    atomic_store(&job->answered, false);
    pid = sys_clone_call(CLONE_VM | SIGCHLD, job->memory->stack + JOB_STACK, helper_run, job, NULL);
    if (pid < 0) {
        refuse(job->request, (int)-pid);
        job_release(job);
        return 0;
    }
    job->helper = (int)pid;
    return 0;
}

void file_end(struct job *job)
{
    if (!atomic_load(&job->answered) && job->connection == connection.generation)
        refuse(job->request, EIO);
    job_release(job);
}
