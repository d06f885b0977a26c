#pragma once

/* Base64 as in RFC 4648, with padding: bytes inside of JSON. */

#include <stddef.h>

/* Allocated. */
char *base64_encode(const void *data, size_t length);
