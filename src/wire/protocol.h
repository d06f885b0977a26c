/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The protocol between the daemon and sandglass-init: messages over one SOCK_SEQPACKET unix socket,
 * descriptors beside them.
 *
 * The main idea is that output is never copied by init: it makes the pipes (or the terminal) of a
 * process and hands their outer ends to the daemon, keeping a duplicate. The kernel's pipe is the
 * buffer, it blocks a program whose output is not read, and when the daemon dies nothing is lost:
 * the next one asks with LIST and gets the same pipes again. A process is remembered until the
 * daemon says FORGET.
 *
 * Both ends treat the other as hostile: every length is checked, unknown types and versions end the
 * connection, and nothing here allocates. Integers are little-endian (the only byte order Sandglass
 * runs on). Texts are NUL-terminated inside the message, so that init can use them where they lie.
 *
 * Messages of fixed size are written as literals that begin with protocol_header(); the others have
 * an encoder. Every type has a decoder, which gives NULL or -1 for anything but a whole,
 * well-formed message. Buffers of messages are aligned to 8 bytes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PROTOCOL_VERSION = 1,              /* that this tree speaks; see HELLO for others */
    PROTOCOL_MAX_MESSAGE = 160 * 1024, /* below the default send buffer of a unix socket */
    PROTOCOL_MAX_STRINGS = 4096,       /* argv and env entries together */
    PROTOCOL_MAX_FDS = 4,
    PROTOCOL_MAX_PROCESSES = 512, /* remembered by init at one time */
    PROTOCOL_MAX_FILES = 8,       /* file operations the daemon asks for at one time */
    PROTOCOL_MAX_FORGOTTEN = 8,   /* by one message */
    PROTOCOL_MAX_USER = 64,       /* sizes of texts, with the NUL */
    PROTOCOL_MAX_PATH = 4096,
    PROTOCOL_MAX_SCRIPT_PATH = 256,
    PROTOCOL_MAX_SCRATCH = 216, /* so that a script's name fits behind it */
    PROTOCOL_MAX_TEMPORARY = 64,
    PROTOCOL_MAX_SCRIPT_BYTES = 16 * 1024 * 1024,
    PROTOCOL_MAX_DEPTH = 512,  /* of a walk through directories */
    PROTOCOL_MAX_CONTEXT = 20, /* of FILE_GREP */
};

enum protocol_type {
    /* daemon to init */
    PROTOCOL_START = 1,   /* → STARTED or RAN with descriptors, or FAILED */
    PROTOCOL_SIGNAL,      /* to the process or its whole tree; → DONE */
    PROTOCOL_RESIZE,      /* → DONE */
    PROTOCOL_CLOSE_STDIN, /* → DONE */
    PROTOCOL_FORGET,      /* the end is recorded: drop the process and its pipes; → DONE */
    PROTOCOL_LIST,        /* → PROCESS for each remembered one, with its descriptors, then DONE */
    PROTOCOL_FILE,        /* one file operation → FILE_DONE, perhaps with a descriptor */
    PROTOCOL_FORGET_MANY = 11, /* FORGET of several; → nothing */
    PROTOCOL_CONNECT, /* to a port or a socket inside; → FILE_DONE with a stream socket */
    PROTOCOL_PORTS, /* → FILE_DONE with a pipe: a NOTE_PORT for each TCP port that is listened on */

    /* init to daemon */
    PROTOCOL_HELLO = 64, /* first message on a connection */
    PROTOCOL_STARTED,
    PROTOCOL_FAILED,
    PROTOCOL_EXITED,
    PROTOCOL_PROCESS,
    PROTOCOL_DONE,
    PROTOCOL_FILE_DONE,
    PROTOCOL_RAN,     /* STARTED and EXITED in one, of a process that left nothing behind */
    PROTOCOL_STORAGE, /* a connection that a program of the process made; the descriptor follows */
    PROTOCOL_TAKEN,   /* from a bridge: so many bytes of a process's input are inside the sandbox */
};

struct protocol_header {
    uint32_t length; /* of the whole message: must equal the received length */
    uint16_t type;
    uint16_t version;
    uint64_t process; /* the number the daemon gave it; 0 where none is meant */
    uint64_t request; /* echoed in the answer; 0 when none is wanted */
};

enum protocol_start_flags {
    START_STDIN = 1 << 0,  /* a pipe for stdin is wanted; otherwise /dev/null */
    START_TTY = 1 << 1,    /* a terminal instead of pipes; one descriptor is passed back */
    START_SCRIPT = 1 << 2, /* a descriptor with a script comes along: init writes it to script_path
                              before, removes it after */
    START_ZYGOTE = 1 << 3, /* it forks for others: its descriptor 4 is a socket to init */
    START_FORK = 1 << 4,   /* a zygote may fork it; without one it is started in the ordinary way */
    START_FLAGS = (1 << 5) - 1,
};

/* START: fixed part, then argc + envc + 3 texts: user, cwd, script_path, argv…, env… */
struct protocol_start {
    struct protocol_header header;
    uint32_t flags;
    uint32_t argc;
    uint32_t envc;
    uint16_t columns;
    uint16_t rows;
    uint32_t umask;
    uint32_t nofile;          /* RLIMIT_NOFILE; 0 leaves it */
    uint64_t file_size_bytes; /* RLIMIT_FSIZE; 0 leaves it */
};

struct protocol_start_texts {
    const char *user;        /* name, "uid" or "uid:gid"; "" for init's default */
    const char *cwd;         /* absolute; "" for init's workspace, or the user's home without one */
    const char *script_path; /* absolute, or "" without START_SCRIPT */
    const char *const *argv; /* both end with NULL */
    const char *const *env;
};

enum protocol_stage {
    STAGE_NONE,
    STAGE_REQUEST,
    STAGE_USER,
    STAGE_CWD,
    STAGE_SCRIPT,
    STAGE_SPAWN,
    STAGE_EXEC,
    STAGE_LIMIT,
    STAGES
};

struct protocol_started { /* descriptors: [stdin] stdout stderr, or the terminal */
    struct protocol_header header;
    uint32_t flags; /* as in START: which descriptors follow */
    int32_t pid;    /* inside the sandbox */
};

struct protocol_failed {
    struct protocol_header header;
    uint32_t stage;
    int32_t error; /* errno */
};

struct protocol_end {
    int32_t code;   /* -1 when killed */
    int32_t signal; /* 0 unless killed */
    int64_t wall_us;
    int64_t cpu_us; /* of the process and all it waited for */
    uint64_t max_rss_bytes;
    uint32_t survivors; /* processes of its tree still running in the background */
    uint32_t reserved;
};

/*
 * Where init's pipes are not the daemon's (FEATURE_STREAMS), output may still be in transit when an
 * end is reported. EXITED, RAN and PROCESS are then followed by the number of bytes that the
 * process had written by that time, and PROCESS by the offset of the first byte that each of its
 * streams will give. Init sends neither: the relay adds them.
 */
struct protocol_totals {
    uint64_t output;
    uint64_t errors;
};

struct protocol_bases {
    uint64_t input; /* bytes that have reached the sandbox */
    uint64_t output;
    uint64_t errors;
};

struct protocol_exited { /* may be followed by struct protocol_totals */
    struct protocol_header header;
    struct protocol_end end;
};

/* Descriptors as with STARTED, or none when the process has written nothing. May be followed by
 * struct protocol_totals. */
struct protocol_ran {
    struct protocol_header header;
    uint32_t flags;
    int32_t pid;
    struct protocol_end end;
};

/* PROCESS: as STARTED, with the end if it has come. Input that was closed is not passed: flags then
 * lack START_STDIN. May be followed by struct protocol_bases and struct protocol_totals. */
struct protocol_process {
    struct protocol_header header;
    uint32_t flags;
    int32_t pid;
    uint32_t has_exited;
    uint32_t reserved;
    struct protocol_end end;
};

enum protocol_scope { SCOPE_PROCESS, SCOPE_TREE };

/* SIGKILL to a tree is answered when all its processes are dead, or with ETIMEDOUT; init goes on
 * killing in that case too. `value` of DONE is the number of processes. */
struct protocol_signal {
    struct protocol_header header;
    int32_t number;
    uint32_t scope;
};

struct protocol_resize {
    struct protocol_header header;
    uint16_t columns;
    uint16_t rows;
    uint32_t reserved;
};

/* CLOSE_STDIN, FORGET, LIST, STORAGE, PORTS */
struct protocol_plain {
    struct protocol_header header;
};

struct protocol_forget_many {
    struct protocol_header header;
    uint32_t count; /* from 1 */
    uint32_t reserved;
    uint64_t processes[PROTOCOL_MAX_FORGOTTEN];
};

struct protocol_done {
    struct protocol_header header;
    int32_t error; /* errno, 0 for success */
    uint32_t value;
};

struct protocol_taken {
    struct protocol_header header;
    uint64_t total; /* since the process was started */
};

/* CONNECT: fixed part, then two texts: user, path. */
struct protocol_connect {
    struct protocol_header header;
    uint32_t port; /* of TCP on loopback; 0: a unix stream socket, by its path */
    uint32_t reserved;
};

enum protocol_feature {
    FEATURE_NAMESPACE = 1 << 0, /* init is PID 1 of its own namespace */
    FEATURE_SECCOMP = 1 << 1,   /* it has a filter for its processes */
    FEATURE_PROC = 1 << 2,      /* it sees its tree in /proc */
    FEATURE_ZYGOTE = 1 << 3,    /* it knows START_ZYGOTE and START_FORK */
    FEATURE_FORGET_MANY = 1 << 4,
    FEATURE_CONNECT = 1 << 5, /* it knows CONNECT, PORTS, FILE_READ and FILE_WRITE */
    /* Descriptors are of pipes and stream sockets only, made by a bridge: a terminal is a pair of
     * pipes, input first, and no regular file is passed. TAKEN acknowledges input. */
    FEATURE_STREAMS = 1 << 6,
    FEATURE_WEAK_TREES = 1 << 7, /* processes that lose their parent leave their tree */
    FEATURE_DESCRIBE =
        1 << 8, /* it knows FILE_DESCRIBE, FILE_BY_ROOT and attributes of FILE_COMMIT */
};

/*
 * The first message. It says which versions of the protocol init speaks, so it is itself of no
 * version: with any header.version the fields up to `newest` keep their offsets, and bytes after
 * `scratch` are ignored. An init of the first release ends it before `oldest`: it speaks version 1
 * alone.
 */
struct protocol_hello {
    struct protocol_header header;
    uint32_t processes; /* remembered now */
    uint32_t features;
    uint32_t seccomp_mode; /* as init reads it back, for the isolation report */
    uint32_t no_new_privs;
    uint64_t capabilities; /* effective */
    uint64_t bounding;     /* the most that root among the started processes can have */
    uint16_t oldest;       /* versions of the protocol that init speaks */
    uint16_t newest;
    uint32_t reserved;
    char scratch[PROTOCOL_MAX_SCRATCH]; /* the directory for scripts and for files that users do not
                                           look for, absolute; "" when its path is too long */
};

enum protocol_file_kind {
    FILE_OPEN_READ = 1, /* a descriptor of a regular file comes back */
    FILE_OPEN_WRITE, /* a new file under a temporary name, parents made; FILE_COMMIT renames it */
    FILE_COMMIT,     /* path, second = the temporary name that FILE_OPEN_WRITE gave back; third =
                        extended attributes, each NAME=VALUE and a line break, or "" */
    FILE_STAT,
    FILE_REMOVE,
    FILE_MKDIR,  /* with parents */
    FILE_MOVE,   /* path → second */
    FILE_LIST,   /* the entries come through a pipe: see struct protocol_entry */
    FILE_GLOB,   /* as LIST: the matches of the pattern in `second`, `limit` at most */
    FILE_GREP,   /* second = pattern, third = a glob for the paths or "": notes through a pipe */
    FILE_PACK,   /* the directory as a tar through a pipe; third = names to leave out, see there */
    FILE_UNPACK, /* a stream socket: a tar goes in, notes about refused members come back */
    FILE_WATCH,  /* notes about changes through a pipe, until the reader goes away */
    FILE_READ,   /* `bytes` of a regular file from `offset` on, through a pipe */
    FILE_WRITE, /* as OPEN_WRITE, but a stream socket: content goes in, NOTE_LAST comes back when it
                    is all in the file, then FILE_COMMIT */
    FILE_DESCRIBE, /* notes through a pipe: NOTE_ENTRY for the file itself, whose path is the directory
                      that relative paths begin in, and for the entries of a directory down to
                      `depth`; third = the beginning of the names of extended attributes, or "" */
    FILE_KINDS
};

enum protocol_file_flags {
    FILE_TREE = 1 << 0,        /* REMOVE: a directory with all that is in it */
    FILE_ABANDON = 1 << 1,     /* COMMIT: remove the temporary file instead */
    FILE_NO_FOLLOW = 1 << 2,   /* STAT: of a symbolic link itself */
    FILE_NO_REPLACE = 1 << 3,  /* COMMIT, MOVE: EEXIST when the target exists */
    FILE_EXCLUSIVE = 1 << 4,   /* MKDIR: EEXIST when it exists */
    FILE_SYNC = 1 << 5,        /* COMMIT: on the disk before it is answered */
    FILE_EXPECT = 1 << 6,      /* COMMIT: ESTALE unless the replaced file is the `expected`
                                  version */
    FILE_HIDDEN = 1 << 7,      /* GLOB, GREP: names that begin with a dot too */
    FILE_FIXED = 1 << 8,       /* GREP: the pattern is a text, not an expression */
    FILE_IGNORE_CASE = 1 << 9, /* GREP */
    FILE_RECURSIVE = 1 << 10,  /* WATCH: the directories inside too */
    FILE_BY_ROOT = 1 << 11,    /* with root's rights over files where init has them; new files
                                  belong to the user all the same */
    FILE_FLAGS = (1 << 12) - 1,
};

/* FILE_PACK: names, or * and the end of names, with a line break between. Matching entries are left
 * out at every depth, directories with their content. */

/* Identifies a version of a file. */
struct protocol_version {
    uint64_t size;
    uint64_t inode;
    int64_t modified_us;
};

/* FILE: fixed part, then four texts: user, path, second, third. Paths are resolved inside the
 * sandbox with the user's rights; relative ones begin where its processes do. */
struct protocol_file {
    struct protocol_header header;
    uint32_t kind;
    uint32_t flags;
    uint32_t mode;    /* OPEN_WRITE: 0 takes that of the file to be replaced, else 0644; MKDIR */
    uint32_t depth;   /* LIST, GREP: 1 is the directory's own entries; GREP: 0 is all */
    uint32_t limit;   /* GLOB, GREP: results; 0 is none */
    uint32_t context; /* GREP: lines before and after each match */
    uint64_t bytes;   /* UNPACK: all contents together, READ: at most; 0 is no limit */
    union {
        struct protocol_version expected; /* COMMIT with FILE_EXPECT */
        uint64_t offset;                  /* READ: of the first byte */
    };
};

struct protocol_file_texts {
    const char *user;
    const char *path;
    const char *second;
    const char *third; /* encoding: NULL is "" */
};

struct protocol_stat {
    uint64_t size;
    uint64_t inode;
    int64_t modified_us;
    int64_t changed_us; /* content or anything else; no program can set it */
    uint32_t mode;      /* type and permissions */
    uint32_t uid;
    uint32_t gid;
    uint32_t reserved;
};

/* FILE_DONE: then one text, the temporary name or "" */
struct protocol_file_done {
    struct protocol_header header;
    int32_t error;
    uint32_t reserved;
    struct protocol_stat stat;
};

/*
 * The pipe of FILE_LIST carries one of these for each entry, then its path (relative to the listed
 * directory, parents before children) and the target of a symbolic link, without NULs. The last one
 * has mode 0 and no texts: `size` counts the entries before it and `error` is the errno that cut
 * the list short. A pipe that ends without it was broken.
 */
struct protocol_entry {
    uint32_t length; /* with the texts */
    uint16_t path_length;
    uint16_t target_length;
    struct protocol_stat stat;
    int32_t error; /* of the last one; for a directory, why it could not be opened */
    uint32_t reserved;
};

struct protocol_entry_view {
    struct protocol_entry fixed;
    const char *path; /* borrowed; not terminated */
    const char *target;
    bool is_last;
};

/*
 * The pipe of FILE_GREP, FILE_DESCRIBE and FILE_WATCH and the socket of FILE_UNPACK carry one of
 * these for each result, then a path and a text, without NULs. Except for FILE_WATCH the last one
 * is NOTE_LAST; a pipe that ends without it was broken.
 */
enum protocol_note_kind {
    NOTE_LAST = 1, /* number: of matches or members, amount: see there, error: errno that ended
                      it */
    NOTE_MATCH,    /* number: of the line, text: the line */
    NOTE_CONTEXT,  /* the same for a line around a match */
    NOTE_REFUSED,  /* path: as the archive has it, text: why */
    NOTE_CHANGED,  /* number: the mask of inotify */
    NOTE_PORT,     /* number: of a TCP port with a listener */
    NOTE_ENTRY,    /* number: st_mode behind a symbolic link, 0 without; text: see below */
    NOTE_KINDS
};

/*
 * The text of NOTE_ENTRY: struct protocol_stat (of a link itself), then texts, each ended by a NUL: the
 * names of owner and group, where a symbolic link leads in the end, and for each extended attribute
 * its name and its value. A name that is not known is its number.
 */

enum protocol_note_flags {
    NOTE_CUT = 1 << 0, /* the text is longer, or there are more results */
    NOTE_FLAGS = (1 << 1) - 1,
};

struct protocol_note {
    uint32_t length; /* with the texts */
    uint16_t kind;
    uint16_t flags;
    uint16_t path_length;
    uint16_t text_length;
    int32_t error;
    uint64_t number;
    uint64_t amount; /* GREP: files that were not searched, UNPACK, WRITE: bytes of contents */
};

struct protocol_note_view {
    struct protocol_note fixed;
    const char *path; /* borrowed; not terminated */
    const char *text;
};

static inline struct protocol_header protocol_header(enum protocol_type type, size_t length,
                                                     uint64_t process, uint64_t request)
{
    return (struct protocol_header){
        .length = (uint32_t)length,
        .type = (uint16_t)type,
        .version = PROTOCOL_VERSION,
        .process = process,
        .request = request,
    };
}

/* The type of a message whose header is right, else -1. It may still be an unknown one. */
int protocol_peek(const void *message, size_t length);

/* --- of any size ---------------------------------------------------------------------------- */

/* The encoders take header.process, header.request and the numbers from `fixed` and compute the
 * rest; they give the length, or -1 when it is over a limit or does not fit. */
long protocol_start_encode(void *buffer, size_t capacity, const struct protocol_start *fixed,
                           const struct protocol_start_texts *texts);
long protocol_file_encode(void *buffer, size_t capacity, const struct protocol_file *fixed,
                          const struct protocol_file_texts *texts);
long protocol_file_done_encode(void *buffer, size_t capacity,
                               const struct protocol_file_done *fixed, const char *temporary);
long protocol_connect_encode(void *buffer, size_t capacity, const struct protocol_connect *fixed,
                             const char *user, const char *path);
long protocol_entry_encode(void *buffer, size_t capacity, const struct protocol_entry *fixed,
                           const char *path, const char *target);
long protocol_note_encode(void *buffer, size_t capacity, const struct protocol_note *fixed,
                          const char *path, size_t path_length, const char *text,
                          size_t text_length);

/* `strings` has room for PROTOCOL_MAX_STRINGS + 2 pointers: argv and env end up in it, env last. */
const struct protocol_start *protocol_start_decode(const void *message, size_t length,
                                                   const char **strings,
                                                   struct protocol_start_texts *out_texts);
const struct protocol_file *protocol_file_decode(const void *message, size_t length,
                                                 struct protocol_file_texts *out_texts);
const struct protocol_file_done *protocol_file_done_decode(const void *message, size_t length,
                                                           const char **out_temporary);
const struct protocol_connect *protocol_connect_decode(const void *message, size_t length,
                                                       const char **out_user,
                                                       const char **out_path);

/* Of any version; -1 when it is no HELLO at all. */
int protocol_hello_decode(const void *message, size_t length, struct protocol_hello *out_hello);

/* The next entry of a list: how many bytes it takes, 0 when more are needed, -1 when it is wrong.
 */
long protocol_entry_decode(const void *bytes, size_t length, struct protocol_entry_view *out_entry);
long protocol_note_decode(const void *bytes, size_t length, struct protocol_note_view *out_note);

/* --- of fixed size -------------------------------------------------------------------------- */

const struct protocol_signal *protocol_signal_decode(const void *message, size_t length);
const struct protocol_resize *protocol_resize_decode(const void *message, size_t length);
const struct protocol_plain *protocol_plain_decode(const void *message, size_t length);
const struct protocol_forget_many *protocol_forget_many_decode(const void *message, size_t length);
const struct protocol_started *protocol_started_decode(const void *message, size_t length);
const struct protocol_failed *protocol_failed_decode(const void *message, size_t length);
const struct protocol_exited *protocol_exited_decode(const void *message, size_t length);
const struct protocol_ran *protocol_ran_decode(const void *message, size_t length);
const struct protocol_process *protocol_process_decode(const void *message, size_t length);
const struct protocol_done *protocol_done_decode(const void *message, size_t length);
const struct protocol_plain *protocol_storage_decode(const void *message, size_t length);
const struct protocol_taken *protocol_taken_decode(const void *message, size_t length);

/* The relay's extension of a decoded EXITED, RAN or PROCESS; NULL without. */
const struct protocol_totals *protocol_totals_after(const void *message, size_t length);
const struct protocol_bases *protocol_bases_after(const void *message, size_t length);

/* How many descriptors come with a process of these flags. */
static inline unsigned protocol_pipe_count(uint32_t flags)
{
    if (flags & START_TTY)
        return 1;
    return flags & START_STDIN ? 3 : 2;
}
