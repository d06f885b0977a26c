#include "core/run/ports.h"

#include <stdio.h>
#include <stdlib.h>

enum { TCP_STATE_LISTEN = 0x0a };

/* A line is "  0: 0100007F:1F90 00000000:0000 0A …": number, local address, remote address, state.
 */
static bool table_has(const char *path, unsigned port)
{
    FILE *table = fopen(path, "re");
    bool found = false;
    char line[512];

    while (table && !found && fgets(line, sizeof(line), table)) {
        unsigned local, state;

        found = sscanf(line, " %*[0-9]: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &local, &state) ==
                    2 &&
                local == port && state == TCP_STATE_LISTEN;
    }
    if (table)
        fclose(table);
    return found;
}

bool ports_is_listening(pid_t pid, unsigned port)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/net/tcp", (int)pid);
    if (table_has(path, port))
        return true;
    snprintf(path, sizeof(path), "/proc/%d/net/tcp6", (int)pid);
    return table_has(path, port);
}
