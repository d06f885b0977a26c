#pragma once

/*
 * What the measuring programs share: samples, a keep-alive HTTP client over a unix socket that
 * allocates nothing, plain posix_spawn to compare with, and a daemon of their own. Whatever fails
 * ends the program: a number that is not what its name says is worth nothing.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

double now_us(void);
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- samples -------------------------------------------------------------------------------- */

struct samples {
    const char *name;
    double *values; /* owned */
    size_t count;
    size_t room;
};

void samples_add(struct samples *samples, double value);

/* Sorts them. `share` of 0.5 is the median. */
double samples_at(struct samples *samples, double share);

/* --- the floor ------------------------------------------------------------------------------ */

/* F0: posix_spawn of the program and waiting for its end. */
void spawn_and_wait(const char *program);
pid_t spawn(const char *program);

/* --- HTTP ----------------------------------------------------------------------------------- */

enum { ID_LENGTH = 64, ANSWER_SIZE = 64 * 1024 };

struct client {
    int fd;
    size_t length; /* of what has been read of the answer */
    char answer[ANSWER_SIZE];
};

void client_connect(struct client *client, const char *socket_path);
void client_close(struct client *client);

/* Sends a request with a JSON body, which may be empty; the answer begins to be awaited. */
void client_send(struct client *client, const char *method, const char *path, const char *body);

/* Reads what there is; true when the answer is complete. Its status must be `status`. */
bool client_read(struct client *client, int status);

/* Both, for a client that has nothing else to do. */
void client_ask(struct client *client, const char *method, const char *path, const char *body,
                int status);

/* The "id" of the object that was answered. */
void client_take_id(const struct client *client, char id[ID_LENGTH]);

void create_session(struct client *client, char id[ID_LENGTH]);
void destroy_session(struct client *client, const char *id);
void run_program(struct client *client, const char *id, const char *program);

/* --- a daemon ------------------------------------------------------------------------------- */

struct daemon {
    pid_t pid;
    char directory[64];
    char socket[96];
};

/* Starts one with a state directory of its own and the given settings (YAML lines). */
void daemon_start(struct daemon *daemon, const char *program, const char *settings);
void daemon_stop(struct daemon *daemon);
