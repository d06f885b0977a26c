/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One repository of a registry, by the distribution protocol (OCI, Docker's v2): manifests and
 * blobs. A registry that wants a token or a password is asked again with it, and once more when the
 * token has expired. Credentials go to the registry, and to the token server that it names.
 */

#include "backend/pull/login.h"
#include "backend/pull/web.h"

struct image_ref;
struct image_registry;

/* Borrows everything. */
struct image_registry *image_registry_new(const struct image_ref *ref,
                                          const struct registry_login *login, bool plain);
void image_registry_free(struct image_registry *registry); /* NULL is fine */
SCOPED_DEFINE(image_registry_free, struct image_registry);

/* Whether the server is a registry and accepts our login. */
int image_registry_open(struct image_registry *registry, struct error *err);

/* By tag or digest; the body replaces the content of the buffer. */
int image_registry_manifest(struct image_registry *registry, const char *reference,
                            struct buffer *body, struct web_answer *out, struct error *err);

/* Of the request only from, on_head, on_data and user are the caller's. The answer is
 * 200, 206, or 416 for a start behind the end. */
int image_registry_blob(struct image_registry *registry, const char *digest,
                        const struct web_request *request, struct web_answer *out,
                        struct error *err);

/* Lets time pass before a request is repeated. */
void image_registry_sleep(struct image_registry *registry, int64_t ms);
