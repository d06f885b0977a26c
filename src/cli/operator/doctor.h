/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Checks of `doctor`: the features that this host allows. Each check tries the real thing in a
 * child process where it can, because the files in /proc do not know about seccomp, AppArmor and
 * the container we may be in.
 */

#include "base/error.h"
#include "base/macros.h"

#include <stdbool.h>

struct cli;
struct config;

enum finding_status {
    FINDING_OK,
    FINDING_INFO, /* about something that the settings do not use */
    FINDING_WARN,
    FINDING_FAIL
};

struct finding {
    enum finding_status status;
    char detail[256];
    char remedy[384]; /* "" when there is nothing to do */
};

struct doctor {
    struct cli *cli;             /* borrowed */
    const struct config *config; /* borrowed; NULL when it cannot be read */
    const char *config_problem;  /* borrowed; NULL when it can */
};

typedef void check_fn(const struct doctor *doctor, struct finding *finding);

struct check {
    const char *name;
    check_fn *run;
};

/* A repair that --fix makes. 1: `did` describes the change; 0: nothing to repair; -1: it failed. */
struct repair {
    const char *name;
    int (*run)(const struct doctor *doctor, char *did, size_t size, struct error *err);
};

extern const struct repair repairs[];        /* doctor_fix.c */
extern const struct check identity_checks[]; /* doctor_fix.c: users and ids */
extern const struct check host_checks[];     /* doctor_host.c: the kernel and its limits */
extern const struct check
    sandglass_checks[]; /* doctor_sandglass.c: directories, settings, daemon */

typedef void doctor_report_fn(void *user, const char *name, const struct finding *finding);

/* doctor_engine.c: the container engine, where a backend needs one or one is there. */
void doctor_check_engine(const struct doctor *doctor, doctor_report_fn *report, void *user);

/* doctor_kubernetes.c: what the API server lets the daemon do, where the backend is enabled. */
void doctor_check_kubernetes(const struct doctor *doctor, doctor_report_fn *report, void *user);

/* Whether an engine answers that could make containers for the backend docker or gvisor. */
bool doctor_engine_has(const struct doctor *doctor, const char *backend);

/* Makes a sandbox with each backend that sessions may name besides the default, and with those that
 * this host could have. */
void doctor_check_other_backends(const struct doctor *doctor, doctor_report_fn *report, void *user);

/* In a pod: which of the shapes of docs/how-to/kubernetes.md its securityContext allows. */
void doctor_check_pod(const struct doctor *doctor, doctor_report_fn *report, void *user);

extern const struct check store_checks[]; /* doctor_sandglass.c: for `--store` */

/* Both set the finding; the remedy is NULL when nothing is to be done. */
void finding_set(struct finding *finding, enum finding_status status, const char *remedy,
                 const char *format, ...) PRINTF_LIKE(4, 5);
