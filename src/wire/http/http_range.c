/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "wire/http/http.h"

#include <stdio.h>

int http_range(const char *header, uint64_t size, uint64_t *out_start, uint64_t *out_end)
{
    char first[24] = "", last[24] = "";
    uint64_t start, end;
    int used = 0;

    if (!header || !str_starts_with(header, "bytes="))
        return 0;
    header += 6;
    if (sscanf(header, "%20[0-9]%n", first, &used) == 1)
        header += used;
    if (*header != '-')
        return 0;
    header++;
    used = 0;
    if (sscanf(header, "%20[0-9]%n", last, &used) == 1)
        header += used;
    if (*header || (!*first && !*last))
        return 0;
    if (!*first) { /* the last bytes */
        if (str_to_u64(last, &end) < 0 || end == 0)
            return -1;
        *out_start = end < size ? size - end : 0;
        *out_end = size;
        return size ? 1 : -1;
    }
    if (str_to_u64(first, &start) < 0 || start >= size)
        return -1;
    if (!*last || str_to_u64(last, &end) < 0 || end >= size)
        end = size - 1;
    if (end < start)
        return 0;
    *out_start = start;
    *out_end = end + 1;
    return 1;
}
