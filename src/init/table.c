/* SPDX-License-Identifier: Apache-2.0 */
#include "init/init.h"
#include "init/sys.h"

#include <string.h>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

enum { LARGE_MESSAGE = 16 * 1024 };

struct settings settings = {
    .default_user = "",
    .workspace = "",
    .null_fd = -1,
    .proc_fd = -1,
    .event_fd = -1,
};
TABLE_OF_STATES struct process processes[PROTOCOL_MAX_PROCESSES];

static struct job jobs[MAX_JOBS];
static TABLE_OF_MEMORY struct job_memory memories[MAX_JOBS];
static unsigned places;
static _Atomic uint64_t reported[PROTOCOL_MAX_PROCESSES / 64];
static atomic_bool is_report_expected;

static bool is_remembered(const struct process *process)
{
    return process->state != PROCESS_FREE && process->state != PROCESS_LINGERING;
}

struct process *process_find(uint64_t number)
{
    for (unsigned i = 0; i < places; i++)
        if (processes[i].number == number && is_remembered(&processes[i]))
            return &processes[i];
    return NULL;
}

struct process *process_allocate(uint64_t number)
{
    for (unsigned i = 0; i < PROTOCOL_MAX_PROCESSES; i++) {
        struct process *process = &processes[i];

        if (process->state != PROCESS_FREE)
            continue;
        *process = (struct process){
            .number = number,
            .state = PROCESS_STARTING,
            .input = -1,
            .output = -1,
            .errors = -1,
            .inner = { -1, -1, -1, -1 },
            .script = -1,
            .control = -1,
            .socket = -1,
        };
        if (i >= places)
            places = i + 1;
        return process;
    }
    return NULL;
}

void process_close_inner(struct process *process)
{
    for (unsigned i = 0; i < sizeof process->inner / sizeof process->inner[0]; i++)
        sys_drop(&process->inner[i]);
    sys_drop(&process->script);
    if (!(process->flags & START_ZYGOTE))
        sys_drop(&process->control);
}

void process_close_pipes(struct process *process)
{
    sys_drop(&process->input);
    sys_drop(&process->output);
    sys_drop(&process->errors);
    sys_drop(&process->control);
}

void process_release(struct process *process)
{
    process_close_inner(process);
    process_close_pipes(process);
    sys_drop(&process->socket);
    process->state = PROCESS_FREE;
}

void process_settle(struct process *process)
{
    if (process->state == PROCESS_LINGERING && !process->supervisor && !process->pending)
        process_release(process);
}

unsigned process_count(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < places; i++)
        count += is_remembered(&processes[i]);
    return count;
}

unsigned process_places(void)
{
    return places;
}

struct job *job_get_free(void)
{
    for (unsigned i = 0; i < MAX_JOBS; i++)
        if (jobs[i].kind == JOB_FREE) {
            jobs[i].memory = &memories[i];
            return &jobs[i];
        }
    return NULL;
}

/* The last clone on this stack left it by exec or exit, so its sanitizer's red zones remain. The
 * next clone may have its variables elsewhere. */
static void unmark_stack(struct job *job)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(job->memory->stack, sizeof job->memory->stack);
#else
    (void)job;
#endif
}

/* Memory that a large message or a long walk has used goes back to the sandbox. */
void job_release(struct job *job)
{
    if (job->length > LARGE_MESSAGE || job->kind != JOB_START)
        (void)sys(madvise, job->memory, sizeof *job->memory, MADV_DONTNEED);
    unmark_stack(job);
    job->kind = JOB_FREE;
    job->process = NULL;
    job->helper = 0;
}

bool file_is_stream(const struct protocol_file *file)
{
    uint32_t kind = file->kind;

    return kind == FILE_LIST || kind == FILE_GLOB || kind == FILE_GREP || kind == FILE_PACK ||
           kind == FILE_UNPACK || kind == FILE_READ || kind == FILE_WRITE ||
           (kind == FILE_DESCRIBE && file->depth > 0);
}

unsigned job_count_streams(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MAX_JOBS; i++)
        count += jobs[i].kind == JOB_FILE && file_is_stream(jobs[i].file) &&
                 atomic_load(&jobs[i].answered);
    return count;
}

unsigned job_count_watches(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MAX_JOBS; i++)
        count += jobs[i].kind == JOB_FILE && jobs[i].file->kind == FILE_WATCH;
    return count;
}

struct job *job_find_helper(int pid)
{
    for (unsigned i = 0; i < MAX_JOBS; i++)
        if (jobs[i].kind > JOB_START && jobs[i].helper == pid)
            return &jobs[i];
    return NULL;
}

void report_note(struct process *process, unsigned report)
{
    unsigned place = (unsigned)(process - processes);

    atomic_fetch_or(&process->reports, report);
    atomic_fetch_or(&reported[place / 64], 1ull << (place % 64));
}

static void wake_init(void)
{
    uint64_t one = 1;

    (void)sys(write, settings.event_fd, &one, sizeof one);
}

void report_post(struct process *process, unsigned report)
{
    report_note(process, report);
    wake_init();
}

void report_hint(void)
{
    if (atomic_load(&is_report_expected))
        wake_init();
}

bool report_expect(bool is_expected)
{
    atomic_store(&is_report_expected, is_expected);
    for (unsigned word = 0; word * 64 < places; word++)
        if (atomic_load(&reported[word]))
            return true;
    return false;
}

struct process *report_next(void)
{
    for (unsigned word = 0; word * 64 < places; word++) {
        uint64_t bits = atomic_load(&reported[word]);
        unsigned bit;

        if (!bits)
            continue;
        bit = (unsigned)__builtin_ctzll(bits);
        atomic_fetch_and(&reported[word], ~(1ull << bit));
        return &processes[word * 64 + bit];
    }
    return NULL;
}
