/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/tunnel.h"

#include "backend/kubernetes/kubernetes_private.h"
#include "base/macros.h"

enum { START_MS = 30 * 1000 };

static struct tunnel *tunnel_from(struct pump *base)
{
    return container_of(base, struct tunnel, base);
}

static void on_started(struct kube_exec *exec)
{
    struct tunnel *tunnel = container_of(exec, struct tunnel, exec);
    bool is_refused = exec->status >= 400;

    pump_started(&tunnel->base, exec->fd, &exec->err);
    if (is_refused)
        tunnel->on_refused(tunnel);
}

static void start(struct pump *base)
{
    static const char *const argv[] = { KUBERNETES_INIT, "--pump=" KUBERNETES_RELAY_SOCKET, NULL };
    struct tunnel *tunnel = tunnel_from(base);

    kube_exec_open(tunnel->client, &tunnel->exec, tunnel->pod, POD_CONTAINER, argv, START_MS,
                   on_started);
}

static void cancel(struct pump *base)
{
    kube_exec_cancel(&tunnel_from(base)->exec);
}

void tunnel_init(struct tunnel *tunnel, struct loop *loop, struct kube_client *client,
                 const char *pod, tunnel_fn *on_refused)
{
    static const struct pump_ops ops = { .start = start, .cancel = cancel };

    *tunnel = (struct tunnel){ .client = client, .pod = pod, .on_refused = on_refused };
    pump_init(&tunnel->base, loop, &ops);
}
