/* SPDX-License-Identifier: Apache-2.0 */
#include "core/vault.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/mask.h"
#include "core/secrets.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    char path[64];
    int folder;
};

static int setup(void **state)
{
    struct fixture *fixture = xnew(struct fixture);

    strcpy(fixture->path, "/tmp/test_vault.XXXXXX");
    assert_non_null(mkdtemp(fixture->path));
    fixture->folder = open(fixture->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    (void)unlinkat(fixture->folder, "secret.key", 0);
    (void)unlinkat(fixture->folder, "secret.key.new", 0);
    fd_close(fixture->folder);
    assert_int_equal(rmdir(fixture->path), 0);
    free(fixture);
    return 0;
}

static struct vault *open_vault(const struct fixture *fixture)
{
    struct vault *vault = vault_new(fixture->folder, NULL);
    struct error err = { 0 };

    assert_int_equal(vault_open(vault, &err), 0);
    return vault;
}

static void what_is_sealed_comes_back_after_a_restart(void **state)
{
    scoped(vault_free) struct vault *vault = open_vault(*state);
    scoped(free) char *sealed = vault_seal(vault, "ann", "{\"TOKEN\":\"hush\"}");
    scoped(free) char *again = vault_seal(vault, "ann", "{\"TOKEN\":\"hush\"}");
    scoped(vault_free) struct vault *next = open_vault(*state);
    struct error err = { 0 };
    scoped(free) char *text = vault_unseal(next, "ann", sealed, &err);

    assert_string_equal(text, "{\"TOKEN\":\"hush\"}");
    assert_null(strstr(sealed, "hush"));
    assert_string_not_equal(sealed, again);
}

static void texts_of_every_length_come_back(void **state)
{
    scoped(vault_free) struct vault *vault = open_vault(*state);
    struct error err = { 0 };
    char text[40] = "";

    for (size_t length = 0; length + 1 < sizeof(text); length++) {
        scoped(free) char *sealed = NULL;
        scoped(free) char *back = NULL;

        memset(text, 'x', length);
        sealed = vault_seal(vault, "", text);
        back = vault_unseal(vault, "", sealed, &err);
        assert_string_equal(back, text);
    }
}

static void what_was_changed_or_belongs_to_another_does_not(void **state)
{
    scoped(vault_free) struct vault *vault = open_vault(*state);
    scoped(free) char *sealed = vault_seal(vault, "ann", "hush");
    struct error err = { 0 };

    assert_null(vault_unseal(vault, "bob", sealed, &err));
    assert_null(vault_unseal(vault, "ann", "", &err));
    assert_null(vault_unseal(vault, "ann", "AAAA", &err));
    assert_null(vault_unseal(vault, "ann", "no base64!", &err));
    sealed[20] = sealed[20] == 'A' ? 'B' : 'A';
    assert_null(vault_unseal(vault, "ann", sealed, &err));
    assert_null(strstr(err.message, "hush"));
}

static void the_key_is_for_nobody_else_and_never_replaced(void **state)
{
    struct fixture *fixture = *state;
    scoped(vault_free) struct vault *vault = open_vault(fixture);
    scoped(vault_free) struct vault *damaged = vault_new(fixture->folder, NULL);
    struct error err = { 0 };
    struct stat status;
    int fd;

    assert_int_equal(fstatat(fixture->folder, "secret.key", &status, 0), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    fd = openat(fixture->folder, "secret.key", O_WRONLY | O_TRUNC | O_CLOEXEC);
    fd_close(fd);
    assert_int_equal(vault_open(damaged, &err), -1);
    assert_non_null(strstr(err.message, "secret.key"));
}

static void a_signature_is_for_one_text_about_one_thing(void **state)
{
    scoped(vault_free) struct vault *vault = open_vault(*state);
    char signature[VAULT_SIGNATURE_SIZE];

    vault_sign(vault, "teardown", "ses_1 100", signature);
    assert_true(vault_is_signed(vault, "teardown", "ses_1 100", signature));
    assert_false(vault_is_signed(vault, "teardown", "ses_1 200", signature));
    assert_false(vault_is_signed(vault, "delete", "ses_1 100", signature));
    assert_false(vault_is_signed(vault, "teardown", "ses_1 100", ""));
    signature[0] = signature[0] == '0' ? '1' : '0';
    assert_false(vault_is_signed(vault, "teardown", "ses_1 100", signature));
}

static void secrets_are_masked_and_sealed_for_their_owner(void **state)
{
    scoped(vault_free) struct vault *vault = open_vault(*state);
    scoped(secrets_free) struct secrets *secrets = secrets_new("{\"A\":\"hunter22\"}");
    scoped(secrets_free) struct secrets *back = NULL;
    scoped(mask_free) struct mask *both = secrets_join(secrets, "{\"B\":\"token-77\"}");
    scoped(free) char *masked = mask_text(both, "hunter22 token-77");
    struct error err = { 0 };

    assert_null(secrets_join(NULL, NULL));
    assert_string_equal(masked, MASK_TEXT " " MASK_TEXT);
    secrets_seal(secrets, vault, "ann");
    assert_null(secrets_unseal(vault, "bob", secrets->sealed, &err));
    back = secrets_unseal(vault, "ann", secrets->sealed, &err);
    assert_string_equal(back->json, "{\"A\":\"hunter22\"}");
    assert_string_equal(back->sealed, secrets->sealed);
}

static void values_that_were_replaced_are_still_masked(void **state)
{
    scoped(vault_free) struct vault *vault = open_vault(*state);
    scoped(secrets_free) struct secrets *secrets = secrets_new("{\"A\":\"hunter22\"}");
    scoped(secrets_free) struct secrets *back = NULL;
    scoped(free) char *masked = NULL;
    struct error err = { 0 };

    secrets_replace(secrets, "{\"A\":\"hunter33\"}");
    secrets_learn(secrets, "{\"B\":\"token-77\",\"C\":\"x\"}");
    secrets_seal(secrets, vault, "ann");
    back = secrets_unseal(vault, "ann", secrets->sealed, &err);
    assert_string_equal(back->json, "{\"A\":\"hunter33\"}");
    masked = mask_text(back->mask, "hunter22 hunter33 token-77 x");
    assert_string_equal(masked, MASK_TEXT " " MASK_TEXT " " MASK_TEXT " x");
}

static void only_so_many_values_are_known(void **state UNUSED)
{
    scoped(secrets_free) struct secrets *secrets = secrets_new(NULL);
    char json[64];

    for (int i = 0; i < 1000; i++) {
        snprintf(json, sizeof(json), "{\"A\":\"value-%06d\"}", i);
        secrets_learn(secrets, json);
    }
    assert_true(strlen(secrets->known) < 8192);
    assert_non_null(strstr(secrets->known, "value-000999"));
    assert_null(strstr(secrets->known, "value-000001"));
}

#define VAULT_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        VAULT_TEST(what_is_sealed_comes_back_after_a_restart),
        VAULT_TEST(texts_of_every_length_come_back),
        VAULT_TEST(what_was_changed_or_belongs_to_another_does_not),
        VAULT_TEST(the_key_is_for_nobody_else_and_never_replaced),
        VAULT_TEST(a_signature_is_for_one_text_about_one_thing),
        VAULT_TEST(secrets_are_masked_and_sealed_for_their_owner),
        VAULT_TEST(values_that_were_replaced_are_still_masked),
        VAULT_TEST(only_so_many_values_are_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
