#pragma once

/* The session's side of core/money/observer.h. */

#include "core/money/observer.h"

extern const struct money_observer session_money;
