/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The host of a daemon, as the labels of its containers name it: `sandglass sweep` takes only the
 * leftovers of daemons of its own host. A name is not enough where several machines share an
 * engine, so the boot of the kernel is noted, too.
 */

enum { PLACE_HOST_SIZE = 65, PLACE_BOOT_SIZE = 40 };

struct place {
    char host[PLACE_HOST_SIZE]; /* its name; in a container that of the container */
    char boot[PLACE_BOOT_SIZE]; /* "" if the kernel has no boot id */
};

void place_read(struct place *out_place);
