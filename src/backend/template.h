#pragma once

/*
 * Templates that were imported: root file systems in `<state>/templates/<name>/`, made from a tar
 * archive of files, or from an image as `docker save` and OCI tools write it, plain or gzipped.
 *
 * Imported as root, files keep their owners. What is not a file, a directory, a link or a pipe is
 * left out; set-id bits and extended attributes are dropped. All of this runs in the command, not
 * in the daemon; nothing of an archive is ever executed.
 */

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { TEMPLATE_NAME_SIZE = 64 };

struct template_info {
    char name[TEMPLATE_NAME_SIZE];
    uint64_t bytes;
    uint64_t entries;
    int64_t imported_us; /* wall time */
};

/* Letters, digits, '.', '_' and '-', not "host" and not what the launcher uses itself. */
int template_check_name(const char *name, struct error *err);

/* From an open archive. ERR_CONFLICT when there is one of that name. */
int template_import(const char *state_path, const char *name, int archive,
                    struct template_info *out_info, struct error *err);

/* The caller frees the array. */
int template_list(const char *state_path, struct template_info **out_infos, size_t *out_count,
                  struct error *err);

/* ERR_CONFLICT while a sandbox uses it. */
int template_remove(const char *state_path, const char *name, struct error *err);
