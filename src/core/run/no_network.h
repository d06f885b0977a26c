/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The warning for programs that fail because their sandbox has no network.
 *
 * A resolver without a network says "Temporary failure in name resolution", and a person or a model
 * who reads that tries again. The end of what such a program wrote is compared with the sentences of
 * well-known programs, and the answer says what is missing.
 */

#include <stdbool.h>
#include <stddef.h>

struct execution;
struct session;

enum { OUTPUT_TAIL_BYTES = 4096 };

/* The last bytes that a program wrote. */
struct output_tail {
    char bytes[OUTPUT_TAIL_BYTES];
    size_t length;
};

void output_tail_add(struct output_tail *tail, const void *data, size_t length);

/* Whether the sandboxes of the session reach nothing but themselves. */
bool no_network_applies(const struct session *session);

/* The warning where the session has no network and the output blames that; else NULL. */
const char *no_network_warning(const struct session *session, const struct output_tail *tail);

/* For an execution that has ended, before it is recorded: adds the warning where it applies. */
void no_network_note(struct execution *execution);
