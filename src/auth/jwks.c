/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/jwks.h"

#include "auth/fetch.h"
#include "auth/file_watch.h"
#include "auth/jwk.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/macros.h"
#include "config/config.h"
#include "loop/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

enum { DOCUMENT_MAXIMUM = 1 << 20, FETCH_TIMEOUT_MS = 10 * 1000 };
static const int64_t stale_us = 24LL * 3600 * 1000 * 1000;

struct jwks {
    struct loop *loop;           /* borrowed */
    const struct config *config; /* borrowed */
    jwks_changed_fn *on_change;
    void *context;        /* borrowed */
    struct jwk_set *keys; /* owned; NULL when there are none */
    struct file_watch file;

    struct worker *worker; /* owned; NULL with a file */
    struct job job;
    bool fetching;
    bool freeing;
    atomic_bool cancelled;
    int64_t asked_us;   /* when the last fetch began; 0: never */
    int64_t fetched_us; /* when the keys came */
    /* The thread's while it fetches. */
    struct buffer document;
    struct error err;
};

static void take_keys(struct jwks *jwks, struct jwk_set *keys)
{
    jwk_set_free(jwks->keys);
    jwks->keys = keys;
    if (keys)
        log_info("keys of the issuer", kv("count", keys->count));
}

/* --- a file ---------------------------------------------------------------------------------- */

static int read_document(const char *path, struct buffer *out, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return error_sys(err, "open %s", path);
    if (fd_read_all(fd, out) == 0)
        return 0;
    if (errno == EFBIG)
        return error_set(err, ERR_INVALID, "%s is too large", path);
    return error_sys(err, "read %s", path);
}

static int load_file(struct jwks *jwks, struct error *err)
{
    const char *path = jwks->config->auth.jwt.jwks_file;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(DOCUMENT_MAXIMUM);
    struct jwk_set *keys;

    if (read_document(path, &text, err) < 0)
        return -1;
    keys = jwk_set_parse(text.data, text.length, err);
    if (!keys)
        return error_wrap(err, "%s", path);
    take_keys(jwks, keys);
    return 0;
}

static void look_at_file(struct jwks *jwks)
{
    struct error err = { 0 };
    int64_t now_us = loop_now_us(jwks->loop);
    enum file_state before = jwks->file.state;
    enum file_state after;

    if (!file_watch_changed(&jwks->file, jwks->config->auth.jwt.jwks_file, now_us))
        return;
    after = file_watch_settle(&jwks->file, load_file(jwks, &err) == 0, now_us);
    if (after == FILE_STALE && before != after)
        log_error("the keys of the issuer were not reloaded; trying again",
                  kv("error", err.message));
    if (after == FILE_LOST && before != after)
        log_error("no token is valid until the keys of the issuer can be read",
                  kv("error", err.message));
    if (after == FILE_LOST)
        take_keys(jwks, NULL);
    if (after != FILE_STALE)
        jwks->on_change(jwks->context);
}

/* --- an address ------------------------------------------------------------------------------ */

static void fetch_run(struct job *job)
{
    struct jwks *jwks = container_of(job, struct jwks, job);

    (void)fetch_document(jwks->config->auth.jwt.jwks_url, FETCH_TIMEOUT_MS, &jwks->cancelled,
                         &jwks->document, &jwks->err);
}

static void fetch_done(struct job *job)
{
    struct jwks *jwks = container_of(job, struct jwks, job);
    struct jwk_set *keys = NULL;

    jwks->fetching = false;
    if (jwks->freeing)
        return;
    if (!jwks->err.code)
        keys = jwk_set_parse(jwks->document.data, jwks->document.length, &jwks->err);
    if (keys) {
        jwks->fetched_us = loop_now_us(jwks->loop);
        take_keys(jwks, keys);
    } else {
        log_warn("keys of the issuer could not be fetched", kv("error", jwks->err.message));
    }
    buffer_fini(&jwks->document);
    jwks->on_change(jwks->context);
}

static void fetch_start(struct jwks *jwks)
{
    if (jwks->fetching)
        return;
    jwks->fetching = true;
    jwks->asked_us = loop_now_us(jwks->loop);
    jwks->document = BUFFER_INIT(DOCUMENT_MAXIMUM);
    jwks->err = (struct error){ 0 };
    jwks->job = (struct job){ .run = fetch_run, .done = fetch_done };
    worker_submit(jwks->worker, &jwks->job);
}

static bool is_cool(const struct jwks *jwks)
{
    return !jwks->asked_us ||
           loop_now_us(jwks->loop) - jwks->asked_us >= jwks->config->auth.jwt.cooldown_ms * 1000;
}

static void look_at_age(struct jwks *jwks)
{
    int64_t age_us = loop_now_us(jwks->loop) - jwks->fetched_us;

    if (jwks->keys && age_us >= jwks->config->auth.jwt.cache_ms * 1000 && is_cool(jwks))
        fetch_start(jwks);
    if (jwks->keys && age_us >= stale_us)
        take_keys(jwks, NULL);
}

/* --- both ------------------------------------------------------------------------------------ */

struct jwks *jwks_new(struct loop *loop, const struct config *config, jwks_changed_fn *on_change,
                      void *context, struct error *err)
{
    struct jwks *jwks = xnew(struct jwks);

    jwks->loop = loop;
    jwks->config = config;
    jwks->on_change = on_change;
    jwks->context = context;
    if (*config->auth.jwt.jwks_url) {
        jwks->worker = worker_new(loop, 1, "issuer-keys");
        fetch_start(jwks);
        return jwks;
    }
    (void)file_watch_changed(&jwks->file, config->auth.jwt.jwks_file, loop_now_us(loop));
    if (load_file(jwks, err) < 0) {
        jwks_free(jwks);
        return NULL;
    }
    return jwks;
}

void jwks_free(struct jwks *jwks)
{
    if (!jwks)
        return;
    jwks->freeing = true;
    atomic_store(&jwks->cancelled, true);
    worker_free(jwks->worker);
    buffer_fini(&jwks->document);
    jwk_set_free(jwks->keys);
    free(jwks);
}

const struct jwk_set *jwks_keys(struct jwks *jwks)
{
    if (jwks->worker)
        look_at_age(jwks);
    else
        look_at_file(jwks);
    return jwks->keys;
}

bool jwks_is_lost(const struct jwks *jwks)
{
    return jwks->file.state == FILE_LOST;
}

bool jwks_refresh(struct jwks *jwks)
{
    if (!jwks->worker)
        return false;
    if (is_cool(jwks))
        fetch_start(jwks);
    return jwks->fetching;
}

void jwks_reload(struct jwks *jwks)
{
    if (jwks->worker)
        fetch_start(jwks);
    else
        file_watch_reset(&jwks->file);
}
