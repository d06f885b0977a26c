/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mcp/mcp_session.h"

#include "backend/names.h"
#include "wire/json.h"

#include <stdlib.h>

enum { HEADER_MAXIMUM = 7000, BODY_MAXIMUM = 1 << 20 };

#define PLACE(field) offsetof(struct mcp_session_args, field)

const struct option mcp_session_options[] = {
    { "key", 0, OPTION_TEXT, PLACE(create.key), "KEY", NULL,
      "work in the session with this key, which stays when the client leaves" },
    { "name", 0, OPTION_TEXT, PLACE(create.key), "KEY", NULL, NULL },
    { "template", 0, OPTION_TEXT, PLACE(create.template_name), "NAME", NULL,
      "template of its file system; default: sandbox.template of the daemon" },
    { "image", 0, OPTION_TEXT, PLACE(create.template_name), "NAME", NULL, NULL },
    { "flavor", 0, OPTION_TEXT, PLACE(create.flavor), "NAME", NULL,
      "flavor: a kind of sandbox from the settings; default: the first of them" },
    { "backend", 0, OPTION_TEXT, PLACE(create.backend), "NAME", BACKEND_WORDS,
      "backend of its sandboxes, one of:" BACKEND_TEXT "; default: the daemon's" },
    { "env", 'e', OPTION_LIST, PLACE(create.variables.env), "K[=V]", NULL,
      "set a variable; a bare K copies its value from your environment; may be repeated" },
    { "memory", 'm', OPTION_SIZE, PLACE(create.memory), "SIZE", NULL,
      "memory limit: 512m, 2g; default: sandbox.memory of the daemon" },
    { "cpus", 0, OPTION_NUMBER, PLACE(create.cpus), "N", NULL,
      "CPU limit in cores: 0.5, 2; default: sandbox.cpus" },
    { "pids", 0, OPTION_COUNT, PLACE(create.pids), "N", NULL,
      "maximum number of processes; default: sandbox.pids" },
    { "disk", 0, OPTION_SIZE, PLACE(create.disk), "SIZE", NULL,
      "disk space: 512m, 4g; default: sandbox.disk" },
    { "network", 0, OPTION_TEXT, PLACE(create.network), "MODE", "none open",
      "network access: none or open; default: sandbox.network of the daemon" },
    { "idle-timeout", 0, OPTION_DURATION, PLACE(create.idle_timeout), "T", NULL,
      "end it when it has not been used for this long; 0: never; default: session.idle_timeout" },
    { "max-lifetime", 0, OPTION_DURATION, PLACE(create.max_lifetime), "T", NULL,
      "end it this long after its creation, even while in use; 0: never; default: "
      "session.max_lifetime" },
    { "keep-files", 0, OPTION_FLAG, PLACE(create.keep_files), NULL, NULL,
      "keep its files when a sandbox ends, for the next one and until retention ends" },
    { "mount", 'v', OPTION_LIST, PLACE(create.mounts), "DIR[:PATH][:ro]", NULL,
      "show a directory of this machine in its sandbox; may be repeated; a private daemon serves "
      "it where sandbox.max.mounts of the running daemon does not allow it" },
    { "volume", 0, OPTION_LIST, PLACE(create.mounts), "DIR[:PATH][:ro]", NULL, NULL },
    { 0 },
};

int mcp_session_header(const struct mcp_session_args *args, char **out, struct error *err)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(HEADER_MAXIMUM);
    scoped(json_decref) json_t *document = NULL;
    scoped(free) char *dumped = NULL;

    if (create_write_body(&args->create, NULL, &body, err) < 0)
        return -1;
    document = json_read(body.data, body.length, err);
    if (!document)
        return -1;
    if (json_object_size(document) == 0)
        return 0;
    dumped = json_dumps(document, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (buffer_append_text(&text, dumped) < 0)
        return error_set(err, ERR_TOO_LARGE, "the session options are longer than %d bytes",
                         HEADER_MAXIMUM);
    *out = steal_ptr(&dumped);
    return 0;
}
