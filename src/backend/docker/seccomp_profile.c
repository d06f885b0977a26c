/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/seccomp_profile.h"

#include "backend/native/filter.h"
#include "backend/native/seccomp.h"
#include "base/alloc.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "wire/json.h"

#include <assert.h>
#include <seccomp.h>
#include <stdio.h>

enum { ARGUMENTS = 6, ARGUMENT_BITS = 64, PROFILE_MAXIMUM = 1024 * 1024 };

/* Arguments of a call: of each one the bits of the mask are those of the value. */
struct pattern {
    uint64_t masks[ARGUMENTS];
    uint64_t values[ARGUMENTS];
};

struct patterns {
    struct pattern *items;
    size_t count;
};

static void scoped_patterns_fini(struct patterns *patterns)
{
    free(patterns->items);
}

static void patterns_append(struct patterns *patterns, const struct pattern *pattern)
{
    patterns->items = xrealloc(patterns->items, patterns->count + 1, sizeof(*pattern));
    patterns->items[patterns->count++] = *pattern;
}

static struct pattern pattern_of(const struct filter_row *row)
{
    struct pattern pattern = { 0 };

    for (unsigned i = 0; i < row->count; i++) {
        const struct filter_condition *condition = &row->conditions[i];
        unsigned argument = condition->argument % FILTER_HIGH;
        unsigned shift = condition->argument >= FILTER_HIGH ? 32 : 0;

        pattern.masks[argument] |= (uint64_t)condition->mask << shift;
        pattern.values[argument] |= (uint64_t)condition->value << shift;
    }
    return pattern;
}

static bool patterns_meet(const struct pattern *a, const struct pattern *b)
{
    for (unsigned i = 0; i < ARGUMENTS; i++)
        if ((a->values[i] ^ b->values[i]) & a->masks[i] & b->masks[i])
            return false;
    return true;
}

/* Appends `whole` minus `part`, which overlap: for each bit that `part` asks for and `whole` does
 * not, the arguments that agree with `part` in all bits before and not in this one. */
static void append_difference(struct patterns *out, struct pattern whole,
                              const struct pattern *part)
{
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        for (unsigned bit = ARGUMENT_BITS; bit-- > 0;) {
            uint64_t mask = UINT64_C(1) << bit;

            if (!(part->masks[i] & ~whole.masks[i] & mask))
                continue;
            whole.masks[i] |= mask;
            whole.values[i] |= ~part->values[i] & mask;
            patterns_append(out, &whole);
            whole.values[i] ^= mask;
        }
    }
}

static void patterns_subtract(struct patterns *patterns, const struct pattern *part)
{
    struct patterns rest = { 0 };

    for (size_t i = 0; i < patterns->count; i++) {
        if (patterns_meet(&patterns->items[i], part))
            append_difference(&rest, patterns->items[i], part);
        else
            patterns_append(&rest, &patterns->items[i]);
    }
    free(patterns->items);
    *patterns = rest;
}

/* --- writing ------------------------------------------------------------------------------- */

static void put_u64(struct json_writer *json, const char *key, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    json_put_raw(json, key, text);
}

static void put_arguments(struct json_writer *json, const struct pattern *pattern)
{
    json_begin_array(json, "args");
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        if (!pattern->masks[i])
            continue;
        json_begin_object(json, NULL);
        json_put_int(json, "index", i);
        put_u64(json, "value", pattern->masks[i]);
        put_u64(json, "valueTwo", pattern->values[i]);
        json_put_text(json, "op", "SCMP_CMP_MASKED_EQ");
        json_end_object(json);
    }
    json_end_array(json);
}

static void put_action(struct json_writer *json, enum filter_verdict verdict)
{
    if (verdict == FILTER_ALLOWED) {
        json_put_text(json, "action", "SCMP_ACT_ALLOW");
        return;
    }
    json_put_text(json, "action", "SCMP_ACT_ERRNO");
    json_put_int(json, "errnoRet", filter_errno(verdict));
}

static void put_rule(struct json_writer *json, const char *name, enum filter_verdict verdict,
                     const struct pattern *pattern)
{
    json_begin_object(json, NULL);
    json_begin_array(json, "names");
    json_put_text(json, NULL, name);
    json_end_array(json);
    put_action(json, verdict);
    put_arguments(json, pattern);
    json_end_object(json);
}

/* All calls whose verdict does not depend on their arguments. */
static void put_plain(struct json_writer *json, const struct filter *filter,
                      enum filter_verdict verdict)
{
    json_begin_object(json, NULL);
    json_begin_array(json, "names");
    for (int number = 0; number < FILTER_CALLS; number++) {
        scoped(free) char *name = filter->verdicts[number] == verdict ? seccomp_name_of(number)
                                                                      : NULL;

        if (name)
            json_put_text(json, NULL, name);
    }
    json_end_array(json);
    put_action(json, verdict);
    json_end_object(json);
}

static void put_patterns(struct json_writer *json, const char *name, enum filter_verdict verdict,
                         const struct patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        put_rule(json, name, verdict, &patterns->items[i]);
}

/* The first row that applies decides: each row without those before it that decide otherwise, and at
 * the end everything without all rows. */
static void put_check(struct json_writer *json, const char *name, const struct filter_check *check)
{
    for (unsigned i = 0; i <= check->count; i++) {
        const struct filter_row *row = i < check->count ? &check->rows[i] : NULL;
        enum filter_verdict verdict = row ? filter_row_verdict(check, row)
                                          : filter_rest_verdict(check);
        struct pattern whole = row ? pattern_of(row) : (struct pattern){ 0 };
        scoped(patterns_fini) struct patterns patterns = { 0 };

        if (verdict == FILTER_REFUSED)
            continue;
        patterns_append(&patterns, &whole);
        for (unsigned before = 0; before < i; before++) {
            struct pattern part = pattern_of(&check->rows[before]);

            if (filter_row_verdict(check, &check->rows[before]) != verdict)
                patterns_subtract(&patterns, &part);
        }
        put_patterns(json, name, verdict, &patterns);
    }
}

static void put_checks(struct json_writer *json, const struct filter *filter)
{
    for (int number = 0; number < FILTER_CALLS; number++) {
        const struct filter_check *check = filter_check_of(filter, number);
        scoped(free) char *name = check ? seccomp_name_of(number) : NULL;

        if (name)
            put_check(json, name, check);
    }
}

/* The engine's name of this architecture. */
static const char *architecture_name(void)
{
    switch (seccomp_arch_native()) {
    case SCMP_ARCH_AARCH64:
        return "SCMP_ARCH_AARCH64";
    case SCMP_ARCH_RISCV64:
        return "SCMP_ARCH_RISCV64";
    default:
        return "SCMP_ARCH_X86_64";
    }
}

char *seccomp_profile_new(const struct seccomp_options *options)
{
    static const enum filter_verdict verdicts[] = { FILTER_ALLOWED, FILTER_HIDDEN, FILTER_IGNORED };
    scoped(free) struct filter *filter = xnew(struct filter);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(PROFILE_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    seccomp_fill(filter, options);
    json_begin_object(&json, NULL);
    json_put_text(&json, "defaultAction", "SCMP_ACT_ERRNO");
    json_put_int(&json, "defaultErrnoRet", filter_errno(FILTER_REFUSED));
    json_begin_array(&json, "architectures");
    json_put_text(&json, NULL, architecture_name());
    json_end_array(&json);
    json_begin_array(&json, "syscalls");
    for (size_t i = 0; i < ARRAY_LENGTH(verdicts); i++)
        put_plain(&json, filter, verdicts[i]);
    put_checks(&json, filter);
    json_end_array(&json);
    json_end_object(&json);
    assert(!text.overflowed);
    return buffer_steal_text(&text);
}
