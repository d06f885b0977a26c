/*
 * How long one caller waits, through the HTTP API over the unix socket, measured in one run against
 * F0 = posix_spawn and wait of /bin/true. Each round does everything once, so that noise hits all
 * alike.
 *
 *     bench_latency [--rounds N] [--program P] [--json] SANDGLASS
 *     bench_latency [--rounds N] [--program P] [--json] WARM_SOCKET COLD_SOCKET
 *
 * With the path of the program it starts two daemons of its own, one with a pool and one without;
 * otherwise these are two that run already.
 */

#include "client.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SETTLE_US = 60 * 1000 };

enum row {
    FLOOR,
    EXEC,
    GET,
    WARM_CREATE,
    WARM_FIRST,
    WARM,
    WARM_DESTROY,
    COLD_CREATE,
    COLD_FIRST,
    COLD_DESTROY,
    COLD,
    ROWS,
};

static const char *const names[ROWS] = {
    [FLOOR] = "posix_spawn + wait (F0)",
    [EXEC] = "exec in a live sandbox",
    [GET] = "GET /sessions/{id}",
    [WARM_CREATE] = "pool: create",
    [WARM_FIRST] = "pool: first exec",
    [WARM] = "pool: create + first exec",
    [WARM_DESTROY] = "pool: destroy",
    [COLD_CREATE] = "cold: create",
    [COLD_FIRST] = "cold: first exec",
    [COLD_DESTROY] = "cold: destroy",
    [COLD] = "cold: create + exec + destroyed",
};

/* Short names, for --json. */
static const char *const keys[ROWS] = {
    [FLOOR] = "floor",
    [EXEC] = "exec",
    [GET] = "get",
    [WARM_CREATE] = "warm_create",
    [WARM_FIRST] = "warm_first",
    [WARM] = "warm",
    [WARM_DESTROY] = "destroy",
    [COLD_CREATE] = "cold_create",
    [COLD_FIRST] = "cold_first",
    [COLD_DESTROY] = "cold_destroy",
    [COLD] = "cold",
};

static struct samples rows[ROWS];
static struct client warm, cold;

/* The pool refills and trash is emptied behind our back: the next row does not pay for it. */
static void settle(const char *program)
{
    usleep(SETTLE_US);
    spawn_and_wait(program);
}

static void measure_live(const char *program, const char *session)
{
    double times[4];
    char path[128];

    snprintf(path, sizeof(path), "/sessions/%s", session);
    times[0] = now_us();
    spawn_and_wait(program);
    times[1] = now_us();
    run_program(&warm, session, program);
    times[2] = now_us();
    client_ask(&warm, "GET", path, "", 200);
    times[3] = now_us();
    samples_add(&rows[FLOOR], times[1] - times[0]);
    samples_add(&rows[EXEC], times[2] - times[1]);
    samples_add(&rows[GET], times[3] - times[2]);
}

static void measure_cycle(struct client *client, const char *program, enum row create,
                          enum row first, enum row destroy, enum row sum, bool with_destroy)
{
    double times[4];
    char id[ID_LENGTH];

    times[0] = now_us();
    create_session(client, id);
    times[1] = now_us();
    run_program(client, id, program);
    times[2] = now_us();
    destroy_session(client, id);
    times[3] = now_us();
    samples_add(&rows[create], times[1] - times[0]);
    samples_add(&rows[first], times[2] - times[1]);
    samples_add(&rows[destroy], times[3] - times[2]);
    samples_add(&rows[sum], times[with_destroy ? 3 : 2] - times[0]);
}

static void measure(int rounds, const char *program)
{
    char session[ID_LENGTH];

    create_session(&warm, session);
    for (int i = 0; i < 5; i++)
        run_program(&warm, session, program);
    for (int i = 0; i < rounds; i++) {
        settle(program);
        measure_live(program, session);
        settle(program);
        measure_cycle(&warm, program, WARM_CREATE, WARM_FIRST, WARM_DESTROY, WARM, false);
        settle(program);
        measure_cycle(&cold, program, COLD_CREATE, COLD_FIRST, COLD_DESTROY, COLD, true);
    }
    destroy_session(&warm, session);
}

static void show(void)
{
    double floor = samples_at(&rows[FLOOR], 0.5);

    printf("%-34s %8s %8s %8s %8s %8s\n", "microseconds", "p10", "p50", "p99", "p50/F0", "p99/p50");
    for (int i = 0; i < ROWS; i++) {
        double median = samples_at(&rows[i], 0.5);
        double late = samples_at(&rows[i], 0.99);

        printf("%-34s %8.0f %8.0f %8.0f %8.2f %8.1f\n", names[i], samples_at(&rows[i], 0.1), median,
               late, median / floor, late / median);
    }
}

static void show_json(int rounds)
{
    double floor = samples_at(&rows[FLOOR], 0.5);

    printf("{\"rounds\":%d", rounds);
    for (int i = 0; i < ROWS; i++)
        printf(",\"%s\":{\"p10_us\":%.1f,\"p50_us\":%.1f,\"p95_us\":%.1f,\"p99_us\":%.1f,"
               "\"ratio\":%.3f}",
               keys[i], samples_at(&rows[i], 0.1), samples_at(&rows[i], 0.5),
               samples_at(&rows[i], 0.95), samples_at(&rows[i], 0.99),
               samples_at(&rows[i], 0.5) / floor);
    printf("}\n");
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "rounds", required_argument, NULL, 'r' },
        { "program", required_argument, NULL, 'p' },
        { "json", no_argument, NULL, 'j' },
        { 0 },
    };
    struct daemon with_pool, without_pool;
    const char *program = "/bin/true";
    int rounds = 200;
    bool json = false;
    bool serve;

    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'r')
            rounds = atoi(optarg);
        else if (c == 'p')
            program = optarg;
        else if (c == 'j')
            json = true;
        else
            return 2;
    }
    if (argc - optind < 1 || argc - optind > 2)
        die("usage: bench_latency [--rounds N] [--program P] [--json] SANDGLASS | WARM COLD");
    serve = argc - optind == 1;
    if (serve) {
        daemon_start(&with_pool, argv[optind], "pool.size: 4\nlog.level: warn\n");
        daemon_start(&without_pool, argv[optind], "pool.size: 0\nlog.level: warn\n");
    }
    client_connect(&warm, serve ? with_pool.socket : argv[optind]);
    client_connect(&cold, serve ? without_pool.socket : argv[optind + 1]);
    measure(rounds, program);
    client_close(&warm);
    client_close(&cold);
    if (serve) {
        daemon_stop(&without_pool);
        daemon_stop(&with_pool);
    }
    if (json)
        show_json(rounds);
    else
        show();
    return 0;
}
