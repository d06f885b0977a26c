/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For tests of the daemon's walls: its directories and files, and a child in which the walls are put
 * up. */

#include "config/config.h"
#include "daemon/confine.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct CMUnitTest;

enum { NAME_SIZE = 300 };

extern struct ground {
    char root[128];
    struct config config;
    unsigned port; /* that the daemon listens on */
    int holder;    /* owned: has the port, does not listen, and keeps others from it */
} ground;

const char *at(const char *name); /* below the root; the last eight are valid */
void write_file(const char *path, const char *text);
void set(const char *key, const char *value);
unsigned free_port(void);
int port_socket(void); /* for TCP; its port may be that of another such one, too */

/* cmocka's own checks would go on as the parent. */
#define check(condition, ...)                                   \
    do {                                                        \
        if (!(condition)) {                                     \
            fprintf(stderr, "# %s:%d: ", __FILE__, __LINE__);   \
            fprintf(stderr, __VA_ARGS__);                       \
            fprintf(stderr, " (errno: %s)\n", strerror(errno)); \
            _exit(1);                                           \
        }                                                       \
    } while (0)

void in_child(void (*body)(void));

/* What is missing on a host is what other tests are about. */
struct confinement confine(void);
struct confinement confine_fully(void);

bool can_open(const char *path, int flags);
bool is_denied(const char *path, int flags);
int connect_to(unsigned port); /* of loopback: 0 or the error */

/* Each test has a ground of its own; on a kernel without Landlock all are skipped. */
int run_on_grounds(const struct CMUnitTest *tests, size_t count);
