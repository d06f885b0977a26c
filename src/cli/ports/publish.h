/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* -p [LOCAL:]REMOTE: ports of this host that lead into a sandbox while its program runs. */

#include "cli/ports/tunnel.h"

struct publish {
    struct tunnel_wish *wishes; /* owned */
    struct tunnel **tunnels;    /* owned */
    size_t count;
};

/* What `texts` say; -1 when one is not [LOCAL:]REMOTE. */
int publish_read(struct publish *publish, const struct text_list *texts, struct error *err);

/* Says on stderr where each is. */
int publish_open(struct publish *publish, struct cli *cli, const char *session, struct error *err);
void publish_fini(struct publish *publish); /* zeroed is fine */

static inline void scoped_publish_fini(struct publish *publish)
{
    publish_fini(publish);
}
