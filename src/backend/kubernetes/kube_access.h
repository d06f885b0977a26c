/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which rights the daemon lacks in its namespace, asked of the API server before anything is made: one
 * SelfSubjectAccessReview for each verb that the backend uses. It waits for the answers.
 */

#include "base/error.h"

struct config;

enum { KUBE_ACCESS_TEXT = 200 };

struct kube_access {
    struct error err;             /* why it cannot be told; ERR_NONE when it can */
    unsigned missing;             /* rights */
    char names[KUBE_ACCESS_TEXT]; /* "delete pods, get pods/exec", as far as they fit */
    char namespace[KUBE_ACCESS_TEXT];
};

void kube_access_look(struct kube_access *access, const struct config *config);
