/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/spool_shares.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/output/spool_files.h"

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

struct spool_share {
    struct spool_shares *shares; /* borrowed */
    struct account *session;     /* borrowed, as long as it has entries */
    struct account *owner;       /* the same */
    struct list session_node;    /* in their lists once it has ended */
    struct list owner_node;
    char id[ID_SIZE];
    uint64_t bytes;
};

struct spool_shares {
    struct core *core; /* borrowed */
    struct map by_id;  /* struct spool_share */
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

static struct spool_share *first_of_session(const struct account *account)
{
    return list_first(&account->ended, struct spool_share, session_node);
}

static struct spool_share *first_of_owner(const struct account *account)
{
    struct spool_share *gone = list_first(&account->gone, struct spool_share, owner_node);

    return gone ? gone : list_first(&account->ended, struct spool_share, owner_node);
}

/* --- entries --------------------------------------------------------------------------------- */

struct spool_share *spool_shares_begin(struct spool_shares *shares, const char *execution_id,
                                       const char *session_id, const char *owner)
{
    struct spool_share *share = xnew(struct spool_share);

    spool_shares_forget(shares, execution_id); /* found by the scan */
    share->shares = shares;
    share->session = account_get(&shares->sessions, session_id);
    share->owner = account_get(&shares->owners, owner);
    snprintf(share->id, sizeof(share->id), "%s", execution_id);
    map_put(&shares->by_id, share->id, share);
    return share;
}

static void share_free(struct spool_share *share)
{
    struct spool_shares *shares = share->shares;

    shares->bytes -= share->bytes;
    share->session->bytes -= share->bytes;
    share->owner->bytes -= share->bytes;
    list_remove(&share->session_node);
    list_remove(&share->owner_node);
    map_remove(&shares->by_id, share->id);
    account_put(&shares->sessions, share->session);
    account_put(&shares->owners, share->owner);
    free(share);
}

static void change(struct spool_share *share, int64_t bytes)
{
    share->bytes += (uint64_t)bytes;
    share->session->bytes += (uint64_t)bytes;
    share->owner->bytes += (uint64_t)bytes;
    share->shares->bytes += (uint64_t)bytes;
}

void spool_share_end(struct spool_share *share, bool session_is_gone)
{
    if (!share)
        return;
    if (!share->bytes) {
        share_free(share);
        return;
    }
    list_append(&share->session->ended, &share->session_node);
    list_append(session_is_gone ? &share->owner->gone : &share->owner->ended, &share->owner_node);
}

void spool_shares_on_session_gone(struct spool_shares *shares, const char *session_id)
{
    struct account *session = map_get(&shares->sessions, session_id);
    struct spool_share *share;

    if (!session)
        return;
    list_for_each (share, &session->ended, session_node) {
        list_remove(&share->owner_node);
        list_append(&share->owner->gone, &share->owner_node);
    }
}

void spool_shares_forget(struct spool_shares *shares, const char *execution_id)
{
    struct spool_share *share = map_get(&shares->by_id, execution_id);

    if (share && list_is_linked(&share->session_node))
        share_free(share);
}

uint64_t spool_shares_bytes(const struct spool_shares *shares)
{
    return shares->bytes;
}

/* --- quotas ---------------------------------------------------------------------------------- */

static void evict(struct spool_share *share)
{
    log_info("output evicted", kv("execution", share->id), kv("bytes", share->bytes));
    spool_files_unlink(share->shares->core->parts.state_dir, share->id);
    share_free(share);
}

/* The first output to evict, of the owner that has the most bytes and can give some. */
static struct spool_share *first_of_all(const struct spool_shares *shares)
{
    struct spool_share *found = NULL;
    struct map_slot *slot;
    uint64_t most = 0;

    map_for_each (slot, &shares->owners) {
        const struct account *owner = slot->value;
        struct spool_share *first = first_of_owner(owner);

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
static bool make_room(struct spool_share *share)
{
    struct spool_shares *shares = share->shares;
    const struct config *config = shares->core->parts.config;
    struct spool_share *oldest = share;

    while (oldest && is_over(share->session->bytes, config->exec.spool_per_session_bytes))
        if ((oldest = first_of_session(share->session)))
            evict(oldest);
    while (oldest && is_over(share->owner->bytes, config->exec.spool_per_owner_bytes))
        if ((oldest = first_of_owner(share->owner)))
            evict(oldest);
    while (oldest && is_over(shares->bytes, config->exec.spool_total_bytes))
        if ((oldest = first_of_all(shares)))
            evict(oldest);
    return oldest != NULL;
}

bool spool_share_add(struct spool_share *share, int64_t bytes)
{
    change(share, bytes);
    return bytes > 0 && !make_room(share);
}

/* --- what earlier daemons have left ---------------------------------------------------------- */

static void end_scan(struct spool_shares *shares)
{
    if (shares->directory)
        closedir(steal_ptr(&shares->directory));
    timer_stop(&shares->scan);
}

/* The files of an execution that is known in memory are counted by its own share. */
static void count_file(struct spool_shares *shares, const char *name)
{
    struct spool_share *share;
    struct stat status;
    char id[ID_SIZE];

    if (!spool_file_owner(name, id) ||
        fstatat(dirfd(shares->directory), name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(status.st_mode))
        return;
    if (map_get(&shares->core->executions_by_id, id))
        return;
    share = map_get(&shares->by_id, id);
    if (share && !str_equal(share->session->name, ""))
        return;
    if (!share) {
        share = spool_shares_begin(shares, id, "", "");
        list_append(&share->session->ended, &share->session_node);
        list_append(&share->owner->gone, &share->owner_node);
    }
    change(share, (int64_t)status.st_blocks * 512);
}

static void on_scan(struct timer *timer)
{
    struct spool_shares *shares = container_of(timer, struct spool_shares, scan);
    const struct dirent *found;

    for (unsigned i = 0; i < SCAN_FILES; i++) {
        found = readdir(shares->directory);
        if (!found) {
            end_scan(shares);
            return;
        }
        count_file(shares, found->d_name);
    }
    timer_arm_in(&shares->scan, SCAN_PAUSE_US);
}

void spool_shares_scan(struct spool_shares *shares)
{
    int fd =
        openat(shares->core->parts.state_dir, SPOOL_DIRECTORY, O_DIRECTORY | O_RDONLY | O_CLOEXEC);

    end_scan(shares);
    shares->directory = fd < 0 ? NULL : fdopendir(fd);
    if (shares->directory)
        timer_arm_in(&shares->scan, 0);
    else
        fd_close(fd);
}

/* --- life ------------------------------------------------------------------------------------ */

struct spool_shares *spool_shares_new(struct core *core)
{
    struct spool_shares *shares = xnew(struct spool_shares);

    shares->core = core;
    timer_init(&shares->scan, core->loop, on_scan);
    return shares;
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

void spool_shares_free(struct spool_shares *shares)
{
    struct map_slot *slot;

    if (!shares)
        return;
    end_scan(shares);
    map_for_each (slot, &shares->by_id)
        free(slot->value);
    map_fini(&shares->by_id);
    free_accounts(&shares->sessions);
    free_accounts(&shares->owners);
    free(shares);
}
