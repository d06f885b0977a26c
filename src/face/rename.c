/* SPDX-License-Identifier: Apache-2.0 */
#include "face/rename.h"

#include "base/str.h"
#include "face/route.h"

#include <string.h>

static bool has_parameter(const struct route *route, const char *name)
{
    const struct route_parameter *known = route->parameters;

    while (known && known->name && !str_equal(known->name, name))
        known++;
    return known && known->name;
}

static bool has_field(const struct route *route, const char *name)
{
    const struct route_extra *extra = route->extras;

    for (size_t i = 0; i < route->field_count; i++) {
        if (str_equal(route->fields[i].name, name))
            return true;
    }
    while (extra && extra->name && !str_equal(extra->name, name))
        extra++;
    return extra && extra->name;
}

const struct rename *rename_find(const struct rename *table, const struct route *route,
                                 const char *old_name, bool in_body)
{
    bool (*has)(const struct route *, const char *) = in_body ? has_field : has_parameter;

    if (!table || has(route, old_name))
        return NULL;
    for (; table->old_name; table++) {
        if (str_equal(table->old_name, old_name) && has(route, table->new_name) &&
            (!table->where || strstr(route->path, table->where)))
            return table;
    }
    return NULL;
}
