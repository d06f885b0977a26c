/* The contract over a real backend, whose name is the argument. */

#include "backend_contract.h"

#include "ground.h"

#include <signal.h>
#include <stdio.h>

static const char *name;
static struct ground ground;

static struct backend *open_real(struct loop **out_loop)
{
    ground_open(&ground, name, "");
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
    (void)kill(sandbox->pid, SIGKILL);
}

static void close_real(void)
{
    ground_close(&ground);
}

int main(int argc, char **argv)
{
    char title[64];

    if (argc != 2)
        return 2;
    name = argv[1];
    snprintf(title, sizeof(title), "backend/%s", name);
    return backend_contract_run(&(struct backend_contract){ .name = title,
                                                            .open = open_real,
                                                            .restart = restart_real,
                                                            .kill = kill_real,
                                                            .close = close_real });
}
