/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The history's record of one run in a context: its code, the beginning of its output, its
 * results and its error. Large contents of results, such as pictures, are kept as files of the
 * context's execution, and the record says where. It becomes an event, "context.ran", when the run ends; the values of the session's
 * secrets are masked in it.
 */

#include "core/run/context/context.h"

struct context_record;

struct context_record *context_record_new(const char *code, size_t length);
void context_record_free(struct context_record *record); /* NULL is fine, here and below */

void context_record_output(struct context_record *record, size_t stream, const void *data,
                           size_t length);
void context_record_message(struct context_record *record, const struct context_run *run,
                            const char *type, const json_t *message);

/* The run has ended. */
void context_record_emit(const struct context_record *record, const struct context_run *run,
                         const char *language);
