#pragma once

/*
 * The last steps of a process before its program runs: it is a child that shares init's memory and
 * has everything else for itself. What fails is left in the process's failed_stage and
 * failed_error.
 */

struct job;

void payload_run(void *job) __attribute__((noreturn));
