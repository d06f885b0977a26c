/* SPDX-License-Identifier: Apache-2.0 */
#include "core/backend_choice.h"

#include "base/buffer.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"

static const char *of_flavor(const struct backend_wishes *wishes)
{
    return wishes->flavor && !str_is_empty(wishes->flavor->backend) ? wishes->flavor->backend : "";
}

static const char *of_template(const struct core *core, const struct backend_wishes *wishes)
{
    const struct config_template *row =
        config_template_find(core->parts.config, wishes->template_name);

    return row && !str_is_empty(row->backend) ? row->backend : "";
}

static const char *chosen(const struct core *core, const struct backend_wishes *wishes)
{
    if (!str_is_empty(wishes->asked))
        return wishes->asked;
    return *of_flavor(wishes) ? of_flavor(wishes) : of_template(core, wishes);
}

struct backend *backend_choose(const struct core *core, const struct backend_wishes *wishes)
{
    if (!str_is_empty(wishes->asked))
        return backends_of_session(core->parts.backends, wishes->asked);
    return backends_of_record(core->parts.backends, chosen(core, wishes));
}

/* `backends` of the owner's row in the settings. */
static int check_owner(const struct core *core, const char *owner, const char *name,
                       struct error *err)
{
    const struct config_owner *row = owner ? config_owner_find(core->parts.config, owner) : NULL;
    scoped(buffer_fini) struct buffer names = BUFFER_INIT(400);

    if (!row || !row->backends.count)
        return 0;
    for (size_t i = 0; i < row->backends.count; i++) {
        if (str_equal(row->backends.items[i], name))
            return 0;
        buffer_appendf(&names, "%s%s", i ? ", " : "", row->backends.items[i]);
    }
    error_named(err, ERR_FORBIDDEN, "backend_forbidden",
                "sessions of the owner \"%.60s\" may not use the backend %s", owner, name);
    return error_hint(err, "allowed by owners in the daemon's settings: %s", buffer_text(&names));
}

/* The flavor or the template needs another one than was chosen before it was looked at. */
static int check_agreement(const char *kind, const char *name, const char *needed,
                           const char *chosen_name, struct error *err)
{
    if (!*needed || str_equal(needed, chosen_name))
        return 0;
    error_named(err, ERR_INVALID, "backend_differs",
                "the %s \"%.64s\" needs the backend %s, but %s was chosen", kind, name, needed,
                chosen_name);
    return error_hint(err, "leave backend out, or choose another %s", kind);
}

/* Not asked of the default: with `none` there, sessions without sandboxes are what is wanted. */
static int check_makes(const struct backend *backend, struct error *err)
{
    const struct error *refusal = backend_refusal(backend);

    if (!refusal)
        return 0;
    *err = *refusal;
    return -1;
}

static int check_gpus(const struct backend *backend, const struct config_flavor *flavor,
                      struct error *err)
{
    if (!flavor || !flavor->gpus || backend->ops->capabilities.gpus)
        return 0;
    error_named(err, ERR_INVALID, "flavor_unavailable",
                "the flavor \"%s\" has %lld GPUs, but the backend %s does not support GPUs",
                flavor->name, (long long)flavor->gpus, backend->ops->name);
    return error_hint(err, "choose a flavor without GPUs, or a backend that supports them");
}

struct backend *backend_check_wishes(const struct core *core, const struct backend_wishes *wishes,
                                     struct error *err)
{
    const struct config_flavor *flavor = wishes->flavor;
    const char *name = chosen(core, wishes);
    struct backend *backend = str_is_empty(wishes->asked)
                                  ? backends_of_record(core->parts.backends, name)
                                  : backends_of_request(core->parts.backends, name, err);

    if (!backend || check_owner(core, wishes->owner, backend->ops->name, err) < 0 ||
        check_agreement("flavor", flavor ? flavor->name : "", of_flavor(wishes), backend->ops->name,
                        err) < 0 ||
        check_agreement("template", wishes->template_name, of_template(core, wishes),
                        backend->ops->name, err) < 0 ||
        (*name && check_makes(backend, err) < 0) || check_gpus(backend, flavor, err) < 0)
        return NULL;
    return backend;
}
