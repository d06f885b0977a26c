/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Logging: an event with a fixed name and typed fields, as text for people or as JSON lines.
 *
 *     log_info("session stopped", kv("session", session->id), kv("age_s", age_s));
 *
 * Levels: error, someone has to act; warn, degraded but going on; info, the life of a session;
 * debug, the rest. Secrets and program output are never fields. Safe from any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

enum log_kind { LOG_KIND_TEXT, LOG_KIND_INT, LOG_KIND_UINT, LOG_KIND_DOUBLE, LOG_KIND_BOOL };

struct log_field {
    const char *key;
    enum log_kind kind;
    union {
        const char *text;
        int64_t integer;
        uint64_t natural;
        double number;
        bool truth;
    } value;
};

void log_setup(enum log_level level, enum log_format format, int fd);
bool log_enabled(enum log_level level);
void log_event(enum log_level level, const char *event, const struct log_field *fields,
               size_t count);

static inline struct log_field log_text(const char *key, const char *text)
{
    return (struct log_field){ key, LOG_KIND_TEXT, { .text = text } };
}

static inline struct log_field log_int(const char *key, int64_t integer)
{
    return (struct log_field){ key, LOG_KIND_INT, { .integer = integer } };
}

static inline struct log_field log_uint(const char *key, uint64_t natural)
{
    return (struct log_field){ key, LOG_KIND_UINT, { .natural = natural } };
}

static inline struct log_field log_double(const char *key, double number)
{
    return (struct log_field){ key, LOG_KIND_DOUBLE, { .number = number } };
}

static inline struct log_field log_bool(const char *key, bool truth)
{
    return (struct log_field){ key, LOG_KIND_BOOL, { .truth = truth } };
}

#define kv(key, value) \
    _Generic((value),                                                                              \
        char *: log_text,                                                                          \
        const char *: log_text,                                                                    \
        bool: log_bool,                                                                            \
        float: log_double,                                                                         \
        double: log_double,                                                                        \
        unsigned: log_uint,                                                                        \
        unsigned long: log_uint,                                                                   \
        unsigned long long: log_uint,                                                              \
        default: log_int)(key, value)

#define log_at(level, event, ...)                                                   \
    do {                                                                            \
        if (log_enabled(level)) {                                                   \
            const struct log_field fields_[] = { __VA_ARGS__ };                     \
            log_event(level, event, fields_, sizeof(fields_) / sizeof(fields_[0])); \
        }                                                                           \
    } while (0)

#define log_debug(event, ...) log_at(LOG_DEBUG, event, __VA_ARGS__)
#define log_info(event, ...) log_at(LOG_INFO, event, __VA_ARGS__)
#define log_warn(event, ...) log_at(LOG_WARN, event, __VA_ARGS__)
#define log_error(event, ...) log_at(LOG_ERROR, event, __VA_ARGS__)

/* For a message that may come again and again. Zeroed before. */
struct log_repeat {
    int64_t next_us;
    uint64_t left_out;
};

/* Whether to log a repeated event: the first one, then one in ten seconds. `out_left_out`: the
 * number of events left out since the last one logged. */
bool log_repeat_is_due(struct log_repeat *repeat, int64_t now_us, uint64_t *out_left_out);
