/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The files of the page as web/build has written them: compressed, with a hash in each name but that of
 * the page itself. */

#include <stddef.h>

struct web_asset {
    const char *name; /* "index.html", "app-1A2B3C4D.js" */
    const char *type;
    const unsigned char *data; /* gzip */
    size_t length;
    size_t plain_length;
};

extern const struct web_asset web_assets[]; /* empty in a build without Node */
