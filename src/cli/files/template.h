/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the subcommands of `template`: where the templates are, and how progress is shown. */

#include "backend/template.h"
#include "cli/cli.h"

struct config;

struct template_args {
    struct common_args common;
    const char *config;
    const char *state;
};

extern const struct option template_place_options[];

/* Of those that write templates. */
#define TEMPLATE_USER                                                                       \
    "Run the command as the user of the daemon's\nlauncher: root, or the user of a daemon " \
    "without root."

/* The state directory that is meant; the config owns it unless it was given. */
const char *template_find_state(const struct template_args *args, struct config *config,
                                struct error *err);

json_t *template_to_json(const struct template_info *info);

/*
 * Progress on stderr: one line that is rewritten on a terminal, a line every few seconds elsewhere,
 * nothing with --json.
 */
struct template_display {
    bool is_shown;
    bool is_terminal;
    bool is_dirty;                  /* the terminal's line is not empty */
    struct template_progress first; /* of this phase */
    int64_t began_us;               /* the phase */
    int64_t told_us;
};

/* Sets on_progress and user of the options. */
void template_display_begin(struct template_display *display, const struct cli *cli,
                            struct template_options *options);
void template_display_end(struct template_display *display);
