/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The mark of a sandbox on disk, `sandboxes/<id>/mark` in the state directory: it names the owner,
 * so that a directory's name alone is never taken as proof. The launcher writes it; `sandglass
 * sweep` reads the marks of dead instances.
 */

#include "wire/launch.h"

#include <stdint.h>

enum { MARK_MAGIC = 0x6c676473, MARK_VERSION = 3, MARK_NO_SLOT = 0xffffff };

struct mark {
    uint32_t magic;
    uint32_t version;
    char instance[LAUNCH_NAME_SIZE];
    char id[LAUNCH_ID_SIZE];
    uint64_t start_time;
    int32_t pid; /* 0 until there is a process */
    uint32_t slot;
    uint32_t mode;
    uint32_t network;
    uint32_t landlock_abi;
    uint32_t uid; /* of a direct sandbox; 0: the launcher's own user */
    struct launch_limits limits;
    char template_name[LAUNCH_NAME_SIZE]; /* of an imported template; "" otherwise */
};
