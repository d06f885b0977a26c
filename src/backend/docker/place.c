/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/place.h"

#include "base/fd.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void place_read(struct place *out_place)
{
    scoped(fd_close) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    *out_place = (struct place){ 0 };
    (void)gethostname(out_place->host, sizeof(out_place->host) - 1);
    if (fd >= 0)
        (void)fd_read_at(fd, out_place->boot, sizeof(out_place->boot) - 1, 0);
    out_place->boot[strcspn(out_place->boot, "\n")] = '\0';
}
