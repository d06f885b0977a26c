/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Stands in for agent/agent.c, with programs: each start makes real pipes, whose inner ends the test
 * holds, and the test says what the program does. Programs outlive the connection and the core, as
 * those of a real init do: the next agent_list() tells of them.
 */

#include "agent/agent.h"

enum { FAKE_PID = 2 }; /* of every program */

struct fake_program {
    uint64_t number;
    char **argv; /* owned, as are the following */
    char **env;
    char *cwd, *user, *script_path;
    char *script; /* its content; NULL without one */
    int input;    /* -1 without; what was written to its stdin is read here */
    int output;   /* -1 when closed */
    int errors;   /* -1 with a terminal or when closed */
    int outer[3]; /* init's own duplicates */
    bool terminal;
    unsigned columns, rows; /* of its terminal */
    unsigned resizes;
    bool ignores_term; /* TERM does not end it */
    bool has_exited, is_forgotten;
    struct agent_exit end;
    int signals[16]; /* that it got, in order */
    unsigned signal_count;
    uint64_t total, base, taken; /* with streams: told at its end, and when it is listed */
    unsigned survivors;          /* of its tree, told when it ends; KILL to the tree ends them */
    struct fake_program *next;
};

/* The newest first. */
struct fake_program *fake_programs_last(void);
size_t fake_programs_count(void); /* that are not forgotten */

/* The next start fails like this. */
void fake_programs_fail_next(enum protocol_stage stage, int number);

/* Init lives and answers nothing. */
void fake_programs_hang(bool hang);

/* Init does what it is asked for, and answers when it is not slow any more. */
void fake_programs_be_slow(bool slow);

/* When it dies, it is known not to have read what it did not answer. */
void fake_programs_stop_reading(bool stop);

/* The port that programs listen on; 0: none. */
void fake_programs_serve(unsigned port);

/* The server's end of the oldest connection to that port, which is the caller's now; -1 without. */
int fake_programs_accept(void);

/* Its ports cannot be asked for: this is the errno of init, or -1 for an init that is too old. 0: they
 * can. */
void fake_programs_refuse_ports(int number);

/* How often they were asked for. */
unsigned fake_programs_port_requests(void);

/* Where scripts go, by its hello; "": nowhere. */
void fake_programs_set_scratch(const char *path);

/* Init is played by a bridge, which tells totals, bases and input that was taken. */
void fake_programs_use_streams(void);
void fake_program_take(struct fake_program *program, uint64_t total);

/* The connection is lost, with the pipes: the next one gets others. */
void fake_programs_reconnect(void);

void fake_program_write(struct fake_program *program, const char *text);
void fake_program_exit(struct fake_program *program, int code);
void fake_program_die(struct fake_program *program, int signal_number);

/* A background child keeps its pipes open beyond its end. */
void fake_program_leave_child(struct fake_program *program);

/* Before the test ends. */
void fake_programs_clear(void);
