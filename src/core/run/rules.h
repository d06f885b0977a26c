/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Rules for commands: before a command is run, its text is compared with the patterns of
 * exec.rules. The first pattern that matches decides: pass, warn (it runs, and the result says so)
 * or block.
 *
 * A seat belt, not a wall: a program can build any command where no pattern sees it. The walls are
 * those of the sandbox.
 */

#include "config/config.h"

enum { RULE_TEXT_SIZE = 300 };

struct execution_request;
struct core;
struct rules;

/* The config is borrowed; its patterns have been checked by config_check(). */
struct rules *rules_new(const struct config *config);
void rules_free(struct rules *rules); /* NULL is fine */

/* The rule that decides about this text; NULL when none matches. */
const struct config_rule *rules_find(const struct rules *rules, const char *text, size_t length);

/* Checks a request to run a command. A rule that blocks it is ERR_FORBIDDEN "command_blocked" with
 * the name of the rule, reported as an event of the owner. `out_warning` is set to a rule that
 * warns, which is reported too; with NULL only blocks are reported. */
int rules_check(struct core *core, const char *session_id, const char *owner,
                const struct execution_request *request, const struct config_rule **out_warning,
                struct error *err);

/* "rule NAME: MESSAGE" */
void rule_describe(const struct config_rule *rule, char *text, size_t size);
