/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Every command, each in its own cmd_*.c. */

#include "cli/cli.h"

extern const struct command cmd_approvals;
extern const struct command cmd_audit;
extern const struct command cmd_bench;
extern const struct command cmd_budget;
extern const struct command cmd_completion;
extern const struct command cmd_config;
extern const struct command cmd_config_init;
extern const struct command cmd_cp;
extern const struct command cmd_dashboard;
extern const struct command cmd_doctor;
extern const struct command cmd_exec;
extern const struct command cmd_execute;
extern const struct command cmd_flavors;
extern const struct command cmd_node;
extern const struct command cmd_nodes;
extern const struct command cmd_help;
extern const struct command cmd_history;
extern const struct command cmd_inspect;
extern const struct command cmd_key;
extern const struct command cmd_logs;
extern const struct command cmd_ls;
extern const struct command cmd_mcp;
extern const struct command cmd_mcp_install;
extern const struct command cmd_port;
extern const struct command cmd_ps;
extern const struct command cmd_rm;
extern const struct command cmd_run;
extern const struct command cmd_sandbox;
extern const struct command cmd_scope;
extern const struct command cmd_serve;
extern const struct command cmd_session;
extern const struct command cmd_storage;
extern const struct command cmd_store;
extern const struct command cmd_sweep;
extern const struct command cmd_template;
extern const struct command cmd_template_pull;
extern const struct command cmd_tools;
extern const struct command cmd_top;
extern const struct command cmd_unpack_init;
extern const struct command cmd_version;
extern const struct command cmd_why;
