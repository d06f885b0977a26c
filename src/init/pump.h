#pragma once

/*
 * The pump: `sandglass-init --pump=PATH` inside a sandbox connects to the relay's socket and copies
 * between it and its own stdin and stdout. A container engine starts it, one for each connection of a
 * daemon, and may leave it behind: an engine that has died neither closes the input nor reads the
 * output. So it holds nothing of value, blocks in no write, and ends with either side.
 *
 * Exit codes: 0 at the end of either side, 1 when the relay cannot be reached within a second.
 */

__attribute__((noreturn)) void pump_run(const char *path);
