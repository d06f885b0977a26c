/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The pump inside a sandbox connects to the relay's socket and copies between it and its own stdin
 * and stdout. With --attached init forks one, for the stdin and stdout that it was started with:
 * the first connection of a daemon. For each later one a container engine starts `sandglass-init
 * --pump=PATH`. An engine may leave a pump behind: an engine that has died neither closes the input
 * nor reads the output. So a pump has no state, blocks in no write, and ends with either side.
 *
 * Exit codes: 0 at the end of either side, 1 when the relay cannot be reached within a second.
 */

__attribute__((noreturn)) void pump_run(const char *path);
