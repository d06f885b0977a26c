/* SPDX-License-Identifier: Apache-2.0 */
/* A kubeconfig: whatever it says, what is taken of it is a URL, headers and paths. */

#include "backend/kubernetes/kube_config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static bool is_one_line(const char *text)
{
    return !strpbrk(text, "\r\n \t");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kube_config kube = { 0 };
    struct error err = { 0 };

    if (size > 1 << 16)
        return 0;
    if (kube_config_parse(&kube, (const char *)data, size, "/k", "", &err) < 0) {
        require(err.code == ERR_INVALID && *err.message);
        require(!kube.url && !kube.token && !kube.key.text);
        return 0;
    }
    require(strncmp(kube.url, "http", 4) == 0 && is_one_line(kube.url) && is_one_line(kube.prefix));
    require(!kube.token || is_one_line(kube.token));
    require(kube_config_port(&kube) > 0 && kube_config_port(&kube) <= 65535);
    kube_config_fini(&kube);
    return 0;
}
