/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/audit.h"
#include "audit/chain.h"
#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct verifier {
    const char *path;
    audit_finding_fn *on_finding;
    void *context;
    struct audit_summary *summary;
    struct chain chain;
    struct chain head; /* how far the newest log went */
    bool is_newest;    /* the log that a daemon may be writing */
    bool has_head;
    bool head_seen; /* the line that it names is there, and is that line */
};

static void report(struct verifier *verifier, uint64_t line, const char *message)
{
    struct audit_finding finding = { .line = line, .sequence = verifier->chain.sequence };

    snprintf(finding.message, sizeof(finding.message), "%s", message);
    verifier->summary->findings++;
    verifier->on_finding(verifier->context, verifier->path, &finding);
}

static const char *describe(enum chain_check result)
{
    switch (result) {
    case CHAIN_GOOD:
        break;
    case CHAIN_MALFORMED:
        return "is not a line of an audit log";
    case CHAIN_ALTERED:
        return "was altered";
    case CHAIN_BROKEN:
        return "does not follow the line before it: something was removed, added or moved";
    }
    return "";
}

static void note_line(struct verifier *verifier, const char *line)
{
    static const char interrupted[] = CHAIN_STARTED ",\"interrupted\":true,\"recovered\":";
    struct audit_summary *summary = verifier->summary;
    const char *members = chain_line_members(line);

    summary->is_open = !verifier->chain.is_closed;
    if (!str_starts_with(members, interrupted))
        return;
    summary->interruptions++;
    summary->recovered += strtoull(members + sizeof(interrupted) - 1, NULL, 10);
}

static void check_line(struct verifier *verifier, char *line, size_t length, uint64_t number)
{
    bool first = verifier->summary->lines == 0;
    enum chain_check result;

    if (length && line[length - 1] == '\n')
        line[--length] = '\0';
    result = chain_check_line(&verifier->chain, line, length, first);
    if (result != CHAIN_GOOD)
        report(verifier, number, describe(result));
    if (verifier->has_head && verifier->chain.sequence == verifier->head.sequence)
        verifier->head_seen |= strcmp(verifier->chain.hash, verifier->head.hash) == 0;
    if (result != CHAIN_MALFORMED)
        note_line(verifier, line);
    if (first)
        verifier->summary->first = verifier->chain.sequence;
    verifier->summary->last = verifier->chain.sequence;
    verifier->summary->lines++;
}

/* A daemon is writing the line, or was killed while it did. A line that was complete once and was
 * cut off afterwards is named by the head, and so it is missed at the end. */
static bool line_is_incomplete(const struct verifier *verifier, const char *line, size_t length)
{
    return verifier->is_newest && line[length - 1] != '\n';
}

static int check_file(struct verifier *verifier, const char *path, struct error *err)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    bool failed;

    if (!file)
        return error_sys(err, "open %s", path);
    verifier->path = path;
    for (uint64_t number = 1; (length = getline(&line, &size, file)) > 0; number++) {
        if (line_is_incomplete(verifier, line, (size_t)length)) {
            verifier->summary->is_open = true;
            break;
        }
        check_line(verifier, line, (size_t)length, number);
    }
    failed = ferror(file);
    fclose(file);
    free(line);
    return failed ? error_sys(err, "read %s", path) : 0;
}

static void read_head(struct verifier *verifier, const char *path)
{
    scoped(free) char *name = xasprintf("%s.head", path);
    char text[128] = "";
    FILE *file = fopen(name, "re");

    if (!file)
        return;
    verifier->has_head = fgets(text, sizeof(text), file) &&
                         chain_read_head(&verifier->head, text) == 0;
    fclose(file);
}

int audit_verify(const char *const *paths, size_t count, audit_finding_fn *on_finding,
                 void *context, struct audit_summary *out, struct error *err)
{
    struct verifier verifier = {
        .on_finding = on_finding, .context = context, .summary = out, .chain = CHAIN_START
    };

    *out = (struct audit_summary){ 0 };
    if (count)
        read_head(&verifier, paths[count - 1]);
    for (size_t i = 0; i < count; i++) {
        verifier.is_newest = i + 1 == count;
        if (check_file(&verifier, paths[i], err) < 0)
            return -1;
    }
    if (verifier.has_head && !verifier.head_seen)
        report(&verifier, 0, "lines at the end are missing or were replaced");
    return 0;
}
