/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/pull/download.h"

#include "base/backoff.h"

enum { FAILURES_MOST = 5, ATTEMPTS_MOST = 50 };

static const struct backoff retry_ms = { .first = 250, .most = 4000 };

/* One blob, over all attempts. */
struct attempt {
    struct download *download; /* borrowed */
    struct blob_part *part;    /* borrowed */
    uint64_t before;           /* progress.done without this blob */
};

static void report(struct attempt *attempt)
{
    struct download *download = attempt->download;

    download->progress.done = attempt->before + attempt->part->length;
    if (download->on_progress)
        download->on_progress(download->user, &download->progress);
}

/* A server may ignore the range and send the whole blob. */
static int on_head(void *user, const struct web_answer *answer, struct error *err)
{
    struct attempt *attempt = user;
    struct blob_part *part = attempt->part;

    if (answer->status == 206 && answer->range_start == (int64_t)part->length)
        return 0;
    if (answer->status == 206)
        return error_set(err, ERR_BACKEND, "the answer for %s is another part of it",
                         part->blob->digest);
    return part->length ? blob_part_restart(part, err) : 0;
}

static int on_data(void *user, const void *data, size_t length, struct error *err)
{
    struct attempt *attempt = user;

    attempt->download->received += length;
    if (blob_part_append(attempt->part, data, length, err) < 0)
        return -1;
    report(attempt);
    return 0;
}

/* Requests the missing bytes once. A response that ends early without an error is short as well. */
static int attempt_once(struct attempt *attempt, struct error *err)
{
    struct download *download = attempt->download;
    struct blob_part *part = attempt->part;
    struct web_request request = {
        .from = part->length, .on_head = on_head, .on_data = on_data, .user = attempt
    };
    struct web_answer answer;

    if (image_registry_blob(download->registry, part->blob->digest, &request, &answer, err) < 0)
        return -1;
    if (answer.status == 416 && blob_part_restart(part, err) < 0)
        return -1;
    if (part->length == part->blob->size)
        return 0;
    error_set(err, ERR_BACKEND, "the blob %s is shorter than the manifest says",
              part->blob->digest);
    err->retryable = true;
    return -1;
}

static int attempt_all(struct attempt *attempt, struct error *err)
{
    unsigned failures = 0;

    for (unsigned i = 0; attempt->part->length < attempt->part->blob->size; i++) {
        uint64_t length = attempt->part->length;

        if (attempt_once(attempt, err) == 0)
            return 0;
        failures = attempt->part->length > length ? 1 : failures + 1;
        if (!err->retryable || failures >= FAILURES_MOST || i >= ATTEMPTS_MOST)
            return -1;
        image_registry_sleep(attempt->download->registry, backoff_delay(&retry_ms, failures));
    }
    return 0;
}

/* Downloads the missing bytes: the blob, or -1. */
static int fetch(struct download *download, const struct image_descriptor *blob, struct error *err)
{
    scoped(blob_part_close) struct blob_part part = { .fd = -1 };
    struct attempt attempt = { .download = download,
                               .part = &part,
                               .before = download->progress.done };
    int result = blob_part_open(&part, download->cache, blob, err);

    if (result < 0)
        return -1;
    if (result > 0) {
        result = blob_cache_find(download->cache, blob);
        return result < 0 ? error_set(err, ERR_CONFLICT, "the blob %s was removed", blob->digest)
                          : result;
    }
    report(&attempt);
    result = attempt_all(&attempt, err);
    download->progress.done = attempt.before;
    if (result < 0)
        return -1;
    result = blob_part_finish(&part, err);
    if (result >= 0 || !part.resumed)
        return result;
    /* The bytes of an earlier command may have been damaged; they are removed now. */
    blob_part_close(&part);
    return fetch(download, blob, err);
}

int download_blob(struct download *download, const struct image_descriptor *blob, struct error *err)
{
    int fd = blob_cache_find(download->cache, blob);

    if (fd < 0)
        fd = fetch(download, blob, err);
    if (fd < 0)
        return -1;
    download->progress.done += blob->size;
    if (download->on_progress)
        download->on_progress(download->user, &download->progress);
    return fd;
}
