/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How a real sandglass-init is started for a test, as a launcher or a container engine does. */

#include <sys/types.h>

enum box_mode { BOX_DIRECT, BOX_NAMESPACE };

enum box_rights {
    BOX_ALL_RIGHTS,        /* those of the test */
    BOX_ROOT_OF_CONTAINER, /* root with the capabilities that engines leave, and no new privileges */
    BOX_NOBODY,            /* another user, without any capability */
};

struct box_spawn {
    enum box_mode mode;
    enum box_rights rights;
    int socket;                     /* becomes descriptor 3; -1 without */
    int filter_fd;                  /* becomes descriptor 4; -1 without */
    const char *const *arguments;   /* besides --direct; NULL without */
    const char *const *environment; /* NULL without */
};

/* Its pid. The init is killed when the test ends before it. */
pid_t box_spawn(const struct box_spawn *options);
