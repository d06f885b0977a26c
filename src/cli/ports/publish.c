/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ports/publish.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define LOOPBACK "127.0.0.1:"

int publish_read(struct publish *publish, const struct text_list *texts, struct error *err)
{
    publish->wishes = xcalloc(texts->count + 1, sizeof(*publish->wishes));
    publish->tunnels = xcalloc(texts->count + 1, sizeof(*publish->tunnels));
    for (size_t i = 0; i < texts->count; i++) {
        const char *text = texts->items[i];
        bool has_address = str_starts_with(text, LOOPBACK) && strchr(text + strlen(LOOPBACK), ':');

        if (!tunnel_read_ports(has_address ? text + strlen(LOOPBACK) : text, &publish->wishes[i]))
            return error_set(err, ERR_INVALID,
                             "--publish: \"%s\" is not [LOCAL:]REMOTE, numbers from 1 to 65535 "
                             "(LOCAL may be 0: any free port of 127.0.0.1)",
                             text);
        publish->count++;
    }
    return 0;
}

int publish_open(struct publish *publish, struct cli *cli, const char *session, struct error *err)
{
    for (size_t i = 0; i < publish->count; i++) {
        publish->wishes[i].session = session;
        publish->tunnels[i] = tunnel_open(cli, &publish->wishes[i], err);
        if (!publish->tunnels[i])
            return error_wrap(err, "--publish");
        cli_note("127.0.0.1:%u leads to port %u of the sandbox", tunnel_port(publish->tunnels[i]),
                 publish->wishes[i].remote);
    }
    return 0;
}

void publish_fini(struct publish *publish)
{
    for (size_t i = 0; i < publish->count; i++)
        tunnel_close(publish->tunnels[i]);
    free(publish->tunnels);
    free(publish->wishes);
    *publish = (struct publish){ 0 };
}
