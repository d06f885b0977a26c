/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which port of which sandbox a request is for, from its head alone, and the names of sandboxes: a
 * session ses_X is the sandbox iX, because E2B allows lower-case letters and digits alone.
 */

#include "base/id.h"

#include <stdbool.h>
#include <stddef.h>

struct http_head;

enum { E2B_PORT_ENVD = 49983, E2B_PORT_CODE = 49999 };

enum e2b_target_kind {
    E2B_TARGET_NONE,    /* not for a sandbox */
    E2B_TARGET_INVALID, /* meant for one, and malformed: `problem` says how */
    E2B_TARGET_HEADERS,
    E2B_TARGET_HOST,
    E2B_TARGET_SIGNED, /* a signed URL of a file: the signature says which sandbox it is */
};

struct e2b_target {
    enum e2b_target_kind kind;
    unsigned port;
    char session_id[ID_SIZE]; /* "" for text that cannot name a sandbox of ours */
    char shown_id[64];        /* as it was sent, for answers */
    const char *problem;
};

/* `domain` is the setting ports.domain; it may be NULL. */
struct e2b_target e2b_target_read(const struct http_head *head, const char *domain);

/* The sandbox that `text` names; a suffix behind '-' is ignored. */
bool e2b_id_read(const char *text, size_t length, char out_session_id[ID_SIZE]);
void e2b_id_write(const char *session_id, char out_sandbox_id[ID_SIZE]);
