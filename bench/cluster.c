/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hundred thousand sessions on twenty nodes, in one process: bench_cluster [NODES [SESSIONS [steady]]]
 *
 * Each node is a core with a fake backend, a cluster and a Redis store of its own; the store, the
 * server and the code of the nodes are the real ones. The clock is simulated. It goes on as fast as
 * the real one while there is something to do: all nodes share one processor here, so what takes a
 * second would take less on machines of their own. It jumps while nothing but timers is waited for.
 *
 * Sessions are placed by the node that is asked, which is another one each time. Then a node dies, and
 * the others take its sessions. Prints a table; exit code 1 when an aim is missed.
 */
#include "cluster/cluster.h"
#include "backend/backends.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "cluster/placement.h"
#include "config/config.h"
#include "core/core.h"
#include "core/events.h"
#include "core/rehome.h"
#include "core/session/session.h"
#include "harness/fake_backend.h"
#include "harness/redis_server.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    NODES_MOST = 64,
    AT_ONCE = 100, /* creates under way */
    LEASE_MS = 15 * 1000,
    SESSIONS_PER_OWNER = 50,
    NAME_SIZE = 16,
    IDLE_S = 60,
    SETTLE_TURNS = 500,
    MOVE_MOST_S = 120,
    TURN_US = 1000,
    WAIT_S = 10, /* for what has to come */
    JUMP_US = 100 * 1000,
};

#define UNEVEN_MOST 0.10
#define REHOMED_MOST_S 5.0

struct member {
    struct simulation *simulation; /* borrowed */
    char name[NAME_SIZE], address[32];
    struct config config;
    struct store *store;       /* owned, as the next three; NULL when it is dead */
    struct backends *backends; /* has the next */
    struct backend *backend;
    struct core *core;
    struct cluster *cluster;
    bool is_started;
};

struct simulation {
    struct simulated_clock clock;
    struct loop *loop;
    struct redis_server server;
    struct member members[NODES_MOST];
    unsigned nodes, sessions;
    bool is_steady; /* a turn takes TURN_US, however busy this machine is: for tests */
    unsigned begun, opened, failed;
};

struct create {
    struct session_op op;
    struct simulation *simulation; /* borrowed */
};

static int64_t real_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static double simulated_s(const struct simulation *simulation)
{
    return (double)simulation->clock.boot_us / 1e6;
}

/* One turn; the simulated clock goes on by what it has taken, or by `least_us`. */
static void step(struct simulation *simulation, int64_t least_us)
{
    int64_t begin_us = real_us();

    loop_turn(simulation->loop, 1);
    loop_advance(simulation->loop, &simulation->clock,
                 MAX(simulation->is_steady ? TURN_US : real_us() - begin_us, least_us));
}

static unsigned session_count(const struct core *core)
{
    const struct list *node;
    unsigned count = 0;

    for (node = core->sessions.next; node != &core->sessions; node = node->next)
        count++;
    return count;
}

/* --- nodes ---------------------------------------------------------------------------------- */

static void describe(void *context, struct node_load *out_load, struct json_writer *backends)
{
    struct member *member = context;

    json_put_text(backends, NULL, "fake");
    *out_load = (struct node_load){
        .sandboxes = (unsigned)fake_backend_count(member->backend),
        .sandboxes_maximum = (unsigned)member->config.capacity.max_sandboxes,
        .sessions = session_count(member->core),
    };
}

static void on_session(void *context, const char *session_id, const char *from)
{
    struct member *member = context;

    core_take_session(member->core, session_id, from);
}

static void on_unsure(void *context)
{
    struct member *member = context;

    core_take_sessions(member->core);
}

static void on_sequence(void *context, uint64_t sequence)
{
    struct member *member = context;

    events_skip(member->core->events, sequence);
}

static void on_lost(void *context, const char *node)
{
    (void)context;
    (void)node;
}

static void on_serving(void *context, bool is_serving)
{
    (void)context;
    (void)is_serving;
}

static void on_reported(void *context)
{
    (void)context;
}

static const struct cluster_owner owner = {
    .describe = describe,
    .on_session = on_session,
    .on_unsure = on_unsure,
    .on_sequence = on_sequence,
    .on_lost = on_lost,
    .on_reported = on_reported,
    .on_serving = on_serving,
};

static void fill_config(struct member *member, unsigned sessions)
{
    static char template_name[] = "host", flavor_name[] = "cpu-basic", nothing[] = "";
    static struct config_flavor flavors[] = { { .name = flavor_name } };
    struct config *config = &member->config;

    config->node.id = member->name;
    config->node.address = member->address;
    config->node.lease_ms = LEASE_MS;
    config->sandbox.template_name = template_name;
    config->sandbox.memory_bytes = 1ULL << 30;
    config->sandbox.disk_bytes = 1ULL << 30;
    config->sandbox.cpu_millis = 1000;
    config->sandbox.pids = 256;
    config->sandbox.auto_restart = true;
    config->sandbox.start_timeout_ms = 600 * 1000;
    config->sandbox.silence_timeout_ms = 600 * 1000;
    config->approvals.timeout_ms = 3600 * 1000;
    config->budget.window_ms = 3600 * 1000;
    config->sessions.enabled = true;
    config->python.path = nothing;
    config->session.idle_timeout_ms = 24 * 3600 * 1000;
    config->session.max_lifetime_ms = 24 * 3600 * 1000;
    config->session.grace_ms = 30 * 1000;
    config->session.retention_ms = 24 * 3600 * 1000;
    config->session.preload = true;
    config->capacity.max_sandboxes = sessions;
    config->capacity.max_per_owner = sessions;
    config->capacity.overflow = OVERFLOW_REJECT;
    config->capacity.wait_timeout_ms = 30 * 1000;
    config->flavors.items = flavors;
    config->flavors.count = 1;
}

static void on_started(struct core *core, const struct error *err, void *user)
{
    struct member *member = user;

    (void)core;
    assert(!err);
    member->is_started = true;
}

static void member_start(struct simulation *simulation, unsigned number)
{
    struct member *member = &simulation->members[number];
    struct error err;

    member->simulation = simulation;
    snprintf(member->name, sizeof(member->name), "node%u", number);
    snprintf(member->address, sizeof(member->address), "http://10.0.0.%u:7420", number + 1);
    fill_config(member, simulation->sessions);
    member->store = store_open_redis(&(struct store_options){ .loop = simulation->loop,
                                                              .boot_id = "simulated",
                                                              .node = member->name,
                                                              .redis.url = simulation->server.url,
                                                              .redis.prefix = "sim:",
                                                              .redis.sync = "none" },
                                     &err);
    if (!member->store) {
        fprintf(stderr, "%s\n", err.message);
        exit(2);
    }
    member->backend = fake_backend_new(simulation->loop);
    fake_backend_make_crowd(member->backend);
    member->backends = backends_new(simulation->loop);
    backends_add(member->backends, member->backend, BACKEND_OF_CALLERS);
    member->core = core_new(&(struct core_parts){ .loop = simulation->loop,
                                                  .config = &member->config,
                                                  .store = member->store,
                                                  .backends = member->backends,
                                                  .state_dir = -1,
                                                  .node = member->name });
    core_start(member->core, on_started, member);
    while (!member->is_started)
        step(simulation, 0);
    member->cluster = cluster_new(&(struct cluster_parts){ .loop = simulation->loop,
                                                           .config = &member->config,
                                                           .store = member->store,
                                                           .owner = &owner,
                                                           .context = member });
    cluster_start(member->cluster);
}

/* Its lease is not renewed any more, and its sandboxes are out of reach. */
static void member_kill(struct member *member)
{
    store_drain(member->store);
    cluster_free(member->cluster);
    core_free(member->core);
    for (int i = 0; i < 3; i++)
        loop_turn(member->simulation->loop, 0);
    store_close(member->store);
    backends_free(member->backends);
    *member = (struct member){ .simulation = member->simulation };
}

static void wait_until_all_serve(struct simulation *simulation)
{
    for (unsigned i = 0; i < simulation->nodes; i++)
        while (!cluster_is_serving(simulation->members[i].cluster, &(struct error){ 0 }))
            step(simulation, 0);
    /* Each has seen the reports of all others. */
    for (int64_t us = 0; us < LEASE_MS * 1000; us += JUMP_US)
        step(simulation, JUMP_US);
}

/* --- sessions ------------------------------------------------------------------------------- */

static struct member *member_of(struct simulation *simulation, const char *name)
{
    for (unsigned i = 0; i < simulation->nodes; i++)
        if (str_equal(simulation->members[i].name, name))
            return &simulation->members[i];
    abort();
}

static void on_opened(struct session_op *op)
{
    struct create *create = container_of(op, struct create, op);

    if (op->err.code == ERR_NONE)
        create->simulation->opened++;
    else if (!create->simulation->failed++)
        fprintf(stderr, "create: %s\n", op->err.message);
    free(create);
}

static uint64_t draw(void)
{
    return (uint64_t)rand() << 32 | (uint64_t)rand();
}

static void open_one(struct simulation *simulation)
{
    unsigned number = simulation->begun++;
    unsigned owners = simulation->sessions / SESSIONS_PER_OWNER + 1; /* that take turns */
    struct member *entry = &simulation->members[(unsigned)rand() % simulation->nodes];
    struct session_request request = SESSION_REQUEST_INIT;
    struct create *create = xnew(struct create);
    const struct cluster_node *home =
        placement_choose(entry->cluster, &(struct placement_wish){ 0 }, draw());
    char name[NAME_SIZE], key[NAME_SIZE];

    snprintf(name, sizeof(name), "owner%u", number % owners);
    snprintf(key, sizeof(key), "key%u", number);
    request.owner = name;
    request.key = number % 2 ? key : NULL;
    create->simulation = simulation;
    session_open(member_of(simulation, home->id)->core, &request, &create->op, on_opened);
}

static void open_all(struct simulation *simulation)
{
    double begin_s = simulated_s(simulation);

    while (simulation->opened + simulation->failed < simulation->sessions) {
        if (simulated_s(simulation) - begin_s > simulation->sessions / 100.0 + MOVE_MOST_S) {
            fprintf(stderr, "only %u of %u sessions are open\n", simulation->opened,
                    simulation->sessions);
            exit(1);
        }
        while (simulation->begun < simulation->sessions &&
               simulation->begun - simulation->opened - simulation->failed < AT_ONCE)
            open_one(simulation);
        step(simulation, 0);
    }
}

static unsigned live_sessions(const struct simulation *simulation)
{
    unsigned count = 0;

    for (unsigned i = 0; i < simulation->nodes; i++)
        if (simulation->members[i].core)
            count += session_count(simulation->members[i].core);
    return count;
}

static size_t sandbox_count(const struct simulation *simulation)
{
    size_t count = 0;

    for (unsigned i = 0; i < simulation->nodes; i++)
        count += fake_backend_count(simulation->members[i].backend);
    return count;
}

/* --- the table ------------------------------------------------------------------------------ */

struct traffic {
    long long in, out, commands, memory;
};

static long long figure(const struct redis_server *server, const char *section, const char *name)
{
    char command[64];
    const char *text, *found;

    snprintf(command, sizeof(command), "INFO %s", section);
    text = redis_server_ask(server, command);
    found = strstr(text, name);
    return found ? atoll(found + strlen(name) + 1) : -1;
}

static struct traffic traffic(const struct simulation *simulation)
{
    return (struct traffic){
        .in = figure(&simulation->server, "stats", "total_net_input_bytes"),
        .out = figure(&simulation->server, "stats", "total_net_output_bytes"),
        .commands = figure(&simulation->server, "stats", "total_commands_processed"),
        .memory = figure(&simulation->server, "memory", "used_memory"),
    };
}

static long long resident_bytes(void)
{
    long long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file && fscanf(file, "%lld %lld", &pages, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static void print_traffic(const char *what, struct traffic before, struct traffic now, double by,
                          const char *unit)
{
    printf("| %s | %.0f B to Redis, %.0f B from it, %.2f commands a %s |\n", what,
           (double)(now.in - before.in) / by, (double)(now.out - before.out) / by,
           (double)(now.commands - before.commands) / by, unit);
}

static bool print_evenness(const struct simulation *simulation)
{
    unsigned least = UINT32_MAX, most = 0;
    double even = (double)simulation->sessions / simulation->nodes;

    for (unsigned i = 0; i < simulation->nodes; i++) {
        unsigned count = session_count(simulation->members[i].core);

        least = MIN(least, count);
        most = MAX(most, count);
    }
    double off = MAX(even - least, most - even) / even;
    printf("| sessions on a node | %u to %u, even would be %.0f: off by %.1f %% at most (aim: %.0f "
           "%%) |\n",
           least, most, even, off * 100, UNEVEN_MOST * 100);
    return off <= UNEVEN_MOST;
}

/* Creating a session begins its sandbox; it comes by itself. On a machine that is too busy some owners' slots
 * are not confirmed in time: then the first use of the session makes it. */
static void wait_for_sandboxes(struct simulation *simulation)
{
    double seen_s = simulated_s(simulation);
    size_t count = 0;

    while (count < simulation->opened && simulated_s(simulation) - seen_s < WAIT_S) {
        step(simulation, 0);
        if (sandbox_count(simulation) > count)
            seen_s = simulated_s(simulation);
        count = sandbox_count(simulation);
    }
    printf("| sandboxes | %zu of %u were made ahead of the first use |\n", count,
           simulation->opened);
}

static bool fill(struct simulation *simulation)
{
    long long resident = resident_bytes();
    struct traffic before = traffic(simulation);
    double begin_s = simulated_s(simulation);

    open_all(simulation);
    wait_for_sandboxes(simulation);
    double seconds = simulated_s(simulation) - begin_s;
    for (int i = 0; i < SETTLE_TURNS; i++) /* records that no caller waits for */
        step(simulation, 0);
    struct traffic now = traffic(simulation);
    printf("| creates | %u in %.1f s of one processor for all nodes, %u failed |\n",
           simulation->opened, seconds, simulation->failed);
    bool is_even = print_evenness(simulation);
    printf("| memory of a session | %.0f B in its node, %.0f B in Redis |\n",
           (double)(resident_bytes() - resident) / simulation->sessions,
           (double)(now.memory - before.memory) / simulation->sessions);
    print_traffic("a create with its sandbox", before, now, simulation->sessions, "session");
    return is_even && !simulation->failed;
}

static void pass(struct simulation *simulation, int seconds)
{
    double begin_s = simulated_s(simulation);

    while (simulated_s(simulation) - begin_s < seconds)
        step(simulation, JUMP_US);
}

static void rest(struct simulation *simulation)
{
    pass(simulation, IDLE_S); /* nodes give back what they keep for the next sessions of an owner */
    struct traffic before = traffic(simulation);
    pass(simulation, IDLE_S);
    print_traffic("nothing happens", before, traffic(simulation),
                  (double)IDLE_S * simulation->nodes, "second and node");
}

static bool lose_one(struct simulation *simulation)
{
    struct member *dead = &simulation->members[0];
    unsigned all = live_sessions(simulation);
    unsigned moving = session_count(dead->core);
    struct traffic before;
    double died_s, begin_s = 0;

    member_kill(dead);
    died_s = simulated_s(simulation);
    before = traffic(simulation);
    while (live_sessions(simulation) < all) {
        if (live_sessions(simulation) == all - moving)
            begin_s = simulated_s(simulation); /* nobody has taken one yet */
        step(simulation, begin_s == simulated_s(simulation) ? JUMP_US : 0);
        if (simulated_s(simulation) - died_s > MOVE_MOST_S) {
            printf("| sessions of a dead node | only %u of %u have a new home after %d s |\n",
                   live_sessions(simulation) - (all - moving), moving, MOVE_MOST_S);
            return false;
        }
    }
    double seconds = simulated_s(simulation) - begin_s;
    printf("| sessions of a dead node | %u have a new home %.1f s after its death, of which %.1f s "
           "is its lease and %.2f s "
           "the move (aim: %.0f s) |\n",
           moving, simulated_s(simulation) - died_s, begin_s - died_s, seconds, REHOMED_MOST_S);
    print_traffic("a move", before, traffic(simulation), moving, "session");
    return seconds < REHOMED_MOST_S;
}

int main(int argc, char **argv)
{
    static struct simulation simulation;

    simulation.nodes = argc > 1 ? (unsigned)atoi(argv[1]) : 20;
    simulation.sessions = argc > 2 ? (unsigned)atoi(argv[2]) : 100000;
    simulation.is_steady = argc > 3 && str_equal(argv[3], "steady");
    if (simulation.nodes < 2 || simulation.nodes > NODES_MOST || !simulation.sessions) {
        fprintf(stderr, "usage: bench_cluster [NODES [SESSIONS [steady]]] (2 to %d nodes)\n",
                NODES_MOST);
        return 2;
    }
    if (!redis_server_start(&simulation.server, NULL)) {
        fprintf(stderr, "skip: there is no redis-server here\n");
        return 77;
    }
    log_setup(LOG_ERROR, LOG_TEXT, STDERR_FILENO);
    srand(1);
    simulated_clock_init(&simulation.clock, 1000 * 1000000LL, 1767225600LL * 1000000);
    simulation.loop = loop_new(&simulation.clock.clock);
    for (unsigned i = 0; i < simulation.nodes; i++)
        member_start(&simulation, i);
    wait_until_all_serve(&simulation);
    printf("| %u nodes | |\n| --- | --- |\n", simulation.nodes);
    bool is_good = fill(&simulation);
    rest(&simulation);
    is_good = lose_one(&simulation) && is_good;
    fflush(stdout);
    redis_server_stop(&simulation.server);
    _exit(is_good ? 0 : 1); /* a hundred thousand sessions need not be taken apart */
}
