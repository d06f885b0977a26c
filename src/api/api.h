/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The REST face: what callers of the daemon see under /api/v1, and what it tells about itself.
 *
 * api.c has the face; each resource has a table of routes, beside its handlers. README.md says how
 * to add one.
 */

#include <stdbool.h>
#include <stdint.h>

struct api;
struct face;
struct tools;

/* The daemon's own walls, for /healthz. */
struct api_confinement {
    const char *mode; /* borrowed; NULL: nothing is known */
    bool seccomp;
    unsigned landlock;   /* its version; 0 without */
    const char *missing; /* borrowed; "" when nothing is */
};

struct api_parts {
    struct tools *tools; /* borrowed; outlives the API */
    struct api_confinement confinement;
    int64_t started_at; /* wall clock, for /healthz */
};

struct api *api_new(const struct api_parts *parts);
void api_free(struct api *api); /* NULL is fine; after the server, so that no request is open */

/* Its context is the api. */
extern const struct face api_face;
