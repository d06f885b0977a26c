/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Making a template: its directory comes into being under another name, is filled, and is renamed
 * when it is complete. A command that fails leaves nothing. A command that is killed leaves a
 * directory, which the next command removes; a template that was to be replaced is restored then.
 */

#include "backend/native/extract.h"

/* The directory of downloaded blobs among the templates, see backend/pull/blob_cache.h. */
#define TEMPLATE_BLOBS ".blobs"

struct template_build {
    const char *state_path;
    const char *name;
    const struct template_options *options; /* NULL: the defaults */
    /* Makes the root in `files`, an empty directory, as the directory "root". `work` is that of the
     * template. The extract has everything but the root, which it borrows. */
    int (*fill)(void *user, int work, int files, struct extract *extract, struct error *err);
    void *user;
};

int template_build(const struct template_build *build, struct template_info *out_info,
                   struct error *err);

/* Makes a directory unless it is there, and opens it: a descriptor, or -1 with errno. */
int template_open_directory(int parent, const char *name, unsigned mode);

/* The directory of all templates of a state directory; -1 with the error set. */
int template_open_all(const char *state_path, struct error *err);

/* Whether sandboxes of that state directory use the template in the directory: how many. */
size_t template_count_users(int state, int template_dir);
