/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/docker_private.h"

#include "base/macros.h"
#include "base/str.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { SIGNAL_BASE = 128, SIGNALS = 64 };

const char *json_text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

uint64_t json_count_at(const json_t *object, const char *key)
{
    double value = json_number_value(json_object_get(object, key));

    return value > 0 && value < 1e18 ? (uint64_t)value : 0;
}

/* 0 for a value that is not a number of this range. */
static int number_at(const json_t *object, const char *key)
{
    double value = json_number_value(json_object_get(object, key));

    return value > -INT_MAX && value < INT_MAX ? (int)value : 0;
}

static bool is_true_at(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static bool is_hex(const char *text)
{
    for (; *text; text++)
        if (!((*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'f')))
            return false;
    return true;
}

/* The time becomes a part of the handle. */
static bool is_time(const char *text)
{
    return text[strspn(text, "0123456789TZ:.+-")] == '\0';
}

/* The start time of a container that was never started is in year 1; so is that of a running
 * container whose engine was killed while it started it. */
static bool was_started(const char *started_at)
{
    return *started_at && !str_starts_with(started_at, "0001-");
}

bool container_state_read(const json_t *document, struct container_state *out_state)
{
    const json_t *state = json_object_get(document, "State");
    const json_t *labels = json_object_get(json_object_get(document, "Config"), "Labels");
    const char *id = json_text_at(document, "Id");
    const char *started_at = json_text_at(state, "StartedAt");

    *out_state = (struct container_state){ 0 };
    if (!json_is_object(state) || !*id || !is_hex(id) || !is_time(started_at) ||
        (size_t)snprintf(out_state->engine_id, CONTAINER_ID_SIZE, "%s", id) >= CONTAINER_ID_SIZE ||
        (size_t)snprintf(out_state->started_at, CONTAINER_TIME_SIZE, "%s", started_at) >=
            CONTAINER_TIME_SIZE)
        return false;
    out_state->is_paused = is_true_at(state, "Paused");
    out_state->is_running = is_true_at(state, "Running") || out_state->is_paused;
    out_state->is_settling = str_equal(json_text_at(state, "Status"), "stopped"); /* of Podman */
    out_state->is_removing = str_equal(json_text_at(state, "Status"), "removing");
    out_state->was_started = was_started(started_at);
    out_state->is_oom = is_true_at(state, "OOMKilled");
    out_state->exit_code = number_at(state, "ExitCode");
    out_state->pid = MAX(number_at(state, "Pid"), 0);
    out_state->instance = json_text_at(labels, LABEL_INSTANCE);
    out_state->cluster = json_text_at(labels, LABEL_CLUSTER);
    out_state->sandbox = json_text_at(labels, LABEL_SANDBOX);
    out_state->backend = json_text_at(labels, LABEL_BACKEND);
    return true;
}

struct backend_end container_state_end(const struct container_state *state, bool was_killed)
{
    int code = state->exit_code;
    bool by_signal = code > SIGNAL_BASE && code <= SIGNAL_BASE + SIGNALS;
    struct backend_end end = {
        .is_known = true,
        .oom = state->is_oom,
        .code = by_signal ? -1 : code,
        .signal = by_signal ? code - SIGNAL_BASE : 0,
    };

    if (!end.oom && was_killed)
        snprintf(end.detail, sizeof(end.detail), "killed through the engine");
    else if (code == RELAY_EXIT_CODE)
        snprintf(end.detail, sizeof(end.detail), "relay");
    return end;
}
