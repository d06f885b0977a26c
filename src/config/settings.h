/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The table of settings, private to src/config: a setting is one row, and reading, writing and
 * explaining it all go by that row. Items of lists, such as a mount, have rows of their own.
 */

#include "config/config.h"

#define CONFIG_ORIGIN_DEFAULT "default"

/* --- for the tables ------------------------------------------------------------------------ */

#define CHOICES(...) ((const char *const[]){ __VA_ARGS__, NULL })

#define KIB 1024.0
#define MIB (1024.0 * KIB)
#define GIB (1024.0 * MIB)
#define TIB (1024.0 * GIB)
#define HOUR 3600.0
#define DAY (24 * HOUR)
#define YEAR (366 * DAY)

#define CEILING_ROW(prefix, name, kind, at, member, ...)                               \
    {                                                                                  \
        .key = prefix name, .type = kind,                                              \
        .offset = (at) + offsetof(struct config_ceiling, member), .zero_is_off = true, \
        .fallback = "0", __VA_ARGS__                                                   \
    }

/* A struct config_ceiling at the offset `at`; `network` is what holds when nothing is said. */
#define CEILING_ROWS(prefix, at, any_network)                                                      \
    CEILING_ROW(prefix, "memory", SETTING_SIZE, at, memory_bytes, .min = 4 * MIB, .max = 64 * TIB, \
                .shown_default = "the host's total",                                               \
                .help = "Most memory that a caller may request for one sandbox."),                 \
        CEILING_ROW(prefix, "cpus", SETTING_CPUS, at, cpu_millis, .min = 0.01, .max = 4096,        \
                    .shown_default = "the host's total",                                           \
                    .help = "Most cores that a caller may request for one sandbox."),              \
        CEILING_ROW(prefix, "pids", SETTING_COUNT, at, pids, .min = 4, .max = 4194304,             \
                    .shown_default = "the host's total",                                           \
                    .help = "Most processes that a caller may request for one sandbox."),          \
        CEILING_ROW(prefix, "disk", SETTING_SIZE, at, disk_bytes, .min = MIB, .max = 1024 * TIB,   \
                    .shown_default = "the size of the disk of state_dir",                          \
                    .help = "Most disk space that a caller may request for one sandbox."),         \
        CEILING_ROW(prefix, "lifetime", SETTING_SECONDS, at, lifetime_ms, .min = 0.1,              \
                    .max = 10 * YEAR,                                                              \
                    .help = "Longest max_lifetime of a session that a caller may request; "        \
                            "if set, a session without an end is refused."),                       \
        CEILING_ROW(prefix, "timeout", SETTING_SECONDS, at, timeout_ms, .min = 0.1,                \
                    .max = 10 * YEAR,                                                              \
                    .help = "Longest lease that a caller may request when a session is "           \
                            "opened or extended; if set, every session has a "                     \
                            "lease."),                                                             \
        CEILING_ROW(prefix, "idle_timeout", SETTING_SECONDS, at, idle_timeout_ms, .min = 0.1,      \
                    .max = 10 * YEAR,                                                              \
                    .help = "Longest idle_timeout that a caller may request; if set, "             \
                            "every session has an idle timeout."),                                 \
    {                                                                                              \
        .key = prefix "network", .type = SETTING_CHOICE,                                           \
        .offset = (at) + offsetof(struct config_ceiling, network), .fallback = any_network,        \
        .choices = CHOICES("", "none", "open"),                                                    \
        .help = "Widest network access that a caller may request."                                 \
    }

enum setting_type {
    SETTING_TEXT,    /* char * */
    SETTING_PATH,    /* char *: absolute, or "" */
    SETTING_BOOL,    /* bool */
    SETTING_COUNT,   /* int64_t */
    SETTING_SECONDS, /* int64_t, in milliseconds */
    SETTING_SIZE,    /* uint64_t, in bytes */
    SETTING_CPUS,    /* uint32_t, in thousandths of a core */
    SETTING_MONEY,   /* int64_t, in micro-dollars; negative when not known */
    SETTING_CHOICE,  /* int: the index of one of the choices */
    SETTING_LIST,    /* struct config_list */
    SETTING_MAP,     /* struct config_map */
    SETTING_ITEMS,   /* an array of structs with rows of their own */
};

/* The layout that config_mounts and config_flavors share. */
struct setting_array {
    void *items;
    size_t count;
};

struct setting_item {
    size_t size;
    const struct setting *rows; /* ends with a row without a key */
};

struct setting {
    const char *key;
    enum setting_type type;
    size_t offset;        /* into struct config, or into the item */
    const char *fallback; /* as it would stand in the file */
    double min;           /* in the unit that people write; used when max > min */
    double max;
    bool zero_is_off;  /* 0 is allowed below min */
    bool required;     /* in items */
    bool has_password; /* a URL: shown without it */
    const char *const
        *choices; /* for CHOICE, and for a TEXT or a LIST of a few words; ends with NULL */
    const struct setting_item *item;
    const char *shown_default; /* where the fallback says too little */
    const char *help;
};

extern const struct setting_item setting_mount, setting_template, setting_flavor, setting_owner,
    setting_rule;
extern const struct setting settings[]; /* ends with a row without a key */
extern const size_t settings_count;

/* NULL when there is none. */
const struct setting *setting_find(const struct setting *rows, const char *key);

static inline void *setting_field(const struct setting *setting, void *base)
{
    return (char *)base + setting->offset;
}

/* Replaces the value in the struct at `base`. Errors do not name the setting. */
int setting_assign(const struct setting *setting, void *base, const char *text, struct error *err);
void setting_release(const struct setting *setting, void *base);

/* Fills all rows of an item with their fallbacks. */
void setting_item_init(const struct setting *rows, void *base);

void config_list_append(struct config_list *list, const char *text);
void config_list_release(struct config_list *list);

static inline void scoped_config_list_release(struct config_list *list)
{
    config_list_release(list);
}

/* Appends to the map, refusing names that no variable can have and repeated ones. */
/* One more item, which has to be one of the choices where there are any. */
int setting_list_append(const struct setting *setting, struct config_list *list, const char *text,
                        struct error *err);
int setting_map_put(struct config_map *map, const char *name, const char *value, struct error *err);
bool setting_is_variable_name(const char *text, size_t length);

/* The value of a variable for sandboxes: $NAME is read from the environment, $$ at the start is a
 * dollar sign. NULL with an error. */
char *setting_variable_value(const char *text, struct error *err);

/* Appends the value as YAML or JSON; the range as people write it. */
void setting_format(const struct setting *setting, const void *base, struct buffer *out, bool json);
void setting_format_range(const struct setting *setting, struct buffer *out);

/* Reads YAML into the config; `name` is what errors and origins call it. */
int config_read_yaml(struct config *config, const char *text, size_t length, const char *name,
                     struct error *err);

/* docker.*: defaults from the environment, if a backend needs them; and that they fit together. */
void config_derive_docker(struct config *config);
int config_check_docker(const struct config *config, struct error *err);

/* Whether only this host can reach it. */
bool host_is_loopback(const char *host, size_t length);

/* Records where a value came from. */
void config_set_origin(struct config *config, const struct setting *setting, const char *origin);

/* Says that no row has the key, and which one may have been meant. Returns -1. */
int setting_refuse_key(const struct setting *rows, const char *key, struct error *err);
