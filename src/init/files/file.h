/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * File operations. Each is done by a helper: a clone that shares init's memory, takes on the user's
 * rights over files, does the work and answers the daemon itself. A slow disk or a huge tree keeps
 * a helper busy, never init.
 */

#include <stddef.h>

struct job;

/* -1 when the message is malformed; the job is busy if its kind is not JOB_FREE after. */
int file_begin(struct job *job, size_t length);
int file_begin_connect(struct job *job, size_t length); /* PROTOCOL_CONNECT, by a helper as well */
int file_begin_ports(struct job *job, size_t length);

/* The helper of the job has ended; if it did not answer, init does. */
void file_end(struct job *job);
