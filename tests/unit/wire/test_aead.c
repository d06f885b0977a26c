/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "wire/aead.h"

#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LONGEST = 70 * 1024 };

static size_t from_hex(const char *text, uint8_t *out)
{
    size_t length = strlen(text) / 2;

    for (size_t i = 0; i < length; i++) {
        unsigned byte;

        assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return length;
}

struct example {
    const char *key, *nonce, *head, *plain, *cipher, *tag; /* `plain` is text, the others hex */
};

/* Sections 2.8.2 and A.5 of RFC 8439. */
static const struct example examples[] = {
    { "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
      "070000004041424344454647", "50515253c0c1c2c3c4c5c6c7",
      "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
      "sunscreen would be it.",
      "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92"
      "728b1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b"
      "4831d7bc3ff4def08e4b7a9de576d26586cec64b6116",
      "1ae10b594f09e26a7e902ecbd0600691" },
    { "1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0",
      "000000000102030405060708", "f33388860000000000004e91",
      "Internet-Drafts are draft documents valid for a maximum of six months and may be updated, "
      "replaced, or obsoleted by other documents at any time. It is inappropriate to use "
      "Internet-Drafts as reference material or to cite them other than as "
      "/\xe2\x80\x9cwork in progress./\xe2\x80\x9d",
      "64a0861575861af460f062c79be643bd5e805cfd345cf389f108670ac76c8cb24c6cfc18755d43eea09ee94e382d"
      "26b0bdb7b73c321b0100d4f03b7f355894cf332f830e710b97ce98c8a84abd0b948114ad176e008d33bd60f982b1"
      "ff37c8559797a06ef4f0ef61c186324e2b3506383606907b6a7c02b0f9f6157b53c867e4b9166c767b804d46a59b"
      "5216cde7a4e99040c5a40433225ee282a1b0a06c523eaf4534d7f83fa1155b0047718cbc546a0d072b04b3564eea"
      "1b422273f548271a0bb2316053fa76991955ebd63159434ecebb4e466dae5a1073a6727627097a1049e617d91d36"
      "1094fa68f0ff77987130305beaba2eda04df997b714d6c6f2c29a6ad5cb4022b02709b",
      "eead9d67890cbb22392336fea1851f38" },
};

static void the_examples_of_the_standard_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(examples); i++) {
        const struct example *example = &examples[i];
        size_t length = strlen(example->plain);
        uint8_t key[32], nonce[12], head[12], data[512], cipher[512], tag[16], expected[16];

        from_hex(example->key, key);
        from_hex(example->nonce, nonce);
        from_hex(example->head, head);
        from_hex(example->tag, expected);
        assert_int_equal(from_hex(example->cipher, cipher), length);
        memcpy(data, example->plain, length);
        aead_encrypt(key, nonce, head, sizeof(head), data, length, tag);
        assert_memory_equal(data, cipher, length);
        assert_memory_equal(tag, expected, sizeof(tag));
        assert_true(aead_decrypt(key, nonce, head, sizeof(head), data, length, tag));
        assert_memory_equal(data, example->plain, length);
    }
}

static void a_changed_bit_is_noticed_and_leaves_the_data_as_it_was(void **state)
{
    uint8_t key[32] = { 1 }, nonce[12] = { 2 }, head[4] = { 3 }, data[40] = { 4 }, tag[16];
    uint8_t before[sizeof(data)];

    (void)state;
    aead_encrypt(key, nonce, head, sizeof(head), data, sizeof(data), tag);
    memcpy(before, data, sizeof(data));
    for (size_t bit = 0; bit < 8 * sizeof(tag); bit++) {
        tag[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(aead_decrypt(key, nonce, head, sizeof(head), data, sizeof(data), tag));
        tag[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t bit = 0; bit < 8 * sizeof(data); bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(aead_decrypt(key, nonce, head, sizeof(head), data, sizeof(data), tag));
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    head[0] ^= 1;
    assert_false(aead_decrypt(key, nonce, head, sizeof(head), data, sizeof(data), tag));
    head[0] ^= 1;
    nonce[0] ^= 1;
    assert_false(aead_decrypt(key, nonce, head, sizeof(head), data, sizeof(data), tag));
    nonce[0] ^= 1;
    key[0] ^= 1;
    assert_false(aead_decrypt(key, nonce, head, sizeof(head), data, sizeof(data), tag));
    key[0] ^= 1;
    assert_false(aead_decrypt(key, nonce, head, sizeof(head), data, sizeof(data) - 1, tag));
    assert_memory_equal(data, before, sizeof(data));
    assert_true(aead_decrypt(key, nonce, head, sizeof(head), data, sizeof(data), tag));
    assert_int_equal(data[0], 4);
}

static void encrypt_by_openssl(const uint8_t key[32], const uint8_t nonce[12], const uint8_t *head,
                               size_t head_length, const uint8_t *data, size_t length, uint8_t *out,
                               uint8_t tag[16])
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    int count;

    assert_non_null(context);
    assert_int_equal(EVP_EncryptInit_ex(context, EVP_chacha20_poly1305(), NULL, key, nonce), 1);
    assert_int_equal(EVP_EncryptUpdate(context, NULL, &count, head, (int)head_length), 1);
    assert_int_equal(EVP_EncryptUpdate(context, out, &count, data, (int)length), 1);
    assert_int_equal(EVP_EncryptFinal_ex(context, out + count, &count), 1);
    assert_int_equal(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, tag), 1);
    EVP_CIPHER_CTX_free(context);
}

static void compare(const uint8_t key[32], const uint8_t nonce[12], const uint8_t *head,
                    size_t head_length, const uint8_t *data, size_t length)
{
    uint8_t *mine = malloc(length + 1), *theirs = malloc(length + 64);
    uint8_t tag[16], expected[16];

    assert_true(mine && theirs);
    memcpy(mine, data, length);
    encrypt_by_openssl(key, nonce, head, head_length, data, length, theirs, expected);
    aead_encrypt(key, nonce, head, head_length, mine, length, tag);
    assert_memory_equal(mine, theirs, length);
    assert_memory_equal(tag, expected, sizeof(tag));
    free(mine);
    free(theirs);
}

static void openssl_has_the_same_result_for_every_length(void **state)
{
    uint8_t *data = malloc(LONGEST);
    uint8_t key[32], nonce[12], head[33];

    (void)state;
    assert_non_null(data);
    srand(20);
    for (size_t i = 0; i < LONGEST; i++)
        data[i] = (uint8_t)rand();
    for (size_t length = 0; length < 700; length++) {
        for (size_t i = 0; i < sizeof(key); i++)
            key[i] = (uint8_t)rand();
        for (size_t i = 0; i < sizeof(nonce); i++)
            nonce[i] = (uint8_t)rand();
        for (size_t i = 0; i < sizeof(head); i++)
            head[i] = (uint8_t)rand();
        compare(key, nonce, head, length % sizeof(head), data, length);
    }
    for (size_t length = LONGEST - 9; length <= LONGEST; length++)
        compare(key, nonce, head, 4, data, length);
    free(data);
}

/* Sums next to the modulus: the carries that random numbers never reach. */
static void openssl_has_the_same_result_for_extreme_bytes(void **state)
{
    uint8_t key[32], nonce[12] = { 0 }, head[16], data[16 * 40];

    (void)state;
    memset(head, 0xff, sizeof(head));
    for (unsigned round = 0; round < 2000; round++) {
        uint8_t tag[16];

        for (size_t i = 0; i < sizeof(key); i++)
            key[i] = (uint8_t)(round >> i % 11);
        memset(data, 0, sizeof(data));
        aead_encrypt(key, nonce, NULL, 0, data, sizeof(data), tag);
        for (size_t i = 0; i < sizeof(data); i++) /* its ciphertext is nothing but ones */
            data[i] = (uint8_t)~data[i];
        compare(key, nonce, head, sizeof(head), data, sizeof(data) - round % 33);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_standard_hold),
        cmocka_unit_test(a_changed_bit_is_noticed_and_leaves_the_data_as_it_was),
        cmocka_unit_test(openssl_has_the_same_result_for_every_length),
        cmocka_unit_test(openssl_has_the_same_result_for_extreme_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
