/* SPDX-License-Identifier: Apache-2.0 */
#include "init/text.h"

#include <string.h>

bool text_to_u32(const char *text, const char *end, uint32_t maximum, uint32_t *out_value)
{
    uint64_t value = 0;

    if (text == end)
        return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > maximum)
            return false;
    }
    *out_value = (uint32_t)value;
    return true;
}

int text_hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

bool text_to_hex64(const char *text, uint64_t *out_value)
{
    uint64_t value = 0;
    size_t length = strlen(text);

    if (!length || length > 16)
        return false;
    for (; *text; text++) {
        int digit = text_hex_digit(*text);

        if (digit < 0)
            return false;
        value = value << 4 | (uint64_t)digit;
    }
    *out_value = value;
    return true;
}

size_t text_from_u64(uint64_t value, char text[TEXT_NUMBER_SIZE])
{
    char digits[TEXT_NUMBER_SIZE];
    size_t count = 0;

    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    for (size_t i = 0; i < count; i++)
        text[i] = digits[count - 1 - i];
    text[count] = 0;
    return count;
}

int text_concat(char *out, size_t size, const char *head, size_t head_length, const char *tail)
{
    size_t tail_size = strlen(tail) + 1;

    if (head_length > size || tail_size > size - head_length)
        return -1;
    memcpy(out, head, head_length);
    memcpy(out + head_length, tail, tail_size);
    return 0;
}

static bool has_variable(const char *const *entries, const char *name, size_t length)
{
    for (; *entries; entries++)
        if (!strncmp(*entries, name, length) && (*entries)[length] == '=')
            return true;
    return false;
}

bool text_has_variable(const char *const *entries, const char *name)
{
    return has_variable(entries, name, strlen(name));
}

bool text_has_same_variable(const char *const *entries, const char *variable)
{
    return has_variable(entries, variable, strcspn(variable, "="));
}

const char *text_base_name(const char *path, size_t *out_length, size_t *out_parent_length)
{
    size_t end = strlen(path);
    size_t start;

    while (end && path[end - 1] == '/')
        end--;
    for (start = end; start && path[start - 1] != '/';)
        start--;
    if (start == end || (end - start == 1 && path[start] == '.') ||
        (end - start == 2 && path[start] == '.' && path[start + 1] == '.'))
        return NULL;
    *out_length = end - start;
    *out_parent_length = start;
    return path + start;
}
