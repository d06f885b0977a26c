/* SPDX-License-Identifier: Apache-2.0 */
/* A file is either refused with its place, or it loads and what `config show` writes for it loads
 * again to the same settings. */

#include "base/macros.h"
#include "config/config.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_MAXIMUM = 16 * 1024 * 1024 };

/* Without the origins, which differ. */
static char *show(const struct config *config)
{
    struct config copy = *config;
    struct buffer out = BUFFER_INIT(SHOWN_MAXIMUM);
    static char *same[256];

    for (size_t i = 0; i < ARRAY_LENGTH(same); i++)
        same[i] = (char *)"same";
    copy.origins = same;
    config_show(&copy, &out, false);
    return buffer_steal_text(&out);
}

static void check_round_trip(const struct config *config)
{
    scoped(free) char *shown = show(config);
    scoped(free) char *again = NULL;
    scoped(config_fini) struct config copy = { 0 };
    struct error err = { 0 };

    if (config_load_text(&copy, shown, strlen(shown), "shown", &err) < 0)
        abort();
    again = show(&copy);
    assert(strcmp(shown, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    scoped(config_fini) struct config config = { 0 };
    struct error err = { 0 };

    if (config_load_text(&config, (const char *)data, size, "fuzz", &err) < 0) {
        assert(err.code == ERR_INVALID && strncmp(err.message, "fuzz:", 5) == 0);
        return 0;
    }
    assert(err.code == ERR_NONE && config.flavors.count > 0 && config.listen.count > 0);
    (void)config_check(&config, &err);
    check_round_trip(&config);
    return 0;
}
