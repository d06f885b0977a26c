/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Errors are values: the caller owns a `struct error`, the callee fills it and returns -1.
 *
 * The code is the kind of failure: the API maps it to a status, the CLI to an exit code. The
 * message gains context on the way up (error_wrap); the hint names a remedy.
 */

#include "base/hint.h"
#include "base/macros.h"

#include <stdbool.h>

enum error_code {
    ERR_NONE = 0,
    ERR_INVALID,      /* the caller's input is wrong: 400 */
    ERR_UNAUTHORIZED, /* no or unknown credentials: 401 */
    ERR_FORBIDDEN,    /* not allowed for this caller: 403 */
    ERR_NOT_FOUND,    /* 404, also for objects of another owner */
    ERR_CONFLICT,     /* wrong generation, parameters differ, wrong state: 409 */
    ERR_GONE,         /* the object has ended: 410 */
    ERR_TOO_LARGE,    /* 413 */
    ERR_LIMIT,        /* over a limit: 429 */
    ERR_INTERNAL,     /* a bug or an exhausted host: 500 */
    ERR_BACKEND,      /* the sandbox or its backend failed: 502 */
    ERR_UNAVAILABLE,  /* shutting down, store away: 503 */
    ERR_TIMEOUT,      /* not ready in time: 504 */
    ERR_NO_SPACE,     /* 507 */
    ERR_CODES
};

struct error {
    enum error_code code;
    int sys_errno;  /* 0 unless the failure came from a system call */
    bool retryable; /* the same request may succeed later */
    char name[48];  /* stable machine-readable name, such as "session_not_found" */
    char message[512];
    char hint[256];
    enum hint hint_kind; /* its text for other readers; HINT_NONE: `hint` is for all */
};

/* Each returns -1, so that `return error_set(…)` reads as the failure it is. `err` may be NULL. */
int error_set(struct error *err, enum error_code code, const char *format, ...) PRINTF_LIKE(3, 4);
int error_sys(struct error *err, const char *format, ...) PRINTF_LIKE(2, 3); /* uses errno */
int error_wrap(struct error *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* As error_set, with the machine-readable name that clients match on. */
int error_named(struct error *err, enum error_code code, const char *name, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* For an object that lives long and rarely fails: *kept, an allocated copy or NULL, becomes a copy
 * of `err`; NULL when that is NULL or ERR_NONE. */
void error_keep(struct error **kept, const struct error *err);

/* Adds the remedy; returns -1. */
int error_hint(struct error *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Adds a remedy that has a text for each surface; returns -1. A text for HTTP with details is given by
 * error_hint(), and its kind set behind that. */
int error_hint_known(struct error *err, enum hint hint);

/* The remedy as readers of the surface need it; "" without one. */
const char *error_hint_for(const struct error *err, enum surface surface);

/* The default name of a code: "invalid", "not_found", … */
const char *error_code_name(enum error_code code);
