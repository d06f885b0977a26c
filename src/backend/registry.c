/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/registry.h"

#include "base/buffer.h"
#include "base/str.h"
#include "config/config.h"

#define ROW(backend, launcher, text)    \
    { .name = #backend,                 \
      .summary = (text),                \
      .needs_launcher = (launcher),     \
      .check = backend##_backend_check, \
      .open = backend##_backend_open },

const struct backend_row backend_rows[] = { BACKEND_ROWS(ROW){ 0 } };

const struct backend_row *backend_row_find(const char *name)
{
    for (const struct backend_row *row = backend_rows; row->name; row++)
        if (str_equal(row->name, name))
            return row;
    return NULL;
}

bool backends_need_launcher(const struct config *config)
{
    for (const struct backend_row *row = backend_rows; row->name; row++)
        if (row->needs_launcher && config_names_backend(config, row->name))
            return true;
    return false;
}

struct backend *backend_open(const char *name, const struct backend_options *options,
                             struct error *err)
{
    const struct backend_row *row = backend_row_find(name);
    scoped(buffer_fini) struct buffer names = BUFFER_INIT(1024);

    if (row)
        return row->open(options, err);
    for (row = backend_rows; row->name; row++)
        buffer_appendf(&names, "%s%s", names.length ? ", " : "", row->name);
    error_set(err, ERR_INVALID, "unknown backend \"%.40s\"", name);
    error_hint(err, "the backends are %s", buffer_text(&names));
    return NULL;
}
