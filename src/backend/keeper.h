/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The keeper: a child of the daemon that starts launchers. The daemon gives up its power, so it
 * cannot start another launcher when one dies; the keeper was forked before that, with the settings
 * as they were then, and waits.
 *
 * Its one request has no arguments: "a launcher, please". It starts one, sets it up and seals it
 * before the daemon gets its socket, so a compromised daemon gains nothing by asking. A launcher
 * that still runs is killed first: there is never more than one. Sandboxes whose launcher has died
 * become children of the keeper. The keeper ends with the daemon.
 */

#include "backend/launcher.h"

struct keeper {
    int socket; /* owned; -1 without one */
    pid_t pid;
};

struct keeper_answer {
    struct error err; /* ERR_NONE: there is a launcher */
    struct launch_host host;
    pid_t pid;
};

/* Forks the keeper, which has its own copy of `options` from then on. */
int keeper_start(struct keeper *keeper, const struct launcher_options *options, struct error *err);

/* Closes its socket and waits until it and its launcher are gone. */
void keeper_stop(struct keeper *keeper);

/* Asks for a launcher, instead of the one before. -1 when the keeper is gone. */
int keeper_ask(const struct keeper *keeper);

/* 1 with an answer, whose socket the receiver owns (-1 with an error); 0 without one yet; -1 when
 * the keeper is gone. */
int keeper_receive(const struct keeper *keeper, struct keeper_answer *out_answer, int *out_socket);
