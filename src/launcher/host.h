#pragma once

/*
 * The ground that native sandboxes grow from: the launcher's own mount namespace with an empty root
 * and a few fixed folders, what is shared by all sandboxes (the skeleton of the host template, the
 * device nodes), and the templates as detached copies.
 */

#include "launcher/fail.h"

#include <stdbool.h>
#include <stdint.h>

struct launcher;

struct template
{
    char name[LAUNCH_NAME_SIZE];
    int tree;   /* owned: detached copy of its directory; the host's /usr for "host" */
    bool split; /* the root is the skeleton and the tree is its /usr */
};

struct host {
    int mounts; /* owned: the mount namespace with the host's files; -1 outside of native */
    bool native;
    struct template templates[LAUNCH_MAX_TEMPLATES];
    unsigned template_count;
};
