/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <fcntl.h>
#include <unistd.h>

/* The number of a standard descriptor that is closed would go to the next file or socket that is
 * opened, and messages and output into that. A write to stdout still fails, so that lost output is
 * noticed. */
static void fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR);
}

int main(int argc, char **argv)
{
    fill_standard_descriptors();
    return cli_main(argc > 0 ? argv + 1 : argv);
}
