/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the API server of a cluster is, and as whom the daemon speaks to it: read from a kubeconfig,
 * or from what a pod finds in its own file system.
 *
 * A kubeconfig may do more than a daemon should. An `exec` plugin or an `auth-provider` would run
 * programs, a proxy or a skipped verification would show the token to others: each is refused by its
 * name, with what to do instead.
 */

#include "base/error.h"
#include "base/scoped.h"

#include <stddef.h>

struct config;

/* A file, or its content; both NULL: there is none. All texts are owned. */
struct kube_pem {
    char *path;
    char *text;
};

struct kube_config {
    char *origin;    /* for messages: the path of the kubeconfig, or "service account" */
    char *url;       /* "https://HOST:PORT", or "http://" for a loopback address */
    char *prefix;    /* of all paths: "" or "/k8s/clusters/x" */
    char *namespace; /* NULL: nothing is said */
    struct kube_pem ca;
    struct kube_pem certificate;
    struct kube_pem key;
    char *token;      /* NULL: see the next */
    char *token_path; /* read again and again; NULL: no token */
};

void kube_config_fini(struct kube_config *kube);
static inline void scoped_kube_config_fini(struct kube_config *kube)
{
    kube_config_fini(kube);
}

/* A kubeconfig as text. `directory` is what relative paths in it begin with, `context` "" is the
 * current one. */
int kube_config_parse(struct kube_config *out_kube, const char *text, size_t length,
                      const char *directory, const char *context, struct error *err);

/* As the settings say: kubernetes.kubeconfig, else the service account of the pod. */
int kube_config_load(struct kube_config *out_kube, const struct config *config, struct error *err);

/* The kubeconfig of the settings or of KUBECONFIG; "" for the service account. */
const char *kube_config_path(const struct config *config);

unsigned kube_config_port(const struct kube_config *kube);
