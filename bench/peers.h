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
extern const struct subject_ops oci_ops;    /* crun, runc */
extern const struct subject_ops engine_ops; /* Docker's API, which podman speaks too */
