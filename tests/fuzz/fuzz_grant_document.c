/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a grant: text that is read is written again as the same, and its sums do not overflow. */

#include "core/grant_document.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_MAXIMUM = 64 * 1024 * 1024 };

static void check_sums(const struct grant_document *document)
{
    int64_t all = grant_document_others(document, "");
    struct grant_share *none = grant_document_find(document, "");

    assert(all >= document->base && grant_document_spent(document) >= document->base);
    assert(none || all - document->base >= 0);
    assert(grant_document_lack_of_others(document, "a") >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    scoped(free) char *text = xstrndup((const char *)data, size);
    scoped(buffer_fini) struct buffer first = BUFFER_INIT(TEXT_MAXIMUM);
    scoped(buffer_fini) struct buffer second = BUFFER_INIT(TEXT_MAXIMUM);
    struct grant_document document, copy;

    if (grant_document_read(&document, text, NULL) < 0)
        return 0;
    check_sums(&document);
    grant_document_write(&document, &first);
    grant_document_fini(&document);
    if (grant_document_read(&copy, buffer_text(&first), NULL) < 0)
        abort();
    grant_document_write(&copy, &second);
    assert(strcmp(buffer_text(&first), buffer_text(&second)) == 0);
    grant_document_fini(&copy);
    return 0;
}
