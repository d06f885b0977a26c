/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/filter.h"

#include "base/alloc.h"
#include "base/scoped.h"

#include <assert.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>

/* Calls from `first` up to the next range's first have the same verdict. */
struct range {
    uint32_t first;
    uint8_t verdict;
};

int filter_errno(enum filter_verdict verdict)
{
    static const int errors[] = {
        [FILTER_REFUSED] = EPERM, [FILTER_HIDDEN] = ENOSYS,          [FILTER_IGNORED] = 0,
        [FILTER_ALLOWED] = 0,     [FILTER_ABSENT] = EPROTONOSUPPORT,
    };

    assert(verdict < FILTER_CHECKED);
    return errors[verdict];
}

static void set(struct filter *filter, int number, uint8_t verdict)
{
    if (number >= 0 && number < FILTER_CALLS)
        filter->verdicts[number] = verdict;
}

void filter_allow(struct filter *filter, int number)
{
    set(filter, number, FILTER_ALLOWED);
}

void filter_refuse(struct filter *filter, int number)
{
    set(filter, number, FILTER_REFUSED);
}

void filter_hide(struct filter *filter, int number)
{
    set(filter, number, FILTER_HIDDEN);
}

void filter_ignore(struct filter *filter, int number)
{
    set(filter, number, FILTER_IGNORED);
}

struct filter_check *filter_allow_if(struct filter *filter, int number)
{
    assert(filter->check_count < FILTER_CHECKS);
    set(filter, number, (uint8_t)(FILTER_CHECKED + filter->check_count));
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

/* --- reading ------------------------------------------------------------------------------- */

const struct filter_check *filter_check_of(const struct filter *filter, int number)
{
    uint8_t verdict = filter->verdicts[number];

    return verdict < FILTER_CHECKED ? NULL : &filter->checks[verdict - FILTER_CHECKED];
}

enum filter_verdict filter_row_verdict(const struct filter_check *check,
                                       const struct filter_row *row)
{
    if (row->absent)
        return FILTER_ABSENT;
    return row->refused || check->refuses ? FILTER_REFUSED : FILTER_ALLOWED;
}

enum filter_verdict filter_rest_verdict(const struct filter_check *check)
{
    return check->refuses ? FILTER_ALLOWED : FILTER_REFUSED;
}

/* --- emitting ------------------------------------------------------------------------------ */

static void emit(struct filter *filter, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
    if (filter->length < FILTER_CODE)
        filter->code[filter->length] = (struct sock_filter){ code, jt, jf, k };
    filter->length++;
}

/* A branch of a comparison that goes to a result or a check; each of them stands once. */
struct branch {
    size_t place;
    bool taken;
    uint8_t verdict;
};

/* How the ranges from `begin` up to `end` are distinguished: by a comparison with the first number
 * of `middle`, or, when that is 0, by comparisons with the single numbers that are not
 * `verdict`. */
struct plan {
    uint32_t cost;
    uint16_t middle;
    uint8_t verdict;
};

struct emitter {
    struct filter *filter;
    const struct range *ranges;
    size_t count;
    struct plan *plans; /* of [begin * (count + 1) + end] */
    struct branch branches[FILTER_CODE];
    unsigned branch_count;
    const struct filter_condition *loaded; /* the argument in the register, if known */
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

static void branch_to(struct emitter *emitter, size_t place, bool taken, uint8_t verdict)
{
    assert(emitter->branch_count < FILTER_CODE);
    emitter->branches[emitter->branch_count++] = (struct branch){ place, taken, verdict };
}

static void aim_branches(struct emitter *emitter, uint8_t verdict)
{
    for (unsigned i = 0; i < emitter->branch_count; i++) {
        const struct branch *branch = &emitter->branches[i];

        if (branch->verdict == verdict)
            aim(emitter->filter, branch->place, branch->taken, emitter->filter->length);
    }
}

/* --- the tree ------------------------------------------------------------------------------ */

/* Costs of one more instruction in the program, which the kernel translates twice for each sandbox,
 * and of one instruction executed for a call. */
enum { INSTRUCTION_COST = 90, STEP_COST = 1, MAX_SINGLES = 4 };

static struct plan *plan_of(const struct emitter *emitter, size_t begin, size_t end)
{
    return &emitter->plans[begin * (emitter->count + 1) + end];
}

static uint32_t first_of(const struct emitter *emitter, size_t range)
{
    return range < emitter->count ? emitter->ranges[range].first : FILTER_CALLS;
}

/* How many numbers are exceptions to `verdict`; more than are worth it when one is no number but a
 * range, as the last one is: it has no end. */
static unsigned count_singles(const struct emitter *emitter, size_t begin, size_t end,
                              uint8_t verdict)
{
    unsigned singles = 0;

    for (size_t i = begin; i < end && singles <= MAX_SINGLES; i++) {
        bool is_single = i + 1 < emitter->count &&
                         first_of(emitter, i + 1) - first_of(emitter, i) == 1;

        if (emitter->ranges[i].verdict != verdict)
            singles += is_single ? 1 : MAX_SINGLES + 1;
    }
    return singles;
}

static void offer(struct plan *plan, uint32_t cost, size_t middle, uint8_t verdict)
{
    if (cost < plan->cost)
        *plan = (struct plan){ cost, (uint16_t)middle, verdict };
}

static void plan_ranges(struct emitter *emitter, size_t begin, size_t end)
{
    struct plan *plan = plan_of(emitter, begin, end);
    uint32_t numbers = first_of(emitter, end) - first_of(emitter, begin);
    uint32_t comparison = INSTRUCTION_COST + numbers * STEP_COST;

    plan->cost = end - begin == 1 ? 0 : UINT32_MAX;
    for (size_t i = begin; i < end && i < begin + 2; i++) {
        unsigned singles = count_singles(emitter, begin, end, emitter->ranges[i].verdict);

        if (singles > 0 && singles <= MAX_SINGLES)
            offer(plan, singles * comparison, 0, emitter->ranges[i].verdict);
    }
    for (size_t middle = begin + 1; middle < end; middle++)
        offer(plan,
              comparison + plan_of(emitter, begin, middle)->cost +
                  plan_of(emitter, middle, end)->cost,
              middle, 0);
}

static void plan_tree(struct emitter *emitter)
{
    for (size_t length = 1; length <= emitter->count; length++) {
        for (size_t begin = 0; begin + length <= emitter->count; begin++)
            plan_ranges(emitter, begin, begin + length);
    }
}

static void emit_tree(struct emitter *emitter, size_t begin, size_t end);

/* One side of a comparison: the ranges [begin, end). */
static void emit_side(struct emitter *emitter, size_t place, bool taken, size_t begin, size_t end)
{
    if (end - begin == 1) {
        branch_to(emitter, place, taken, emitter->ranges[begin].verdict);
        return;
    }
    aim(emitter->filter, place, taken, emitter->filter->length);
    emit_tree(emitter, begin, end);
}

static void emit_singles(struct emitter *emitter, size_t begin, size_t end, uint8_t verdict)
{
    size_t place = 0;

    for (size_t i = begin; i < end; i++) {
        const struct range *range = &emitter->ranges[i];

        if (range->verdict == verdict)
            continue;
        place = emitter->filter->length;
        emit(emitter->filter, BPF_JMP | BPF_JEQ | BPF_K, range->first, 0, 0);
        branch_to(emitter, place, true, range->verdict);
    }
    branch_to(emitter, place, false, verdict);
}

static void emit_tree(struct emitter *emitter, size_t begin, size_t end)
{
    const struct plan *plan = plan_of(emitter, begin, end);
    size_t place = emitter->filter->length;

    if (!plan->middle) {
        emit_singles(emitter, begin, end, plan->verdict);
        return;
    }
    emit(emitter->filter, BPF_JMP | BPF_JGE | BPF_K, emitter->ranges[plan->middle].first, 0, 0);
    emit_side(emitter, place, false, begin, plan->middle);
    emit_side(emitter, place, true, plan->middle, end);
}

/* --- checks -------------------------------------------------------------------------------- */

static bool is_same_value(const struct filter_condition *a, const struct filter_condition *b)
{
    return a && a->argument == b->argument && a->mask == b->mask;
}

/* Returns the index of the comparison; when it holds, execution continues with the next
 * instruction. */
static size_t emit_condition(struct emitter *emitter, const struct filter_condition *condition)
{
    struct filter *filter = emitter->filter;

    if (!is_same_value(emitter->loaded, condition)) {
        emit(filter, BPF_LD | BPF_W | BPF_ABS,
             (uint32_t)offsetof(struct seccomp_data, args) +
                 8 * (condition->argument % FILTER_HIGH) +
                 (condition->argument >= FILTER_HIGH ? 4 : 0),
             0, 0);
        if (condition->mask != UINT32_MAX)
            emit(filter, BPF_ALU | BPF_AND | BPF_K, condition->mask, 0, 0);
    }
    emitter->loaded = condition;
    emit(filter, BPF_JMP | BPF_JEQ | BPF_K, condition->value, 0, 0);
    return filter->length - 1;
}

static bool begin_alike(const struct filter_row *a, const struct filter_row *b, unsigned depth)
{
    const struct filter_condition *condition = &a->conditions[depth];

    return a->count > depth + 1 && b->count > depth + 1 &&
           is_same_value(condition, &b->conditions[depth]) &&
           condition->value == b->conditions[depth].value;
}

/* Consecutive rows with the same first conditions share the code of these. If no row matches,
 * execution continues behind them. */
static void emit_rows(struct emitter *emitter, const struct filter_check *check, unsigned begin,
                      unsigned end, unsigned depth)
{
    while (begin < end) {
        const struct filter_row *row = &check->rows[begin];
        bool is_last = row->count == depth + 1;
        unsigned next = begin + 1;
        size_t place = emit_condition(emitter, &row->conditions[depth]);

        while (next < end && begin_alike(row, &check->rows[next], depth))
            next++;
        if (is_last) {
            branch_to(emitter, place, true, (uint8_t)filter_row_verdict(check, row));
        } else {
            emit_rows(emitter, check, begin, next, depth + 1);
            emitter->loaded = NULL;
        }
        aim(emitter->filter, place, false, emitter->filter->length);
        begin = next;
    }
}

static void emit_result(struct filter *filter, enum filter_verdict verdict)
{
    uint32_t result = verdict == FILTER_ALLOWED
                          ? SECCOMP_RET_ALLOW
                          : SECCOMP_RET_ERRNO | (uint32_t)filter_errno(verdict);

    if (verdict == FILTER_REFUSED && filter->refusal)
        result = filter->refusal;
    emit(filter, BPF_RET | BPF_K, result, 0, 0);
}

static void emit_checks(struct emitter *emitter)
{
    const struct filter *filter = emitter->filter;

    for (unsigned i = 0; i < filter->check_count; i++) {
        const struct filter_check *check = &filter->checks[i];

        aim_branches(emitter, (uint8_t)(FILTER_CHECKED + i));
        emitter->loaded = NULL;
        emit_rows(emitter, check, 0, check->count, 0);
        emit_result(emitter->filter, filter_rest_verdict(check));
    }
}

static void emit_results(struct emitter *emitter)
{
    for (enum filter_verdict verdict = 0; verdict < FILTER_CHECKED; verdict++) {
        aim_branches(emitter, (uint8_t)verdict);
        emit_result(emitter->filter, verdict);
    }
}

/* --- all of it ----------------------------------------------------------------------------- */

static size_t find_ranges(const struct filter *filter, struct range ranges[FILTER_CALLS + 2])
{
    size_t count = 0;

    for (uint32_t number = 0; number < FILTER_CALLS; number++) {
        if (count > 0 && ranges[count - 1].verdict == filter->verdicts[number])
            continue;
        ranges[count++] = (struct range){ number, filter->verdicts[number] };
    }
    /* Refuse all higher numbers, the foreign calls above 0x40000000 among them. */
    if (ranges[count - 1].verdict != FILTER_REFUSED)
        ranges[count++] = (struct range){ FILTER_CALLS, FILTER_REFUSED };
    /* The search tree needs at least two ranges. */
    if (count == 1)
        ranges[count++] = (struct range){ FILTER_CALLS, FILTER_REFUSED };
    return count;
}

int filter_compile(struct filter *filter, uint32_t architecture)
{
    static struct range ranges[FILTER_CALLS + 2];
    scoped(free) struct emitter *emitter = xnew(struct emitter);
    size_t count = find_ranges(filter, ranges);
    scoped(free) struct plan *plans = xcalloc((count + 1) * (count + 1), sizeof(*plans));

    emitter->filter = filter;
    emitter->ranges = ranges;
    emitter->count = count;
    emitter->plans = plans;
    plan_tree(emitter);
    filter->length = 0;
    emit(filter, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    emit(filter, BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0);
    emit_result(filter, FILTER_REFUSED);
    emit(filter, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    emit_tree(emitter, 0, count);
    emit_checks(emitter);
    emit_results(emitter);
    return filter->length <= FILTER_CODE ? 0 : -1;
}
