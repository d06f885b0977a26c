/* SPDX-License-Identifier: Apache-2.0 */
/* References to images: one that is accepted is printable, has all its parts, and reads back as
 * itself from its whole form. */

#include "wire/image_ref.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[1024];
    char formatted[IMAGE_REF_TEXT_SIZE];
    struct image_ref ref, again;
    struct error err;

    if (size >= sizeof(text))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (image_ref_parse(&ref, text, &err) < 0) {
        require(err.code == ERR_INVALID);
        for (const char *at = err.message; *at; at++)
            require((unsigned char)*at >= ' ' && (unsigned char)*at < 0x7f);
        return 0;
    }
    require(ref.host_length && ref.repository[ref.host_length] == '/');
    require(*image_ref_path(&ref) && *image_ref_version(&ref));
    require(!strstr(image_ref_path(&ref), "..") && !strchr(ref.tag, '/'));
    image_ref_format(&ref, formatted);
    require(image_ref_parse(&again, formatted, &err) == 0);
    require(memcmp(&ref, &again, sizeof(ref)) == 0);
    return 0;
}
