/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* User namespaces of sandboxes. */

#include "launcher/context.h"
#include "launcher/fail.h"

/* A user namespace with the ids of this slot, in which no other can be made. A descriptor of it, or
 * -1. */
int userns_make(const struct context *context, uint32_t slot, struct fail *fail);
