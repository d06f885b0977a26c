/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of TLS: whom they trust, what they show, and ends of one side. The sockets are pairs. */

#include "net/tls.h"

#include "base/alloc.h"
#include "loop/loop.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEADLINE_MS = 20000 };

static char directory[64];
static char ca_path[96], certificate_path[96], key_path[96], other_key_path[96];

/* --- certificates ---------------------------------------------------------------------------- */

static void write_pem(char *path, const char *name, X509 *certificate, EVP_PKEY *key)
{
    FILE *file;

    snprintf(path, 96, "%s/%s", directory, name);
    file = fopen(path, "w");
    assert_non_null(file);
    if (certificate)
        assert_int_equal(PEM_write_X509(file, certificate), 1);
    if (key)
        assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
}

static X509 *make_certificate(EVP_PKEY *key, const char *name, X509 *issuer, EVP_PKEY *issuer_key,
                              const char *alternative)
{
    X509 *certificate = X509_new();
    X509_NAME *subject = X509_get_subject_name(certificate);
    X509V3_CTX context;
    X509_EXTENSION *extension;

    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), issuer ? 2 : 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(certificate, issuer ? X509_get_subject_name(issuer) : subject);
    X509V3_set_ctx(&context, issuer ? issuer : certificate, certificate, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context,
                                    issuer ? NID_subject_alt_name : NID_basic_constraints,
                                    issuer ? alternative : "critical,CA:TRUE");
    assert_non_null(extension);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    assert_true(X509_sign(certificate, issuer_key, EVP_sha256()) > 0);
    return certificate;
}

static int make_files(void **state UNUSED)
{
    EVP_PKEY *ca_key = EVP_EC_gen("P-256");
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *ca = make_certificate(ca_key, "ca", NULL, ca_key, NULL);
    X509 *certificate = make_certificate(key, "server", ca, ca_key, "DNS:engine.example");

    snprintf(directory, sizeof(directory), "/tmp/sandglass-tls-XXXXXX");
    assert_non_null(mkdtemp(directory));
    write_pem(ca_path, "ca.pem", ca, NULL);
    write_pem(certificate_path, "cert.pem", certificate, NULL);
    write_pem(key_path, "key.pem", NULL, key);
    write_pem(other_key_path, "other.pem", NULL, ca_key);
    X509_free(ca);
    X509_free(certificate);
    EVP_PKEY_free(ca_key);
    EVP_PKEY_free(key);
    return 0;
}

static int remove_files(void **state UNUSED)
{
    unlink(ca_path);
    unlink(certificate_path);
    unlink(key_path);
    unlink(other_key_path);
    return rmdir(directory);
}

/* --- a connection ---------------------------------------------------------------------------- */

struct world {
    struct loop *loop;
    struct tls *server, *client;
    int server_end, client_end; /* plain */
};

static void world_open(struct world *world, const struct tls_files *files, const char *host)
{
    struct error err = { 0 };
    int pair[2];

    world->loop = loop_new(&clock_system);
    world->server = tls_new(world->loop, certificate_path, key_path, &err);
    world->client = tls_new_client(world->loop, files, &err);
    if (!world->server || !world->client)
        fail_msg("%s", err.message);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    world->server_end = tls_accept(world->server, pair[0]);
    world->client_end = tls_connect(world->client, pair[1], host);
    assert_true(world->server_end >= 0 && world->client_end >= 0);
}

static void world_close(struct world *world)
{
    fd_close(world->server_end);
    fd_close(world->client_end);
    tls_free(world->server);
    tls_free(world->client);
    loop_free(world->loop);
}

/* The next bytes as text; "" at the end. */
static const char *receive(struct world *world, int fd)
{
    static char text[100];
    int64_t deadline_us = loop_now_us(world->loop) + DEADLINE_MS * 1000LL;
    ssize_t length;

    while ((length = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT)) < 0) {
        assert_int_equal(errno, EAGAIN);
        assert_true(loop_now_us(world->loop) < deadline_us);
        loop_turn(world->loop, 5);
    }
    text[length] = '\0';
    return text;
}

static void a_client_may_end_its_side_and_read_on(void **state UNUSED)
{
    struct tls_files files = { .ca = ca_path };
    struct world world;

    world_open(&world, &files, "engine.example");
    assert_int_equal(send(world.client_end, "input", 5, 0), 5);
    assert_string_equal(receive(&world, world.server_end), "input");
    shutdown(world.client_end, SHUT_WR);
    assert_string_equal(receive(&world, world.server_end), "");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(send(world.server_end, "output", 6, 0), 6);
        assert_string_equal(receive(&world, world.client_end), "output");
    }
    close(world.server_end);
    world.server_end = -1;
    assert_string_equal(receive(&world, world.client_end), "");
    world_close(&world);
}

static void a_client_that_closes_ends_both_sides(void **state UNUSED)
{
    struct tls_files files = { .ca = ca_path };
    struct world world;

    world_open(&world, &files, "engine.example");
    assert_int_equal(send(world.client_end, "last", 4, 0), 4);
    close(world.client_end);
    world.client_end = -1;
    assert_string_equal(receive(&world, world.server_end), "last");
    assert_string_equal(receive(&world, world.server_end), "");
    world_close(&world);
}

static void an_unknown_authority_and_a_wrong_name_are_not_trusted(void **state UNUSED)
{
    struct tls_files trusting = { .ca = ca_path };
    const struct {
        const struct tls_files *files;
        const char *host;
    } rows[] = { { NULL, "engine.example" }, { &trusting, "other.example" } };

    for (size_t i = 0; i < 2; i++) {
        struct world world;

        world_open(&world, rows[i].files, rows[i].host);
        assert_string_equal(receive(&world, world.client_end), "");
        assert_non_null(strstr(tls_failure(world.client), "not trusted"));
        world_close(&world);
    }
}

static void files_that_do_not_fit_are_refused(void **state UNUSED)
{
    const struct tls_files rows[] = {
        { .ca = "/nonexistent/ca.pem" },
        { .ca = key_path },
        { .certificate = certificate_path },
        { .key = key_path },
        { .certificate = certificate_path, .key = other_key_path },
        { .certificate = certificate_path, .key = "/nonexistent/key.pem" },
    };
    struct loop *loop = loop_new(&clock_system);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err = { 0 };

        assert_null(tls_new_client(loop, &rows[i], &err));
        assert_int_equal(err.code, ERR_INVALID);
    }
    loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_may_end_its_side_and_read_on),
        cmocka_unit_test(a_client_that_closes_ends_both_sides),
        cmocka_unit_test(an_unknown_authority_and_a_wrong_name_are_not_trusted),
        cmocka_unit_test(files_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, make_files, remove_files);
}
