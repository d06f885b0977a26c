/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include "api/api.h"
#include "audit/audit.h"
#include "auth/auth.h"
#include "auth/local_token.h"
#include "backend/backends.h"
#include "backend/launcher.h"
#include "backend/registry.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "cluster/cluster.h"
#include "cluster/relay.h"
#include "config/config.h"
#include "core/core.h"
#include "core/sandbox/sandbox.h"
#include "daemon/confine.h"
#include "daemon/member.h"
#include "daemon/needed_calls.h"
#include "daemon/notify.h"
#include "daemon/place.h"
#include "daemon/preflight.h"
#include "daemon/privileges.h"
#include "e2b/e2b.h"
#include "face/face.h"
#include "face/port_access.h"
#include "loop/loop.h"
#include "loop/worker.h"
#include "mcp/mcp.h"
#include "net/http_server.h"
#include "net/tls.h"
#include "store/lock.h"
#include "store/store.h"
#include "tools/tool.h"
#include "web/assets.h"
#include "web/dashboard.h"
#include "wire/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BLOCKING_THREADS = 2,
    STORAGE_CONNECTIONS = 256, /* of programs in sandboxes: apart from those of callers */
    STORAGE_PER_SESSION = 4,
    REJOIN_DELAY_US = 500 * 1000,
    STATUS_SIZE = 256,
    FACES_MAXIMUM = 12, /* with the end of the list */
};

enum daemon_state {
    DAEMON_STARTING,  /* until requests are served */
    DAEMON_RETURNING, /* likewise, after REJOINING: a store that is away is waited for */
    DAEMON_SERVING,
    DAEMON_STOPPING,  /* what runs is let end */
    DAEMON_REJOINING, /* others have taken its sessions: it begins anew */
    DAEMON_LEAVING,   /* at once, without waiting for the rest */
};

struct daemon {
    const struct daemon_options *options; /* borrowed */
    struct config config;
    struct identity identity;
    uid_t started_as; /* and the launcher is still */
    struct confinement confinement;
    struct confine_watch refusals;
    struct notify notify; /* to the service manager */

    int state_dir; /* owned, like all below */
    int lock;
    struct loop *loop;
    struct launcher *launcher;
    struct relay_secret secret;      /* of the cluster; empty without one */
    uint8_t node_key[CORE_KEY_SIZE]; /* made from it */
    struct worker *worker;
    struct store *store;
    struct backends *backends;
    struct core *core;
    struct member *member; /* NULL: this daemon is alone */
    struct relay *relay;   /* to the other nodes; NULL likewise */
    int64_t opened_us;     /* when the store was about to be opened */
    struct auth *auth;
    struct audit *audit;
    struct tools *tools;
    struct mcp *mcp;
    struct e2b *e2b; /* NULL where e2b.enabled says so */
    struct api *api;
    struct dashboard *dashboard; /* NULL without the dashboard */
    struct faces *faces;
    struct tls *tls;
    struct http_server *server;
    struct http_server *storage_server; /* for programs in sandboxes; NULL without storage */

    struct signal_watch on_term, on_int, on_hup;
    struct io_watch leash;
    enum daemon_state state;
    bool was_ready; /* that was reported to ready_fd */
    int exit_code;
    struct error failure; /* why it goes from RETURNING to REJOINING once more */
};

/* --- stopping ------------------------------------------------------------------------------ */

static void leave(struct daemon *daemon, int exit_code)
{
    daemon->state = DAEMON_LEAVING;
    daemon->exit_code = MAX(daemon->exit_code, exit_code);
    loop_stop(daemon->loop);
}

static void on_core_stopped(struct core *core UNUSED, const struct error *err, void *user)
{
    struct daemon *daemon = user;

    if (daemon->state == DAEMON_LEAVING)
        return;
    if (err)
        log_error("some sessions could not be ended", kv("error", err->message));
    leave(daemon, err ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* A second signal: the operator does not want to wait. */
static void stop_at_once(struct daemon *daemon, bool destroy)
{
    log_warn("stopping at once; remaining sandboxes continue, and the next daemon takes them over",
             kv("sessions", daemon->core->sessions_by_id.count),
             kv("sandboxes", daemon->core->sandboxes_by_id.count),
             kv("state_dir", daemon->config.state_dir), kv("remove_with", "sandglass sweep"));
    leave(daemon, destroy && daemon->core->sandboxes_by_id.count ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* Members of the pool are removed in any case. */
static size_t count_of_sessions(const struct core *core)
{
    const struct sandbox *sandbox;
    size_t count = 0;

    for (sandbox = sandbox_next(core, NULL); sandbox; sandbox = sandbox_next(core, sandbox))
        count += sandbox_session(sandbox) != NULL;
    return count;
}

static void daemon_stop(struct daemon *daemon, bool destroy)
{
    switch (daemon->state) {
    case DAEMON_STARTING:
    case DAEMON_RETURNING:
    case DAEMON_SERVING:
        break;
    case DAEMON_STOPPING:
        stop_at_once(daemon, destroy);
        return;
    case DAEMON_REJOINING:
        leave(daemon, EXIT_SUCCESS);
        return;
    case DAEMON_LEAVING:
        return;
    }
    daemon->state = DAEMON_STOPPING;
    notify_stopping(&daemon->notify, daemon->config.shutdown.timeout_ms);
    log_info(destroy ? "stopping: ending all sessions"
                     : "stopping: sandboxes continue, and the next daemon takes them over",
             kv("shutdown.policy", destroy ? "destroy" : "keep"),
             kv("sessions", daemon->core->sessions_by_id.count),
             kv("sandboxes", count_of_sessions(daemon->core)));
    http_server_drain(daemon->server);
    faces_tell_shutdown(daemon->faces, destroy);
    core_stop(daemon->core, destroy, daemon->config.shutdown.timeout_ms, on_core_stopped, daemon);
}

static void on_terminate(struct signal_watch *watch, int signal_number)
{
    struct daemon *daemon = signal_number == SIGTERM ? container_of(watch, struct daemon, on_term)
                                                     : container_of(watch, struct daemon, on_int);

    daemon_stop(daemon, daemon->config.shutdown.policy == SHUTDOWN_DESTROY);
}

/* After a reload too: until then the service manager takes a daemon that serves for one that does not.
 */
static void notify_state(struct daemon *daemon)
{
    char status[STATUS_SIZE];

    if (daemon->state != DAEMON_SERVING)
        return;
    snprintf(status, sizeof(status), "serving on %s",
             daemon->config.listen.count ? daemon->config.listen.items[0] : "no address");
    notify_ready(&daemon->notify, status);
}

/* Keys and certificates are read again and the audit log begins a new file. A closed terminal is no
 * reason to stop. */
static void on_hangup(struct signal_watch *watch, int signal_number UNUSED)
{
    struct daemon *daemon = container_of(watch, struct daemon, on_hup);
    struct error err = { 0 };

    notify_reloading(&daemon->notify);
    if (daemon->tls && tls_reload(daemon->tls, &err) < 0)
        log_error("the certificate was not reloaded", kv("error", err.message));

    auth_reload(daemon->auth);
    if (daemon->audit)
        audit_reopen(daemon->audit);
    notify_state(daemon);
}

static void on_leash(struct io_watch *watch, unsigned events UNUSED)
{
    struct daemon *daemon = container_of(watch, struct daemon, leash);

    io_watch_stop(watch);
    daemon_stop(daemon, true);
}

static void add_mounts(struct config_mounts *mounts, const struct config_mounts *more)
{
    for (size_t i = 0; more && i < more->count; i++) {
        const struct config_mount *mount = &more->items[i];

        mounts->items = xrealloc(mounts->items, mounts->count + 1, sizeof(*mounts->items));
        mounts->items[mounts->count++] = (struct config_mount){ xstrdup(mount->host_path),
                                                                xstrdup(mount->path),
                                                                mount->read_only };
    }
}

/* "unix:PATH" or "HOST:PORT" up to the next separator. */
static bool begins_address(const char *text)
{
    size_t length = strcspn(text, " ,");
    const char *colon = memrchr(text, ':', length);

    if (str_starts_with(text, "unix:"))
        return true;
    return colon && colon + 1 < text + length && !memchr(text, '/', length) &&
           strspn(colon + 1, "0123456789") == (size_t)(text + length - (colon + 1));
}

/* An option may hold several addresses, as the setting does. The path of a socket may hold spaces and
 * commas, but hardly one with an address behind it. */
static bool holds_several(const char *option)
{
    const char *rest = option;

    while ((rest = strpbrk(rest, " ,"))) {
        rest += strspn(rest, " ,");
        if (begins_address(rest))
            return true;
    }
    return false;
}

static int set_addresses(struct config *config, const char *const *options, struct error *err)
{
    scoped(buffer_fini) struct buffer joined = BUFFER_INIT(64 * 1024);
    bool is_plain = true;

    for (const char *const *option = options; *option; option++) {
        is_plain = is_plain && !holds_several(*option);
        buffer_appendf(&joined, "%s ", *option);
    }
    if (is_plain)
        return config_set_list(config, "listen", options, "command line", err);
    return config_set(config, "listen", buffer_text(&joined), "command line", err);
}

static int load_settings(struct daemon *daemon, struct error *err)
{
    const struct daemon_options *options = daemon->options;

    if (config_load(&daemon->config, options->config_path, err) < 0)
        return -1;
    for (const struct daemon_setting *row = options->settings; row && row->key; row++)
        if (config_set(&daemon->config, row->key, row->value, "command line", err) < 0)
            return -1;
    if (options->listen && *options->listen &&
        set_addresses(&daemon->config, options->listen, err) < 0)
        return -1;
    add_mounts(&daemon->config.sandbox.mounts, options->mounts);
    return config_check(&daemon->config, err);
}

static void setup_log(const struct config *config)
{
    bool json = config->log.format == CONFIG_LOG_JSON ||
                (config->log.format == CONFIG_LOG_AUTO && !isatty(STDERR_FILENO));

    log_setup((enum log_level)config->log.level, json ? LOG_JSON : LOG_TEXT, STDERR_FILENO);
}

static int prepare_sockets(struct daemon *daemon, struct error *err)
{
    for (size_t i = 0; i < daemon->config.listen.count; i++) {
        const char *address = daemon->config.listen.items[i];

        if (str_starts_with(address, "unix:") &&
            place_prepare_socket(address + strlen("unix:"), &daemon->identity, err) < 0)
            return error_wrap(err, "listen on %s", address);
    }
    return 0;
}

static int prepare_state(struct daemon *daemon, struct error *err)
{
    const char *path = daemon->config.state_dir;

    if (place_prepare_state(path, &daemon->identity, err) < 0) {
        error_wrap(err, "prepare the state directory");
        return *err->hint ? -1
                          : error_hint(err, "choose a writable directory: --state or state_dir");
    }
    daemon->state_dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (daemon->state_dir < 0)
        return error_sys(err, "open %s", path);
    daemon->lock = store_lock(daemon->state_dir, err);
    return daemon->lock < 0 ? -1 : 0;
}

/* Tells the operator which user the daemon runs as, where that is not the usual one. */
static void tell_identity(const struct daemon *daemon)
{
    const struct identity *identity = &daemon->identity;

    if (identity->kind == IDENTITY_FALLBACK)
        log_warn("unknown user: the daemon runs as an unassigned user id; scripts/install creates "
                 "the user",
                 kv("user", identity->name), kv("uid", identity->uid));
    else if (identity->keeps_group)
        log_info("the daemon keeps the group of the engine's socket", kv("gid", identity->group));
    else if (identity->kind == IDENTITY_SELF && geteuid() == 0)
        log_warn("root without CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID or CAP_CHOWN, or in a user "
                 "namespace: the daemon stays root and works like that of an ordinary user; see "
                 "'sandglass doctor'");
}

/* A key is usually root's alone: it is read while we may, and by no process that is forked before.
 */
static int open_tls(struct daemon *daemon, struct error *err)
{
    const struct config *config = &daemon->config;

    if (!*config->tls.certificate)
        return 0;
    daemon->tls = tls_new(daemon->loop, config->tls.certificate, config->tls.key, err);
    return daemon->tls ? 0 : -1;
}

static void tell_confinement(const struct confinement *confinement)
{
    if (confinement->mode == CONFINE_OFF)
        log_warn("the daemon is not confined", kv("daemon.confine", "off"));
    else if (confinement->missing[0])
        log_warn("the daemon is partly confined: see 'sandglass doctor'",
                 kv("missing", confinement->missing));
    else
        log_info("the daemon is confined", kv("seccomp", confinement->seccomp),
                 kv("landlock", confinement->landlock));
}

/* From here on this process is worth less to an attacker who takes it over. */
static int confine(struct daemon *daemon, struct error *err)
{
    if (confine_apply(&daemon->config, &daemon->confinement, err) < 0)
        return -1;
    tell_confinement(&daemon->confinement);
    confine_watch_start(&daemon->refusals, daemon->loop);
    return 0;
}

static int start_launcher(struct daemon *daemon, struct error *err)
{
    if (!backends_need_launcher(&daemon->config))
        return 0;
    daemon->launcher = launcher_start(
        &(struct launcher_options){
            .loop = daemon->loop,
            .config = &daemon->config,
            .state_path = daemon->config.state_dir,
            .uid = daemon->identity.uid,
            .gid = daemon->identity.gid,
        },
        err);
    return daemon->launcher ? 0 : -1;
}

/* The secret is usually root's alone, as a key is. */
static int read_secret(struct daemon *daemon, struct error *err)
{
    struct hmac hmac;

    if (!config_is_clustered(&daemon->config))
        return 0;
    if (relay_secret_read(&daemon->secret, daemon->config.node.secret_file, err) < 0)
        return -1;
    hmac_init(&hmac, daemon->secret.bytes, daemon->secret.length);
    hmac_add(&hmac, "vault", strlen("vault"));
    hmac_finish(&hmac, daemon->node_key);
    return 0;
}

/* With power: what needs it is done here, and only the launcher keeps it. */
static int start_privileged(struct daemon *daemon, struct error *err)
{
    daemon->started_as = geteuid();
    if (needed_calls_check(backends_need_launcher(&daemon->config), err) < 0 ||
        process_check_files(err) < 0 ||
        identity_find(daemon->config.user, &daemon->identity, err) < 0)
        return -1;
    if (config_uses_engine(&daemon->config) && config_engine_socket(&daemon->config))
        identity_keep_group(&daemon->identity, config_engine_socket(&daemon->config));
    tell_identity(daemon);
    if (preflight_check(&daemon->config, &daemon->identity, err) < 0 ||
        prepare_state(daemon, err) < 0 || prepare_sockets(daemon, err) < 0)
        return -1;
    daemon->loop = loop_new(&clock_system);
    if (start_launcher(daemon, err) < 0 || open_tls(daemon, err) < 0 ||
        read_secret(daemon, err) < 0)
        return -1;
    return identity_assume(&daemon->identity, err) < 0 ? -1 : confine(daemon, err);
}

static bool is_starting(const struct daemon *daemon)
{
    return daemon->state == DAEMON_STARTING || daemon->state == DAEMON_RETURNING;
}

/* The store refuses this process for good: what it knows belongs to others now. Everything that it
 * has in memory is dropped, and it comes back as a new process would. Its sandboxes that are no
 * longer its own are ended then. */
static void on_fenced(struct store *store, void *data)
{
    struct daemon *daemon = data;

    if (!is_starting(daemon) && daemon->state != DAEMON_SERVING)
        return;
    if (store->is_replaced) { /* to take the name back would be a fight without end */
        log_error("another daemon has the name of this node: leaving",
                  kv("node", daemon->config.node.id));
        leave(daemon, EXIT_FAILURE);
        return;
    }
    log_error("the other nodes have taken over: beginning anew",
              kv("node", daemon->config.node.id));
    daemon->state = DAEMON_REJOINING;
    loop_stop(daemon->loop);
}

static char *read_boot_id(void)
{
    char text[64] = "";
    scoped(fd_close) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    text[got > 0 ? strcspn(text, "\n") : 0] = '\0';
    return xstrdup(text);
}

static int open_store(struct daemon *daemon, struct error *err)
{
    scoped(free) char *path = path_join(daemon->config.state_dir, "sandglass.db");
    scoped(free) char *boot_id = read_boot_id();

    const struct config *config = &daemon->config;
    bool is_clustered = config_is_clustered(config);
    const struct store_options options = { .loop = daemon->loop,
                                           .path = path,
                                           .sync = config->store_sync,
                                           .boot_id = boot_id,
                                           .node = is_clustered ? config->node.id
                                                                : config->instance,
                                           .redis = { .url = config->store.redis.url,
                                                      .prefix = config->store.redis.prefix,
                                                      .sync = config->store.redis.sync,
                                                      .ca = config->store.redis.ca,
                                                      .is_sole = !is_clustered } };

    daemon->opened_us = clock_now_us(&clock_system);
    daemon->store = config->store.kind == STORE_KIND_REDIS ? store_open_redis(&options, err)
                                                           : store_open_sqlite(&options, err);
    if (!daemon->store)
        return -1;
    if (is_clustered) {
        daemon->store->on_fenced = on_fenced;
        daemon->store->on_fenced_data = daemon;
    }
    return 0;
}

static struct backend *open_default(struct daemon *daemon, const struct backend_options *options,
                                    struct error *err)
{
    const char *name = daemon->config.sandbox.backend;
    struct backend *backend = backend_open(name, options, err);

    if (backend || !str_equal(name, "native") || !daemon->config.sandbox.allow_direct_fallback)
        return backend;
    log_warn("native sandboxes are not available: PROGRAMS RUN WITHOUT ISOLATION, in the direct "
             "backend",
             kv("reason", err->message));
    return backend_open("direct", options, err);
}

/* The daemon serves without it; those who ask for it are told the reason. */
static void open_other(struct daemon *daemon, const char *name,
                       const struct backend_options *options)
{
    enum backend_access access = config_offers_backend(&daemon->config, name) ? BACKEND_OF_CALLERS
                                                                              : BACKEND_OF_SETTINGS;
    struct error err = { 0 };
    struct backend *backend = backend_open(name, options, &err);

    if (backend) {
        backends_add(daemon->backends, backend, access);
        return;
    }
    log_warn("a backend is not available; continuing without it", kv("backend", name),
             kv("error", err.message), kv("hint", err.hint));
    backends_add_absent(daemon->backends, name, &err, access);
}

static int open_backends(struct daemon *daemon, struct error *err)
{
    const struct backend_options options = {
        .loop = daemon->loop,
        .config = &daemon->config,
        .state_dir = daemon->state_dir,
        .state_path = daemon->config.state_dir,
        .launcher = daemon->launcher,
        .node_key = config_is_clustered(&daemon->config) ? daemon->node_key : NULL,
    };
    struct backend *first = open_default(daemon, &options, err);

    if (!first)
        return -1;
    daemon->backends = backends_new(daemon->loop);
    backends_add(daemon->backends, first, BACKEND_OF_CALLERS);
    for (const struct backend_row *row = backend_rows; row->name; row++)
        if (config_names_backend(&daemon->config, row->name) &&
            !backends_find(daemon->backends, row->name))
            open_other(daemon, row->name, &options);
    return 0;
}

/* Whether programs of direct sandboxes run as the daemon's own user, and so can open its
 * sockets. */
static bool sandboxes_share_user(const struct daemon *daemon)
{
    return backends_share_host(daemon->backends) &&
           (daemon->started_as == geteuid() ||
            (uid_t)daemon->config.sandbox.direct_uid == geteuid());
}

/* The token's file is readable for programs that run as its owner. */
static int check_listeners(const struct daemon *daemon, struct error *err)
{
    if (daemon->config.auth.mode != AUTH_MODE_NONE || !sandboxes_share_user(daemon))
        return 0;
    for (size_t i = 0; i < daemon->config.listen.count; i++) {
        const char *address = daemon->config.listen.items[i];

        if (str_starts_with(address, "unix:"))
            continue;
        error_set(err, ERR_INVALID,
                  "listen: %s needs authentication, because programs in direct sandboxes run as "
                  "the daemon's own user",
                  address);
        return error_hint(err, "set auth.mode to keys or jwt, or listen on a unix socket only");
    }
    return 0;
}

static int open_door(struct daemon *daemon, struct error *err)
{
    daemon->auth = auth_new(&(struct auth_parts){ .loop = daemon->loop,
                                                  .config = &daemon->config,
                                                  .store = daemon->store },
                            err);
    if (!daemon->auth)
        return -1;
    if (!daemon->config.audit.enabled)
        return 0;
    daemon->audit = audit_open(daemon->loop, daemon->config.audit.file, err);
    return daemon->audit ? 0 : -1;
}

static void on_storage(void *context, const char *session_id, const char *execution_id, int fd)
{
    struct daemon *daemon = context;

    if (daemon->storage_server)
        http_server_adopt(daemon->storage_server, fd, session_id, execution_id,
                          STORAGE_PER_SESSION);
    else
        fd_close(fd);
}

static struct api_confinement describe_confinement(const struct daemon *daemon)
{
    const struct confinement *confinement = &daemon->confinement;

    return (struct api_confinement){ .mode = confinement_mode_name(confinement),
                                     .seccomp = confinement->seccomp,
                                     .landlock = confinement->landlock,
                                     .missing = confinement->missing };
}

static bool serves_e2b(const struct config *config)
{
    return config->e2b.enabled == E2B_ON ||
           (config->e2b.enabled == E2B_AUTO && config->auth.mode == AUTH_MODE_KEYS);
}

/* Requests for sandboxes go by their headers or their host: these faces come before those of paths. */
static size_t open_e2b(struct daemon *daemon, struct face_entry *faces)
{
    const struct face *const all[] = { &e2b_envd_face, &e2b_code_face, &e2b_port_face, &e2b_face };

    daemon->e2b = e2b_new(&(struct e2b_parts){
        .loop = daemon->loop, .core = daemon->core, .domain = daemon->config.ports.domain });
    for (size_t i = 0; i < ARRAY_LENGTH(all); i++)
        faces[i] = (struct face_entry){ all[i], daemon->e2b };
    return ARRAY_LENGTH(all);
}

/* For browsers, where the daemon has unix sockets only: asked for by an operator, on loopback, with
 * the token of every such port. */
static unsigned listen_for_browsers(void *context, struct error *err)
{
    struct daemon *daemon = context;
    size_t index = daemon->config.listen.count;
    unsigned port;

    if (daemon->config.auth.mode == AUTH_MODE_NONE && sandboxes_share_user(daemon)) {
        error_named(err, ERR_FORBIDDEN, "no_port",
                    "a TCP port needs authentication, because programs in direct sandboxes run as "
                    "the daemon's own user");
        error_hint(err, "set auth.mode to keys or jwt");
        return 0;
    }
    if (http_server_listen(daemon->server, "127.0.0.1:0", err) < 0)
        return 0;
    port = http_server_port_at(daemon->server, index);
    if (auth_serve_port(daemon->auth, daemon->state_dir, port, err) < 0)
        return 0;
    log_info("listening for the dashboard", kv("port", port));
    return port;
}

static void open_dashboard(struct daemon *daemon)
{
    daemon->dashboard = dashboard_new(&(struct dashboard_parts){ .loop = daemon->loop,
                                                                 .config = &daemon->config,
                                                                 .auth = daemon->auth,
                                                                 .assets = web_assets,
                                                                 .listen = listen_for_browsers,
                                                                 .listen_context = daemon });
}

/* The first that fits a request answers it; the last one is for all paths. */
static void open_faces(struct daemon *daemon)
{
    struct face_entry faces[FACES_MAXIMUM] = { 0 };
    size_t count = 0;

    daemon->tools = tools_new(daemon->core);
    daemon->mcp = mcp_new(&(struct mcp_parts){
        .loop = daemon->loop,
        .config = &daemon->config,
        .core = daemon->core,
        .tools = daemon->tools,
        .node = config_is_clustered(&daemon->config) ? daemon->config.node.id : NULL });
    daemon->api = api_new(&(struct api_parts){ .tools = daemon->tools,
                                               .confinement = describe_confinement(daemon),
                                               .started_at = clock_wall_us(&clock_system) });
    faces[count++] = (struct face_entry){ &port_face, &daemon->config };
    if (serves_e2b(&daemon->config))
        count += open_e2b(daemon, faces + count);
    faces[count++] = (struct face_entry){ &mcp_face, daemon->mcp };
    if (daemon->config.dashboard.enabled) {
        open_dashboard(daemon);
        faces[count++] = (struct face_entry){ &web_page_face, daemon->dashboard };
        faces[count++] = (struct face_entry){ &web_face, daemon->dashboard };
    }
    faces[count] = (struct face_entry){ &api_face, daemon->api };
    daemon->faces = faces_new(&(struct faces_parts){ .loop = daemon->loop,
                                                     .config = &daemon->config,
                                                     .core = daemon->core,
                                                     .auth = daemon->auth,
                                                     .audit = daemon->audit,
                                                     .cluster = member_cluster(daemon->member),
                                                     .relay = daemon->relay,
                                                     .faces = faces });
    if (daemon->member)
        member_set_faces(daemon->member, daemon->faces);
}

static bool is_alive(void *context, const char *node, uint64_t epoch)
{
    const struct cluster_node *found = cluster_find(context, node);

    return found && found->epoch == epoch && found->state != NODE_LOST;
}

static void join(struct daemon *daemon)
{
    if (!config_is_clustered(&daemon->config))
        return;
    daemon->member = member_new(&(struct member_parts){ .loop = daemon->loop,
                                                        .config = &daemon->config,
                                                        .store = daemon->store,
                                                        .core = daemon->core,
                                                        .opened_us = daemon->opened_us });
    daemon->relay = relay_new(&(struct relay_parts){ .loop = daemon->loop,
                                                     .secret = &daemon->secret,
                                                     .ca = daemon->config.node.ca,
                                                     .is_alive = is_alive,
                                                     .context = member_cluster(daemon->member) });
}

static bool may_act(void *context)
{
    const struct daemon *daemon = context;

    return !daemon->member || cluster_holds_lease(member_cluster(daemon->member));
}

/* Without power: everything that strangers can talk to. */
static int start_parts(struct daemon *daemon, struct error *err)
{
    bool is_clustered = config_is_clustered(&daemon->config);

    daemon->worker = worker_new(daemon->loop, BLOCKING_THREADS, "blocking");
    if (open_store(daemon, err) < 0 || open_door(daemon, err) < 0 ||
        open_backends(daemon, err) < 0 || check_listeners(daemon, err) < 0)
        return -1;
    daemon->core =
        core_new(&(struct core_parts){ .loop = daemon->loop,
                                       .config = &daemon->config,
                                       .store = daemon->store,
                                       .backends = daemon->backends,
                                       .worker = daemon->worker,
                                       .state_dir = daemon->state_dir,
                                       .state_path = daemon->config.state_dir,
                                       .node = is_clustered ? daemon->config.node.id : NULL,
                                       .may_act = is_clustered ? may_act : NULL,
                                       .may_act_context = daemon,
                                       .node_key = is_clustered ? daemon->node_key : NULL,
                                       .on_storage = on_storage,
                                       .storage_context = daemon });
    join(daemon);
    open_faces(daemon);
    return 0;
}

/* --- serving ------------------------------------------------------------------------------- */

static struct http_server_limits server_limits(const struct config *config)
{
    return (struct http_server_limits){
        .message = { .line_bytes = config->http.line_bytes,
                     .head_bytes = config->http.head_bytes,
                     .header_count = (size_t)config->http.header_count,
                     .body_bytes = config->http.body_bytes ? config->http.body_bytes : UINT64_MAX },
        .connections = (unsigned)config->http.connections,
        .head_timeout_ms = config->http.head_timeout_ms,
        .body_timeout_ms = config->http.body_timeout_ms,
        .idle_timeout_ms = config->http.idle_timeout_ms,
        .write_timeout_ms = config->http.write_timeout_ms,
    };
}

/* Before anything is made: an address that is in use ends the start. */
static int bind_everywhere(struct daemon *daemon, struct error *err)
{
    struct http_server_limits limits = server_limits(&daemon->config);

    local_token_forget(daemon->state_dir);
    daemon->server = http_server_new(daemon->loop, &limits, faces_handle, daemon->faces);
    if (daemon->config.storage.enabled) {
        struct http_server_limits inside = limits;

        inside.connections = STORAGE_CONNECTIONS;
        daemon->storage_server =
            http_server_new(daemon->loop, &inside, faces_handle, daemon->faces);
    }
    http_server_set_tls(daemon->server, daemon->tls);
    for (size_t i = 0; i < daemon->config.listen.count; i++) {
        if (http_server_bind(daemon->server, daemon->config.listen.items[i], err) < 0 ||
            auth_serve_port(daemon->auth, daemon->state_dir, http_server_port_at(daemon->server, i),
                            err) < 0)
            return -1;
        if (daemon->dashboard)
            dashboard_serve_at(daemon->dashboard, daemon->config.listen.items[i],
                               http_server_port_at(daemon->server, i));
    }
    return 0;
}

static int listen_everywhere(struct daemon *daemon, struct error *err)
{
    if (http_server_start(daemon->server, err) < 0)
        return -1;
    for (size_t i = 0; i < daemon->config.listen.count; i++)
        log_info("listening", kv("address", daemon->config.listen.items[i]));
    return 0;
}

static void tell_ready(struct daemon *daemon)
{
    const char *address = daemon->config.listen.count ? daemon->config.listen.items[0] : "";

    notify_state(daemon);
    if (daemon->options->ready_fd < 0 || daemon->was_ready)
        return;
    daemon->was_ready = true;
    dprintf(daemon->options->ready_fd, "%s\n", address);
    close(daemon->options->ready_fd);
}

static void tell_failure(struct daemon *daemon, const struct error *err)
{
    fprintf(stderr, "sandglass: %s\n", err->message);
    if (err->hint[0])
        fprintf(stderr, "sandglass: %s\n", err->hint);
    daemon->exit_code = EXIT_FAILURE;
}

/* Records have met reality: only now are requests taken. */
static void on_core_started(struct core *core UNUSED, const struct error *failure, void *user)
{
    struct daemon *daemon = user;
    struct error err = failure ? *failure : (struct error){ 0 };

    if (!is_starting(daemon))
        return; /* asked to stop meanwhile */
    if (!failure && listen_everywhere(daemon, &err) == 0) {
        daemon->state = DAEMON_SERVING;
        if (daemon->member)
            member_start(daemon->member);
        tell_ready(daemon);
        return;
    }
    if (daemon->state == DAEMON_RETURNING && err.code == ERR_UNAVAILABLE) {
        daemon->failure = err; /* the store went away while its records were read */
        daemon->state = DAEMON_REJOINING;
        loop_stop(daemon->loop);
        return;
    }
    tell_failure(daemon, &err);
    daemon_stop(daemon, false);
}

/* A daemon that leaves ignores further signals. They are blocked meanwhile: a watch that stops gives
 * its signal back its default, which would end the daemon. */
static void stop_signals(struct daemon *daemon)
{
    static const int numbers[] = { SIGHUP, SIGINT, SIGTERM };
    sigset_t blocked, before;

    sigemptyset(&blocked);
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        sigaddset(&blocked, numbers[i]);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    signal_watch_stop(&daemon->on_hup);
    signal_watch_stop(&daemon->on_int);
    signal_watch_stop(&daemon->on_term);
    for (size_t i = 0; i < ARRAY_LENGTH(numbers) && daemon->state == DAEMON_LEAVING; i++)
        signal(numbers[i], SIG_IGN);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* -1 when the daemon could not begin anew. */
static int daemon_run(struct daemon *daemon, struct error *err)
{
    daemon->state = daemon->state == DAEMON_REJOINING ? DAEMON_RETURNING : DAEMON_STARTING;
    daemon->failure = (struct error){ 0 };
    signal(SIGPIPE, SIG_IGN);
    signal_watch_start(&daemon->on_term, daemon->loop, SIGTERM, on_terminate);
    signal_watch_start(&daemon->on_int, daemon->loop, SIGINT, on_terminate);
    signal_watch_start(&daemon->on_hup, daemon->loop, SIGHUP, on_hangup);
    if (daemon->options->leash_fd >= 0)
        io_watch_start(&daemon->leash, daemon->loop, daemon->options->leash_fd, IO_READ, on_leash);
    core_start(daemon->core, on_core_started, daemon);
    if (daemon->state != DAEMON_LEAVING && daemon->state != DAEMON_REJOINING)
        loop_run(daemon->loop);
    if (daemon->state != DAEMON_REJOINING)
        daemon->state = DAEMON_LEAVING;
    io_watch_stop(&daemon->leash);
    stop_signals(daemon);
    if (daemon->state != DAEMON_REJOINING)
        return 0;
    *err = daemon->failure;
    return err->code == ERR_NONE ? 0 : -1;
}

/* Until the store and the threads owe no answer, and what was done in the end of a turn is done. */
static void settle(struct daemon *daemon)
{
    do {
        store_drain(daemon->store);
    } while (worker_drain(daemon->worker) || (daemon->loop && loop_run_deferred(daemon->loop)));
}

/* Listeners and connections go first. Then the store and the threads finish their work, so that no
 * part is freed while an answer to it is still to come. */
static void close_parts(struct daemon *daemon)
{
    http_server_free(steal_ptr(&daemon->storage_server));
    http_server_free(steal_ptr(&daemon->server));
    settle(daemon);
    if (daemon->lock >= 0)
        local_token_forget(daemon->state_dir);
    auth_free(steal_ptr(&daemon->auth));
    faces_free(steal_ptr(&daemon->faces));
    dashboard_free(steal_ptr(&daemon->dashboard));
    api_free(steal_ptr(&daemon->api));
    e2b_free(steal_ptr(&daemon->e2b));
    mcp_free(steal_ptr(&daemon->mcp));
    tools_free(steal_ptr(&daemon->tools));
    relay_free(steal_ptr(&daemon->relay));
    member_free(steal_ptr(&daemon->member));
    core_free(steal_ptr(&daemon->core));
    audit_close(steal_ptr(&daemon->audit));
    backends_free(steal_ptr(&daemon->backends));
    store_close(steal_ptr(&daemon->store));
    worker_free(steal_ptr(&daemon->worker));
}

static void daemon_fini(struct daemon *daemon)
{
    close_parts(daemon);
    tls_free(daemon->tls);
    explicit_bzero(&daemon->secret, sizeof(daemon->secret));
    explicit_bzero(daemon->node_key, sizeof(daemon->node_key));
    launcher_stop(daemon->launcher);
    confine_watch_stop(&daemon->refusals);
    loop_free(daemon->loop);
    store_unlock(daemon->lock);
    fd_close(daemon->state_dir);
    notify_close(&daemon->notify);
    config_fini(&daemon->config);
}

/* A daemon that begins anew waits for a store that is away: it is only a matter of time. */
static bool is_to_wait(struct daemon *daemon, struct error *err)
{
    if (daemon->state != DAEMON_REJOINING || err->code != ERR_UNAVAILABLE)
        return false;
    log_warn("cannot begin anew yet", kv("error", err->message));
    close_parts(daemon);
    *err = (struct error){ 0 };
    usleep(REJOIN_DELAY_US);
    return true;
}

/* Once, unless the cluster takes over what this daemon has. */
static void serve(struct daemon *daemon, struct error *err)
{
    do {
        if (start_parts(daemon, err) < 0)
            continue;
        if (bind_everywhere(daemon, err) < 0)
            return;
        if (daemon_run(daemon, err) == 0 && daemon->state == DAEMON_REJOINING)
            close_parts(daemon);
    } while (err->code == ERR_NONE ? daemon->state == DAEMON_REJOINING : is_to_wait(daemon, err));
}

int daemon_main(const struct daemon_options *options)
{
    struct daemon daemon = {
        .options = options, .notify = { .fd = -1 }, .state_dir = -1, .lock = -1
    };
    struct error err = { 0 };

    process_harden((int[]){ options->ready_fd, options->leash_fd }, 2);
    if (load_settings(&daemon, &err) == 0) {
        setup_log(&daemon.config);
        notify_open(&daemon.notify);
        if (start_privileged(&daemon, &err) == 0)
            serve(&daemon, &err);
    }
    if (err.code != ERR_NONE)
        tell_failure(&daemon, &err);
    daemon_fini(&daemon);
    return daemon.exit_code;
}
