/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include "base/scoped.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void out_of_memory(void)
{
    static const char text[] = "sandglass: out of memory\n";

    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    abort();
}

void *xmalloc(size_t size)
{
    void *memory = malloc(size ? size : 1);

    if (!memory)
        out_of_memory();
    return memory;
}

void *xcalloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);

    if (!memory)
        out_of_memory();
    return memory;
}

void *xrealloc(void *memory, size_t count, size_t size)
{
    void *moved = reallocarray(memory, count ? count : 1, size ? size : 1);

    if (!moved)
        out_of_memory();
    return moved;
}

char *xstrdup(const char *text)
{
    return xstrndup(text, strlen(text));
}

char *xstrndup(const char *text, size_t length)
{
    char *copy = xmalloc(length + 1);

    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *xasprintf(const char *format, ...)
{
    va_list args;
    char *text;
    int length;

    va_start(args, format);
    length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0)
        out_of_memory();
    return text;
}
