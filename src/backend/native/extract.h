/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Extracting an archive below one directory. Every name is resolved inside that directory as if it
 * were the root, so links of the archive lead nowhere else; existing files are replaced and never
 * written through.
 */

#include "backend/template.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct extract {
    int root;       /* borrowed */
    bool owners;    /* as root: files get the owners that the archive names */
    bool whiteouts; /* a layer of an image: .wh. names delete */
    uint64_t bytes; /* written so far */
    uint64_t entries;
    template_progress_fn *on_progress; /* may be NULL */
    void *user;
    struct template_progress progress; /* its phase and layer are the caller's */
};

/* A tar archive in a file, plain or gzipped. Progress is counted in bytes of the file, or of its
 * unpacked content where the former is unknown. */
int extract_file(struct extract *extract, int fd, struct error *err);

/* Removes a name and everything below it. */
int tree_remove(int dir, const char *name);
