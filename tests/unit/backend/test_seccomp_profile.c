/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/seccomp_profile.h"

#include "backend/native/filter.h"
#include "backend/native/seccomp.h"
#include "base/alloc.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "program.h"
#include "wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * The profile is compared with the program of native sandboxes in two ways: by its rules, as the
 * specification of containers has them, and compiled by libseccomp, which is what engines do with
 * it.
 */

enum { ARGUMENTS = 6, MAX_RULES = 1024, MAX_INSTRUCTIONS = 8192, SAMPLES = 400000 };

#define REFUSED (SECCOMP_RET_ERRNO | EPERM)

struct rule {
    struct scmp_arg_cmp conditions[ARGUMENTS];
    unsigned count;
    uint32_t result;
};

/* Rules of one call, in the order of the profile. */
static struct {
    struct rule *rules[MAX_RULES];
    size_t count;
} calls[FILTER_CALLS];

struct program {
    struct sock_filter code[MAX_INSTRUCTIONS];
    size_t length;
};

static struct filter filter;
static struct program compiled;
static uint64_t seed;

static uint64_t any(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* --- reading the profile -------------------------------------------------------------------- */

static int number_of(const char *wanted)
{
    for (int number = 0; number < FILTER_CALLS; number++) {
        scoped(free) char *name = seccomp_name_of(number);

        if (name && strcmp(name, wanted) == 0)
            return number;
    }
    fail_msg("no call has the name %s", wanted);
    return -1;
}

static uint64_t integer_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    assert_true(json_is_integer(value));
    return (uint64_t)json_integer_value(value);
}

static struct scmp_arg_cmp condition_of(const json_t *object)
{
    assert_string_equal(json_string_value(json_object_get(object, "op")), "SCMP_CMP_MASKED_EQ");
    return (struct scmp_arg_cmp){
        .arg = (unsigned)integer_of(object, "index"),
        .op = SCMP_CMP_MASKED_EQ,
        .datum_a = integer_of(object, "value"),
        .datum_b = integer_of(object, "valueTwo"),
    };
}

static uint32_t result_of(const json_t *rule)
{
    const char *action = json_string_value(json_object_get(rule, "action"));

    if (strcmp(action, "SCMP_ACT_ALLOW") == 0)
        return SECCOMP_RET_ALLOW;
    assert_string_equal(action, "SCMP_ACT_ERRNO");
    return SECCOMP_RET_ERRNO | (uint32_t)integer_of(rule, "errnoRet");
}

static void add_rule(int number, const json_t *object)
{
    const json_t *arguments = json_object_get(object, "args");
    struct rule *rule = xnew(struct rule);

    assert_true(calls[number].count < MAX_RULES);
    rule->result = result_of(object);
    assert_int_not_equal(rule->result, REFUSED); /* engines drop rules that repeat the default */
    rule->count = (unsigned)json_array_size(arguments);
    for (unsigned i = 0; i < rule->count; i++) {
        rule->conditions[i] = condition_of(json_array_get(arguments, i));
        /* runc takes two conditions on one argument for two rules. */
        assert_true(i == 0 || rule->conditions[i].arg > rule->conditions[i - 1].arg);
    }
    calls[number].rules[calls[number].count++] = rule;
}

static void forget_rules(void)
{
    for (int number = 0; number < FILTER_CALLS; number++) {
        for (size_t i = 0; i < calls[number].count; i++)
            free(calls[number].rules[i]);
        calls[number].count = 0;
    }
}

/* A mask of 64 bits is more than our reader of JSON takes; -1 has the same bits. */
static void replace_full_masks(char *text)
{
    static const char full[] = "18446744073709551615";
    static const char minus[] = "                  -1";

    for (char *at = strstr(text, full); at; at = strstr(at, full))
        memcpy(at, minus, strlen(minus));
}

static void read_profile(const struct seccomp_options *options)
{
    scoped(free) char *text = seccomp_profile_new(options);
    scoped(json_decref) json_t *profile = NULL;
    struct error err = { 0 };
    const json_t *rule, *name;
    size_t i, j;

    replace_full_masks(text);
    profile = json_read(text, strlen(text), &err);
    assert_non_null(profile);
    assert_string_equal(json_string_value(json_object_get(profile, "defaultAction")),
                        "SCMP_ACT_ERRNO");
    assert_int_equal(integer_of(profile, "defaultErrnoRet"), EPERM);
    forget_rules();
    json_array_foreach(json_object_get(profile, "syscalls"), i, rule)
    {
        json_array_foreach(json_object_get(rule, "names"), j, name)
        {
            add_rule(number_of(json_string_value(name)), rule);
        }
    }
}

/* --- what becomes of a call ----------------------------------------------------------------- */

static bool applies(const struct rule *rule, const struct seccomp_data *data)
{
    for (unsigned i = 0; i < rule->count; i++) {
        const struct scmp_arg_cmp *condition = &rule->conditions[i];

        if ((data->args[condition->arg] & condition->datum_a) != condition->datum_b)
            return false;
    }
    return true;
}

/* By the rules of the profile, of which no two may disagree. */
static uint32_t judge(const struct seccomp_data *data)
{
    uint32_t result = REFUSED;

    if (data->nr < 0 || data->nr >= FILTER_CALLS)
        return REFUSED;
    for (size_t i = 0; i < calls[data->nr].count; i++) {
        const struct rule *rule = calls[data->nr].rules[i];

        if (!applies(rule, data))
            continue;
        assert_true(result == REFUSED || result == rule->result);
        result = rule->result;
    }
    return result;
}

/* As an engine does. */
static void compile(struct program *program)
{
    scmp_filter_ctx context = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    scoped(fd_close) int fd = memfd_create("profile", MFD_CLOEXEC);
    ssize_t size;

    assert_non_null(context);
    assert_true(fd >= 0);
    for (int number = 0; number < FILTER_CALLS; number++) {
        for (size_t i = 0; i < calls[number].count; i++) {
            const struct rule *rule = calls[number].rules[i];

            assert_int_equal(seccomp_rule_add_array(context, rule->result, number, rule->count,
                                                    rule->conditions),
                             0);
        }
    }
    assert_int_equal(seccomp_export_bpf(context, fd), 0);
    seccomp_release(context);
    size = pread(fd, program->code, sizeof(program->code), 0);
    assert_true(size > 0 && (size_t)size < sizeof(program->code));
    program->length = (size_t)size / sizeof(program->code[0]);
}

static void prepare(const struct seccomp_options *options)
{
    seed = 88172645463325252U;
    filter = (struct filter){ 0 };
    seccomp_fill(&filter, options);
    assert_int_equal(filter_compile(&filter, AUDIT_ARCH_X86_64), 0);
    read_profile(options);
    compile(&compiled);
}

static void assert_agrees(const struct seccomp_data *data)
{
    uint32_t native = program_run(filter.code, filter.length, data);
    uint32_t rules = judge(data);
    uint32_t engine = program_run(compiled.code, compiled.length, data);

    if (native == rules && native == engine)
        return;
    fail_msg("call %d (%#llx, %#llx, %#llx, %#llx): native %#x, the rules %#x, libseccomp %#x",
             data->nr, (unsigned long long)data->args[0], (unsigned long long)data->args[1],
             (unsigned long long)data->args[2], (unsigned long long)data->args[3], native, rules,
             engine);
}

/* --- samples -------------------------------------------------------------------------------- */

/* Numbers of both halves as programs pass them: as they are, with a sign, and with rubbish. */
static uint64_t spread(uint64_t value)
{
    switch (any() % 4) {
    case 0:
        return (uint32_t)value;
    case 1:
        return (uint64_t)(int64_t)(int32_t)value;
    default:
        return value;
    }
}

/* Arguments to which a row of the check applies, or nearly. */
static void aim_at(struct seccomp_data *data, const struct filter_check *check)
{
    const struct filter_row *row = &check->rows[any() % check->count];

    for (unsigned i = 0; i < row->count; i++) {
        const struct filter_condition *condition = &row->conditions[i];
        unsigned shift = condition->argument >= FILTER_HIGH ? 32 : 0;
        __u64 *argument = &data->args[condition->argument % FILTER_HIGH];

        *argument &= ~((uint64_t)condition->mask << shift);
        *argument |= (uint64_t)condition->value << shift;
        if (any() % 4 == 0)
            *argument ^= UINT64_C(1) << any() % 64;
        if (any() % 4 == 0) /* small numbers are what programs pass */
            *argument = any() % 64;
        *argument = spread(*argument);
    }
}

static struct seccomp_data sample(int number)
{
    const struct filter_check *check = filter_check_of(&filter, number);
    struct seccomp_data data = { .nr = number, .arch = AUDIT_ARCH_X86_64 };

    for (unsigned i = 0; i < ARGUMENTS; i++)
        data.args[i] = any() % 2 ? any() : any() % 1024;
    if (check && check->count)
        aim_at(&data, check);
    return data;
}

/* More of them, for once: SANDGLASS_SAMPLES=100000000. */
static unsigned long sample_count(void)
{
    const char *text = getenv("SANDGLASS_SAMPLES");

    return text ? strtoul(text, NULL, 10) : SAMPLES;
}

static void compare_all(const struct seccomp_options *options)
{
    int checked[FILTER_CALLS];
    size_t count = 0;

    prepare(options);
    for (int number = 0; number < FILTER_CALLS; number++) {
        for (unsigned i = 0; i < 32; i++) {
            struct seccomp_data data = sample(number);

            assert_agrees(&data);
        }
        if (filter_check_of(&filter, number))
            checked[count++] = number;
    }
    assert_true(count > 10);
    for (unsigned long i = sample_count(); i > 0; i--) {
        struct seccomp_data data = sample(checked[any() % count]);

        assert_agrees(&data);
    }
}

static void the_profile_agrees_with_the_program(void **state UNUSED)
{
    compare_all(&(struct seccomp_options){ .tier = SECCOMP_DEFAULT });
}

static void the_strict_profile_agrees_with_the_strict_program(void **state UNUSED)
{
    compare_all(&(struct seccomp_options){ .tier = SECCOMP_STRICT });
}

static void the_profile_for_another_kernel_keeps_the_core_limit(void **state UNUSED)
{
    struct seccomp_data data = { .nr = SYS_prlimit64,
                                 .arch = AUDIT_ARCH_X86_64,
                                 .args = { 0, 4 /* RLIMIT_CORE */, 4096 } };

    compare_all(&(struct seccomp_options){ .is_foreign = true });
    assert_int_equal(judge(&data), REFUSED);
    data.args[1] = 7;
    assert_int_equal(judge(&data), SECCOMP_RET_ALLOW);
}

/* No container needs it, but it has the one condition about the upper half of an argument. */
static void both_halves_of_an_argument_can_be_asked_for(void **state UNUSED)
{
    compare_all(&(struct seccomp_options){ .asks_limits = true, .is_foreign = true });
}

/* Every small request, because a terminal's are, and each of them with a sign or rubbish above. */
static void no_request_of_a_terminal_slips_through(void **state UNUSED)
{
    prepare(&(struct seccomp_options){ 0 });
    for (uint64_t request = 0; request < 0x10000; request++) {
        static const uint64_t above[] = { 0, 1, 0xffffffff, 0x80000000, 0x5412 };

        for (size_t i = 0; i < ARRAY_LENGTH(above); i++) {
            struct seccomp_data data = { .nr = SYS_ioctl,
                                         .arch = AUDIT_ARCH_X86_64,
                                         .args = { 0, above[i] << 32 | request } };

            assert_agrees(&data);
        }
    }
}

static void calls_of_other_architectures_end_the_program(void **state UNUSED)
{
    struct seccomp_data small = { .nr = 20, .arch = AUDIT_ARCH_I386 };
    struct seccomp_data x32 = { .nr = 0x40000000 + SYS_getpid, .arch = AUDIT_ARCH_X86_64 };

    prepare(&(struct seccomp_options){ 0 });
    assert_int_equal(program_run(compiled.code, compiled.length, &small), SECCOMP_RET_KILL);
    assert_int_equal(program_run(compiled.code, compiled.length, &x32), SECCOMP_RET_KILL);
}

/* The kernel takes 4096 instructions, and a runtime may put some of its own before them. */
static void the_profile_fits_into_the_kernel(void **state UNUSED)
{
    prepare(&(struct seccomp_options){ .is_foreign = true });
    assert_in_range(compiled.length, 100, 3000);
}

static int group_teardown(void **state UNUSED)
{
    forget_rules();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_profile_agrees_with_the_program),
        cmocka_unit_test(the_strict_profile_agrees_with_the_strict_program),
        cmocka_unit_test(the_profile_for_another_kernel_keeps_the_core_limit),
        cmocka_unit_test(both_halves_of_an_argument_can_be_asked_for),
        cmocka_unit_test(no_request_of_a_terminal_slips_through),
        cmocka_unit_test(calls_of_other_architectures_end_the_program),
        cmocka_unit_test(the_profile_fits_into_the_kernel),
    };

    return cmocka_run_group_tests_name("backend/seccomp_profile", tests, NULL, group_teardown);
}
