/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/operator/store_report.h"

#include "base/alloc.h"
#include "base/id.h"
#include "base/str.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct store_report *report_from(struct store_check *check)
{
    return container_of(check, struct store_report, check);
}

static void on_finding(struct store_check *check, const char *finding)
{
    json_array_append_new(report_from(check)->findings, json_string_nocheck(finding));
}

static void on_execution(struct store_check *check, const char *id)
{
    free(map_remove(&report_from(check)->output, id));
}

static void on_document(struct store_check *check, const char *id, const char *json)
{
    json_t *stored = report_from(check)->stored;

    if (json)
        json_object_set_new(stored, id, json_loads(json, 0, NULL));
    else
        json_object_del(stored, id);
}

static bool has_length(const json_t *document, const char *name, off_t length)
{
    return json_integer_value(json_object_get(document, name)) == length;
}

static void check_stored_file(struct store_report *report, const char *id, const json_t *document)
{
    scoped(free) char *name = xasprintf("storage/%s", id);
    scoped(free) char *path = path_join(report->state_dir, name);
    scoped(free) char *finding = NULL;
    struct stat info;

    if (lstat(path, &info) < 0)
        finding = xasprintf("the stored file %s cannot be read: %s", id, strerror(errno));
    else if (!S_ISREG(info.st_mode) || (!has_length(document, "bytes", info.st_size) &&
                                        !has_length(document, "before", info.st_size)))
        finding = xasprintf("the stored file %s is damaged: it has %lld bytes instead of %lld", id,
                            (long long)info.st_size,
                            (long long)json_integer_value(json_object_get(document, "bytes")));
    if (!finding)
        return;
    report->check.findings++;
    on_finding(&report->check, finding);
}

/* Before the records are read: a record is there before its output is. */
static void find_output(struct store_report *report, const char *state_dir)
{
    scoped(free) char *path = path_join(state_dir, "output");
    DIR *directory = opendir(path);
    const struct dirent *entry;

    while (directory && (entry = readdir(directory))) {
        scoped(free) char *id = xstrndup(entry->d_name, strcspn(entry->d_name, "."));

        if (id_is_valid(id, ID_EXECUTION) && !map_get(&report->output, id)) {
            const char *name = id;

            map_put(&report->output, name, steal_ptr(&id));
        }
    }
    if (directory)
        closedir(directory);
}

static void tell_unknown_output(struct store_report *report)
{
    struct map_slot *slot;
    scoped(free) char *finding = NULL;
    const char *example = NULL;

    map_for_each (slot, &report->output) {
        report->unknown_output++;
        example = slot->value;
    }
    if (!example)
        return;
    finding = xasprintf("%llu executions have stored output but no record, such as %s",
                        (unsigned long long)report->unknown_output, example);
    report->check.findings++;
    on_finding(&report->check, finding);
}

int store_report_run(struct store_report *report, const char *path, const char *state_dir,
                     struct error *err)
{
    const json_t *document;
    const char *id;

    *report = (struct store_report){ .findings = json_array() };
    report->check.on_finding = on_finding;
    if (state_dir) {
        report->state_dir = state_dir;
        report->stored = json_object();
        report->check.on_execution = on_execution;
        report->check.document_kind = STORED_FILE_KIND;
        report->check.on_document = on_document;
        find_output(report, state_dir);
    }
    if (store_check_run(&report->check, path, err) < 0)
        return -1;
    json_object_foreach(report->stored, id, document) check_stored_file(report, id, document);
    if (!report->check.findings)
        tell_unknown_output(report);
    return 0;
}

void store_report_fini(struct store_report *report)
{
    struct map_slot *slot;

    map_for_each (slot, &report->output)
        free(slot->value);
    map_fini(&report->output);
    json_decref(report->findings);
    json_decref(report->stored);
}
