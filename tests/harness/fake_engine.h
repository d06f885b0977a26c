/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A container engine for tests: an HTTP server on a unix socket in the loop of the test, with the
 * part of the Engine API that the backends docker and gvisor use. Its world (images, containers,
 * their processes) outlives the server, so that an engine can leave and come back.
 *
 * A container that is started has a real process: `fake_init`, which connects to the door as
 * sandglass-init does, under a parent of its own, as containers have one. Pids, exits and signals
 * are therefore those of the kernel.
 *
 * Faults are a script: the next requests that match are answered, lost or held as it says.
 */

#include "base/list.h"
#include "base/scoped.h"
#include "loop/loop.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

struct fake_engine;

enum fake_container_state {
    FAKE_CREATED,
    FAKE_RUNNING,
    FAKE_PAUSED,
    FAKE_STOPPED, /* of Podman: has ended, and is not cleaned up */
    FAKE_EXITED,
    FAKE_REMOVING,
};

struct fake_container {
    struct list node;
    struct fake_engine *engine; /* borrowed */
    char id[65];
    char *name;      /* owned */
    json_t *request; /* owned: the body of its creation */
    json_t *exec;    /* owned: of the last request to run a program in it; NULL without */
    enum fake_container_state state;
    char started_at[40];
    int exit_code;
    bool is_oom;
    bool is_forgotten; /* its start, by the engine: its process is a stray when it is removed */
    unsigned uploads;  /* archives that were put into it */
    unsigned updates;
    pid_t pid;               /* of its init; 0 when it does not run */
    pid_t parent;            /* of the init: a child of the test */
    struct io_watch reports; /* fd: owned; of the parent, which tells the end of the init */
};

/* What an engine is like. A test may change it at any time. */
struct fake_habits {
    bool is_podman;      /* statuses, words and shapes of Podman */
    bool is_elsewhere;   /* on another kernel: the pids that it tells are of other processes */
    bool sees_no_files;  /* of this host: a mount is refused by the creation */
    bool hides_files;    /* the same, and only the start fails */
    bool lacks_resource; /* may set no limit of files and processes that is above this test's own */
    bool inits_die;      /* at once, with exit code 3 */
    bool is_slow_to_note;  /* the end of a process: fake_engine_note() */
    bool is_slow_to_clean; /* what has ended stays FAKE_STOPPED */
    bool lacks_runsc;
    bool attaches_to_nothing; /* an attach is refused */
    bool keeps_silent;        /* no events are sent */
};

struct fake_engine *fake_engine_new(struct loop *loop, const char *socket_path);
void fake_engine_free(struct fake_engine *engine); /* kills what is left; NULL is fine */
SCOPED_DEFINE(fake_engine_free, struct fake_engine);

struct fake_habits *fake_engine_habits(struct fake_engine *engine);

/* The server goes, with everything that is under way, and comes back. Containers go on. */
void fake_engine_leave(struct fake_engine *engine);
void fake_engine_return(struct fake_engine *engine);

/* As one that is about to stop: it is not connected to any more, and serves the connections that it has. */
void fake_engine_stop_listening(struct fake_engine *engine);

/* The streams of events end. */
void fake_engine_cut_events(struct fake_engine *engine);
size_t fake_engine_event_streams(const struct fake_engine *engine); /* of containers */

/* The streams that are attached to containers: how many there are, what their init says, as bytes of
 * the engine, and their end. */
size_t fake_engine_attached(const struct fake_engine *engine);
void fake_engine_say(struct fake_engine *engine, const void *bytes, size_t length);
void fake_engine_cut_attached(struct fake_engine *engine);

/* --- faults ---------------------------------------------------------------------------------- */

enum fake_fault_kind {
    FAULT_ANSWER,     /* with this status, type and body; nothing is done */
    FAULT_LOSE,       /* it is done, and the connection breaks instead of an answer */
    FAULT_HOLD,       /* it waits for fake_engine_release(), then it is done and answered */
    FAULT_HOLD_AFTER, /* it is done, and the answer waits for fake_engine_release() */
};

struct fake_fault {
    const char *requests; /* "POST /containers/create*": a glob, without the version and query */
    enum fake_fault_kind kind;
    unsigned times; /* 0: once */
    int status;
    const char *type; /* NULL: JSON */
    const char *body; /* NULL: an object with `message` */
    const char *message;
};

/* Borrowed texts. Earlier faults that are not used up come first. */
void fake_engine_fail(struct fake_engine *engine, struct fake_fault fault);
void fake_engine_release(struct fake_engine *engine); /* all that is held */
size_t fake_engine_held(const struct fake_engine *engine);

/* How many requests matched the glob so far. */
unsigned fake_engine_count(const struct fake_engine *engine, const char *requests);

/* --- its world ------------------------------------------------------------------------------- */

/* Config.User and Config.WorkingDir as given. */
void fake_engine_add_image(struct fake_engine *engine, const char *name, const char *user,
                           const char *workdir);

/* The next pull of this image makes it appear, with these lines of JSON as its progress. */
void fake_engine_set_pull(struct fake_engine *engine, const char *lines);

struct fake_container *fake_engine_find(struct fake_engine *engine, const char *name_or_id);
struct fake_container *fake_engine_find_sandbox(struct fake_engine *engine, const char *sandbox);
size_t fake_engine_containers(const struct fake_engine *engine);

/* Something else made a container with this name; labels as a JSON object. */
struct fake_container *fake_engine_put(struct fake_engine *engine, const char *name,
                                       const char *labels);

/* Behind the back of the backend, as somebody with the docker command would. */
void fake_container_kill(struct fake_container *container, int signal_number);
void fake_container_start(struct fake_container *container);
void fake_container_tell_kill(struct fake_container *container, int signal_number);
void fake_container_tell_stop(
    struct fake_container *container); /* of one that was killed for that */
void fake_container_restart(struct fake_container *container);

/* The engine was killed while it started the container, and does not know that it has. */
void fake_container_forget_start(struct fake_container *container);
unsigned fake_engine_strays(const struct fake_engine *engine); /* processes of removed containers */

void fake_container_pause(struct fake_container *container, bool is_paused);
void fake_container_remove(struct fake_container *container);

/* The kernel has killed its init for want of memory. */
void fake_container_exhaust(struct fake_container *container);

/* With is_slow_to_note: the engine looks at what the kernel has told. */
void fake_engine_note(struct fake_engine *engine);
