/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Completion scripts for the shells, from the tables of commands and options. */

#include "base/buffer.h"

void completion_bash(struct buffer *script);
void completion_zsh(struct buffer *script);
void completion_fish(struct buffer *script);
