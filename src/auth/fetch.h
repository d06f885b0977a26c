/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One document from an https:// or http:// address, on a thread that may block. It follows no
 * redirection: keys come from where the settings say.
 */

#include "base/buffer.h"
#include "base/error.h"

#include <stdatomic.h>
#include <stdint.h>

/* Appends the body of an answer of 200. Gives up after the time, and soon after *cancelled. */
int fetch_document(const char *url, int64_t timeout_ms, const atomic_bool *cancelled,
                   struct buffer *out, struct error *err);
