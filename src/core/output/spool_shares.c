#include "core/output/spool_shares.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/execution.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SCAN_FILES = 128, SCAN_PAUSE_US = 1000 };

/* Output of one session, or of one owner. */
struct account {
    char *name; /* owned */
    uint64_t bytes;
    unsigned entries;
    struct list ended; /* entries that may be evicted, the next one first */
    struct list gone;  /* the same, of sessions that are gone: before the others */
};

struct spool_entry {
    struct spool *spool;      /* borrowed */
    struct account *session;  /* borrowed, as long as it has entries */
    struct account *owner;    /* the same */
    struct list session_node; /* in their lists once it has ended */
    struct list owner_node;
    char id[ID_SIZE];
    uint64_t bytes;
};

struct spool {
    struct core *core; /* borrowed */
    struct map by_id;  /* struct spool_entry */
    struct map sessions, owners;
    uint64_t bytes;
    DIR *directory; /* owned; being scanned, NULL otherwise */
    struct timer scan;
};

/* --- accounts -------------------------------------------------------------------------------- */

static struct account *account_get(struct map *map, const char *name)
{
    struct account *account = map_get(map, name);

    if (!account) {
        account = xnew(struct account);
        account->name = xstrdup(name);
        list_init(&account->ended);
        list_init(&account->gone);
        map_put(map, account->name, account);
    }
    account->entries++;
    return account;
}

static void account_put(struct map *map, struct account *account)
{
    if (--account->entries)
        return;
    map_remove(map, account->name);
    free(account->name);
    free(account);
}

static struct spool_entry *first_of_session(const struct account *account)
{
    return list_first(&account->ended, struct spool_entry, session_node);
}

static struct spool_entry *first_of_owner(const struct account *account)
{
    struct spool_entry *gone = list_first(&account->gone, struct spool_entry, owner_node);

    return gone ? gone : list_first(&account->ended, struct spool_entry, owner_node);
}

/* --- entries --------------------------------------------------------------------------------- */

struct spool_entry *spool_begin(struct spool *spool, const char *execution_id,
                                const char *session_id, const char *owner)
{
    struct spool_entry *entry = xnew(struct spool_entry);

    spool_forget(spool, execution_id); /* found by the scan */
    entry->spool = spool;
    entry->session = account_get(&spool->sessions, session_id);
    entry->owner = account_get(&spool->owners, owner);
    snprintf(entry->id, sizeof(entry->id), "%s", execution_id);
    map_put(&spool->by_id, entry->id, entry);
    return entry;
}

static void entry_free(struct spool_entry *entry)
{
    struct spool *spool = entry->spool;

    spool->bytes -= entry->bytes;
    entry->session->bytes -= entry->bytes;
    entry->owner->bytes -= entry->bytes;
    list_remove(&entry->session_node);
    list_remove(&entry->owner_node);
    map_remove(&spool->by_id, entry->id);
    account_put(&spool->sessions, entry->session);
    account_put(&spool->owners, entry->owner);
    free(entry);
}

static void change(struct spool_entry *entry, int64_t bytes)
{
    entry->bytes += (uint64_t)bytes;
    entry->session->bytes += (uint64_t)bytes;
    entry->owner->bytes += (uint64_t)bytes;
    entry->spool->bytes += (uint64_t)bytes;
}

void spool_end(struct spool_entry *entry)
{
    const struct session *session;

    if (!entry)
        return;
    if (!entry->bytes) {
        entry_free(entry);
        return;
    }
    list_append(&entry->session->ended, &entry->session_node);
    session = map_get(&entry->spool->core->sessions_by_id, entry->session->name);
    if (session && session->state != SESSION_ENDING && session->state != SESSION_ENDED)
        list_append(&entry->owner->ended, &entry->owner_node);
    else
        list_append(&entry->owner->gone, &entry->owner_node);
}

void spool_on_session_gone(struct spool *spool, const char *session_id)
{
    struct account *session = map_get(&spool->sessions, session_id);
    struct spool_entry *entry;

    if (!session)
        return;
    list_for_each (entry, &session->ended, session_node) {
        list_remove(&entry->owner_node);
        list_append(&entry->owner->gone, &entry->owner_node);
    }
}

void spool_forget(struct spool *spool, const char *execution_id)
{
    struct spool_entry *entry = map_get(&spool->by_id, execution_id);

    if (entry && list_is_linked(&entry->session_node))
        entry_free(entry);
}

uint64_t spool_bytes(const struct spool *spool)
{
    return spool->bytes;
}

/* --- quotas ---------------------------------------------------------------------------------- */

static void evict(struct spool_entry *entry)
{
    log_info("output evicted", kv("execution", entry->id), kv("bytes", entry->bytes));
    execution_remove_output(entry->spool->core, entry->id);
    entry_free(entry);
}

/* Of the owner that has most and can give something. */
static struct spool_entry *first_of_all(const struct spool *spool)
{
    struct spool_entry *found = NULL;
    struct map_slot *slot;
    uint64_t most = 0;

    map_for_each (slot, &spool->owners) {
        const struct account *owner = slot->value;
        struct spool_entry *first = first_of_owner(owner);

        if (first && owner->bytes >= most) {
            most = owner->bytes;
            found = first;
        }
    }
    return found;
}

static bool is_over(uint64_t bytes, uint64_t quota)
{
    return quota && bytes > quota;
}

/* False when a quota is exceeded and nothing can be evicted for it. */
static bool make_room(struct spool_entry *entry)
{
    struct spool *spool = entry->spool;
    const struct config *config = spool->core->parts.config;
    struct spool_entry *oldest = entry;

    while (oldest && is_over(entry->session->bytes, config->exec.spool_per_session_bytes))
        if ((oldest = first_of_session(entry->session)))
            evict(oldest);
    while (oldest && is_over(entry->owner->bytes, config->exec.spool_per_owner_bytes))
        if ((oldest = first_of_owner(entry->owner)))
            evict(oldest);
    while (oldest && is_over(spool->bytes, config->exec.spool_total_bytes))
        if ((oldest = first_of_all(spool)))
            evict(oldest);
    return oldest != NULL;
}

bool spool_add(struct spool_entry *entry, int64_t bytes)
{
    change(entry, bytes);
    return bytes > 0 && !make_room(entry);
}

/* --- what earlier daemons have left ---------------------------------------------------------- */

static void end_scan(struct spool *spool)
{
    if (spool->directory)
        closedir(steal_ptr(&spool->directory));
    timer_stop(&spool->scan);
}

/* One with files of an execution that is known in memory is counted by that. */
static void count_file(struct spool *spool, const char *name)
{
    const char *dot = strchr(name, '.');
    struct spool_entry *entry;
    struct stat status;
    char id[ID_SIZE];

    if (!dot || dot == name || (size_t)(dot - name) >= sizeof(id) ||
        fstatat(dirfd(spool->directory), name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(status.st_mode))
        return;
    memcpy(id, name, (size_t)(dot - name));
    id[dot - name] = '\0';
    if (map_get(&spool->core->executions_by_id, id))
        return;
    entry = map_get(&spool->by_id, id);
    if (entry && !str_equal(entry->session->name, ""))
        return;
    if (!entry) {
        entry = spool_begin(spool, id, "", "");
        list_append(&entry->session->ended, &entry->session_node);
        list_append(&entry->owner->gone, &entry->owner_node);
    }
    change(entry, (int64_t)status.st_blocks * 512);
}

static void on_scan(struct timer *timer)
{
    struct spool *spool = container_of(timer, struct spool, scan);
    const struct dirent *found;

    for (unsigned i = 0; i < SCAN_FILES; i++) {
        found = readdir(spool->directory);
        if (!found) {
            end_scan(spool);
            return;
        }
        count_file(spool, found->d_name);
    }
    timer_arm_in(&spool->scan, SCAN_PAUSE_US);
}

void spool_scan(struct spool *spool)
{
    int fd = openat(spool->core->parts.state_dir, "output", O_DIRECTORY | O_RDONLY | O_CLOEXEC);

    end_scan(spool);
    spool->directory = fd < 0 ? NULL : fdopendir(fd);
    if (spool->directory)
        timer_arm_in(&spool->scan, 0);
    else
        fd_close(fd);
}

/* --- life ------------------------------------------------------------------------------------ */

struct spool *spool_new(struct core *core)
{
    struct spool *spool = xnew(struct spool);

    spool->core = core;
    timer_init(&spool->scan, core->loop, on_scan);
    return spool;
}

static void free_accounts(struct map *map)
{
    struct map_slot *slot;

    map_for_each (slot, map) {
        struct account *account = slot->value;

        free(account->name);
        free(account);
    }
    map_fini(map);
}

void spool_free(struct spool *spool)
{
    struct map_slot *slot;

    if (!spool)
        return;
    end_scan(spool);
    map_for_each (slot, &spool->by_id)
        free(slot->value);
    map_fini(&spool->by_id);
    free_accounts(&spool->sessions);
    free_accounts(&spool->owners);
    free(spool);
}
