#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { PATIENCE_MS = 30 * 1000, REQUEST_SIZE = 4096 };

double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

_Noreturn void die(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* --- samples -------------------------------------------------------------------------------- */

void samples_add(struct samples *samples, double value)
{
    if (samples->count == samples->room) {
        samples->room = samples->room ? samples->room * 2 : 256;
        samples->values = realloc(samples->values, samples->room * sizeof(double));
        if (!samples->values)
            die("no memory");
    }
    samples->values[samples->count++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double samples_at(struct samples *samples, double share)
{
    if (!samples->count)
        return 0;
    qsort(samples->values, samples->count, sizeof(double), by_value);
    return samples->values[(size_t)(share * (double)(samples->count - 1) + 0.5)];
}

/* --- the floor ------------------------------------------------------------------------------ */

pid_t spawn(const char *program)
{
    char *argv[] = { (char *)program, NULL };
    pid_t pid;

    if (posix_spawn(&pid, program, NULL, NULL, argv, environ) != 0)
        die("cannot start %s", program);
    return pid;
}

void spawn_and_wait(const char *program)
{
    int status;

    if (waitpid(spawn(program), &status, 0) < 0 || status != 0)
        die("%s failed", program);
}

/* --- HTTP ----------------------------------------------------------------------------------- */

static int try_connect(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof(address.sun_path))
        die("%s is too long for a socket", path);
    strcpy(address.sun_path, path);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

void client_connect(struct client *client, const char *socket_path)
{
    client->fd = try_connect(socket_path);
    client->length = 0;
    if (client->fd < 0)
        die("cannot connect to %s: %s", socket_path, strerror(errno));
}

void client_close(struct client *client)
{
    close(client->fd);
    client->fd = -1;
}

void client_send(struct client *client, const char *method, const char *path, const char *body)
{
    char request[REQUEST_SIZE];
    int length = snprintf(request, sizeof(request),
                          "%s /api/v1%s HTTP/1.1\r\nHost: bench\r\n"
                          "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                          method, path, strlen(body), body);

    if (length < 0 || (size_t)length >= sizeof(request))
        die("request too long");
    client->length = 0;
    if (send(client->fd, request, (size_t)length, MSG_NOSIGNAL) != length)
        die("%s %s: cannot send: %s", method, path, strerror(errno));
}

static bool is_complete(const struct client *client)
{
    const char *body = strstr(client->answer, "\r\n\r\n");
    const char *length = strcasestr(client->answer, "\r\ncontent-length: ");

    if (!body)
        return false;
    if (!length || length > body)
        die("an answer without a length: %s", client->answer);
    return client->length == (size_t)(body + 4 - client->answer) + strtoul(length + 18, NULL, 10);
}

bool client_read(struct client *client, int status)
{
    ssize_t count = recv(client->fd, client->answer + client->length,
                         sizeof(client->answer) - 1 - client->length, 0);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (count <= 0)
        die("the daemon closed the connection");
    client->length += (size_t)count;
    client->answer[client->length] = '\0';
    if (!is_complete(client))
        return false;
    if (atoi(client->answer + strlen("HTTP/1.1 ")) != status)
        die("expected %d: %s", status, client->answer);
    return true;
}

void client_ask(struct client *client, const char *method, const char *path, const char *body,
                int status)
{
    client_send(client, method, path, body);
    while (!client_read(client, status))
        continue;
}

void client_take_id(const struct client *client, char id[ID_LENGTH])
{
    const char *start = strstr(client->answer, "{\"id\":\"");

    if (!start || sscanf(start + 7, "%63[^\"]", id) != 1)
        die("no id in %s", client->answer);
}

void create_session(struct client *client, char id[ID_LENGTH])
{
    client_ask(client, "POST", "/sessions", "{}", 201);
    client_take_id(client, id);
}

void destroy_session(struct client *client, const char *id)
{
    char path[128];

    snprintf(path, sizeof(path), "/sessions/%s", id);
    client_ask(client, "DELETE", path, "", 200);
}

void run_program(struct client *client, const char *id, const char *program)
{
    char path[128];
    char body[256];

    snprintf(path, sizeof(path), "/sessions/%s/executions", id);
    snprintf(body, sizeof(body), "{\"argv\":[\"%s\"]}", program);
    client_ask(client, "POST", path, body, 201);
    if (!strstr(client->answer, "\"exit_code\":0,"))
        die("%s failed: %s", program, client->answer);
}

/* --- a daemon ------------------------------------------------------------------------------- */

static void write_settings(const char *path, const char *settings)
{
    FILE *file = fopen(path, "we");

    if (!file || fputs(settings, file) < 0 || fclose(file) != 0)
        die("cannot write %s", path);
}

static void await_daemon(const struct daemon *daemon)
{
    double deadline = now_us() + PATIENCE_MS * 1e3;
    int fd;

    while ((fd = try_connect(daemon->socket)) < 0) {
        if (now_us() > deadline || waitpid(daemon->pid, NULL, WNOHANG) != 0)
            die("the daemon does not start");
        usleep(2000);
    }
    close(fd);
}

void daemon_start(struct daemon *daemon, const char *program, const char *settings)
{
    char config[96];
    char state[96];
    char listen[112];

    strcpy(daemon->directory, "/tmp/sandglass-bench.XXXXXX");
    if (!mkdtemp(daemon->directory) || chmod(daemon->directory, 0755) < 0)
        die("cannot make a directory: %s", strerror(errno));
    snprintf(config, sizeof(config), "%s/config.yaml", daemon->directory);
    snprintf(state, sizeof(state), "%s/state", daemon->directory);
    snprintf(daemon->socket, sizeof(daemon->socket), "%s/socket", daemon->directory);
    snprintf(listen, sizeof(listen), "unix:%s", daemon->socket);
    write_settings(config, settings);
    daemon->pid = fork();
    if (daemon->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        execl(program, "sandglass", "serve", "--config", config, "--state", state, "--listen",
              listen, (char *)NULL);
        _exit(127);
    }
    await_daemon(daemon);
}

void daemon_stop(struct daemon *daemon)
{
    char command[128];
    int status;

    kill(daemon->pid, SIGTERM);
    if (waitpid(daemon->pid, &status, 0) < 0 || status != 0)
        fprintf(stderr, "the daemon ended with status %d\n", status);
    snprintf(command, sizeof(command), "rm -rf %s", daemon->directory);
    if (system(command) != 0)
        fprintf(stderr, "%s is left\n", daemon->directory);
}
