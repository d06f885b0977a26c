#include "backend/native/filter.h"

#include <assert.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>

/* Those from CHECKED on are the checks of a call; ABSENT is the result of a row only. */
enum { REFUSED, ALLOWED, HIDDEN, IGNORED, CHECKED, ABSENT = UINT8_MAX };

/* Calls from `first` up to the next range's first have the same verdict. */
struct range {
    uint32_t first;
    uint8_t verdict;
};

static const uint32_t results[] = {
    [REFUSED] = SECCOMP_RET_ERRNO | EPERM,
    [ALLOWED] = SECCOMP_RET_ALLOW,
    [HIDDEN] = SECCOMP_RET_ERRNO | ENOSYS,
    [IGNORED] = SECCOMP_RET_ERRNO | 0,
};

static void set(struct filter *filter, int number, uint8_t verdict)
{
    if (number >= 0 && number < FILTER_CALLS)
        filter->verdicts[number] = verdict;
}

void filter_allow(struct filter *filter, int number)
{
    set(filter, number, ALLOWED);
}

void filter_hide(struct filter *filter, int number)
{
    set(filter, number, HIDDEN);
}

void filter_ignore(struct filter *filter, int number)
{
    set(filter, number, IGNORED);
}

struct filter_check *filter_allow_if(struct filter *filter, int number)
{
    assert(filter->check_count < FILTER_CHECKS);
    set(filter, number, (uint8_t)(CHECKED + filter->check_count));
    return &filter->checks[filter->check_count++];
}

struct filter_check *filter_refuse_if(struct filter *filter, int number)
{
    struct filter_check *check = filter_allow_if(filter, number);

    check->refuses = true;
    return check;
}

void filter_add_row(struct filter_check *check, const struct filter_condition *conditions,
                    unsigned count)
{
    struct filter_row *row = &check->rows[check->count];

    assert(check->count < FILTER_ROWS && count <= FILTER_CONDITIONS);
    memcpy(row->conditions, conditions, sizeof(*conditions) * count);
    row->count = count;
    check->count++;
}

void filter_add_absent(struct filter_check *check, const struct filter_condition *conditions,
                       unsigned count)
{
    filter_add_row(check, conditions, count);
    check->rows[check->count - 1].absent = true;
}

void filter_add_refused(struct filter_check *check, const struct filter_condition *conditions,
                        unsigned count)
{
    filter_add_row(check, conditions, count);
    check->rows[check->count - 1].refused = true;
}

/* --- emitting ------------------------------------------------------------------------------ */

static void emit(struct filter *filter, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
    if (filter->length < FILTER_CODE)
        filter->code[filter->length] = (struct sock_filter){ code, jt, jf, k };
    filter->length++;
}

static void emit_result(struct filter *filter, uint8_t verdict)
{
    emit(filter, BPF_RET | BPF_K,
         verdict == ABSENT ? SECCOMP_RET_ERRNO | EPROTONOSUPPORT : results[verdict], 0, 0);
}

/* Where the leaf of a call that is checked stands: it jumps to its check. */
struct fixup {
    size_t place;
    uint8_t check;
};

/* A branch of a comparison that goes to a result; each result stands once, behind the tree. */
struct branch {
    size_t place;
    bool taken;
    uint8_t verdict;
};

struct emitter {
    struct filter *filter;
    const struct range *ranges;
    struct fixup fixups[FILTER_CHECKS];
    unsigned fixup_count;
    struct branch branches[FILTER_CALLS + 1];
    unsigned branch_count;
};

/* The offset of a jump is a byte. */
static void aim(struct filter *filter, size_t place, bool taken, size_t target)
{
    size_t offset = target - place - 1;

    if (offset > UINT8_MAX || place >= FILTER_CODE)
        filter->length = FILTER_CODE + 1;
    else if (taken)
        filter->code[place].jt = (uint8_t)offset;
    else
        filter->code[place].jf = (uint8_t)offset;
}

static void emit_tree(struct emitter *emitter, size_t begin, size_t end);

/* One side of a comparison: the ranges [begin, end). */
static void emit_side(struct emitter *emitter, size_t place, bool taken, size_t begin, size_t end)
{
    struct filter *filter = emitter->filter;
    uint8_t verdict = emitter->ranges[begin].verdict;

    if (end - begin == 1 && verdict < CHECKED) {
        emitter->branches[emitter->branch_count++] = (struct branch){ place, taken, verdict };
        return;
    }
    aim(filter, place, taken, filter->length);
    if (end - begin > 1) {
        emit_tree(emitter, begin, end);
        return;
    }
    emitter->fixups[emitter->fixup_count++] =
        (struct fixup){ filter->length, (uint8_t)(verdict - CHECKED) };
    emit(filter, BPF_JMP | BPF_JA, 0, 0, 0);
}

static void emit_tree(struct emitter *emitter, size_t begin, size_t end)
{
    size_t middle = begin + (end - begin) / 2;
    size_t place = emitter->filter->length;

    emit(emitter->filter, BPF_JMP | BPF_JGE | BPF_K, emitter->ranges[middle].first, 0, 0);
    emit_side(emitter, place, false, begin, middle);
    emit_side(emitter, place, true, middle, end);
}

static void emit_results(struct emitter *emitter)
{
    for (uint8_t verdict = 0; verdict < CHECKED; verdict++) {
        size_t target = emitter->filter->length;

        emit_result(emitter->filter, verdict);
        for (unsigned i = 0; i < emitter->branch_count; i++) {
            const struct branch *branch = &emitter->branches[i];

            if (branch->verdict == verdict)
                aim(emitter->filter, branch->place, branch->taken, target);
        }
    }
}

static unsigned row_size(const struct filter_row *row)
{
    unsigned size = 1;

    for (unsigned i = 0; i < row->count; i++)
        size += row->conditions[i].mask == UINT32_MAX ? 2 : 3;
    return size;
}

/* A condition that fails goes on behind the row; behind the last one stands its result. */
static void emit_row(struct filter *filter, const struct filter_row *row, uint8_t verdict)
{
    unsigned left = row_size(row);

    for (unsigned i = 0; i < row->count; i++) {
        const struct filter_condition *condition = &row->conditions[i];
        bool masked = condition->mask != UINT32_MAX;

        left -= masked ? 3 : 2;
        emit(filter, BPF_LD | BPF_W | BPF_ABS,
             (uint32_t)offsetof(struct seccomp_data, args) +
                 8 * (condition->argument % FILTER_HIGH) +
                 (condition->argument >= FILTER_HIGH ? 4 : 0),
             0, 0);
        if (masked)
            emit(filter, BPF_ALU | BPF_AND | BPF_K, condition->mask, 0, 0);
        emit(filter, BPF_JMP | BPF_JEQ | BPF_K, condition->value, 0, (uint8_t)left);
    }
    emit_result(filter, verdict);
}

static void emit_check(struct filter *filter, const struct filter_check *check)
{
    for (unsigned i = 0; i < check->count; i++) {
        const struct filter_row *row = &check->rows[i];

        emit_row(filter, row,
                 row->absent                      ? ABSENT
                 : row->refused || check->refuses ? REFUSED
                                                  : ALLOWED);
    }
    emit_result(filter, check->refuses ? ALLOWED : REFUSED);
}

static size_t find_ranges(const struct filter *filter, struct range ranges[FILTER_CALLS + 2])
{
    size_t count = 0;

    for (uint32_t number = 0; number < FILTER_CALLS; number++) {
        if (count > 0 && ranges[count - 1].verdict == filter->verdicts[number])
            continue;
        ranges[count++] = (struct range){ number, filter->verdicts[number] };
    }
    /* Whatever comes after, the foreign calls above 0x40000000 among it. */
    if (ranges[count - 1].verdict != REFUSED)
        ranges[count++] = (struct range){ FILTER_CALLS, REFUSED };
    return count;
}

static void resolve(struct emitter *emitter)
{
    struct filter *filter = emitter->filter;

    for (unsigned i = 0; i < emitter->fixup_count; i++) {
        size_t place = emitter->fixups[i].place;

        if (place < FILTER_CODE)
            filter->code[place].k = (uint32_t)(filter->length - place - 1);
        emit_check(filter, &filter->checks[emitter->fixups[i].check]);
    }
}

int filter_compile(struct filter *filter, uint32_t architecture)
{
    static struct range ranges[FILTER_CALLS + 2];
    struct emitter emitter = { .filter = filter, .ranges = ranges };
    size_t count = find_ranges(filter, ranges);

    /* A tree has two sides: what is behind all calls is one of them. */
    if (count == 1)
        ranges[count++] = (struct range){ FILTER_CALLS, REFUSED };

    filter->length = 0;
    emit(filter, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    emit(filter, BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0);
    emit_result(filter, REFUSED);
    emit(filter, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    emit_tree(&emitter, 0, count);
    emit_results(&emitter);
    resolve(&emitter);
    return filter->length <= FILTER_CODE ? 0 : -1;
}
