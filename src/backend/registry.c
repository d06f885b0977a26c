#include "backend/registry.h"

#include "base/macros.h"
#include "base/str.h"

static const struct {
    const char *name;
    struct backend *(*open)(const struct backend_options *options, struct error *err);
} implementations[] = {
    { "native", native_backend_open },
    { "direct", direct_backend_open },
    { "none", none_backend_open },
};

struct backend *backend_open(const char *name, const struct backend_options *options,
                             struct error *err)
{
    for (size_t i = 0; i < ARRAY_LENGTH(implementations); i++) {
        if (str_equal(implementations[i].name, name))
            return implementations[i].open(options, err);
    }
    error_set(err, ERR_INVALID, "unknown backend \"%s\"", name);
    error_hint(err, "use native, direct or none");
    return NULL;
}
