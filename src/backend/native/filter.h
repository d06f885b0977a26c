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
    bool absent;  /* the answer is EPROTONOSUPPORT, whatever the check says */
    bool refused; /* it is EPERM */
};

struct filter_check {
    struct filter_row rows[FILTER_ROWS];
    unsigned count;
    bool refuses; /* a row that matches refuses instead */
};

struct filter {
    uint8_t verdicts[FILTER_CALLS]; /* see filter.c */
    struct filter_check checks[FILTER_CHECKS];
    unsigned check_count;
    uint32_t refusal; /* what a refused call gets; 0: EPERM */
    struct sock_filter code[FILTER_CODE];
    size_t length;
};

void filter_allow(struct filter *filter, int number);
void filter_refuse(struct filter *filter, int number); /* as all that nothing was said about */
void filter_hide(struct filter *filter, int number);   /* as if the kernel did not have it */
void filter_ignore(struct filter *filter, int number); /* nothing happens, successfully */

/* Rows are added to what this gives. */
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

/* Writes the program into `code`: 0, or -1 when it does not fit. */
int filter_compile(struct filter *filter, uint32_t architecture);
