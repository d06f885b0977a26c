/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/kube_config.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD "apiVersion: v1\nkind: Config\ncurrent-context: one\n"
#define CONTEXTS                                                                   \
    "contexts:\n- {name: one, context: {cluster: c, user: u, namespace: boxes}}\n" \
    "- name: two\n  context:\n    cluster: c\n    user: other\n"
#define CLUSTER(members) "clusters:\n- name: c\n  cluster: {" members "}\n"
#define USER(members) "users:\n- name: u\n  user: {" members "}\n"
#define SERVER "server: 'https://10.0.0.1:6443'"

static struct error err;

static int parse(struct kube_config *out, const char *text, const char *context)
{
    err = (struct error){ 0 };
    return kube_config_parse(out, text, strlen(text), "/etc/k", context, &err);
}

static void a_context_has_its_cluster_and_user(void **state)
{
    scoped(kube_config_fini) struct kube_config kube = { 0 };

    (void)state;
    assert_int_equal(parse(&kube,
                           HEAD CONTEXTS CLUSTER(SERVER ", certificate-authority: ca.pem")
                               USER("client-certificate: /c.pem, client-key: k.pem, token: abc"),
                           ""),
                     0);
    assert_string_equal(kube.url, "https://10.0.0.1:6443");
    assert_string_equal(kube.prefix, "");
    assert_string_equal(kube.namespace, "boxes");
    assert_string_equal(kube.ca.path, "/etc/k/ca.pem");
    assert_string_equal(kube.certificate.path, "/c.pem");
    assert_string_equal(kube.key.path, "/etc/k/k.pem");
    assert_string_equal(kube.token, "abc");
    assert_int_equal(kube_config_port(&kube), 6443);
}

static void another_context_may_be_named(void **state)
{
    scoped(kube_config_fini) struct kube_config kube = { 0 };

    (void)state;
    assert_int_equal(parse(&kube,
                           HEAD CONTEXTS CLUSTER(SERVER)
                               USER("token: abc") "- name: other\n  user: {tokenFile: t}\n",
                           "two"),
                     0);
    assert_null(kube.namespace);
    assert_null(kube.token);
    assert_string_equal(kube.token_path, "/etc/k/t");
}

static void data_is_decoded(void **state)
{
    scoped(kube_config_fini) struct kube_config kube = { 0 };

    (void)state;
    assert_int_equal(parse(&kube,
                           HEAD CONTEXTS CLUSTER(SERVER ", certificate-authority-data: UEVN")
                               USER("client-certificate-data: QQ==, client-key-data: Qg=="),
                           ""),
                     0);
    assert_string_equal(kube.ca.text, "PEM");
    assert_string_equal(kube.certificate.text, "A");
    assert_string_equal(kube.key.text, "B");
}

static void servers_are_urls(void **state)
{
    static const struct {
        const char *server, *url, *prefix; /* no url: refused */
    } rows[] = {
        { "https://h", "https://h:443", "" },
        { "https://h/", "https://h:443", "" },
        { "https://h:6443/k8s/clusters/c-1/", "https://h:6443", "/k8s/clusters/c-1" },
        { "https://[::1]:6443", "https://[::1]:6443", "" },
        { "https://[fd00::1]", "https://[fd00::1]:443", "" },
        { "http://127.0.0.1:8001", "http://127.0.0.1:8001", "" },
        { "http://10.0.0.1:8001", NULL, NULL },
        { "ftp://h", NULL, NULL },
        { "h:6443", NULL, NULL },
        { "https://", NULL, NULL },
        { "https://h:0", NULL, NULL },
        { "https://h:65536", NULL, NULL },
        { "https://h:x", NULL, NULL },
        { "https://u@h", NULL, NULL },
        { "https://h/a?b", NULL, NULL },
        { "https://[::1", NULL, NULL },
        { "https://h\\r\\nX:1", NULL, NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(kube_config_fini) struct kube_config kube = { 0 };
        char text[512];
        int result;

        print_message("# %s\n", rows[i].server);
        snprintf(text, sizeof(text), HEAD CONTEXTS CLUSTER("server: \"%s\""), rows[i].server);
        result = parse(&kube, text, "");
        assert_int_equal(result, rows[i].url ? 0 : -1);
        if (!rows[i].url)
            continue;
        assert_string_equal(kube.url, rows[i].url);
        assert_string_equal(kube.prefix, rows[i].prefix);
    }
}

static void what_is_refused_is_named(void **state)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        { "", "current-context" },
        { "a: [", "not valid YAML" },
        { "- a\n", "current-context" },
        { HEAD, "no context \"one\"" },
        { HEAD CONTEXTS, "no cluster \"c\"" },
        { HEAD CONTEXTS CLUSTER(""), "no server" },
        { HEAD CONTEXTS CLUSTER(SERVER ", insecure-skip-tls-verify: true"),
          "insecure-skip-tls-verify" },
        { HEAD CONTEXTS CLUSTER(SERVER ", proxy-url: 'http://p'"), "proxy-url" },
        { HEAD CONTEXTS CLUSTER(SERVER ", tls-server-name: x"), "tls-server-name" },
        { HEAD CONTEXTS CLUSTER(SERVER) USER("exec: {command: aws}"), "exec plugin" },
        { HEAD CONTEXTS CLUSTER(SERVER) USER("auth-provider: {name: gcp}"), "auth-provider" },
        { HEAD CONTEXTS CLUSTER(SERVER) USER("username: a, password: b"), "password" },
        { HEAD CONTEXTS CLUSTER(SERVER) USER("as: root"), "impersonation" },
        { HEAD CONTEXTS CLUSTER(SERVER) USER("client-certificate: c"), "belong together" },
        { HEAD CONTEXTS CLUSTER(SERVER) USER("client-key-data: '###'"), "not PEM" },
        { HEAD CONTEXTS CLUSTER(SERVER) USER("token: \"a\\r\\nX: y\""), "token" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(kube_config_fini) struct kube_config kube = { 0 };

        print_message("# %s\n", rows[i].words);
        assert_int_equal(parse(&kube, rows[i].text, ""), -1);
        assert_int_equal(err.code, ERR_INVALID);
        if (!strstr(err.message, rows[i].words))
            fail_msg("%s", err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_has_its_cluster_and_user),
        cmocka_unit_test(another_context_may_be_named),
        cmocka_unit_test(data_is_decoded),
        cmocka_unit_test(servers_are_urls),
        cmocka_unit_test(what_is_refused_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
