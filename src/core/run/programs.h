#pragma once

/* The side of programs of core/sandbox/observer.h: executions, and the Python that waits for code. */

#include "core/sandbox/observer.h"

extern const struct sandbox_programs run_programs;
