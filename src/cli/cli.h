/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The command line: a table of commands, and what they share.
 *
 * Program output goes to stdout and stderr untouched; everything else goes to stderr, except the
 * answer that was asked for. With --json stdout holds exactly one document, errors included. Exit
 * codes: 0 done; 1 refused or failed; 2 wrong usage. Commands that run a program end with its code,
 * and with 125 whenever Sandglass itself failed.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "base/macros.h"
#include "cli/options.h"
#include "wire/http/http.h"

#include <jansson.h>
#include <stdbool.h>

struct cli;
struct http_client;
struct loop;

enum {
    EXIT_REFUSED = 1,
    EXIT_USAGE = 2,
    EXIT_TIMEOUT = 124,
    EXIT_SANDGLASS = 125,
    EXIT_SIGNAL_BASE = 128
};

/* Every command's argument struct begins with these. */
struct common_args {
    const char *url;
    bool json;
    bool help;
};

extern const struct option common_options[];
#define COMMON_OPTIONS                      \
    {                                       \
        common_options, 0, "Common options" \
    }

/* The kind of a command's operand, for completion. */
enum operand_kind {
    OPERAND_NONE,
    OPERAND_SESSION,   /* the first one; its id or key:KEY when the command runs */
    OPERAND_SESSIONS,  /* all of them; the command finds out which */
    OPERAND_EXECUTION, /* a session as OPERAND_SESSION, then one of its executions */
    OPERAND_PLACE,     /* a file here, or SESSION:PATH */
    OPERAND_TEMPLATE,
    OPERAND_FILE,
    OPERAND_COMMAND,
    OPERAND_WORDS
};

enum { COMMAND_SETS = 7 };

struct command {
    const char *name;
    const char *summary;  /* one line, no full stop */
    const char *usage;    /* operands and options, behind the name */
    const char *details;  /* further help, or NULL */
    const char *examples; /* command lines, each with a newline */
    struct option_set sets[COMMAND_SETS];
    size_t args_size;
    size_t plain_after; /* see options_parse() */
    enum operand_kind operand;
    const char *words; /* with OPERAND_WORDS: the values, separated by spaces */
    bool runs_program; /* exit code 125 for what is not the program's */
    int (*run)(struct cli *cli, const void *args, const struct option_result *given);
    const struct command *const *subcommands; /* NULL-terminated; `run` may be NULL then */
};

extern const struct command *const commands[]; /* NULL-terminated, in the order of help */

const struct command *command_find(const struct command *const *table, const char *name);

void command_print_help(const struct command *command, const char *path);
void commands_print_help(void);

/* The whole program. */
int cli_main(char *const *argv);

/* --- what a command is given ----------------------------------------------------------------- */

struct cli {
    const struct command *command;
    char path[64]; /* "sandglass session ls": the words that lead to the command */
    bool json;
    char *url; /* owned: where the daemon is, or should be */
    bool url_was_given;
    struct text_list resolved;  /* owned texts: the sessions that operands and options name */
    struct loop *loop;          /* owned; NULL until cli_connect() */
    struct http_client *client; /* owned; NULL until cli_connect() */
};

/* Says what went wrong, as text on stderr or as JSON on stdout; returns the exit code. */
int cli_fail(struct cli *cli, const struct error *err);

/* The command was not used as it should be. */
int cli_misuse(struct cli *cli, const char *format, ...) PRINTF_LIKE(2, 3);

/* A line about what is going on: "sandglass: …" on stderr. */
void cli_note(const char *format, ...) PRINTF_LIKE(1, 2);

/* Writes an answer to stdout; the exit code, which is not 0 when stdout cannot take it. */
int cli_print(struct cli *cli, const void *text, size_t length);
int cli_print_json(struct cli *cli, const json_t *document); /* indented */

/* --- the daemon ------------------------------------------------------------------------------ */

/* Makes the loop and the client; nothing is sent yet. */
int cli_connect(struct cli *cli, struct error *err);

/* Gives both up: another daemon is asked from here on. */
void cli_disconnect(struct cli *cli);

struct reply {
    int status;
    struct buffer body;
    json_t *json; /* owned; the body, an object */
};

void reply_fini(struct reply *reply);

static inline void scoped_reply_fini(struct reply *reply)
{
    reply_fini(reply);
}

/* One exchange with the daemon; a status of 400 and above is an error. `body` is JSON or NULL. */
int cli_call(struct cli *cli, enum http_method method, const char *target,
             const struct buffer *body, struct reply *out, struct error *err);

json_t *reply_parse(const void *body, size_t length, struct error *err); /* NULL on failure */

/* The error in an answer of the daemon that is not a success. */
int reply_error(struct error *err, int status, const void *body, size_t length);

/* Says how to start a daemon when that is what `err` is about. Returns -1. */
int cli_explain_connection(const struct cli *cli, struct error *err);

/* The first unix socket that the settings listen on; allocated. */
char *cli_default_url(void);

/* Whether it is certain that no daemon serves the unix socket at cli->url. */
bool cli_nobody_listens(const struct cli *cli);

/* Percent-encoded for a path segment or a query value; allocated. */
char *url_encode(const char *text);

/* "/api/v1/sessions/ID", allocated; and with `format` behind it, which may hold a query. */
char *session_own_target(const char *session);
char *session_target(const char *session, const char *format, ...) PRINTF_LIKE(2, 3);

/* --- fields of a document, with a fallback when they are absent or null ---------------------- */

const char *field_text(const json_t *object, const char *name, const char *fallback);
double field_number(const json_t *object, const char *name, double fallback);
int64_t field_int(const json_t *object, const char *name, int64_t fallback);
bool field_bool(const json_t *object, const char *name);

/* Room for any answer that is kept whole. */
enum { REPLY_MAXIMUM = 256 << 20 };
