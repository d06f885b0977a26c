/* SPDX-License-Identifier: Apache-2.0 */
#include "init/files/file.h"

#include "init/connection.h"
#include "init/credentials.h"
#include "init/defaults.h"
#include "init/files/connect.h"
#include "init/files/file_work.h"
#include "init/files/ports.h"
#include "init/init.h"
#include "init/sys.h"

#include <errno.h>
#include <string.h>

_Static_assert(FILE_TEXTS + sizeof(union file_memory) <= PROTOCOL_MAX_MESSAGE,
               "a helper works in the buffer behind its message");

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
    sys_close_from(FD_HELPERS);
}

static int do_file(struct file_work *work)
{
    struct user *user = &work->job->memory->user;
    int result;

    defaults_restore_directory(user);
    result = credentials_act_for(user, work->job->file->flags & FILE_BY_ROOT);
    /* Relative paths mean the same as for a process: this is a clone with a directory of its own.
     */
    if (!result)
        (void)defaults_enter_directory(user);
    return result ? result : file_work_do(work);
}

/* The helper's work before its answer. Ports are listed with init's own rights. */
static int do_work(struct file_work *work)
{
    struct job *job = work->job;
    int error;

    if (job->kind == JOB_PORTS)
        return ports_open(work);
    error = defaults_find_user(job->file_texts.user, false, &job->memory->user);
    if (error)
        return -error;
    return job->kind == JOB_CONNECT ? connect_open(work) : do_file(work);
}

static __attribute__((noreturn)) void helper_run(void *argument)
{
    struct job *job = argument;
    struct file_work work = { .job = job, .fd = -1, .base = -1, .stream = -1, .file = -1 };
    int error;

    keep_descriptors(job->socket);
    error = -do_work(&work);
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

static void begin(struct job *job, enum job_kind kind, size_t length)
{
    long pid;

    job->kind = kind;
    job->length = length;
    job->connection = connection.generation;
    job->socket = connection.fd;
    atomic_store(&job->answered, false);
    pid = sys_clone_call(CLONE_VM | SIGCHLD, job->memory->stack + JOB_STACK, helper_run, job, NULL);
    if (pid < 0) {
        refuse(job->request, (int)-pid);
        job_release(job);
        return;
    }
    job->helper = (int)pid;
}

int file_begin(struct job *job, size_t length)
{
    job->file = protocol_file_decode(job->memory->message, length, &job->file_texts);
    if (!job->file || !job->file->header.request)
        return -1;
    job->request = job->file->header.request;
    if ((file_is_stream(job->file) && job_count_streams() >= MAX_STREAMS) ||
        (job->file->kind == FILE_WATCH && job_count_watches() >= MAX_WATCHES)) {
        refuse(job->request, EAGAIN);
        return 0;
    }
    begin(job, JOB_FILE, length);
    return 0;
}

int file_begin_connect(struct job *job, size_t length)
{
    job->file_texts = (struct protocol_file_texts){ 0 };
    job->connect = protocol_connect_decode(job->memory->message, length, &job->file_texts.user,
                                           &job->file_texts.path);
    if (!job->connect || !job->connect->header.request)
        return -1;
    job->request = job->connect->header.request;
    begin(job, JOB_CONNECT, length);
    return 0;
}

int file_begin_ports(struct job *job, size_t length)
{
    const struct protocol_plain *plain = protocol_plain_decode(job->memory->message, length);

    if (!plain || !plain->header.request)
        return -1;
    job->request = plain->header.request;
    job->file_texts = (struct protocol_file_texts){ .user = "", .path = "" };
    begin(job, JOB_PORTS, length);
    return 0;
}

void file_end(struct job *job)
{
    if (!atomic_load(&job->answered) && job->connection == connection.generation)
        refuse(job->request, EIO);
    job_release(job);
}
