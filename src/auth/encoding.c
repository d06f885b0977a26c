/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/encoding.h"

#include "base/alloc.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

void hex_encode(const uint8_t *bytes, size_t length, char *text)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < length; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    *text = '\0';
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

int hex_decode(const char *text, uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        int high = hex_value(text[2 * i]);
        int low = high < 0 ? -1 : hex_value(text[2 * i + 1]);

        if (low < 0)
            return -1;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return text[2 * length] == '\0' ? 0 : -1;
}

static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;
static EVP_MD *sha256; /* looked up once: that takes longer than a short digest */

static void fetch_sha256(void)
{
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
}

void sha256_of(const void *first, size_t first_length, const void *second, size_t second_length,
               uint8_t digest[SHA256_BYTES])
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();

    pthread_once(&sha256_once, fetch_sha256);
    if (!context || !sha256 || !EVP_DigestInit_ex(context, sha256, NULL) ||
        !EVP_DigestUpdate(context, first, first_length) ||
        !EVP_DigestUpdate(context, second, second_length) ||
        !EVP_DigestFinal_ex(context, digest, NULL))
        out_of_memory();
    EVP_MD_CTX_free(context);
}

bool bytes_equal(const void *a, const void *b, size_t length)
{
    return CRYPTO_memcmp(a, b, length) == 0;
}

void random_fill(void *bytes, size_t length)
{
    if (getrandom(bytes, length, 0) != (ssize_t)length)
        abort();
}
