/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The resources for native sandboxes: one struct for the launcher, set up once. */

#include "launcher/network/network.h"
#include "launcher/walls/disk.h"
#include "launcher/walls/host.h"
#include "launcher/walls/spawn.h"

struct walls {
    struct host host;
    struct disks disks;
    struct network network;
    struct spawner spawner;
};
