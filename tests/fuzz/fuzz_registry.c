/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a registry says, in a header that asks for a login, in a manifest or in a configuration,
 * is taken or refused with a reason; and nothing of it that is taken can name a file elsewhere or
 * steer a terminal. */

#include "base/alloc.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "wire/http/challenge.h"
#include "wire/image_manifest.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_plain(const char *text)
{
    for (; *text; text++)
        assert(*text > ' ' && *text <= '~');
}

static void check_challenge(const char *text)
{
    struct challenge challenge = { 0 };
    struct error err = { 0 };

    if (challenge_parse(&challenge, text, &err) < 0) {
        assert(err.code == ERR_INVALID && challenge.scheme == CHALLENGE_NONE);
        return;
    }
    assert(strlen(challenge.realm) < CHALLENGE_TEXT_SIZE);
    assert(challenge_parse(&challenge, text, &err) == 0);
}

static void check_descriptor(const struct image_descriptor *descriptor)
{
    assert(image_digest_is_valid(descriptor->digest));
    assert(descriptor->size <= IMAGE_BYTES_MAXIMUM);
    check_plain(descriptor->type);
    check_plain(descriptor->platform);
}

static void check_manifest(const uint8_t *data, size_t size, const char *type)
{
    scoped(image_manifest_fini) struct image_manifest manifest = { 0 };
    struct error err = { 0 };

    if (image_manifest_parse(&manifest, data, size, type, &err) < 0) {
        assert(err.code == ERR_INVALID || err.code == ERR_TOO_LARGE);
        assert(!manifest.items && err.message[0] && !strchr(err.message, '\033'));
        return;
    }
    assert(manifest.count > 0);
    for (size_t i = 0; i < manifest.count; i++)
        check_descriptor(&manifest.items[i]);
    if (manifest.is_index) {
        if (!image_manifest_choose(&manifest, "linux/amd64", &err))
            assert(err.code == ERR_NOT_FOUND && !strchr(err.message, '\033'));
        return;
    }
    check_descriptor(&manifest.config);
    assert(manifest.count <= IMAGE_LAYERS_MAXIMUM && manifest.bytes <= IMAGE_BYTES_MAXIMUM);
}

static void check_config(const uint8_t *data, size_t size)
{
    struct image_config config = { 0 };

    if (image_config_parse(&config, data, size, NULL) == 0)
        check_plain(config.platform);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const types[] = { "", "application/vnd.oci.image.manifest.v1+json",
                                         "application/vnd.oci.image.index.v1+json" };
    scoped(free) char *text = xstrndup((const char *)data, size);

    check_challenge(text);
    for (size_t i = 0; i < ARRAY_LENGTH(types); i++)
        check_manifest(data, size, types[i]);
    check_config(data, size);
    return 0;
}
