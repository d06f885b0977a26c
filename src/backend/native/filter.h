/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A system call filter in the kernel's own form: a tree over ranges of call numbers, as small as it
 * can be without being deep, since the kernel compiles it for each sandbox and walks it for every
 * number; and behind it short checks of arguments for the calls that need them. Comparisons look at
 * the low 32 bits of an argument, because nearly all that are checked are ints to the kernel;
 * FILTER_HIGH added to its number means the other half.
 */

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FILTER_CALLS = 1024, FILTER_CHECKS = 24, FILTER_ROWS = 16, FILTER_CODE = 2048 };

/* The result for a call. ABSENT is the result of a row only; CHECKED and greater values are the
 * index of a check. */
enum filter_verdict {
    FILTER_REFUSED,
    FILTER_ALLOWED,
    FILTER_HIDDEN,
    FILTER_IGNORED,
    FILTER_ABSENT,
    FILTER_CHECKED
};

/* One way for a call to be allowed: every condition of the row holds. */
struct filter_condition {
    unsigned argument;
    uint32_t mask;
    uint32_t value;
};

enum { FILTER_CONDITIONS = 4, FILTER_HIGH = 8 };

struct filter_row {
    struct filter_condition conditions[FILTER_CONDITIONS];
    unsigned count;
    bool absent;  /* the result is EPROTONOSUPPORT, independent of the check */
    bool refused; /* the result is EPERM */
};

struct filter_check {
    struct filter_row rows[FILTER_ROWS];
    unsigned count;
    bool refuses; /* a row that matches refuses instead */
};

struct filter {
    uint8_t verdicts[FILTER_CALLS]; /* enum filter_verdict */
    struct filter_check checks[FILTER_CHECKS];
    unsigned check_count;
    uint32_t refusal; /* the result of a refused call; 0: EPERM */
    struct sock_filter code[FILTER_CODE];
    size_t length;
};

void filter_allow(struct filter *filter, int number);
void filter_refuse(struct filter *filter, int number); /* as all that nothing was said about */
void filter_hide(struct filter *filter, int number);   /* as if the kernel did not have it */
void filter_ignore(struct filter *filter, int number); /* nothing happens, successfully */

/* The returned check has no rows yet: the caller adds them. */
struct filter_check *filter_allow_if(struct filter *filter, int number);
struct filter_check *filter_refuse_if(struct filter *filter, int number);
void filter_add_row(struct filter_check *check, const struct filter_condition *conditions,
                    unsigned count);

/* As if the kernel did not have that protocol: programs then go on without it. */
void filter_add_absent(struct filter_check *check, const struct filter_condition *conditions,
                       unsigned count);

/* Refused, in a check whose later rows allow. */
void filter_add_refused(struct filter_check *check, const struct filter_condition *conditions,
                        unsigned count);

/* The check of a call's arguments; NULL when its verdict does not depend on them. */
const struct filter_check *filter_check_of(const struct filter *filter, int number);

/* The verdict for a call that matches the row, and for one that matches no row. */
enum filter_verdict filter_row_verdict(const struct filter_check *check,
                                       const struct filter_row *row);
enum filter_verdict filter_rest_verdict(const struct filter_check *check);

/* The error that a call gets which is neither allowed nor checked; 0: it succeeds. */
int filter_errno(enum filter_verdict verdict);

/* Writes the program into `code`: 0, or -1 when it does not fit. */
int filter_compile(struct filter *filter, uint32_t architecture);
