/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's main: builds the parts, connects them, runs the loop until a signal, and takes them
 * down in reverse.
 */

#include "base/error.h"
#include "base/scoped.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct config_mounts;

struct daemon_setting {
    const char *key; /* as in the configuration file, such as "sandbox.backend" */
    const char *value;
};

struct daemon_options {
    const char *config_path;   /* NULL: found as config.h says */
    const char *const *listen; /* NULL-terminated; NULL: the settings' */
    const struct daemon_setting
        *settings;                      /* command line over file; ends with a row without a key */
    const struct config_mounts *mounts; /* besides those of the settings; NULL: none */
    int ready_fd; /* a line with the URL is written here when requests are served; -1 without */
    int leash_fd; /* end of file there stops the daemon and ends all sessions; -1 without */
};

/* Runs until SIGTERM, SIGINT or the end of the leash. Returns the exit code; says on stderr why it
 * could not start. */
int daemon_main(const struct daemon_options *options);

/* The message behind the one that a private daemon has written itself. */
#define DAEMON_PRIVATE_FAILED "the private daemon did not start"

/* A daemon of one's own: in a child process, with a temporary state directory and a unix socket in
 * it. It ends, with everything it made, when it is stopped or when this process dies. */
struct private_daemon {
    char *url;       /* owned: "unix:…" */
    char *directory; /* owned */
    pid_t pid;
    int leash_fd; /* owned */
};

int daemon_start_private(struct private_daemon *daemon, const struct daemon_setting *settings,
                         struct error *err);

/* With directories for its sandboxes besides those of the settings, opened with our rights. */
int daemon_start_sharing(struct private_daemon *daemon, const struct daemon_setting *settings,
                         const struct config_mounts *mounts, struct error *err);

/* Returns when everything is gone. Safe on a zeroed one that never started. */
void daemon_stop_private(struct private_daemon *daemon);
