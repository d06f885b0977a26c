/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const code_names[ERR_CODES] = {
    [ERR_NONE] = "none",
    [ERR_INVALID] = "invalid",
    [ERR_UNAUTHORIZED] = "unauthorized",
    [ERR_FORBIDDEN] = "forbidden",
    [ERR_NOT_FOUND] = "not_found",
    [ERR_CONFLICT] = "conflict",
    [ERR_GONE] = "gone",
    [ERR_TOO_LARGE] = "too_large",
    [ERR_LIMIT] = "limit",
    [ERR_INTERNAL] = "internal",
    [ERR_BACKEND] = "backend",
    [ERR_UNAVAILABLE] = "unavailable",
    [ERR_TIMEOUT] = "timeout",
    [ERR_NO_SPACE] = "no_space",
};

static bool code_is_retryable(enum error_code code)
{
    return code == ERR_LIMIT || code == ERR_BACKEND || code == ERR_UNAVAILABLE ||
           code == ERR_TIMEOUT;
}

/* A file system that is full and a host that is out of descriptors or memory are not the same. */
static enum error_code code_from_errno(int number)
{
    switch (number) {
    case ENOSPC:
    case EDQUOT:
        return ERR_NO_SPACE;
    case ETIMEDOUT:
        return ERR_TIMEOUT;
    default:
        return ERR_INTERNAL;
    }
}

static void error_fill(struct error *err, enum error_code code, const char *name,
                       const char *format, va_list args)
{
    *err = (struct error){ .code = code, .retryable = code_is_retryable(code) };
    snprintf(err->name, sizeof(err->name), "%s", name);
    vsnprintf(err->message, sizeof(err->message), format, args);
}

int error_set(struct error *err, enum error_code code, const char *format, ...)
{
    va_list args;

    if (!err)
        return -1;
    va_start(args, format);
    error_fill(err, code, code_names[code], format, args);
    va_end(args);
    return -1;
}

int error_named(struct error *err, enum error_code code, const char *name, const char *format, ...)
{
    va_list args;

    if (!err)
        return -1;
    va_start(args, format);
    error_fill(err, code, name, format, args);
    va_end(args);
    return -1;
}

int error_sys(struct error *err, const char *format, ...)
{
    int number = errno;
    size_t length;
    va_list args;

    if (!err)
        return -1;
    va_start(args, format);
    error_fill(err, code_from_errno(number), code_names[code_from_errno(number)], format, args);
    va_end(args);
    err->sys_errno = number;
    length = strlen(err->message);
    snprintf(err->message + length, sizeof(err->message) - length, ": %s", strerror(number));
    errno = number;
    return -1;
}

int error_wrap(struct error *err, const char *format, ...)
{
    char inner[sizeof(err->message)];
    size_t length;
    va_list args;

    if (!err)
        return -1;
    memcpy(inner, err->message, sizeof(inner));
    va_start(args, format);
    vsnprintf(err->message, sizeof(err->message), format, args);
    va_end(args);
    length = strlen(err->message);
    snprintf(err->message + length, sizeof(err->message) - length, ": %.*s",
             (int)(sizeof(err->message) - length), inner);
    return -1;
}

int error_hint(struct error *err, const char *format, ...)
{
    va_list args;

    if (!err)
        return -1;
    va_start(args, format);
    vsnprintf(err->hint, sizeof(err->hint), format, args);
    va_end(args);
    err->hint_kind = HINT_NONE;
    return -1;
}

int error_hint_known(struct error *err, enum hint hint)
{
    if (!err)
        return -1;
    error_hint(err, "%s", hint_text(hint, SURFACE_HTTP));
    err->hint_kind = hint;
    return -1;
}

const char *error_hint_for(const struct error *err, enum surface surface)
{
    return err->hint_kind == HINT_NONE || surface == SURFACE_HTTP
               ? err->hint
               : hint_text(err->hint_kind, surface);
}

const char *error_code_name(enum error_code code)
{
    return code_names[code];
}

void error_keep(struct error **kept, const struct error *err)
{
    struct error *copy = NULL;

    if (err && err->code != ERR_NONE) {
        copy = xnew(struct error);
        *copy = *err;
    }
    free(*kept);
    *kept = copy;
}
