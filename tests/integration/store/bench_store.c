/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a commit costs: the loop's own share, and the time until it is durable. One session at a
 * time as a quiet daemon has it, then many at once. Arguments: directory, commits.
 */

#include "base/alloc.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TOGETHER = 64 };

struct waiting {
    struct store_ticket ticket;
    bool done;
};

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void on_durable(struct store_ticket *ticket)
{
    if (ticket->err->code != ERR_NONE) {
        fprintf(stderr, "%s\n", ticket->err->message);
        exit(1);
    }
    container_of(ticket, struct waiting, ticket)->done = true;
}

static void put(struct store *store, unsigned n, uint64_t generation)
{
    struct session_record record = {
        .owner = "ada",
        .spec_json = "{\"template\":\"host\",\"memory\":2147483648,\"cpus\":1.0,\"pids\":256}",
        .labels_json = "{\"team\":\"research\"}",
        .state = "open",
        .generation = generation,
        .created = { 1700000000000000, 1000000 },
        .last_activity = { 1700000000000000 + (int64_t)generation, 1000000 },
    };

    snprintf(record.id, sizeof(record.id), "ses_%013u%013u", n * 2654435761U, n);
    store_put_session(store, &record);
}

static int compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

static void print_line(const char *sync, const char *what, int64_t *ns, size_t count)
{
    qsort(ns, count, sizeof(*ns), compare);
    printf("%-7s %-28s p50 %8.1f us   p99 %8.1f us   max %9.1f us\n", sync, what,
           (double)ns[count / 2] / 1000, (double)ns[count * 99 / 100] / 1000,
           (double)ns[count - 1] / 1000);
}

static void one_at_a_time(struct store *store, const char *sync, size_t count, bool update)
{
    scoped(free) int64_t *call_ns = xcalloc(count, sizeof(int64_t));
    scoped(free) int64_t *turn_ns = xcalloc(count, sizeof(int64_t));
    scoped(free) int64_t *total_ns = xcalloc(count, sizeof(int64_t));

    for (size_t i = 0; i < count; i++) {
        struct waiting waiting = { 0 };
        int64_t began_ns = now_ns();

        put(store, update ? (unsigned)(i % 100) : (unsigned)i, i);
        store_commit(store, &waiting.ticket, on_durable);
        call_ns[i] = now_ns() - began_ns;
        loop_turn(store->loop, 0);
        turn_ns[i] = now_ns() - began_ns;
        while (!waiting.done)
            loop_turn(store->loop, 1000);
        total_ns[i] = now_ns() - began_ns;
    }
    print_line(sync, update ? "update: put and commit" : "insert: put and commit", call_ns, count);
    print_line(sync, "  with handing over", turn_ns, count);
    print_line(sync, "  until durable", total_ns, count);
}

static void many_together(struct store *store, const char *sync, size_t count)
{
    int64_t began_ns = now_ns();

    for (size_t i = 0; i < count; i += TOGETHER) {
        struct waiting waiting[TOGETHER] = { 0 };

        for (size_t k = 0; k < TOGETHER; k++) {
            put(store, (unsigned)(1000000 + i + k), i);
            store_commit(store, &waiting[k].ticket, on_durable);
        }
        while (!waiting[TOGETHER - 1].done)
            loop_turn(store->loop, 1000);
    }
    printf("%-7s %d together: %.0f commits/s\n", sync, TOGETHER,
           (double)count * 1e9 / (double)(now_ns() - began_ns));
}

static void bench(const char *directory, const char *sync, size_t count)
{
    scoped(free) char *path = xasprintf("%s/bench-store-%d.db", directory, (int)getpid());
    struct loop *loop = loop_new(&clock_system);
    struct error err = { 0 };
    struct store *store = store_open_sqlite(
        &(struct store_options){ .loop = loop, .path = path, .sync = sync, .boot_id = "b" }, &err);

    if (!store) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    one_at_a_time(store, sync, count, false);
    one_at_a_time(store, sync, count, true);
    many_together(store, sync, count * 4);
    store_close(store);
    loop_free(loop);
    (void)unlink(path);
}

int main(int argc, char **argv)
{
    const char *directory = argc > 1 ? argv[1] : "/tmp";
    size_t count = argc > 2 ? (size_t)atol(argv[2]) : 5000;

    bench(directory, "off", count);
    bench(directory, "normal", count);
    bench(directory, "full", count / 10);
    return 0;
}
