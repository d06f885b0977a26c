/* SPDX-License-Identifier: Apache-2.0 */
#include "config/settings.h"

#include "backend/names.h"

/* The rows of settings that are lists of mappings. */

#define MOUNT_FIELD(member) offsetof(struct config_mount, member)
#define TEMPLATE_FIELD(member) offsetof(struct config_template, member)
#define FLAVOR_FIELD(member) offsetof(struct config_flavor, member)
#define OWNER_FIELD(member) offsetof(struct config_owner, member)
#define RULE_FIELD(member) offsetof(struct config_rule, member)

#define SHARE_ROW(name, kind)                                                                     \
    {                                                                                             \
        .key = name, .type = SETTING_COUNT, .offset = OWNER_FIELD(shares[kind]), .fallback = "0", \
        .min = 1, .max = 1e6, .zero_is_off = true                                                 \
    }

#define BACKENDS_OR_DEFAULT ((const char *const[]){ "", BACKEND_NAMES NULL })

static const struct setting mount_rows[] = {
    { .key = "host_path",
      .type = SETTING_PATH,
      .offset = MOUNT_FIELD(host_path),
      .fallback = "",
      .required = true },
    { .key = "path",
      .type = SETTING_PATH,
      .offset = MOUNT_FIELD(path),
      .fallback = "",
      .required = true },
    { .key = "read_only",
      .type = SETTING_BOOL,
      .offset = MOUNT_FIELD(read_only),
      .fallback = "false" },
    { 0 },
};

static const struct setting template_rows[] = {
    { .key = "name",
      .type = SETTING_TEXT,
      .offset = TEMPLATE_FIELD(name),
      .fallback = "",
      .required = true },
    { .key = "backend",
      .type = SETTING_TEXT,
      .offset = TEMPLATE_FIELD(backend),
      .fallback = "",
      .choices = BACKENDS_OR_DEFAULT },
    { 0 },
};

static const struct setting flavor_rows[] = {
    { .key = "name",
      .type = SETTING_TEXT,
      .offset = FLAVOR_FIELD(name),
      .fallback = "",
      .required = true },
    { .key = "memory",
      .type = SETTING_SIZE,
      .offset = FLAVOR_FIELD(memory_bytes),
      .fallback = "0",
      .min = 4 * MIB,
      .max = 64 * TIB,
      .zero_is_off = true },
    { .key = "cpus",
      .type = SETTING_CPUS,
      .offset = FLAVOR_FIELD(cpu_millis),
      .fallback = "0",
      .min = 0.01,
      .max = 4096,
      .zero_is_off = true },
    { .key = "disk",
      .type = SETTING_SIZE,
      .offset = FLAVOR_FIELD(disk_bytes),
      .fallback = "0",
      .min = MIB,
      .max = 64 * TIB,
      .zero_is_off = true },
    { .key = "pids",
      .type = SETTING_COUNT,
      .offset = FLAVOR_FIELD(pids),
      .fallback = "0",
      .min = 2,
      .max = 4194304,
      .zero_is_off = true },
    { .key = "gpus",
      .type = SETTING_COUNT,
      .offset = FLAVOR_FIELD(gpus),
      .fallback = "0",
      .max = 1024 },
    { .key = "price_per_hour",
      .type = SETTING_MONEY,
      .offset = FLAVOR_FIELD(price_per_hour),
      .fallback = "unknown",
      .max = 1e6 },
    { .key = "needs_approval",
      .type = SETTING_BOOL,
      .offset = FLAVOR_FIELD(needs_approval),
      .fallback = "false" },
    { .key = "backend",
      .type = SETTING_TEXT,
      .offset = FLAVOR_FIELD(backend),
      .fallback = "",
      .choices = BACKENDS_OR_DEFAULT },
    CEILING_ROWS("max.", FLAVOR_FIELD(max), ""),
    { 0 },
};

static const struct setting owner_rows[] = {
    { .key = "name",
      .type = SETTING_TEXT,
      .offset = OWNER_FIELD(name),
      .fallback = "",
      .required = true },
    { .key = "backends",
      .type = SETTING_LIST,
      .offset = OWNER_FIELD(backends),
      .fallback = "",
      .choices = (const char *const[]){ BACKEND_NAMES NULL } },
    CEILING_ROWS("max.", OWNER_FIELD(max), ""),
    { .key = "max.mounts",
      .type = SETTING_LIST,
      .offset = OWNER_FIELD(max_mounts),
      .fallback = "" },
    SHARE_ROW("sessions", SHARE_SESSIONS),
    SHARE_ROW("executions", SHARE_EXECUTIONS),
    SHARE_ROW("terminals", SHARE_TERMINALS),
    SHARE_ROW("requests", SHARE_REQUESTS),
    { 0 },
};

const struct setting_item setting_mount = { sizeof(struct config_mount), mount_rows };
const struct setting_item setting_template = { sizeof(struct config_template), template_rows };
const struct setting_item setting_flavor = { sizeof(struct config_flavor), flavor_rows };
static const struct setting rule_rows[] = {
    { .key = "name",
      .type = SETTING_TEXT,
      .offset = RULE_FIELD(name),
      .fallback = "",
      .required = true },
    { .key = "pattern",
      .type = SETTING_TEXT,
      .offset = RULE_FIELD(pattern),
      .fallback = "",
      .required = true },
    { .key = "verdict",
      .type = SETTING_CHOICE,
      .offset = RULE_FIELD(verdict),
      .fallback = "block",
      .choices = CHOICES("pass", "warn", "block") },
    { .key = "message", .type = SETTING_TEXT, .offset = RULE_FIELD(message), .fallback = "" },
    { 0 },
};

const struct setting_item setting_rule = { sizeof(struct config_rule), rule_rows };
const struct setting_item setting_owner = { sizeof(struct config_owner), owner_rows };
