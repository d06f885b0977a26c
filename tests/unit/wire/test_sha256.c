/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "wire/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void assert_digest(const uint8_t digest[SHA256_SIZE], const char *hex)
{
    char text[2 * SHA256_SIZE + 1];

    for (unsigned i = 0; i < SHA256_SIZE; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, hex);
}

static void hash(const void *data, size_t length, uint8_t out_digest[SHA256_SIZE])
{
    struct sha256 state;

    sha256_init(&state);
    sha256_add(&state, data, length);
    sha256_finish(&state, out_digest);
}

static void the_examples_of_the_standard_hold(void **state)
{
    static const struct {
        const char *text, *digest;
    } examples[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
          "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(examples); i++) {
        uint8_t digest[SHA256_SIZE];

        hash(examples[i].text, strlen(examples[i].text), digest);
        assert_digest(digest, examples[i].digest);
    }
}

static void a_million_letters_in_pieces_of_any_length_have_the_known_digest(void **state)
{
    static const size_t pieces[] = { 1, 63, 64, 65, 1000, 4096 };
    char letters[4096];

    (void)state;
    memset(letters, 'a', sizeof(letters));
    for (size_t i = 0; i < ARRAY_LENGTH(pieces); i++) {
        struct sha256 hash;
        uint8_t digest[SHA256_SIZE];

        sha256_init(&hash);
        for (size_t done = 0; done < 1000000;) {
            size_t part = MIN(pieces[i], (size_t)1000000 - done);

            sha256_add(&hash, letters, part);
            done += part;
        }
        sha256_finish(&hash, digest);
        assert_digest(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

/* The padding takes one block or two, depending on how much of the last one is used. The digests
 * are those of coreutils, for bytes that count up from 0. */
static void lengths_around_the_border_of_a_block_are_padded_right(void **state)
{
    static const struct {
        size_t length;
        const char *digest;
    } examples[] = {
        { 1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d" },
        { 54, "675f28acc0b90a72d1c3a570fe83ac565555db358cf01826dc8eefb2bf7ca0f3" },
        { 55, "463eb28e72f82e0a96c0a4cc53690c571281131f672aa229e0d45ae59b598b59" },
        { 56, "da2ae4d6b36748f2a318f23e7ab1dfdf45acdc9d049bd80e59de82a60895f562" },
        { 57, "2fe741af801cc238602ac0ec6a7b0c3a8a87c7fc7d7f02a3fe03d1c12eac4d8f" },
        { 63, "29af2686fd53374a36b0846694cc342177e428d1647515f078784d69cdb9e488" },
        { 64, "fdeab9acf3710362bd2658cdc9a29e8f9c757fcf9811603a8c447cd1d9151108" },
        { 65, "4bfd2c8b6f1eec7a2afeb48b934ee4b2694182027e6d0fc075074f2fabb31781" },
        { 118, "d32ab00929cb935b79d44e74c5a745db460ff794dea3b79be40c1cc5cf5388ef" },
        { 119, "da18797ed7c3a777f0847f429724a2d8cd5138e6ed2895c3fa1a6d39d18f7ec6" },
        { 120, "f52b23db1fbb6ded89ef42a23ce0c8922c45f25c50b568a93bf1c075420bbb7c" },
        { 121, "335a461692b30bba1d647cc71604e88e676c90e4c22455d0b8c83f4bd7c8ac9b" },
        { 127, "92ca0fa6651ee2f97b884b7246a562fa71250fedefe5ebf270d31c546bfea976" },
        { 128, "471fb943aa23c511f6f72f8d1652d9c880cfa392ad80503120547703e56a2be5" },
        { 129, "5099c6a56203f9687f7d33f4bfdf576d31dc91f6b695ecea38b2770c87631135" },
        { 191, "d280f473c251cb75c91880ea0eca2a2f1cda3152bef54a38c4a3aedad615c819" },
        { 192, "8b4a544837a1a0280fa8a7c82865c27a1064b3cc6281fda0753566b9bb104a87" },
        { 256, "40aff2e9d2d8922e47afd4648e6967497158785fbd1da870e7110266bf944880" },
    };
    uint8_t bytes[256];

    (void)state;
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    for (size_t i = 0; i < ARRAY_LENGTH(examples); i++) {
        uint8_t digest[SHA256_SIZE];

        hash(bytes, examples[i].length, digest);
        assert_digest(digest, examples[i].digest);
    }
}

static void every_way_to_cut_a_text_gives_the_same_digest(void **state)
{
    uint8_t bytes[200];

    (void)state;
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7);
    for (size_t length = 0; length <= sizeof(bytes); length++) {
        uint8_t whole[SHA256_SIZE];

        hash(bytes, length, whole);
        for (size_t cut = 0; cut <= length; cut++) {
            struct sha256 parts;
            uint8_t digest[SHA256_SIZE];

            sha256_init(&parts);
            sha256_add(&parts, bytes, cut);
            sha256_add(&parts, bytes + cut, length - cut);
            sha256_finish(&parts, digest);
            assert_memory_equal(digest, whole, sizeof(whole));
        }
    }
}

static void mac(const void *key, size_t key_length, const void *data, size_t length,
                uint8_t out_mac[SHA256_SIZE])
{
    struct hmac hmac;

    hmac_init(&hmac, key, key_length);
    hmac_add(&hmac, data, length);
    hmac_finish(&hmac, out_mac);
}

/* RFC 4231, without the test of a truncated MAC. */
static void the_examples_for_macs_hold(void **state)
{
    static const struct {
        size_t key_length, data_length;
        const char *data; /* NULL: data_length times data_byte */
        const char *mac;
        uint8_t key_byte; /* 0: counts up from 1 */
        uint8_t data_byte;
    } examples[] = {
        { 20, 8, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
          0x0b, 0 },
        { 20, 50, NULL, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe", 0xaa,
          0xdd },
        { 25, 50, NULL, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b", 0,
          0xcd },
        { 131, 54, "Test Using Larger Than Block-Size Key - Hash Key First",
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54", 0xaa, 0 },
        { 131, 152,
          "This is a test using a larger than block-size key and a larger than block-size data. "
          "The "
          "key needs to be hashed before being used by the HMAC algorithm.",
          "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2", 0xaa, 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(examples); i++) {
        uint8_t key[131];
        uint8_t data[152];
        uint8_t digest[SHA256_SIZE];

        for (size_t at = 0; at < sizeof(key); at++)
            key[at] = examples[i].key_byte ? examples[i].key_byte : (uint8_t)(at + 1);
        memset(data, examples[i].data_byte, sizeof(data));
        if (examples[i].data)
            memcpy(data, examples[i].data, examples[i].data_length);
        mac(key, examples[i].key_length, data, examples[i].data_length, digest);
        assert_digest(digest, examples[i].mac);
    }
}

static void a_key_given_as_text_gives_the_known_mac(void **state)
{
    uint8_t digest[SHA256_SIZE];

    (void)state;
    mac("Jefe", 4, "what do ya want for nothing?", 28, digest);
    assert_digest(digest, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

/* A key of one block is used as it is, a longer one is hashed first. */
static void keys_around_the_length_of_a_block_differ(void **state)
{
    uint8_t key[SHA256_BLOCK + 1] = { 1 };
    uint8_t seen[3][SHA256_SIZE];

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        mac(key, SHA256_BLOCK - 1 + i, "x", 1, seen[i]);
    assert_memory_equal(seen[0], seen[1], SHA256_SIZE); /* the missing byte is a zero either way */
    assert_memory_not_equal(seen[1], seen[2], SHA256_SIZE);
}

static void macs_are_equal_only_when_every_bit_is(void **state)
{
    uint8_t one[SHA256_SIZE];
    uint8_t other[SHA256_SIZE];

    (void)state;
    mac("key", 3, "text", 4, one);
    memcpy(other, one, sizeof(one));
    assert_true(hmac_equal(one, other));
    for (unsigned bit = 0; bit < 8 * SHA256_SIZE; bit++) {
        other[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(hmac_equal(one, other));
        other[bit / 8] = one[bit / 8];
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_standard_hold),
        cmocka_unit_test(a_million_letters_in_pieces_of_any_length_have_the_known_digest),
        cmocka_unit_test(lengths_around_the_border_of_a_block_are_padded_right),
        cmocka_unit_test(every_way_to_cut_a_text_gives_the_same_digest),
        cmocka_unit_test(the_examples_for_macs_hold),
        cmocka_unit_test(a_key_given_as_text_gives_the_known_mac),
        cmocka_unit_test(keys_around_the_length_of_a_block_differ),
        cmocka_unit_test(macs_are_equal_only_when_every_bit_is),
    };

    return cmocka_run_group_tests_name("wire/sha256", tests, NULL, NULL);
}
