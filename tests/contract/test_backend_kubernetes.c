/* SPDX-License-Identifier: Apache-2.0 */
/* The contract over pods of a real cluster whose node is this host. SANDGLASS_TEST_KUBECONFIG names the
 * kubeconfig, SANDGLASS_TEST_NAMESPACE the namespace, SANDGLASS_TEST_IMAGE the image, and
 * SANDGLASS_TEST_API_PID the process of the API server, which is stopped for a moment; without a
 * kubeconfig the program is skipped. */

#include "backend_contract.h"

#include "base/fd.h"
#include "ground.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { BLIND_MS = 1500 };

static char settings[2048];
static struct ground ground;

static struct backend *open_kubernetes(struct loop **out_loop)
{
    ground_open(&ground, "kubernetes", settings);
    *out_loop = ground.loop;
    return ground.backend;
}

static struct backend *restart_kubernetes(void)
{
    ground_restart(&ground);
    return ground.backend;
}

/* Another pod has its name by now. */
static void make_kubernetes_stale(struct backend_sandbox *sandbox)
{
    sandbox->handle[0] = sandbox->handle[0] == '0' ? '1' : '0';
}

static bool file_has(const char *pid, const char *file, const char *text)
{
    scoped(fd_close) int fd = -1;
    char path[300];
    char content[8192];
    size_t length;

    snprintf(path, sizeof(path), "/proc/%s/%s", pid, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    length = fd >= 0 ? fd_read_at(fd, content, sizeof(content), 0) : 0;
    return memmem(content, length, text, strlen(text));
}

/* The first process of the sandbox on this host: the kubelet names cgroups by the uid of the pod, which
 * begins the handle. */
static pid_t init_of(const struct backend_sandbox *sandbox)
{
    char uid[64] = "";
    struct dirent *entry;
    pid_t found = 0;
    DIR *directory = opendir("/proc");

    assert_non_null(directory);
    memcpy(uid, sandbox->handle, strcspn(sandbox->handle, ","));
    while (!found && (entry = readdir(directory)))
        if (isdigit(entry->d_name[0]) && file_has(entry->d_name, "cgroup", uid) &&
            file_has(entry->d_name, "cmdline", "--relay=") &&
            file_has(entry->d_name, "status", "\t1\nNSpgid"))
            found = (pid_t)atoi(entry->d_name);
    closedir(directory);
    assert_true(found > 1);
    return found;
}

static void kill_kubernetes(const struct backend_sandbox *sandbox)
{
    assert_int_equal(kill(init_of(sandbox), SIGKILL), 0);
}

static void shut_down_kubernetes(const struct backend_sandbox *sandbox)
{
    assert_int_equal(kill(init_of(sandbox), SIGTERM), 0);
}

/* Another process lets it go on, whatever becomes of us. */
static void make_kubernetes_blind(void)
{
    const struct timespec blind = { .tv_sec = BLIND_MS / 1000,
                                    .tv_nsec = BLIND_MS % 1000 * 1000000L };
    const char *text = getenv("SANDGLASS_TEST_API_PID");
    pid_t server = text ? (pid_t)atoi(text) : 0;

    if (server <= 1) {
        print_message("# the API server is not stopped: SANDGLASS_TEST_API_PID is not set\n");
        return;
    }
    assert_int_equal(kill(server, SIGSTOP), 0);
    if (fork() == 0) {
        (void)nanosleep(&blind, NULL);
        (void)kill(server, SIGCONT);
        _exit(0);
    }
}

static void close_kubernetes(void)
{
    ground_close(&ground);
}

int main(void)
{
    const char *kubeconfig = getenv("SANDGLASS_TEST_KUBECONFIG");
    const char *namespace = getenv("SANDGLASS_TEST_NAMESPACE");
    const char *image = getenv("SANDGLASS_TEST_IMAGE");

    if (!kubeconfig) {
        printf("1..0 # SKIP\n# skip: no cluster: SANDGLASS_TEST_KUBECONFIG is not set\n");
        return 0;
    }
    if (!image)
        image = "sandglass-test:1";
    snprintf(settings, sizeof(settings),
             "kubernetes.kubeconfig: %s\nkubernetes.namespace: %s\nkubernetes.image: %s\n"
             "kubernetes.pull: never\nkubernetes.cpu_request: 0.01\n",
             kubeconfig, namespace ? namespace : "default", image);
    return backend_contract_run(&(struct backend_contract){ .name = "backend/kubernetes",
                                                            .template = image,
                                                            .open = open_kubernetes,
                                                            .restart = restart_kubernetes,
                                                            .make_stale = make_kubernetes_stale,
                                                            .kill = kill_kubernetes,
                                                            .shut_down = shut_down_kubernetes,
                                                            .make_blind = make_kubernetes_blind,
                                                            .close = close_kubernetes });
}
