/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The session's side of core/sandbox/observer.h and core/money/observer.h. */

#include "core/money/observer.h"
#include "core/sandbox/observer.h"
#include "core/sandbox/sandbox.h"

extern const struct sandbox_observer session_observer;
extern const struct money_observer session_money;

/* The order for the session's next sandbox. Texts are the session's. */
struct sandbox_order session_order(struct session *session);
