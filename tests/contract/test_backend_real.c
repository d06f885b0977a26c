/* SPDX-License-Identifier: Apache-2.0 */
/* The contract over a real backend, whose name is the argument; "relay" behind it puts a bridge and a
 * relay between the daemon and each init. */

#include "backend_contract.h"

#include "ground.h"

#include <signal.h>
#include <stdio.h>

static const char *name;
static const char *settings = "";
static struct ground ground;

static struct backend *open_real(struct loop **out_loop)
{
    ground_open(&ground, name, settings);
    *out_loop = ground.loop;
    return ground.backend;
}

static struct backend *restart_real(void)
{
    ground_restart(&ground);
    return ground.backend;
}

static void kill_real(const struct backend_sandbox *sandbox)
{
    (void)kill(ground_pid(sandbox), SIGKILL);
}

static void shut_down_real(const struct backend_sandbox *sandbox)
{
    (void)kill(ground_pid(sandbox), SIGTERM);
}

static void exhaust_real(const struct backend_sandbox *sandbox)
{
    static struct outcome outcome;

    ground_run(&ground, sandbox->id, "", "exec python3 -c 'b = bytearray(1 << 30)'", &outcome);
}

/* What it knows of processes it has from the launcher, which is replaced. */
static void make_real_blind(void)
{
    (void)kill(launcher_pid(ground.launcher), SIGKILL);
}

static void close_real(void)
{
    ground_close(&ground);
}

int main(int argc, char **argv)
{
    char title[64];

    if (argc < 2)
        return 2;
    name = argv[1];
    if (argc > 2)
        settings = "sandbox.relay: true\n";
    snprintf(title, sizeof(title), "backend/%s%s", name, argc > 2 ? "_relay" : "");
    return backend_contract_run(
        &(struct backend_contract){ .name = title,
                                    .open = open_real,
                                    .restart = restart_real,
                                    .make_stale = ground_make_stale,
                                    .kill = kill_real,
                                    .shut_down = shut_down_real,
                                    .exhaust = argc > 2 ? NULL : exhaust_real,
                                    .make_blind = make_real_blind,
                                    .close = close_real });
}
