/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The payload: the child of a supervisor between clone and exec. It shares init's memory and has
 * everything else for itself. A step that fails leaves its name and its reason in the process's
 * failed_stage and failed_error.
 */

struct job;

void payload_run(void *argument) __attribute__((noreturn));
