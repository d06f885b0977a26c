/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/worker.h"

#include "base/alloc.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct job_queue {
    struct job *first; /* borrowed */
    struct job *last;
};

struct worker {
    pthread_mutex_t lock; /* guards the fields up to the next comment */
    pthread_cond_t submitted;
    pthread_cond_t finished;
    struct job_queue waiting;
    struct job_queue ended;
    bool quitting;
    /* the loop's own */
    size_t open; /* submitted, done not called yet */
    struct io_watch wake;
    int wake_fd; /* owned; readable while there are ended jobs */
    unsigned thread_count;
    pthread_t threads[];
};

static void queue_push(struct job_queue *queue, struct job *job)
{
    job->next = NULL;
    if (queue->last)
        queue->last->next = job;
    else
        queue->first = job;
    queue->last = job;
}

static struct job *queue_pop(struct job_queue *queue)
{
    struct job *job = queue->first;

    if (job && !(queue->first = job->next))
        queue->last = NULL;
    return job;
}

/* Wakes the loop once for each batch of ended jobs. The lock is released for that, or the loop
 * would wake up only to wait for it. */
static void job_finish(struct worker *worker, struct job *job)
{
    bool wake = !worker->ended.first;

    queue_push(&worker->ended, job);
    if (!wake)
        return;
    pthread_cond_signal(&worker->finished);
    pthread_mutex_unlock(&worker->lock);
    eventfd_write(worker->wake_fd, 1);
    pthread_mutex_lock(&worker->lock);
}

static void *worker_thread(void *context)
{
    struct worker *worker = context;
    struct job *job;

    pthread_mutex_lock(&worker->lock);
    for (;;) {
        while (!(job = queue_pop(&worker->waiting)) && !worker->quitting)
            pthread_cond_wait(&worker->submitted, &worker->lock);
        if (!job)
            break;
        pthread_mutex_unlock(&worker->lock);
        job->run(job);
        pthread_mutex_lock(&worker->lock);
        job_finish(worker, job);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

static void call_done(struct worker *worker, struct job_queue ended)
{
    struct job *job;

    while ((job = queue_pop(&ended))) {
        worker->open--;
        job->done(job);
    }
}

static struct job_queue take_ended(struct worker *worker)
{
    struct job_queue ended;

    pthread_mutex_lock(&worker->lock);
    ended = worker->ended;
    worker->ended = (struct job_queue){ 0 };
    pthread_mutex_unlock(&worker->lock);
    return ended;
}

static void on_jobs_ended(struct io_watch *watch, unsigned events UNUSED)
{
    struct worker *worker = container_of(watch, struct worker, wake);
    eventfd_t count;

    eventfd_read(worker->wake_fd, &count);
    call_done(worker, take_ended(worker));
}

/* Threads are made when the daemon starts: it does not, and says why. */
static _Noreturn void give_up(int number)
{
    dprintf(STDERR_FILENO,
            "sandglass: start a thread: %s\n"
            "sandglass: raise the limit of processes: ulimit -u, or LimitNPROC= and TasksMax= in "
            "systemd\n",
            strerror(number));
    _exit(EXIT_FAILURE);
}

/* Signals belong to the loop's thread, except for SIGSYS, which a refused system call raises in its
 * own thread: blocked it would end the process. */
static void start_threads(struct worker *worker, const char *name)
{
    char short_name[16];
    sigset_t all;
    sigset_t old;

    snprintf(short_name, sizeof(short_name), "%s", name);
    sigfillset(&all);
    sigdelset(&all, SIGSYS);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (unsigned i = 0; i < worker->thread_count; i++) {
        int number = pthread_create(&worker->threads[i], NULL, worker_thread, worker);

        if (number != 0)
            give_up(number);
        pthread_setname_np(worker->threads[i], short_name);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

struct worker *worker_new(struct loop *loop, unsigned threads, const char *name)
{
    struct worker *worker = xcalloc(1, sizeof(*worker) + threads * sizeof(pthread_t));

    assert(threads > 0);
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->submitted, NULL);
    pthread_cond_init(&worker->finished, NULL);
    worker->thread_count = threads;
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert(worker->wake_fd >= 0);
    io_watch_start(&worker->wake, loop, worker->wake_fd, IO_READ, on_jobs_ended);
    start_threads(worker, name);
    return worker;
}

bool worker_drain(struct worker *worker)
{
    bool any = worker && worker->open;

    while (worker && worker->open) {
        pthread_mutex_lock(&worker->lock);
        while (!worker->ended.first)
            pthread_cond_wait(&worker->finished, &worker->lock);
        pthread_mutex_unlock(&worker->lock);
        call_done(worker, take_ended(worker));
    }
    return any;
}

void worker_free(struct worker *worker)
{
    if (!worker)
        return;
    (void)worker_drain(worker);
    pthread_mutex_lock(&worker->lock);
    worker->quitting = true;
    pthread_cond_broadcast(&worker->submitted);
    pthread_mutex_unlock(&worker->lock);
    for (unsigned i = 0; i < worker->thread_count; i++)
        pthread_join(worker->threads[i], NULL);
    io_watch_stop(&worker->wake);
    fd_close(worker->wake_fd);
    pthread_cond_destroy(&worker->finished);
    pthread_cond_destroy(&worker->submitted);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
}

void worker_submit(struct worker *worker, struct job *job)
{
    worker->open++;
    pthread_mutex_lock(&worker->lock);
    queue_push(&worker->waiting, job);
    pthread_mutex_unlock(&worker->lock);
    pthread_cond_signal(&worker->submitted);
}
