/* SPDX-License-Identifier: Apache-2.0 */
#include "store/watches.h"

#include "base/alloc.h"
#include "base/str.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A document that the transaction under way changes, and that a watch asks for. */
struct watch_note {
    struct list node;
    char *kind; /* owned */
    char *id;   /* owned */
};

static bool is_for(const struct store_watch *watch, const char *kind, const char *id)
{
    return (!kind || str_equal(watch->kind, kind)) &&
           (!id || !watch->id || str_equal(watch->id, id));
}

static bool is_asked_for(const struct store *store, const struct document_record *document)
{
    const struct store_watch *watch;

    list_for_each (watch, &store->watches.started, node) {
        if (is_for(watch, document->kind, document->id))
            return true;
    }
    return false;
}

void store_watches_note(struct store *store, const struct change_queue *changes)
{
    if (list_is_empty(&store->watches.started))
        return;
    for (const struct change *change = changes->first; change; change = change->next) {
        const struct document_record *document = (const void *)change->record;
        struct watch_note *note;

        if (change->table != STORE_DOCUMENTS || !is_asked_for(store, document))
            continue;
        note = xnew(struct watch_note);
        note->kind = xstrdup(document->kind);
        note->id = xstrdup(document->id);
        list_append(&store->watches.notes, &note->node);
    }
}

static struct store_watch *next_untold(struct store *store, uint64_t number, const char *kind,
                                       const char *id)
{
    struct store_watch *watch;

    list_for_each (watch, &store->watches.started, node) {
        if (watch->told < number && is_for(watch, kind, id))
            return watch;
    }
    return NULL;
}

/* A callback may start and stop any watch: the search restarts after each. */
void store_watches_changed(struct store *store, const char *kind, const char *id)
{
    uint64_t number = ++store->watches.told;
    struct store_watch *watch;

    while ((watch = next_untold(store, number, kind, id))) {
        watch->told = number;
        watch->on_change(watch, id);
    }
}

void store_watches_tell(struct store *store, const struct error *err)
{
    struct list notes = LIST_INIT(notes);
    struct watch_note *note;

    list_move_all(&store->watches.notes, &notes);
    while ((note = list_first(&notes, struct watch_note, node))) {
        list_remove(&note->node);
        if (err->code == ERR_NONE)
            store_watches_changed(store, note->kind, note->id);
        free(note->kind);
        free(note->id);
        free(note);
    }
}

void store_watch_nothing(struct store *store UNUSED, struct store_watch *watch UNUSED)
{
}

void store_watch_start(struct store *store, struct store_watch *watch, const char *kind,
                       const char *id, store_watch_fn *on_change)
{
    assert(!str_is_empty(kind) && on_change && !list_is_linked(&watch->node));
    *watch = (struct store_watch){ .kind = xstrdup(kind),
                                   .id = id ? xstrdup(id) : NULL,
                                   .on_change = on_change,
                                   .told = store->watches.told };
    list_append(&store->watches.started, &watch->node);
    store->ops->watch(store, watch);
}

void store_watch_stop(struct store_watch *watch)
{
    list_remove(&watch->node);
    free(watch->kind);
    free(watch->id);
    watch->kind = watch->id = NULL;
}
