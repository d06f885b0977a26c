/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include "front_keys.h"

#include "base/alloc.h"
#include "base/log.h"
#include "mcp/mcp.h"
#include "tools/tool.h"
#include "web/assets.h"
#include "web/dashboard.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TURNS = 2000 };

/* A page of two files: "hello" and "alert(1)", compressed. */
static const unsigned char page_gz[] = { 31,  139, 8, 0, 0,   0,   0,  0,  2, 3, 203, 72, 205,
                                         201, 201, 7, 0, 134, 166, 16, 54, 5, 0, 0,   0 };
static const unsigned char script_gz[] = { 31,  139, 8,   0,   0,  0,   0,  0,   2, 3,
                                           75,  204, 73,  45,  42, 209, 48, 212, 4, 0,
                                           214, 203, 178, 184, 8,  0,   0,  0 };

static const struct web_asset test_assets[] = {
    { "index.html", "text/html; charset=utf-8", page_gz, sizeof(page_gz), 5 },
    { "app-1234.js", "text/javascript; charset=utf-8", script_gz, sizeof(script_gz), 8 },
    { 0 },
};

static void open_faces(struct front *front)
{
    struct world *world = &front->world;
    struct face_entry faces[5] = { 0 };

    front->tools = tools_new(world->core);
    front->mcp = mcp_new(&(struct mcp_parts){ .loop = world->loop,
                                              .config = &world->config,
                                              .core = world->core,
                                              .tools = front->tools });
    front->api = api_new(&(struct api_parts){ .tools = front->tools });
    front->dashboard = dashboard_new(&(struct dashboard_parts){ .loop = world->loop,
                                                                .config = &world->config,
                                                                .auth = front->auth,
                                                                .assets = test_assets });
    faces[0] = (struct face_entry){ &mcp_face, front->mcp };
    faces[1] = (struct face_entry){ &web_page_face, front->dashboard };
    faces[2] = (struct face_entry){ &web_face, front->dashboard };
    faces[3] = (struct face_entry){ &api_face, front->api };
    front->faces = faces_new(&(struct faces_parts){ .loop = world->loop,
                                                    .config = &world->config,
                                                    .core = world->core,
                                                    .auth = front->auth,
                                                    .faces = faces });
}

void front_start(struct front *front)
{
    scoped(free) char *address = NULL;
    struct error err = { 0 };

    signal(SIGPIPE, SIG_IGN);
    log_setup(LOG_ERROR, LOG_TEXT, STDERR_FILENO);
    snprintf(front->path, sizeof(front->path), "/tmp/test-api-XXXXXX");
    assert(mkdtemp(front->path));
    world_init(&front->world);
    front->world.state_dir = open(front->path, O_DIRECTORY | O_CLOEXEC);
    front->world.config.exec.grace_ms = 5000;
    front->world.config.exec.stall_timeout_ms = 10000;
    front->world.config.exec.output_capture_bytes = 64 * 1024;
    front->world.config.exec.output_spool_bytes = 1024 * 1024;
    front->world.config.instance = (char *)"test";
    front->world.config.dashboard.enabled = true;
    front->world.config.dashboard.url = (char *)"";
    front->world.config.dashboard.login_timeout_ms = 3600 * 1000;
    if (front->configure)
        front->configure(front);
    world_start(&front->world);
    if (front->configure)
        front->auth = front_auth_new(front->world.loop, &front->world.config);
    open_faces(front);
    front->server =
        http_server_new(front->world.loop, &http_server_default_limits, faces_handle, front->faces);
    address = xasprintf("unix:%s/socket", front->path);
    assert(http_server_listen(front->server, address, &err) == 0);
    assert(http_server_listen(front->server, "127.0.0.1:0", &err) == 0);
}

void front_stop(struct front *front)
{
    char command[128];

    http_server_free(front->server);
    world_settle(&front->world);
    faces_free(front->faces);
    dashboard_free(front->dashboard);
    api_free(front->api);
    front_auth_free(front->auth);
    front->auth = NULL;
    mcp_free(front->mcp);
    tools_free(front->tools);
    world_fini(&front->world);
    fake_programs_clear();
    fd_close(front->world.state_dir);
    snprintf(command, sizeof(command), "rm -rf %s", front->path);
    assert(system(command) == 0);
}

static int connect_unix(const struct front *front)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", front->path);
    assert(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

static int connect_tcp(const struct front *front)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)http_server_port(front->server)),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

void caller_send(struct front *front, struct caller *caller, bool tcp, const char *text,
                 size_t length)
{
    *caller = (struct caller){ .fd = tcp ? connect_tcp(front) : connect_unix(front) };
    assert(fcntl(caller->fd, F_SETFL, O_NONBLOCK) == 0);
    while (length) {
        ssize_t count = write(caller->fd, text, length);

        assert(count > 0 || errno == EAGAIN);
        if (count > 0) {
            text += count;
            length -= (size_t)count;
        }
        loop_turn(front->world.loop, 0);
    }
}

/* --- reading --------------------------------------------------------------------------------- */

static void read_more(struct caller *caller)
{
    caller->bytes = xrealloc(caller->bytes, caller->length + 65536 + 1, 1);
    for (;;) {
        ssize_t count = read(caller->fd, caller->bytes + caller->length, 65536);

        if (count == 0)
            caller->closed = true;
        if (count <= 0)
            break;
        caller->length += (size_t)count;
        caller->bytes = xrealloc(caller->bytes, caller->length + 65536 + 1, 1);
    }
    caller->bytes[caller->length] = '\0';
}

/* The body of a chunked answer; false while it is not complete. */
static bool join_chunks(const char *from, const char *end, struct answer *answer)
{
    char *body = xmalloc((size_t)(end - from) + 1);
    size_t length = 0;

    while (from < end) {
        char *rest;
        size_t size = strtoul(from, &rest, 16);

        if (rest + 2 + size + 2 > end)
            break;
        memcpy(body + length, rest + 2, size);
        length += size;
        from = rest + 2 + size + 2;
        if (size == 0) {
            body[length] = '\0';
            answer->body = body;
            answer->length = length;
            return true;
        }
    }
    free(body);
    return false;
}

static bool parse(const struct caller *caller, bool is_head, struct answer *answer)
{
    char *end_of_head = caller->bytes ? strstr(caller->bytes, "\r\n\r\n") : NULL;
    const char *length_header, *start;
    size_t length = 0;

    if (!end_of_head)
        return false;
    start = end_of_head + 4;
    *answer = (struct answer){ .status = atoi(caller->bytes + 9) };
    answer->head = xstrndup(caller->bytes, (size_t)(start - caller->bytes));
    length_header = strcasestr(answer->head, "\r\nContent-Length: ");
    if (strcasestr(answer->head, "chunked") && !is_head) {
        if (join_chunks(start, caller->bytes + caller->length, answer))
            goto done;
        free(answer->head);
        *answer = (struct answer){ 0 };
        return false;
    }
    if (length_header && !is_head)
        length = strtoul(length_header + 18, NULL, 10);
    if ((size_t)(caller->bytes + caller->length - start) < length) {
        free(answer->head);
        *answer = (struct answer){ 0 };
        return false;
    }
    answer->body = xmalloc(length + 1);
    memcpy(answer->body, start, length);
    answer->body[length] = '\0';
    answer->length = length;
done:
    answer->json = json_loadb(answer->body, answer->length, 0, NULL);
    return true;
}

bool caller_poll(struct front *front, struct caller *caller, struct answer *answer)
{
    for (int i = 0; i < 20; i++)
        loop_turn(front->world.loop, 0);
    read_more(caller);
    return parse(caller, false, answer);
}

void caller_close(struct front *front, struct caller *caller)
{
    fd_close(caller->fd);
    free(caller->bytes);
    for (int i = 0; i < 20; i++)
        loop_turn(front->world.loop, 0);
}

static struct answer call_over(struct front *front, bool tcp, const char *method,
                               const char *target, const char *headers, const char *body)
{
    struct caller caller;
    struct answer answer;
    scoped(free) char *text = NULL;
    bool has_type = strcasestr(headers, "content-type") != NULL;
    bool has_host = strcasestr(headers, "\nhost:") != NULL;
    bool is_head = strcmp(method, "HEAD") == 0;
    int turns = 0;

    text = xasprintf("%s %s HTTP/1.1\r\n%s%s%sContent-Length: %zu\r\n\r\n%s", method, target,
                     has_host ? "" : "Host: localhost\r\n", headers,
                     body && !has_type ? "Content-Type: application/json\r\n" : "",
                     body ? strlen(body) : 0, body ? body : "");
    caller_send(front, &caller, tcp, text, strlen(text));
    do {
        loop_turn(front->world.loop, turns < TURNS / 2 ? 0 : 10);
        read_more(&caller);
        assert(++turns < TURNS);
        if (turns == TURNS / 2)
            simulated_clock_advance(&front->world.clock, 10 * 1000); /* 404 has its moment */
    } while (!parse(&caller, is_head, &answer));
    caller_close(front, &caller);
    return answer;
}

struct answer call(struct front *front, const char *method, const char *target, const char *headers,
                   const char *body)
{
    return call_over(front, false, method, target, headers, body);
}

struct answer call_tcp(struct front *front, const char *method, const char *target,
                       const char *headers, const char *body)
{
    return call_over(front, true, method, target, headers, body);
}

void answer_fini(struct answer *answer)
{
    free(answer->head);
    free(answer->body);
    json_decref(answer->json);
}

static const char *error_text(const struct answer *answer, const char *name)
{
    const char *text =
        json_string_value(json_object_get(json_object_get(answer->json, "error"), name));

    return text ? text : "";
}

const char *error_code_of(const struct answer *answer)
{
    return error_text(answer, "code");
}

const char *error_message_of(const struct answer *answer)
{
    return error_text(answer, "message");
}
