/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Templates that were imported: root file systems in `<state>/templates/<name>/`, made from a tar
 * archive of files, or from an image as `docker save` and OCI tools write it, plain or gzipped.
 *
 * Imported as root, files keep their owners. Members other than files, directories, links and pipes
 * are left out; set-id bits and extended attributes are dropped. All of this runs in the command,
 * not in the daemon; nothing of an archive is ever executed.
 */

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEMPLATE_NAME_SIZE = 64 };

struct template_info {
    char name[TEMPLATE_NAME_SIZE];
    uint64_t bytes;
    uint64_t entries;
    int64_t imported_us; /* wall time */
};

/* Letters, digits, '.', '_' and '-'; neither "host" nor a name that the launcher reserves. */
int template_check_name(const char *name, struct error *err);

/* --- making one ------------------------------------------------------------------------------ */

enum template_phase { TEMPLATE_READING, TEMPLATE_DOWNLOADING, TEMPLATE_UNPACKING };

struct template_progress {
    enum template_phase phase;
    unsigned layer; /* from 1; 0 where there are none */
    unsigned layers;
    uint64_t done;  /* bytes read, downloaded or, of one layer, unpacked */
    uint64_t total; /* 0 when it is unknown */
};

typedef void template_progress_fn(void *user, const struct template_progress *progress);

struct template_options {
    bool replace;                      /* a template of that name, unless a sandbox uses it */
    template_progress_fn *on_progress; /* often; NULL: no progress is shown */
    void *user;
};

/* ERR_CONFLICT when there is a template of that name that may not be replaced. */
int template_check_free(const char *state_path, const char *name, bool replace, struct error *err);

/* From an open archive. ERR_CONFLICT as above. */
int template_import(const char *state_path, const char *name, int archive,
                    const struct template_options *options, struct template_info *out_info,
                    struct error *err);

/* --- existing templates -------------------------------------------------------------------- */

/* The caller frees the array. */
int template_list(const char *state_path, struct template_info **out_infos, size_t *out_count,
                  struct error *err);

/* ERR_CONFLICT while a sandbox uses the template. */
int template_remove(const char *state_path, const char *name, struct error *err);
