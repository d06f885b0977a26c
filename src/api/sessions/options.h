/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Options of a new session, as POST /sessions and POST /execute take them: the same names, the same
 * checks. A route embeds the struct in that of its body and puts the rows into its own table.
 */

#include "api/private.h"
#include "core/mounts.h"
#include "core/session/session.h"
#include "wire/image_ref.h"

struct session_options {
    const char *template_name, *flavor, *backend, *network, *on_timeout, *node;
    json_t *labels, *node_labels, *mounts;
    char *mounts_json; /* owned: filled by session_options_read(); NULL without mounts */
    uint64_t memory_bytes, disk_bytes;
    double cpus;
    int64_t pids, lease_ms, idle_timeout_ms, max_lifetime_ms;
    bool preload, auto_restart, auto_resume, keep_files;
    bool has_preload, has_auto_restart, has_auto_resume, has_keep_files;
};

#define SESSION_OPTIONS_INIT                                         \
    (struct session_options)                                         \
    {                                                                \
        .lease_ms = -1, .idle_timeout_ms = -1, .max_lifetime_ms = -1 \
    }

/* OPTION(name) is the offset of a member of `struct session_options` in the struct of the body. */
#define SESSION_OPTION_FIELDS(OPTION)                                                              \
    { "template", JSON_KIND_TEXT, OPTION(template_name), .max_length = IMAGE_REF_TEXT_SIZE - 1 },  \
        { "flavor", JSON_KIND_TEXT, OPTION(flavor), .max_length = 128 },                           \
        { "backend", JSON_KIND_TEXT, OPTION(backend), .max_length = 32 },                          \
        { "node", JSON_KIND_TEXT, OPTION(node), .max_length = 64 },                                \
        { "node_labels", JSON_KIND_TEXT_MAP, OPTION(node_labels), .max_length = 256 },             \
        { "labels", JSON_KIND_TEXT_MAP, OPTION(labels), .max_length = 256 },                       \
        { "memory_bytes", JSON_KIND_SIZE, OPTION(memory_bytes), .minimum = 4 << 20,                \
          .maximum = 1e15 },                                                                       \
        { "disk_bytes", JSON_KIND_SIZE, OPTION(disk_bytes), .minimum = 1 << 20, .maximum = 1e15 }, \
        { "cpus", JSON_KIND_NUMBER, OPTION(cpus), .minimum = 0.01, .maximum = 1024 },              \
        { "pids", JSON_KIND_INT, OPTION(pids), .minimum = 2, .maximum = 4194304 },                 \
        { "network", JSON_KIND_TEXT, OPTION(network), .max_length = 32 },                          \
        { "lease_seconds", JSON_KIND_SECONDS, OPTION(lease_ms), .maximum = SECONDS_MAXIMUM },      \
        { "idle_timeout_seconds", JSON_KIND_SECONDS, OPTION(idle_timeout_ms),                      \
          .maximum = SECONDS_MAXIMUM },                                                            \
        { "max_lifetime_seconds", JSON_KIND_SECONDS, OPTION(max_lifetime_ms),                      \
          .maximum = SECONDS_MAXIMUM },                                                            \
        { "on_timeout", JSON_KIND_TEXT, OPTION(on_timeout), .max_length = 32 },                    \
        { "mounts", JSON_KIND_LIST, OPTION(mounts), .items = mounts_fields },                      \
        { "preload", JSON_KIND_BOOL, OPTION(preload), .present_offset = OPTION(has_preload) },     \
        { "auto_restart", JSON_KIND_BOOL, OPTION(auto_restart),                                    \
          .present_offset = OPTION(has_auto_restart) },                                            \
        { "auto_resume", JSON_KIND_BOOL, OPTION(auto_resume),                                      \
          .present_offset = OPTION(has_auto_resume) },                                             \
    {                                                                                              \
        "keep_files", JSON_KIND_BOOL, OPTION(keep_files), .present_offset = OPTION(has_keep_files) \
    }

/* Checks what a table of fields cannot, and fills the request for a session: its owner, options and
 * Idempotency-Key. `wanted` borrows from both. */
int session_options_read(const struct request *request, struct session_options *options,
                         struct session_request *wanted, struct error *err);

void session_options_fini(struct session_options *options);

/* A field of the body that is an option of a new session; NULL without one. */
const char *session_options_named(const struct request *request);
