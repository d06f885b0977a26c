/* SPDX-License-Identifier: Apache-2.0 */
/* A carrier by streams that another module makes: see carrier.h. */

#include "base/alloc.h"
#include "bridge/carrier.h"

struct stream {
    struct carrier base;
    const struct carrier_stream *calls; /* borrowed */
    void *context;                      /* borrowed */
};

static void stream_open(struct carrier *carrier, struct carrier_attempt *attempt UNUSED)
{
    struct stream *stream = container_of(carrier, struct stream, base);

    stream->calls->open(carrier, stream->context);
}

static void stream_cancel(struct carrier *carrier, struct carrier_attempt *attempt UNUSED)
{
    struct stream *stream = container_of(carrier, struct stream, base);

    if (stream->calls->cancel)
        stream->calls->cancel(carrier, stream->context);
}

static void stream_free(struct carrier *carrier)
{
    free(container_of(carrier, struct stream, base));
}

static const struct carrier_ops stream_ops = {
    .open = stream_open,
    .cancel = stream_cancel,
    .free = stream_free,
};

struct carrier *carrier_stream_new(struct loop *loop, const struct carrier_stream *calls,
                                   void *context)
{
    struct stream *stream = xnew(struct stream);

    stream->base = (struct carrier){ .ops = &stream_ops, .loop = loop };
    stream->calls = calls;
    stream->context = context;
    return &stream->base;
}
