#include "launcher/mark_cache.h"

#include "launcher/sys.h"

#include <fcntl.h>
#include <string.h>

static struct recent_item *find(struct recent *recent, const char *id)
{
    for (unsigned i = 0; i < RECENT_MAX; i++) {
        struct recent_item *item = &recent->items[i];

        if (item->mark.pid && strcmp(item->mark.id, id) == 0)
            return item;
    }
    return NULL;
}

static void drop(struct recent_item *item)
{
    if (item->mark.pid)
        close(item->pidfd);
    item->mark.pid = 0;
}

void recent_note(struct recent *recent, const struct mark *mark, int pidfd)
{
    struct recent_item *item = &recent->items[recent->next++ % RECENT_MAX];
    int own = fcntl(pidfd, F_DUPFD_CLOEXEC, 0);

    drop(item);
    if (own >= 0)
        *item = (struct recent_item){ .mark = *mark, .pidfd = own };
}

bool recent_take(struct recent *recent, const char *id, struct mark *out_mark, int *out_pidfd)
{
    struct recent_item *item = find(recent, id);

    if (!item)
        return false;
    if (sys_pidfd_kill(item->pidfd, 0) < 0) {
        drop(item);
        return false;
    }
    *out_mark = item->mark;
    *out_pidfd = item->pidfd;
    item->mark.pid = 0;
    return true;
}

void recent_forget(struct recent *recent, const char *id)
{
    struct recent_item *item = find(recent, id);

    if (item)
        drop(item);
}
