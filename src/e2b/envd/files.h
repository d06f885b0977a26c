/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by downloads and uploads at /files. Their errors are {"code":STATUS,"message":TEXT}. */

#include "e2b/private.h"

/* The user that the query names, as the sandbox knows them: "" for its default one. */
const char *files_user(const struct request *request);

/* The path of the query for init; NULL when it was answered. */
const char *files_path(struct request *request);

/* Answers with the error of an operation of init on `path`. */
void files_fail_errno(struct request *request, int number, const char *path);

/* The same for an error that has one, and any other. */
void files_fail(struct request *request, int number, const struct error *err, const char *path);

request_fn files_upload; /* upload.c */
