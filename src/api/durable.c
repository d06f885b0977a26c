/* Answers that come when what they tell is recorded. */

#include "api/request.h"
#include "base/alloc.h"
#include "service/recorded.h"

struct durable {
    struct api_request *request;
    struct recorded recorded;
    int status;
    struct buffer text;
};

static void on_recorded(struct recorded *recorded)
{
    struct durable *durable = container_of(recorded, struct durable, recorded);

    if (!api_finish(durable->request)) {
        if (recorded->err->code)
            api_fail(durable->request, recorded->err);
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
    recorded_wait(&durable->recorded, request->core, on_recorded);
}
