/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The others, each in the fastest way it offers. `tools` is the directory with the tiny programs,
 * and `place` what scripts/bench has prepared:
 *
 *   crun, runc      a directory with two bundles, `once` (runs /bin/true) and `live` (stays), and
 *                   with `state`
 *   docker, podman  the URL of the engine's API, which has an image named `sandglass-bench`
 */

#include "bench/subject.h"

extern const struct subject_ops bwrap_ops;
extern const struct subject_ops bare_ops;   /* the walls alone; for so many at once */
extern const struct subject_ops oci_ops;    /* crun, runc */
extern const struct subject_ops engine_ops; /* Docker's API, which podman speaks too */

/* Makes ready for `count` bare sandboxes at a time; before there are threads. What is left of them
 * goes when the process ends. */
int bare_prepare(const char *tools, unsigned count, struct error *err);
