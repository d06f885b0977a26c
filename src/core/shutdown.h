/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The implementation of core_stop(). */

struct core_shutdown;

void shutdown_free(struct core_shutdown *shutdown); /* NULL is fine */
