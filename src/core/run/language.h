/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The languages that code can be written in: one table for executions with code and for contexts. A
 * new language is a row here and a driver in drivers/.
 */

struct error;

struct language {
    const char *name;        /* as requests name it */
    const char *interpreter; /* looked for in PATH */
    const char *suffix;      /* of script files */
    const char *driver;      /* source of the driver of contexts, see drivers/ */
};

#define LANGUAGE_DEFAULT "python"
#define LANGUAGE_NAMES "python, bash and javascript" /* for messages */

const struct language *language_find(const char *name); /* NULL for an unknown one */
const struct language *language_python(void);

/* -1 with ERR_INVALID "unsupported_language" for an unknown one; NULL stands for the default. */
int language_check(const char *name, struct error *err);
