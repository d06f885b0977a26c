/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Declarations shared by context.c, the object, and context_run.c, its runs. */

#include "core/run/context/context.h"

/* Starts the execution of its driver if there is none. */
int context_want_driver(struct context *context, struct error *err);

/* Lets go of the driver; with `cancel` it is stopped. */
void context_drop_driver(struct context *context, bool cancel, const char *cause);

/* Why the driver's execution has ended, for people. */
void context_describe_end(const struct execution *execution, char *text, size_t size);

/* The driver may have written output or messages. */
void context_pump(struct context *context);

void context_run_finish(struct context_run *run, enum context_run_state state, const char *cause);
