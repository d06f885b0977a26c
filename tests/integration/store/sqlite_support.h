/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A directory with a database for a test, and ways to look at and change it from outside. */

#include "store/store.h"
#include "store_contract.h"

struct sqlite_place {
    char directory[64];
    char path[96];
    struct simulated_clock clock;
    struct loop *loop;
    struct store *store; /* NULL while it is closed */
    struct error err;
    const char *sync; /* NULL: "off" */
    bool accept_loss; /* of the last open */
    bool is_hurried;  /* checks at the start have a budget, as in the daemon */
};

int sqlite_place_setup(void **state);
int sqlite_place_teardown(void **state);

/* Opens the store; NULL with place->err set. */
struct store *sqlite_place_open(struct sqlite_place *place, const char *boot_id);
void sqlite_place_close(struct sqlite_place *place);

/* Runs statements on the file with a connection of its own. */
void sqlite_place_exec(const struct sqlite_place *place, const char *sql);
int64_t sqlite_place_number(const struct sqlite_place *place, const char *sql);

/* Puts `count` sessions, each with an execution and an event, commits and closes. */
void sqlite_place_fill(struct sqlite_place *place, unsigned count);
