/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/spool_files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const endings[SPOOL_FILES] = {
    [SPOOL_STDOUT] = "out",
    [SPOOL_STDERR] = "err",
    [SPOOL_ORDER] = "order",
    [SPOOL_SHOWN] = "shown",
};

void spool_file_name(char name[SPOOL_NAME_SIZE], const char *execution_id, enum spool_file file)
{
    snprintf(name, SPOOL_NAME_SIZE, SPOOL_DIRECTORY "/%s.%s", execution_id, endings[file]);
}

bool spool_file_owner(const char *file_name, char out_execution_id[ID_SIZE])
{
    const char *dot = strchr(file_name, '.');

    if (!dot || dot == file_name || (size_t)(dot - file_name) >= ID_SIZE)
        return false;
    memcpy(out_execution_id, file_name, (size_t)(dot - file_name));
    out_execution_id[dot - file_name] = '\0';
    return true;
}

void spool_files_unlink(int state_dir, const char *execution_id)
{
    char name[SPOOL_NAME_SIZE];

    for (int file = 0; file < SPOOL_FILES; file++) {
        spool_file_name(name, execution_id, (enum spool_file)file);
        (void)unlinkat(state_dir, name, 0);
    }
}
