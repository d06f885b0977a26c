/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories of the host for single sandboxes, asked of the launcher by a daemon that has been
 * taken over: whatever it asks for, the launcher opens nothing that the operator has not named
 * before SEAL.
 */

#include "backend/launcher_process.h"
#include "backend/launcher_setup.h"
#include "base/alloc.h"
#include "base/id.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "config/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { READ_ONLY, WRITABLE, UNKNOWN }; /* numbers of the allowed directories */

struct bed {
    char path[64];
    struct config config;
    int socket; /* owned: to the launcher */
    pid_t pid;
    struct launch_host host;
};

static void make_directory(const struct bed *bed, const char *name)
{
    scoped(free) char *path = xasprintf("%s/%s", bed->path, name);

    assert_int_equal(mkdir(path, 0755), 0);
}

static void make_link(const struct bed *bed, const char *name, const char *target)
{
    scoped(free) char *path = xasprintf("%s/%s", bed->path, name);

    assert_int_equal(symlink(target, path), 0);
}

static int open_bed(void **state)
{
    static struct bed bed = { .path = "/tmp/test-binds-XXXXXX" };
    static const char *const directories[] = { "state", "ro", "ro/sub", "rw", "secret" };
    struct launcher_options options = { .config = &bed.config, .uid = geteuid(), .gid = getegid() };
    scoped(free) char *text = NULL;
    scoped(free) char *secret = NULL;
    scoped(free) char *state_path = NULL;
    struct error err = { 0 };

    assert_non_null(mkdtemp(bed.path));
    assert_int_equal(chmod(bed.path, 0711), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(directories); i++)
        make_directory(&bed, directories[i]);
    secret = xasprintf("%s/secret", bed.path);
    make_link(&bed, "ro/out", secret);
    make_link(&bed, "ro/up", "../secret");
    make_link(&bed, "ro/near", "sub");
    text = xasprintf("{instance: binds-%d, sandbox: {max: {mounts: [%s/ro, '%s/rw:rw']}}}",
                     (int)getpid(), bed.path, bed.path);
    assert_int_equal(config_load_text(&bed.config, text, strlen(text), "test", &err), 0);
    options.state_path = state_path = xasprintf("%s/state", bed.path);
    bed.socket = launcher_process_start(state_path, &bed.pid, &err);
    if (bed.socket < 0 || launcher_set_up(bed.socket, &options, &bed.host, &err) < 0)
        fail_msg("launcher: %s", err.message);
    *state = &bed;
    return 0;
}

static int close_bed(void **state)
{
    struct bed *bed = *state;
    scoped(free) char *command = xasprintf("rm -rf %s", bed->path);

    fd_close(bed->socket);
    assert_int_equal(waitpid(bed->pid, NULL, 0), bed->pid);
    config_fini(&bed->config);
    return system(command) == 0 ? 0 : -1;
}

static struct bed *native_bed(void **state)
{
    struct bed *bed = *state;

    if (!(bed->host.features & LAUNCH_HAS_NATIVE)) {
        print_message("native sandboxes cannot be made here: %s\n", bed->host.missing);
        skip();
    }
    return bed;
}

/* The errno of the answer; 0 when the sandbox was made, which is destroyed then. */
static int bind_error(struct bed *bed, uint32_t allowed, const char *source, bool read_only)
{
    struct launch_create_bound message = {
        .create = { .limits = { .memory_bytes = 64 << 20,
                                .disk_bytes = 64 << 20,
                                .cpu_millis = 1000,
                                .pids = 32 },
                    .mode = LAUNCH_NATIVE,
                    .template_name = "host" },
        .bind_count = 1,
        .binds = { { .path = "/d", .allowed = allowed, .read_only = read_only } },
    };
    struct launch_destroy destroy = { 0 };
    struct launch_reply reply = { 0 };
    struct error err = { 0 };

    id_make(message.create.id, ID_SANDBOX);
    memcpy(destroy.id, message.create.id, sizeof(destroy.id));
    snprintf(message.binds[0].source, sizeof(message.binds[0].source), "%s", source);
    (void)launcher_exchange(bed->socket, LAUNCH_CREATE_BOUND, &message, sizeof(message), -1, &reply,
                            &err);
    if (reply.error == 0)
        assert_int_equal(launcher_exchange(bed->socket, LAUNCH_DESTROY, &destroy, sizeof(destroy),
                                           -1, &reply, &err),
                         0);
    return reply.error;
}

static void directories_below_an_allowed_one_are_mounted(void **state)
{
    struct bed *bed = native_bed(state);

    assert_int_equal(bind_error(bed, READ_ONLY, "", true), 0);
    assert_int_equal(bind_error(bed, READ_ONLY, "sub", true), 0);
    assert_int_equal(bind_error(bed, READ_ONLY, "near", true), 0);
    assert_int_equal(bind_error(bed, WRITABLE, "", false), 0);
}

static void no_way_leads_out(void **state)
{
    struct bed *bed = native_bed(state);

    assert_int_equal(bind_error(bed, READ_ONLY, "..", true), EXDEV);
    assert_int_equal(bind_error(bed, READ_ONLY, "../secret", true), EXDEV);
    assert_int_equal(bind_error(bed, READ_ONLY, "sub/../../secret", true), EXDEV);
    assert_int_equal(bind_error(bed, READ_ONLY, "out", true), EXDEV);
    assert_int_equal(bind_error(bed, READ_ONLY, "up", true), EXDEV);
    assert_int_equal(bind_error(bed, READ_ONLY, "missing", true), ENOENT);
}

static void a_read_only_directory_is_not_written(void **state)
{
    struct bed *bed = native_bed(state);

    assert_int_equal(bind_error(bed, READ_ONLY, "", false), EROFS);
    assert_int_equal(bind_error(bed, READ_ONLY, "sub", false), EROFS);
}

static void nothing_is_allowed_after_the_seal(void **state)
{
    struct bed *bed = native_bed(state);
    struct launch_allow message = { .path = "/etc" };
    struct launch_reply reply = { 0 };
    struct error err = { 0 };

    (void)launcher_exchange(bed->socket, LAUNCH_ALLOW, &message, sizeof(message), -1, &reply, &err);
    assert_int_equal(reply.error, EPERM);
    assert_int_equal(bind_error(bed, UNKNOWN, "", true), EPERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(directories_below_an_allowed_one_are_mounted),
        cmocka_unit_test(no_way_leads_out),
        cmocka_unit_test(a_read_only_directory_is_not_written),
        cmocka_unit_test(nothing_is_allowed_after_the_seal),
    };

    return cmocka_run_group_tests_name("backend/launcher_binds", tests, open_bed, close_bed);
}
