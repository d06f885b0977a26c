/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An instant as records have it: by the wall clock and by the boot clock. */

#include "store/store.h"

struct core;

struct stamp stamp_now(const struct core *core);

/* For people: the wall time of an instant of this boot, by today's wall clock; 0 for none. */
int64_t stamp_wall_us(const struct core *core, const struct stamp *stamp);
