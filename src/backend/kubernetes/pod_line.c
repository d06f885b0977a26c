/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/pod_line.h"

#include "backend/kubernetes/kubernetes_private.h"
#include "base/macros.h"
#include "config/config.h"

#include <string.h>

enum { CONNECT_MS = 3 * 1000 };

static struct pod_line *line_from(struct pump *base)
{
    return container_of(base, struct pod_line, base);
}

static void end(struct pod_line *line, int fd)
{
    struct error err = line->err;

    pump_started(&line->base, fd, &err);
    line->on_end(line);
}

static void explain(struct pod_line *line, const struct error *cause)
{
    const struct pod *pod = container_of(line, struct pod, line);

    error_named(&line->err, ERR_UNAVAILABLE, "pod_unreachable",
                "kubernetes.transport is address, and the pod %s cannot be reached: %.300s",
                pod->name, cause->message);
    error_hint(&line->err,
               "see whether the daemon has a route to pods and whether network policies admit port "
               "%u, or set kubernetes.transport: exec",
               pod->last.port);
}

static void on_line(struct line_call *call)
{
    struct pod_line *line = container_of(call, struct pod_line, call);

    if (call->fd < 0)
        explain(line, &call->err);
    else
        line->err = (struct error){ 0 };
    end(line, call->fd);
}

/* The address is that of the last report: a cluster may give a pod another one. */
static void start(struct pump *base)
{
    struct pod_line *line = line_from(base);
    const struct pod *pod = container_of(line, struct pod, line);
    uint8_t key[RELAY_KEY_SIZE];
    struct error err = { 0 };

    if (!*pod->last.address) {
        error_set(&err, ERR_UNAVAILABLE, "the API server reports no address of it");
        explain(line, &err);
        end(line, -1);
        return;
    }
    relay_key_derive(pod->kube->secret.bytes, pod->id, key);
    line_open(&pod->kube->lines, &line->call, pod->last.address, pod->last.port, key, CONNECT_MS,
              on_line);
    explicit_bzero(key, sizeof(key));
}

static void cancel(struct pump *base)
{
    line_cancel(&line_from(base)->call);
}

void pod_line_init(struct pod_line *line, struct loop *loop, pod_line_fn *on_end)
{
    static const struct pump_ops ops = { .start = start, .cancel = cancel };

    *line = (struct pod_line){ .on_end = on_end };
    pump_init(&line->base, loop, &ops);
}
