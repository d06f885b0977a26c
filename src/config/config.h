/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The settings: typed fields, filled from a table of rows (settings.c) that parsing, --help, the
 * manual and `config show` all read.
 *
 * Later sources win: defaults, the file, the environment, the command line. The file is YAML;
 * nested mappings and dotted keys are the same thing. In its scalar values ${NAME} is replaced from
 * the daemon's environment, ${NAME:-text} has a default, and $$ is a dollar sign. A setting whose
 * value is one word or a list can also come from the environment: session.idle_timeout is
 * SANDGLASS_SESSION_IDLE_TIMEOUT. Unknown keys, wrong types and values out of range are refused
 * with the place where they stand.
 *
 * Some defaults depend on the host: directories on the user, and with the backends docker and
 * gvisor docker.host on DOCKER_HOST and docker.tls.* on DOCKER_CERT_PATH, as for other clients of
 * the engine.
 *
 * The file is the one that is named, else $SANDGLASS_CONFIG, else the first of
 * /etc/sandglass/sandglass.yaml and $XDG_CONFIG_HOME/sandglass/sandglass.yaml that exists, else
 * there is none and the defaults hold.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum config_auth { AUTH_MODE_NONE, AUTH_MODE_KEYS, AUTH_MODE_JWT };
enum config_disk { CONFIG_DISK_AUTO, CONFIG_DISK_MEMORY, CONFIG_DISK_IMAGE };
enum config_seccomp { CONFIG_SECCOMP_DEFAULT, CONFIG_SECCOMP_STRICT };
enum config_network { CONFIG_NETWORK_NONE, CONFIG_NETWORK_OPEN }; /* as enum network_mode */
enum config_overflow { OVERFLOW_EVICT, OVERFLOW_WAIT, OVERFLOW_REJECT };
enum config_idle { IDLE_END, IDLE_RELEASE };
enum config_shutdown { SHUTDOWN_KEEP, SHUTDOWN_DESTROY };
enum config_pull { PULL_NEVER, PULL_MISSING, PULL_ALWAYS };
enum config_kubernetes_kind { KUBERNETES_POD, KUBERNETES_CLAIM };
enum config_kubernetes_transport { KUBERNETES_EXEC, KUBERNETES_ADDRESS };
enum config_docker_disk { DOCKER_DISK_AUTO, DOCKER_DISK_STORAGE, DOCKER_DISK_NONE };
enum config_confine { CONFINE_AUTO, CONFINE_REQUIRED, CONFINE_OFF };
enum config_e2b { E2B_AUTO, E2B_ON, E2B_OFF };
enum config_log_format { CONFIG_LOG_AUTO, CONFIG_LOG_TEXT, CONFIG_LOG_JSON };

/* All pointers below are owned by the config. Texts are never NULL; "" is "not set". */

struct config_list {
    char **items;
    size_t count;
};

struct config_variable {
    char *name;
    char *value;
};

struct config_map {
    struct config_variable *items;
    size_t count;
};

struct config_mount {
    char *host_path; /* absolute */
    char *path;      /* absolute, inside the sandbox */
    bool read_only;
};

struct config_mounts {
    struct config_mount *items;
    size_t count;
};

/* As the choices of the settings that end with max.network. */
enum config_max_network { MAX_NETWORK_UNSAID, MAX_NETWORK_NONE, MAX_NETWORK_OPEN };

/* The most that callers may ask for. 0: not set here. */
struct config_ceiling {
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    uint32_t cpu_millis;
    int64_t pids;
    int64_t lifetime_ms;
    int64_t timeout_ms;
    int64_t idle_timeout_ms;
    int network; /* enum config_max_network */
};

/* The parts of it that are amounts. */
enum config_limit {
    LIMIT_MEMORY,
    LIMIT_CPUS,
    LIMIT_PIDS,
    LIMIT_DISK,
    LIMIT_LIFETIME,
    LIMIT_TIMEOUT,
    LIMIT_IDLE_TIMEOUT,
    LIMITS
};

struct config_flavor {
    char *name;
    char *backend;         /* "": sandbox.backend */
    uint64_t memory_bytes; /* 0: sandbox.memory */
    uint64_t disk_bytes;   /* 0: sandbox.disk */
    uint32_t cpu_millis;   /* 0: sandbox.cpus */
    int64_t pids;          /* 0: sandbox.pids */
    int64_t gpus;
    int64_t price_per_hour; /* in micro-dollars; negative when it is not known */
    bool needs_approval;
    struct config_ceiling max; /* where it says something: in place of sandbox.max */
};

/* A row of the setting `templates`; most templates have none. */
struct config_template {
    char *name;
    char *backend; /* "": sandbox.backend */
};

struct config_templates {
    struct config_template *items;
    size_t count;
};

struct config_flavors {
    struct config_flavor *items;
    size_t count;
};

/* Resources that all owners share, with a cap for each owner. */
enum config_share {
    SHARE_SESSIONS,
    SHARE_EXECUTIONS,
    SHARE_TERMINALS,
    SHARE_REQUESTS,
    SHARE_BODIES, /* bytes; the cap is fixed */
    SHARE_KINDS
};

struct config_owner {
    char *name;                    /* with all below it, or with * at the end */
    struct config_list backends;   /* that its sandboxes may have; empty: all */
    struct config_ceiling max;     /* where it says something: in place of sandbox.max */
    struct config_list max_mounts; /* in place of sandbox.max.mounts; empty: nothing is said */
    int64_t shares[SHARE_KINDS];   /* for it and all below it together; 0: nothing is said */
};

enum config_verdict { RULE_PASS, RULE_WARN, RULE_BLOCK };

/* About commands, before they run; see core/run/rules.h. */
struct config_rule {
    char *name;
    char *pattern; /* a POSIX extended regular expression */
    char *message; /* for the caller; "" without one */
    int verdict;   /* enum config_verdict */
};

struct config_rules {
    struct config_rule *items;
    size_t count;
};

struct config_owners {
    struct config_owner *items;
    size_t count;
};

enum config_store { STORE_KIND_SQLITE, STORE_KIND_REDIS };

struct config {
    char *path; /* of the file; NULL without one */

    struct config_list listen; /* "unix:PATH" or "HOST:PORT" */
    char *state_dir;
    char *runtime_dir;
    char *instance;
    char *user;
    char *store_sync; /* of sqlite: "full", "normal" or "off" */
    struct {
        int kind; /* enum config_store */
        struct {
            char *url; /* redis_url.h; has a password */
            char *prefix;
            char *sync; /* "none", "replicas:N" or "aof" */
            char *ca;
        } redis;
    } store;

    struct {
        char *id;
        char *address; /* "http://HOST:PORT" or "https://HOST:PORT"; "": not a node of a cluster */
        int64_t lease_ms;
        char *secret_file;
        char *ca;
        struct config_map labels;
    } node;

    struct {
        int confine; /* enum config_confine */
    } daemon;

    struct {
        int mode; /* enum config_auth */
        char *keys_file;
        struct {
            char *jwks_file;
            char *jwks_url;
            char *issuer;
            char *audience;
            char *roles_claim;
            int64_t skew_ms;
            int64_t cache_ms;
            int64_t cooldown_ms;
        } jwt;
        int64_t failure_limit; /* in a minute, from one address; 0: no limit */
    } auth;

    struct {
        char *backend;
        struct config_list backends; /* that sessions may name besides that one */
        bool allow_direct_fallback;
        struct config_list require;
        char *template_name;
        uint64_t memory_bytes;
        uint64_t disk_bytes;
        int disk_kind; /* enum config_disk */
        uint32_t cpu_millis;
        int64_t pids;
        uint64_t io_bytes_per_s; /* 0: no limit, here and in the next */
        int64_t io_operations_per_s;
        int network; /* enum config_network */
        int seccomp; /* enum config_seccomp */
        bool relay;
        struct config_ceiling max;
        struct config_list max_mounts; /* see config/mountable.h */
        struct config_list env_pass;
        struct config_map env_set; /* values that named a variable are already replaced */
        struct config_mounts mounts;
        bool auto_restart;
        int64_t start_timeout_ms;
        int64_t silence_timeout_ms; /* 0: off */
        int64_t direct_uid;
        int64_t direct_gid;
    } sandbox;

    struct {
        char *host;    /* "unix:///PATH" or "tcp://HOST:PORT" */
        char *image;   /* "": templates have to be named */
        char *network; /* of sandboxes whose network is open; "none": they have none either */
        char *runtime; /* "": the engine's own */
        int pull;      /* enum config_pull */
        bool read_only;
        int disk; /* enum config_docker_disk */
        struct {
            char *ca; /* "": the connection is plain */
            char *cert;
            char *key;
        } tls;
    } docker;

    struct {
        char *kubeconfig; /* "": $KUBECONFIG, or the service account of the pod */
        char *context;    /* "": the current one */
        char *namespace;  /* "": that of the context or of the pod */
        int kind;         /* enum config_kubernetes_kind */
        int transport;    /* enum config_kubernetes_transport */
        int64_t port;     /* of the gate in pods, with KUBERNETES_ADDRESS */
        char *warm_pool;  /* of claims; "": templates have to be named */
        char *image;      /* "": templates have to be named */
        int pull;         /* enum config_pull */
        struct config_list pull_secrets;
        char *runtime_class;              /* "": the cluster's own */
        struct config_list node_selector; /* "KEY=VALUE" */
        struct config_list tolerations;   /* "KEY[=VALUE][:EFFECT]" */
        int64_t user;
        bool read_only;
        char *gpu_resource;
        uint32_t cpu_request_millis; /* 0: the limit */
        bool network_enforced;       /* the operator's word */
        int64_t schedule_timeout_ms;
        int64_t start_timeout_ms;
        int64_t active_deadline_ms; /* 0: none */
    } kubernetes;

    struct {
        bool allow_private;
    } network;

    struct {
        int64_t idle_timeout_ms; /* 0: off, here and in the next two */
        int64_t timeout_ms;
        int64_t max_lifetime_ms;
        int64_t grace_ms;
        int64_t retention_ms;
        int on_idle;                 /* enum config_idle */
        int64_t background_limit_ms; /* 0: work in the background does not count */
        bool preload;
    } session;

    struct {
        bool files; /* unless a session says otherwise */
        struct config_list exclude;
        uint64_t max_size_bytes;
        uint64_t max_total_bytes;
        int64_t timeout_ms;
    } keep;

    struct {
        bool enabled;
        uint64_t max_file_bytes;
        int64_t max_files;
        uint64_t max_session_bytes;
        uint64_t max_owner_bytes;
        uint64_t max_total_bytes;
        int64_t valid_for_ms;
        char *url;
    } storage;

    struct {
        int64_t max_sandboxes;
        int64_t max_per_owner;
        int64_t max_sessions;        /* of all owners; 0: no cap */
        int64_t shares[SHARE_KINDS]; /* of one owner; 0: no cap */
        int overflow;                /* enum config_overflow */
        int64_t burst;               /* slots above max_sandboxes, when nothing else helps */
        int64_t wait_timeout_ms;
    } capacity;

    struct {
        int64_t timeout_ms;
    } approvals;

    struct {
        bool auto_approve;
        int64_t window_ms;
        int64_t session_cap;   /* all three in micro-dollars */
        int64_t owner_cap;     /* 0: none */
        int64_t first_warning; /* 0: none */
    } budget;

    int64_t pool_size;
    int64_t pool_peak;

    struct {
        int64_t timeout_ms; /* 0: none */
        int64_t grace_ms;
        int64_t stall_timeout_ms;
        int64_t max_concurrent;
        uint64_t output_capture_bytes;
        uint64_t output_spool_bytes;
        uint64_t spool_per_session_bytes; /* 0: no quota, here and below */
        uint64_t spool_per_owner_bytes;
        uint64_t spool_total_bytes;
        int output_full; /* enum output_full */
    } exec;

    struct {
        bool warm;
        struct config_list preload;
        char *path; /* "": what PATH leads to */
    } python;

    struct {
        bool enabled;
    } sessions;

    struct {
        int64_t connections;
        int64_t header_count;
        uint64_t line_bytes;
        uint64_t head_bytes;
        uint64_t body_bytes; /* 0: no limit */
        int64_t head_timeout_ms;
        int64_t body_timeout_ms;
        int64_t idle_timeout_ms;
        int64_t write_timeout_ms;
        struct config_list hosts;
        int64_t rate_limit; /* requests a second; 0: no limit */
        int64_t rate_burst;
    } http;

    struct {
        int64_t idle_timeout_ms; /* 0: off */
    } mcp;

    struct {
        int enabled; /* enum config_e2b */
    } e2b;

    struct {
        char *domain; /* "": no host names for ports */
    } ports;

    struct {
        int64_t interval_ms; /* 0: no samples */
        int64_t samples;     /* of one sandbox */
    } usage;

    struct {
        bool enabled;
        char *url; /* as browsers reach it through a proxy; "": as the daemon listens */
        int64_t login_timeout_ms;
    } dashboard;

    struct {
        char *certificate; /* "": TCP listeners speak plain HTTP */
        char *key;
    } tls;

    struct {
        bool enabled;
        char *file;
        bool code;
        bool output;
    } audit;

    struct {
        int policy; /* enum config_shutdown */
        int64_t timeout_ms;
    } shutdown;

    struct {
        int level;  /* enum log_level */
        int format; /* enum config_log_format */
    } log;

    struct config_owners owners;
    struct config_rules rules;
    struct config_templates templates;
    struct config_flavors flavors; /* never empty; the first is the default */

    char **origins; /* one for each row: "default", "FILE:LINE", "command line", … */
};

/* Fills a config from defaults, file and environment. On failure there is nothing to release. */
int config_load(struct config *config, const char *path, struct error *err);

/* Where a new file belongs so that config_load() finds it: $SANDGLASS_CONFIG, else the system's path
 * for root and that of the user for others; allocated. */
char *config_new_file_path(void);

/* As config_load, from text in memory that errors call `name`; the environment sets nothing. */
int config_load_text(struct config *config, const char *text, size_t length, const char *name,
                     struct error *err);
void config_fini(struct config *config); /* safe on a zeroed one */

static inline void scoped_config_fini(struct config *config)
{
    config_fini(config);
}

/* Sets one from elsewhere, such as the command line. Lists are separated by commas or spaces; maps
 * are lists of NAME=VALUE. Mounts and flavors come only from a file. */
int config_set(struct config *config, const char *key, const char *value, const char *origin,
               struct error *err);

/* Sets a list, each item as it stands: a path may hold spaces and commas. `items` ends with NULL. */
int config_set_list(struct config *config, const char *key, const char *const *items,
                    const char *origin, struct error *err);

/* Whether a setting has its default. The key has to exist. */
bool config_is_default(const struct config *config, const char *key);

/* Checks across settings: that they fit together, that mounts exist, that an address open to others
 * needs authentication. Called once all of them are set. */
int config_check(const struct config *config, struct error *err);

/* By name; "" is the default one. NULL when there is none. */
const struct config_flavor *config_flavor_find(const struct config *config, const char *name);

/* NULL when the settings say nothing about it. */
const struct config_template *config_template_find(const struct config *config, const char *name);

/* Whether sessions may name it: it is sandbox.backend, or one of sandbox.backends. */
bool config_offers_backend(const struct config *config, const char *name);

/* Whether sandboxes may be made with it: it is one of those, or that of a flavor or a template. */
bool config_names_backend(const struct config *config, const char *name);

/* Whether sandboxes may be made by a container engine, so that docker.* matters. */
bool config_uses_engine(const struct config *config);

/* The path in docker.host, borrowed; NULL when the engine has no unix socket. */
const char *config_engine_socket(const struct config *config);

/* In the unit of the field; 0: nothing is said. */
uint64_t config_ceiling_get(const struct config_ceiling *ceiling, enum config_limit limit);

/* The row with the longest name that fits this owner; NULL when there is none. */
const struct config_owner *config_owner_find(const struct config *config, const char *owner);

/* Whether this daemon is a node among several: it shares its store, and has an address. */
bool config_is_clustered(const struct config *config);

/* The effective settings with their origins: as YAML that reads back, or as one JSON object
 * {KEY: {"value", "origin"}} with durations in seconds and sizes in bytes. The values of
 * sandbox.env.set may be secrets and are not shown, nor is the password of store.redis.url. */
void config_show(const struct config *config, struct buffer *out, bool json);

/* Every setting with its type, default, range and meaning. */
void config_describe(struct buffer *out);
