/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where connections come from: descriptor 3. It is a listening socket that was passed to init or
 * that init has made at a path; with a relay it is a socketpair, and each packet on it brings a
 * connection. An init that dials has none: see init/dial.h.
 */

#include <stdbool.h>
#include <stdint.h>

struct relay_setup;

/* Makes the socket at settings.socket_path, if it is init's to make, and puts it at descriptor 3:
 * before other descriptors are made. 0 or -errno. */
int listener_open(void);

/* Whether connections come through descriptor 3. */
bool listener_has_socket(void);

/* Whether descriptor 3 is a listening socket of the right type, if there has to be one. */
bool listener_is_right(void);

/* Reads the relay's key from SANDGLASS_KEY and overwrites it there. False when there is none. */
bool listener_take_key(char **environment, struct relay_setup *out_setup);

/* Forks the pump between init's stdin, stdout and the socket of the relay that will be there: see
 * init/pump.h. The key is wiped in the pump. After listener_open(). 0 or -errno. */
int listener_start_pump(struct relay_setup *setup);

/* Forks the gate, which listens at settings.gate_port and has a copy of the key: see init/gate.h.
 * Before listener_start_relay(), which wipes the key here. 0 or -errno. */
int listener_start_gate(struct relay_setup *setup);

/* Forks the relay, which gets the listening socket; the key is wiped here. When everything else is
 * prepared, since the relay inherits that. 0 or -errno. */
int listener_start_relay(struct relay_setup *setup);

/* The next connection, from a peer that may have one, or to the daemon; -errno without. */
int listener_accept(void);
