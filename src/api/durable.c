/* Answers that come only when what they tell is recorded. */

#include "api/request.h"
#include "base/alloc.h"

struct durable {
    struct api_request *request;
    struct store_ticket ticket;
    int status;
    struct buffer text;
};

static void on_recorded(struct store_ticket *ticket)
{
    struct durable *durable = container_of(ticket, struct durable, ticket);

    if (!api_finish(durable->request)) {
        if (ticket->err->code)
            api_fail(durable->request, ticket->err);
        else
            api_reply(durable->request, durable->status, &durable->text);
    }
    buffer_fini(&durable->text);
    free(durable);
}

void api_reply_recorded(struct api_request *request, int status, struct buffer *json)
{
    struct durable *durable = xnew(struct durable);

    durable->request = request;
    durable->status = status;
    durable->text = *json;
    *json = (struct buffer){ 0 };
    api_begin(request);
    store_commit(request->api->parts.store, &durable->ticket, on_recorded);
}
