/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/pull/login.h"
#include "backend/pull/pull.h"
#include "backend/pull/web.h"

#include "base/macros.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void a_template_is_called_like_its_image(void **state)
{
    static const struct {
        const char *image, *name;
    } cases[] = {
        { "python:3.12", "python-3.12" },
        { "python", "python" },
        { "python:latest", "python" },
        { "ghcr.io/a/b-c/tool_x:v1", "tool_x-v1" },
        { "localhost:5000/x", "x" },
        { "x@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
          "x-0123456789ab" },
        { "x:1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "x-1" },
        { "host", NULL },
        { "x:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char name[TEMPLATE_NAME_SIZE];
        struct image_ref ref;
        struct error err = { 0 };

        assert_int_equal(image_ref_parse(&ref, cases[i].image, &err), 0);
        if (cases[i].name) {
            assert_int_equal(pull_derive_name(&ref, name, &err), 0);
            assert_string_equal(name, cases[i].name);
        } else {
            assert_int_equal(pull_derive_name(&ref, name, &err), -1);
            assert_non_null(strstr(err.hint, "--name"));
        }
    }
}

static int find(struct registry_login *login, const char *registry, const char *text,
                struct error *err)
{
    registry_login_fini(login);
    return registry_login_parse(login, registry, text, strlen(text), err);
}

static void logins_of_docker_are_found_by_the_registry(void **state)
{
    static const char text[] = "{\"auths\":{\"https://index.docker.io/v1/\":{\"auth\":\"YTpi\"},"
                               "\"https://one.example/v2/\":{\"auth\":\"YzpkOmU=\"},"
                               "\"two.example:5000\":{\"auth\":\"\"}},"
                               "\"credHelpers\":{\"two.example:5000\":\"pass\"}}";
    scoped(registry_login_fini) struct registry_login login = { 0 };
    scoped(free) char *basic = NULL;
    struct error err = { 0 };

    (void)state;
    assert_int_equal(find(&login, "docker.io", text, &err), 0);
    assert_string_equal(login.user, "a");
    assert_string_equal(login.password, "b");
    basic = registry_login_basic(&login);
    assert_string_equal(basic, "Basic YTpi");
    assert_int_equal(find(&login, "one.example", text, &err), 0);
    assert_string_equal(login.user, "c");
    assert_string_equal(login.password, "d:e");
    assert_int_equal(find(&login, "two.example:5000", text, &err), 0);
    assert_null(login.user);
    assert_string_equal(login.helper, "docker-credential-pass");
    assert_int_equal(find(&login, "two.example", text, &err), 0);
    assert_null(login.user);
    assert_null(login.helper);
    assert_null(registry_login_basic(&login));
    assert_int_equal(find(&login, "x", "{\"credsStore\":\"desktop\"}", &err), 0);
    assert_string_equal(login.helper, "docker-credential-desktop");
}

static void malformed_logins_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"auths\":{\"x\":{\"auth\":\"!!\"}}}",
        "{\"auths\":{\"x\":{\"auth\":\"YQ==\"}}}",     /* a */
        "{\"auths\":{\"x\":{\"auth\":\"OmI=\"}}}",     /* :b */
        "{\"auths\":{\"x\":{\"auth\":\"YQA6Yg==\"}}}", /* a NUL :b */
    };
    static const char *const empty[] = { "{}", "{\"auths\":5}", "{\"auths\":{\"x\":{\"auth\":5}}}",
                                         "{\"auths\":{\"x\":[]},\"credsStore\":7}" };
    scoped(registry_login_fini) struct registry_login login = { 0 };
    struct error err = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_int_equal(find(&login, "x", bad[i], &err), -1);
    for (size_t i = 0; i < ARRAY_LENGTH(empty); i++) {
        assert_int_equal(find(&login, "x", empty[i], &err), 0);
        assert_null(login.user);
        assert_null(login.helper);
    }
}

/* Says this to the first who connects, and then the same word for ever. */
static pid_t serve_without_end(const char *head, char url[64])
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(address);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_t pid;

    assert_int_equal(bind(server, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(server, 1), 0);
    assert_int_equal(getsockname(server, (struct sockaddr *)&address, &length), 0);
    snprintf(url, 64, "http://127.0.0.1:%u/", (unsigned)ntohs(address.sin_port));
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        int fd = accept(server, NULL, NULL);

        while (send(fd, head, strlen(head), MSG_NOSIGNAL) > 0)
            head = "denied ";
        _exit(0);
    }
    close(server);
    return pid;
}

static void a_refusal_without_end_is_not_read_to_its_end(void **state)
{
    struct web *web = web_new(true);
    struct web_request request = { 0 };
    struct web_answer answer = { 0 };
    struct error err = { 0 };
    char url[64];
    pid_t pid = serve_without_end("HTTP/1.1 403 Forbidden\r\n\r\n", url);

    (void)state;
    request.url = url;
    alarm(60);
    assert_int_equal(web_get(web, &request, &answer, &err), 0);
    alarm(0);
    assert_int_equal(answer.status, 403);
    web_free(web);
    assert_int_equal(waitpid(pid, NULL, 0), pid); /* nobody listens any more */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_is_called_like_its_image),
        cmocka_unit_test(logins_of_docker_are_found_by_the_registry),
        cmocka_unit_test(malformed_logins_are_refused),
        cmocka_unit_test(a_refusal_without_end_is_not_read_to_its_end),
    };

    return cmocka_run_group_tests_name("backend/pull", tests, NULL, NULL);
}
