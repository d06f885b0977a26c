/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Variables for what runs in a sandbox, plain ones and secrets: --env, --secret, --secret-file. */

#include "cli/options.h"

struct json_writer;

struct variable_args {
    struct text_list env;
    struct text_list secrets;
    struct text_list secret_files;
};

/* Three rows, without an end: `base` is where the struct stands. A secret on the command line is
 * seen by all users of the machine, so its value may also come from our environment or a file. */
#define VARIABLE_OPTIONS(base)                                                                    \
    { "env",                                                                                      \
      'e',                                                                                        \
      OPTION_LIST,                                                                                \
      (base) + offsetof(struct variable_args, env),                                               \
      "K[=V]",                                                                                    \
      NULL,                                                                                       \
      "set a variable; a bare K copies its value from your environment; may be repeated" },       \
        { "secret",                                                                               \
          0,                                                                                      \
          OPTION_LIST,                                                                            \
          (base) + offsetof(struct variable_args, secrets),                                       \
          "K[=V]",                                                                                \
          NULL,                                                                                   \
          "like --env, with a value that is masked everywhere; a bare K also hides it from ps" }, \
    {                                                                                             \
        "secret-file", 0, OPTION_PAIRS, (base) + offsetof(struct variable_args, secret_files),    \
            "K=PATH", NULL, "like --secret, with the contents of a file, less its last newline"   \
    }

/* The members "env" and "secrets", each if there are any. */
int variables_write(const struct variable_args *args, struct json_writer *json, struct error *err);

/* {"K":"V", …} of K=V texts under `key`; a bare K takes the value that we have ourselves. */
int env_write(const struct text_list *pairs, struct json_writer *json, const char *key,
              struct error *err);
