/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sections of the manual page, from the same tables as help: packaging/make-man puts them in. */

#include "base/buffer.h"

/* A line of text, escaped. */
void manual_text(struct buffer *page, const char *text);

void manual_commands(struct buffer *page);
void manual_settings(struct buffer *page);
