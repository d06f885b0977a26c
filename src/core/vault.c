/* SPDX-License-Identifier: Apache-2.0 */
#include "core/vault.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_BYTES = 32, NONCE_BYTES = 12, TAG_BYTES = 16, OVERHEAD = NONCE_BYTES + TAG_BYTES };

static const char key_name[] = "secret.key";
static const char new_name[] = "secret.key.new";

struct vault {
    int state_dir; /* borrowed */
    bool is_open;
    uint8_t sealing[KEY_BYTES], signing[KEY_BYTES]; /* one for each purpose */
};

static void use_key(struct vault *vault, const uint8_t key[KEY_BYTES]);

struct vault *vault_new(int state_dir, const uint8_t *key)
{
    struct vault *vault = xnew(struct vault);

    vault->state_dir = state_dir;
    if (key)
        use_key(vault, key);
    return vault;
}

void vault_free(struct vault *vault)
{
    if (!vault)
        return;
    explicit_bzero(vault, sizeof(*vault));
    free(vault);
}

/* --- the key --------------------------------------------------------------------------------- */

static void fill_random(uint8_t *bytes, size_t length)
{
    if (getrandom(bytes, length, 0) != (ssize_t)length)
        abort(); /* not for so few bytes */
}

static void hmac(const uint8_t key[KEY_BYTES], const char *about, const char *text,
                 uint8_t out[KEY_BYTES])
{
    scoped(free) char *message = xasprintf("%s%c%s", about, '\n', text);

    HMAC(EVP_sha256(), key, KEY_BYTES, (const uint8_t *)message, strlen(message), out, NULL);
}

static void use_key(struct vault *vault, const uint8_t key[KEY_BYTES])
{
    hmac(key, "purpose", "seal", vault->sealing);
    hmac(key, "purpose", "sign", vault->signing);
    vault->is_open = true;
}

/* 0; 1 when there is none; -1. */
static int read_key(const struct vault *vault, uint8_t key[KEY_BYTES], struct error *err)
{
    scoped(fd_close) int fd =
        openat(vault->state_dir, key_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;

    if (fd < 0)
        return errno == ENOENT ? 1 : error_sys(err, "open %s", key_name);
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size != KEY_BYTES ||
        read(fd, key, KEY_BYTES) != KEY_BYTES)
        return error_set(err, ERR_INTERNAL, "%s in the state directory is damaged", key_name);
    return 0;
}

/* Complete under its name or not there, also after a loss of power. */
static int make_key(const struct vault *vault, uint8_t key[KEY_BYTES], struct error *err)
{
    scoped(fd_close) int directory =
        openat(vault->state_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped(fd_close) int fd = -1;

    (void)unlinkat(vault->state_dir, new_name, 0);
    fd = openat(vault->state_dir, new_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || directory < 0)
        return error_sys(err, "create %s", key_name);
    fill_random(key, KEY_BYTES);
    if (write(fd, key, KEY_BYTES) != KEY_BYTES || fsync(fd) < 0 ||
        renameat(vault->state_dir, new_name, vault->state_dir, key_name) < 0 ||
        fsync(directory) < 0)
        return error_sys(err, "write %s", key_name);
    return 0;
}

int vault_open(struct vault *vault, struct error *err)
{
    uint8_t key[KEY_BYTES];
    int result = 0;

    if (vault->is_open)
        return 0;
    result = read_key(vault, key, err);
    if (result > 0)
        result = make_key(vault, key, err);
    if (result == 0)
        use_key(vault, key);
    explicit_bzero(key, sizeof(key));
    return result;
}

/* --- sealing --------------------------------------------------------------------------------- */

/* AES-256-GCM with `about` as what is sealed along. Encrypts or decrypts `length` bytes from `in`
 * to `out`; false when the tag is not the one that belongs to them. */
static bool run_cipher(const struct vault *vault, bool encrypt, const char *about,
                       const uint8_t nonce[NONCE_BYTES], const uint8_t *in, size_t length,
                       uint8_t *out, uint8_t tag[TAG_BYTES])
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    int done = 0;
    bool good;

    assert(context && length <= INT32_MAX);
    good = EVP_CipherInit_ex(context, EVP_aes_256_gcm(), NULL, vault->sealing, nonce, encrypt) &&
           EVP_CipherUpdate(context, NULL, &done, (const uint8_t *)about, (int)strlen(about)) &&
           EVP_CipherUpdate(context, out, &done, in, (int)length) &&
           (encrypt || EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, tag)) &&
           EVP_CipherFinal_ex(context, out + done, &done) &&
           (!encrypt || EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, tag));
    EVP_CIPHER_CTX_free(context);
    return good;
}

char *vault_seal(struct vault *vault, const char *about, const char *text)
{
    size_t length = strlen(text);
    scoped(free) uint8_t *bytes = xmalloc(length + OVERHEAD);
    char *sealed = xmalloc((length + OVERHEAD + 2) / 3 * 4 + 1);
    bool good;

    assert(vault->is_open);
    fill_random(bytes, NONCE_BYTES);
    good = run_cipher(vault, true, about, bytes, (const uint8_t *)text, length, bytes + NONCE_BYTES,
                      bytes + NONCE_BYTES + length);
    assert(good);
    EVP_EncodeBlock((uint8_t *)sealed, bytes, (int)(length + OVERHEAD));
    return sealed;
}

/* Padding is decoded as zeros: the text says how many of them there are. */
static int decode(const char *sealed, uint8_t *bytes)
{
    size_t length = strlen(sealed);
    int decoded = EVP_DecodeBlock(bytes, (const uint8_t *)sealed, (int)length);

    if (decoded < 0 || length < 4)
        return -1;
    return decoded - (sealed[length - 1] == '=') - (sealed[length - 2] == '=');
}

char *vault_unseal(struct vault *vault, const char *about, const char *sealed, struct error *err)
{
    scoped(free) uint8_t *bytes = xmalloc(strlen(sealed) + 4);
    int total = decode(sealed, bytes);
    char *text;

    assert(vault->is_open);
    if (total >= OVERHEAD) {
        size_t length = (size_t)total - OVERHEAD;

        text = xmalloc(length + 1);
        if (run_cipher(vault, false, about, bytes, bytes + NONCE_BYTES, length, (uint8_t *)text,
                       bytes + NONCE_BYTES + length)) {
            text[length] = '\0';
            return text;
        }
        free(text);
    }
    error_set(err, ERR_INTERNAL, "the sealed fields of the record were not sealed with %s",
              key_name);
    return NULL;
}

/* --- signing --------------------------------------------------------------------------------- */

void vault_sign(struct vault *vault, const char *about, const char *text,
                char out[VAULT_SIGNATURE_SIZE])
{
    uint8_t digest[KEY_BYTES];

    assert(vault->is_open);
    hmac(vault->signing, about, text, digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

bool vault_is_signed(struct vault *vault, const char *about, const char *text,
                     const char *signature)
{
    char expected[VAULT_SIGNATURE_SIZE];

    vault_sign(vault, about, text, expected);
    return strlen(signature) == sizeof(expected) - 1 &&
           CRYPTO_memcmp(expected, signature, sizeof(expected) - 1) == 0;
}
