#pragma once

/* An instant as records have it: by the wall clock and by the boot clock. */

#include "store/store.h"

struct core;

struct stamp stamp_now(const struct core *core);
