#pragma once

/*
 * The protocol between the daemon and sandglass-init: messages over one SOCK_SEQPACKET unix socket,
 * descriptors beside them.
 *
 * The main idea is that output is never copied by init: it makes the pipes (or the terminal) of a
 * process and hands their outer ends to the daemon, keeping a duplicate. The kernel's pipe is the
 * buffer, it blocks a program whose output nobody takes, and when the daemon dies nothing is lost:
 * the next one asks with LIST and gets the same pipes again. A process is remembered until the
 * daemon says FORGET.
 *
 * Both ends treat the other as hostile: every length is checked, unknown types and versions end the
 * connection, and nothing here allocates. Integers are little-endian (the only byte order Sandglass
 * runs on). Texts are NUL-terminated inside the message, so that init can use them where they lie.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PROTOCOL_VERSION = 1,
    PROTOCOL_MAX_MESSAGE = 160 * 1024, /* below the default send buffer of a unix socket */
    PROTOCOL_MAX_STRINGS = 4096,       /* argv and env entries together */
    PROTOCOL_MAX_FDS = 4,
    PROTOCOL_MAX_PROCESSES = 512, /* remembered by init at one time */
};

enum protocol_type {
    /* daemon to init */
    PROTOCOL_START = 1, /* → STARTED with descriptors, or FAILED */
    PROTOCOL_SIGNAL,    /* to the process or its whole tree; → DONE */
    PROTOCOL_RESIZE,    /* → DONE */
    PROTOCOL_CLOSE_STDIN,
    PROTOCOL_FORGET,    /* the end is recorded: drop the process and its pipes; no answer */
    PROTOCOL_LIST,      /* → PROCESS for each remembered one, with its descriptors, then DONE */
    PROTOCOL_FILE,      /* one file operation → FILE_DONE, perhaps with a descriptor */
    PROTOCOL_PING,      /* → DONE */
    PROTOCOL_SHUTDOWN,  /* kill everything, then exit 0; → DONE before exiting */
    PROTOCOL_CONFIGURE, /* host name of a claimed pool member; → DONE */

    /* init to daemon */
    PROTOCOL_HELLO = 64, /* first message on a connection */
    PROTOCOL_STARTED,
    PROTOCOL_FAILED,
    PROTOCOL_EXITED,
    PROTOCOL_PROCESS,
    PROTOCOL_DONE,
    PROTOCOL_FILE_DONE,
};

struct protocol_header {
    uint32_t length; /* of the whole message: must equal what was received */
    uint16_t type;
    uint16_t version;
    uint64_t
        tag; /* the process number, or the request number for FILE and PING; echoed in the answer */
};

enum protocol_start_flags {
    START_STDIN = 1 << 0,  /* a pipe for stdin is wanted; otherwise /dev/null */
    START_TTY = 1 << 1,    /* a terminal instead of pipes; one descriptor is passed back */
    START_SCRIPT = 1 << 2, /* a descriptor with a script comes along: init writes it to script_path
                              before, removes it after */
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

enum protocol_stage {
    STAGE_NONE,
    STAGE_REQUEST,
    STAGE_USER,
    STAGE_CWD,
    STAGE_SCRIPT,
    STAGE_SPAWN,
    STAGE_EXEC,
    STAGE_LIMIT
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

struct protocol_exited {
    struct protocol_header header;
    int32_t code;   /* -1 when killed */
    int32_t signal; /* 0 unless killed */
    int64_t wall_us;
    int64_t cpu_us; /* of the process and all it waited for */
    uint64_t max_rss_bytes;
    uint32_t survivors; /* processes of its tree still running in the background */
    uint32_t reserved;
};

/* PROCESS: as STARTED, with the end if it has come. */
struct protocol_process {
    struct protocol_header header;
    uint32_t flags;
    int32_t pid;
    uint32_t has_exited;
    uint32_t reserved;
    struct protocol_exited exited; /* its header is unused */
};

enum protocol_scope { SCOPE_PROCESS, SCOPE_TREE };

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

struct protocol_done {
    struct protocol_header header;
    int32_t error; /* errno, 0 for success */
    uint32_t value;
};

struct protocol_hello {
    struct protocol_header header;
    uint32_t processes; /* remembered now */
    uint32_t features;
    uint32_t seccomp_mode; /* what init reads about itself, for the isolation report */
    uint32_t no_new_privs;
    uint64_t capabilities; /* effective */
    uint64_t bounding;
};

enum protocol_file_kind {
    FILE_OPEN_READ = 1, /* a descriptor of a regular file comes back */
    FILE_OPEN_WRITE,    /* a new file under a temporary name; FILE_COMMIT renames it to path */
    FILE_COMMIT,        /* path, second = the temporary path that FILE_OPEN_WRITE gave back */
    FILE_STAT,
    FILE_REMOVE, /* flags: 1 = a whole tree */
    FILE_MKDIR,  /* with parents */
    FILE_MOVE,   /* path → second */
    FILE_LIST,   /* the entries come through a descriptor: see docs/init-protocol.md */
};

/* FILE: fixed part, then three texts: user, path, second. Paths are resolved inside the sandbox
 * with the user's rights. */
struct protocol_file {
    struct protocol_header header;
    uint32_t kind;
    uint32_t flags;
    uint32_t mode;
    uint32_t depth; /* FILE_LIST */
};

struct protocol_stat {
    uint64_t size;
    uint64_t inode;
    int64_t modified_us;
    uint32_t mode; /* type and permissions */
    uint32_t uid;
    uint32_t gid;
    uint32_t reserved;
};

/* FILE_DONE: then one text, the temporary path or "" */
struct protocol_file_done {
    struct protocol_header header;
    int32_t error;
    uint32_t reserved;
    struct protocol_stat stat;
};
