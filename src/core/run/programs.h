/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The callbacks of core/run for the rooms below it: the side of programs of core/sandbox/observer.h
 * (executions, and the Python that waits for code) and that of core/session/programs.h.
 */

#include "core/sandbox/observer.h"
#include "core/session/programs.h"

extern const struct sandbox_programs run_sandbox_programs;
extern const struct session_programs run_session_programs;
