/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void load(struct config *config, const char *text)
{
    struct error err = { 0 };

    if (config_load_text(config, text, strlen(text), "test.yaml", &err) < 0)
        fail_msg("%s", err.message);
}

static void assert_accepted(const char *text)
{
    scoped(config_fini) struct config config = { 0 };
    struct error err = { 0 };

    load(&config, text);
    if (config_check(&config, &err) < 0)
        fail_msg("%s: %s", text, err.message);
}

static void assert_refused(const char *text, const char *expected)
{
    scoped(config_fini) struct config config = { 0 };
    struct error err = { 0 };

    load(&config, text);
    if (config_check(&config, &err) == 0)
        fail_msg("accepted: %s", text);
    if (!strstr(err.message, expected))
        fail_msg("\"%s\" does not say \"%s\"", err.message, expected);
}

static void the_defaults_fit_together(void **state UNUSED)
{
    assert_accepted("");
}

static void without_authentication_only_loopback_is_served(void **state UNUSED)
{
    assert_accepted("listen: [127.0.0.1:80, 127.1.2.3:80, localhost:80, '[::1]:80', unix:/run/x]");
    assert_refused("listen: 0.0.0.0:80", "0.0.0.0:80 is reachable from other hosts");
    assert_refused("listen: '[::]:80'", "is reachable from other hosts");
    assert_refused("listen: 192.168.1.1:80", "is reachable from other hosts");
    assert_refused("listen: 127.0.0.1.example.com:80", "is reachable from other hosts");
    assert_refused("listen: '*:80'", "is reachable from other hosts");
    assert_refused("listen: [unix:/run/x, example.com:80]", "is reachable from other hosts");
    assert_accepted("{listen: '0.0.0.0:80', auth: {mode: keys, keys_file: /etc/keys}}");
}

static void a_store_in_redis_has_an_address(void **state UNUSED)
{
    assert_accepted("store: {kind: redis, redis: {url: 'redis://host:1/2', sync: 'replicas:2'}}");
    assert_accepted("store: {kind: sqlite, redis: {url: nonsense}}");
    assert_refused("store: {kind: redis}", "store.redis.url is needed");
    assert_refused("store: {kind: redis, redis: {url: 'host:1'}}", "store.redis.url: it does not");
    assert_refused("store: {kind: redis, redis: {url: 'redis://h', sync: 'replicas:0'}}",
                   "store.redis.sync: \"replicas:0\"");
    assert_refused("store: {kind: redis, redis: {url: 'redis://h', ca: /etc/ca.pem}}",
                   "store.redis.ca is for TLS");
    assert_refused("store: {kind: redis, redis: {url: 'redis://h', prefix: ''}}",
                   "store.redis.prefix");
}

static void addresses_are_checked(void **state UNUSED)
{
    assert_refused("listen: nonsense", "neither unix:PATH nor HOST:PORT");
    assert_refused("listen: ':80'", "neither unix:PATH nor HOST:PORT");
    assert_refused("listen: 127.0.0.1:99999", "neither unix:PATH nor HOST:PORT");
    assert_refused("listen: unix:relative", "is not an absolute path");
    assert_refused("listen: unix:/0123456789012345678901234567890123456789012345678901234567890123"
                   "4567890123456789012345678901234567890123456789",
                   "too long");
}

static void authentication_needs_its_files(void **state UNUSED)
{
    assert_refused("auth: {mode: keys}", "needs auth.keys_file");
    assert_refused("auth: {mode: jwt}", "needs exactly one of");
    assert_refused("auth: {mode: jwt, jwt: {jwks_file: /a, jwks_url: 'https://b'}}",
                   "needs exactly one of");
    assert_refused("auth: {mode: jwt, jwt: {jwks_file: /a}}", "needs auth.jwt.issuer");
    assert_refused("auth: {mode: jwt, jwt: {jwks_file: /a, issuer: i}}", "auth.jwt.audience");
    assert_accepted("auth: {mode: jwt, jwt: {jwks_file: /a, issuer: i, audience: a}}");
    assert_refused("auth: {mode: jwt, jwt: {jwks_url: 'http://x/k', issuer: i, audience: a}}",
                   "https://");
    assert_accepted("auth: {mode: jwt, jwt: {jwks_url: 'https://x/k', issuer: i, audience: a}}");
    assert_accepted(
        "auth: {mode: jwt, jwt: {jwks_url: 'http://127.0.0.1:8/k', issuer: i, audience: a}}");
    assert_refused("tls: {certificate: /a}", "must be set together");
}

static void mounts_must_exist_and_have_a_place(void **state UNUSED)
{
    assert_accepted("sandbox: {mounts: [{host_path: /, path: /mnt}]}");
    assert_refused("sandbox: {mounts: [{host_path: /nonexistent, path: /mnt}]}",
                   "\"/nonexistent\" does not exist");
    assert_refused("sandbox: {mounts: [{host_path: /, path: /}]}", "not a valid mount point");
    assert_refused("sandbox: {mounts: [{host_path: /, path: /a/../b}]}", "not a valid mount point");
    assert_refused("sandbox: {mounts: [{host_path: /, path: /a/..}]}", "not a valid mount point");
    assert_refused("sandbox: {mounts: [{host_path: /, path: /a}, {host_path: /, path: /a}]}",
                   "duplicate mount point /a");
}

static void names_are_plain(void **state UNUSED)
{
    assert_refused("instance: a/b", "not a plain name");
    assert_refused("instance: ..", "not a plain name");
    assert_refused("sandbox: {env: {pass: [A-B]}}", "not a valid variable name");
    assert_refused("flavors: [{name: a}, {name: a}]", "duplicate name \"a\"");
    assert_refused("flavors: [{name: ''}]", "without a name");
}

static void limits_fit_into_each_other(void **state UNUSED)
{
    assert_refused("http: {line_limit: 128k, head_limit: 64k}", "must not exceed http.head_limit");
    assert_refused("exec: {output_capture: 1m, output_spool: 64k}",
                   "must not exceed exec.output_spool");
}

static void the_engine_has_an_address(void **state UNUSED)
{
    assert_accepted("docker: {host: 'unix:///run/user/1000/docker.sock'}");
    assert_accepted("docker: {host: 'tcp://127.0.0.1:2375'}");
    assert_accepted("docker: {host: 'tcp://[::1]:2375'}");
    assert_refused("docker: {host: 'unix://docker.sock'}", "is not an absolute path");
    assert_refused("docker: {host: 'unix:/run/docker.sock'}", "neither unix://PATH nor");
    assert_refused("docker: {host: 'unix:///0123456789012345678901234567890123456789012345678901234"
                   "5678901234567890123456789012345678901234567890123456789'}",
                   "too long");
    assert_refused("docker: {host: ''}", "neither unix://PATH nor tcp://HOST:PORT");
    assert_refused("docker: {host: /run/docker.sock}", "neither unix://PATH nor");
    assert_refused("docker: {host: 'ssh://build@example.org'}", "neither unix://PATH nor");
    assert_refused("docker: {host: 'tcp://127.0.0.1'}", "is not HOST:PORT");
    assert_refused("docker: {host: 'tcp://:2375'}", "is not HOST:PORT");
    assert_refused("docker: {host: 'tcp://127.0.0.1:0'}", "is not HOST:PORT");
    assert_refused("docker: {host: 'tcp://127.0.0.1:65536'}", "is not HOST:PORT");
    assert_refused("docker: {host: 'tcp://127.0.0.1:2375/v1.41'}", "is not HOST:PORT");
    assert_refused("docker: {host: 'tcp://me@127.0.0.1:2375'}", "is not HOST:PORT");
}

static void an_engine_elsewhere_is_verified(void **state UNUSED)
{
    assert_refused("docker: {host: 'tcp://10.0.0.5:2376'}", "docker.tls.ca is not set");
    assert_refused("docker: {host: 'tcp://127.0.0.1.example.com:2376'}", "is another machine");
    assert_accepted("docker: {host: 'tcp://10.0.0.5:2376', tls: {ca: /dev/null}}");
    assert_accepted("docker: {host: 'tcp://10.0.0.5:2376', tls: {ca: /dev/null, cert: /dev/null, "
                    "key: /dev/null}}");
    assert_refused("docker: {host: 'tcp://10.0.0.5:2376', tls: {ca: /dev/null, key: /dev/null}}",
                   "must be set together");
    assert_refused("docker: {host: 'tcp://127.0.0.1:2376', tls: {cert: /dev/null, key: "
                   "/dev/null}}",
                   "docker.tls.cert needs docker.tls.ca");
    assert_refused("docker: {host: 'tcp://10.0.0.5:2376', tls: {ca: /nonexistent/ca.pem}}",
                   "docker.tls.ca: /nonexistent/ca.pem does not exist");
    assert_refused("docker: {tls: {ca: /dev/null}}", "docker.host is a unix socket");
}

static void sandboxes_share_no_network_of_the_host(void **state UNUSED)
{
    assert_accepted("docker: {network: bridge, runtime: io.containerd.runc.v2}");
    assert_accepted("docker: {network: my_net-1.x, runtime: ''}");
    assert_refused("docker: {network: host}", "docker.network: \"host\" would give sandboxes");
    assert_refused("docker: {network: 'container:web'}", "the network of others");
    assert_refused("docker: {network: ''}", "is not the name of a network");
    assert_refused("docker: {network: 'a b'}", "is not the name of a network");
    assert_refused("docker: {network: -x}", "is not the name of a network");
    assert_refused("docker: {runtime: '../runsc'}", "is not the name of a runtime");
}

static void the_url_of_the_dashboard_is_that_of_a_page(void **state UNUSED)
{
    static const char *const wrong[] = { "tools.example.com", "ftp://x/",     "https://",
                                         "https:///x",        "https://a b/", "https://u@h/",
                                         "https://h/?q=1" };

    assert_accepted("{dashboard: {url: 'https://tools.example.com/sandglass/'}}");
    assert_accepted("{dashboard: {url: 'http://[::1]:8080/'}}");
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        char text[128];

        snprintf(text, sizeof(text), "{dashboard: {url: '%s'}}", wrong[i]);
        assert_refused(text, "dashboard.url");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_fit_together),
        cmocka_unit_test(without_authentication_only_loopback_is_served),
        cmocka_unit_test(a_store_in_redis_has_an_address),
        cmocka_unit_test(addresses_are_checked),
        cmocka_unit_test(authentication_needs_its_files),
        cmocka_unit_test(mounts_must_exist_and_have_a_place),
        cmocka_unit_test(names_are_plain),
        cmocka_unit_test(limits_fit_into_each_other),
        cmocka_unit_test(the_engine_has_an_address),
        cmocka_unit_test(an_engine_elsewhere_is_verified),
        cmocka_unit_test(sandboxes_share_no_network_of_the_host),
        cmocka_unit_test(the_url_of_the_dashboard_is_that_of_a_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
