/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_support.h"

#include "base/alloc.h"

#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

int redis_place_setup(void **state)
{
    struct redis_place *place = xnew(struct redis_place);

    *state = place;
    place->loop = loop_new(&clock_system);
    if (!redis_server_start(&place->servers[0], NULL)) {
        redis_place_teardown(state);
        *state = NULL;
        return -1;
    }
    return 0;
}

static void end_helper(struct redis_place *place)
{
    if (!place->helper)
        return;
    (void)kill(place->helper, SIGKILL);
    (void)waitpid(place->helper, NULL, 0);
    place->helper = 0;
}

int redis_place_teardown(void **state)
{
    struct redis_place *place = *state;

    if (!place)
        return 0;
    store_close(place->store);
    loop_free(place->loop);
    end_helper(place);
    for (size_t i = 0; i < ARRAY_LENGTH(place->servers); i++)
        redis_server_stop(&place->servers[i]);
    free(place);
    return 0;
}

struct store *redis_place_open(struct redis_place *place, struct store_options options)
{
    options.loop = place->loop;
    options.boot_id = "boot 1";
    if (!options.node)
        options.node = "a";
    if (!options.redis.url)
        options.redis.url = place->servers[0].url;
    place->err = (struct error){ 0 };
    return store_open_redis(&options, &place->err);
}

void redis_place_run(struct redis_place *place, const char *const *command)
{
    place->helper = fork();
    if (place->helper == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp(command[0], (char *const *)command);
        _exit(127);
    }
}

int free_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    uint16_t random;
    bool is_free;

    do {
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        assert_int_equal(getrandom(&random, sizeof(random), 0), sizeof(random));
        address.sin_port = htons((uint16_t)(10000 + random % 20000));
        is_free = bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
        close(fd);
    } while (!is_free);
    return ntohs(address.sin_port);
}

/* --- the proxy ------------------------------------------------------------------------------ */

static struct sockaddr_un unix_address(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return address;
}

static bool pass_on(int from, int to)
{
    char data[65536];
    ssize_t count = read(from, data, sizeof(data));

    return count > 0 && write(to, data, (size_t)count) == count;
}

/* One connection: after a few answers the next one does not come through. */
static void serve(int client, const struct sockaddr_un *server, unsigned *seed)
{
    int upstream = socket(AF_UNIX, SOCK_STREAM, 0);
    int answers = 3 + rand_r(seed) % 8;
    struct pollfd watched[2] = { { client, POLLIN, 0 }, { upstream, POLLIN, 0 } };

    if (connect(upstream, (const struct sockaddr *)server, sizeof(*server)) < 0)
        _exit(1);
    while (poll(watched, 2, -1) > 0) {
        if (watched[0].revents && !pass_on(client, upstream))
            break;
        if (watched[1].revents && (answers-- == 0 || !pass_on(upstream, client)))
            break;
    }
    close(upstream);
    close(client);
}

static _Noreturn void run_proxy(int listener, const char *server_path)
{
    struct sockaddr_un server = unix_address(server_path);
    unsigned seed = 1;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    for (;;)
        serve(accept(listener, NULL, NULL), &server, &seed);
}

void redis_place_cut(struct redis_place *place, const char *path)
{
    struct sockaddr_un own = unix_address(path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);

    assert_int_equal(bind(listener, (const struct sockaddr *)&own, sizeof(own)), 0);
    assert_int_equal(listen(listener, 8), 0);
    place->helper = fork();
    if (place->helper == 0)
        run_proxy(listener, place->servers[0].socket);
    close(listener);
}
