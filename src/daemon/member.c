/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/member.h"

#include "backend/backends.h"
#include "base/alloc.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "config/config.h"
#include "core/core.h"
#include "core/events.h"
#include "core/rehome.h"
#include "core/sandbox/capacity.h"
#include "face/face.h"

#include <stdlib.h>
#include <sys/sysinfo.h>
#include <unistd.h>

struct member {
    struct member_parts parts;
    struct cluster *cluster; /* owned */
    struct faces *faces;     /* borrowed; NULL until they are set */
    bool is_unsure;          /* sessions may have become ours without our knowing */
    unsigned short_reports;  /* in a row: the store has more sessions of ours than we have */
};

enum { SHORT_REPORTS = 3 };

/* --- what the cluster asks ------------------------------------------------------------------ */

static double load_per_processor(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct sysinfo info;

    if (sysinfo(&info) < 0 || processors < 1)
        return 0;
    return (double)info.loads[0] / (1 << SI_LOAD_SHIFT) / (double)processors;
}

static void describe(void *context, struct node_load *out_load, struct json_writer *names)
{
    const struct member *member = context;
    const struct core *core = member->parts.core;
    const struct backends *backends = core->parts.backends;

    for (size_t i = 0; i < backends_count(backends); i++)
        if (!backend_absence(backends_at(backends, i)))
            json_put_text(names, NULL, backends_at(backends, i)->ops->name);
    *out_load = (struct node_load){
        .sandboxes = (unsigned)capacity_held(core->capacity),
        .sandboxes_maximum = (unsigned)member->parts.config->capacity.max_sandboxes,
        .sessions = (unsigned)core->sessions_by_id.count,
        .processors = load_per_processor(),
    };
}

static void on_session(void *context, const char *session_id, const char *from)
{
    core_take_session(((struct member *)context)->parts.core, session_id, from);
}

static void on_unsure(void *context)
{
    ((struct member *)context)->is_unsure = true;
}

static void on_sequence(void *context, uint64_t sequence)
{
    events_skip(((struct member *)context)->parts.core->events, sequence);
}

static void on_lost(void *context, const char *node)
{
    core_take_pool(((struct member *)context)->parts.core, node);
    core_drop_node(((struct member *)context)->parts.core, node);
}

/* A failover that has lost a takeover gives sessions back to a node that has dropped them. */
static void compare_sessions(struct member *member)
{
    size_t here = member->parts.core->sessions_by_id.count;

    if (cluster_self(member->cluster)->sessions <= here)
        member->short_reports = 0;
    else if (++member->short_reports == SHORT_REPORTS)
        member->is_unsure = true;
    if (member->is_unsure)
        member->short_reports = 0;
}

static void on_reported(void *context)
{
    struct member *member = context;

    compare_sessions(member);
    if (member->is_unsure)
        core_take_sessions(member->parts.core);
    member->is_unsure = false;
    if (cluster_is_draining(member->cluster))
        (void)core_give_up_sessions(member->parts.core);
}

static void on_serving(void *context, bool is_serving)
{
    struct member *member = context;
    struct error err = { 0 };

    if (is_serving || !member->faces)
        return;
    (void)cluster_is_serving(member->cluster, &err);
    faces_refuse_open(member->faces, &err);
}

static const struct cluster_owner owner = {
    .describe = describe,
    .on_session = on_session,
    .on_unsure = on_unsure,
    .on_sequence = on_sequence,
    .on_lost = on_lost,
    .on_reported = on_reported,
    .on_serving = on_serving,
};

/* --- the member ----------------------------------------------------------------------------- */

struct member *member_new(const struct member_parts *parts)
{
    struct member *member = xnew(struct member);

    member->parts = *parts;
    member->cluster = cluster_new(&(struct cluster_parts){ .loop = parts->loop,
                                                           .config = parts->config,
                                                           .store = parts->store,
                                                           .opened_us = parts->opened_us,
                                                           .owner = &owner,
                                                           .context = member });
    return member;
}

void member_free(struct member *member)
{
    if (!member)
        return;
    cluster_free(member->cluster);
    free(member);
}

struct cluster *member_cluster(struct member *member)
{
    return member ? member->cluster : NULL;
}

void member_set_faces(struct member *member, struct faces *faces)
{
    member->faces = faces;
}

void member_start(struct member *member)
{
    cluster_start(member->cluster);
}
