/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of envd, and the routes that lead to them. */

#include "e2b/envd/envd.h"
#include "e2b/envd/filesystem.h"
#include "e2b/envd/messages.h"
#include "e2b/envd/process.h"
#include "e2b/envd/watch.h"

#define PROCESS "process.Process"
#define FILESYSTEM "filesystem.Filesystem"
#define PROCESS_KEEPALIVE "{\"event\":{\"keepalive\":{}}}"
#define WATCH_KEEPALIVE "{\"keepalive\":{}}"

static const struct rpc_method methods[] = {
    { PROCESS, "Start", envd_start_request, envd_event_response, process_start, RPC_ANSWERS_STREAM,
      PROCESS_KEEPALIVE, .has_own_deadline = true },
    { PROCESS, "Connect", envd_selector_request, envd_event_response, process_connect,
      RPC_ANSWERS_STREAM, PROCESS_KEEPALIVE },
    { PROCESS, "List", envd_empty, envd_list_response, process_list },
    { PROCESS, "Update", envd_update_request, envd_empty, process_update },
    { PROCESS, "SendInput", envd_send_input_request, envd_empty, process_send_input },
    { PROCESS, "StreamInput", envd_stream_input_request, envd_empty, process_stream_input,
      RPC_TAKES_STREAM },
    { PROCESS, "SendSignal", envd_send_signal_request, envd_empty, process_send_signal },
    { PROCESS, "CloseStdin", envd_selector_request, envd_empty, process_close_stdin },
    { FILESYSTEM, "Stat", envd_path_request, envd_entry_response, filesystem_stat },
    { FILESYSTEM, "ListDir", envd_list_dir_request, envd_list_dir_response, filesystem_list_dir },
    { FILESYSTEM, "MakeDir", envd_path_request, envd_entry_response, filesystem_make_dir },
    { FILESYSTEM, "Move", envd_move_request, envd_entry_response, filesystem_move },
    { FILESYSTEM, "Remove", envd_path_request, envd_empty, filesystem_remove },
    { FILESYSTEM, "WatchDir", envd_watch_request, envd_watch_response, watch_stream,
      RPC_ANSWERS_STREAM, WATCH_KEEPALIVE },
    { FILESYSTEM, "CreateWatcher", envd_watch_request, envd_watcher_message, watch_create },
    { FILESYSTEM, "GetWatcherEvents", envd_watcher_message, envd_events_response,
      watch_take_events },
    { FILESYSTEM, "RemoveWatcher", envd_watcher_message, envd_empty, watch_remove },
    { 0 },
};

static void call_method(struct request *request)
{
    rpc_handle(request, methods);
}

static const struct route_answer answers[] = {
    { 200, "the answer, or a stream of answers whose last envelope tells how it ended" },
    { 400, "invalid_argument" },
    { 401, "unauthenticated: no token, or an unknown user" },
    { 404, "not_found" },
    { 0 },
};

#define METHOD(service, name, summary)                                                 \
    {                                                                                  \
        HTTP_POST, "/" service "/" name, call_method, summary, .body = ROUTE_ANY_BODY, \
                                                               .answers = answers      \
    }

const struct route e2b_envd_methods[] = {
    METHOD(PROCESS, "Start", "Start a process and follow it"),
    METHOD(PROCESS, "Connect", "Follow a process that runs"),
    METHOD(PROCESS, "List", "Processes that run"),
    METHOD(PROCESS, "Update", "Change the size of a terminal"),
    METHOD(PROCESS, "SendInput", "Write to a process"),
    METHOD(PROCESS, "StreamInput", "Write to a process, message by message"),
    METHOD(PROCESS, "SendSignal", "Kill or terminate a process"),
    METHOD(PROCESS, "CloseStdin", "End the input of a process"),
    METHOD(FILESYSTEM, "Stat", "What a path is"),
    METHOD(FILESYSTEM, "ListDir", "Entries of a directory"),
    METHOD(FILESYSTEM, "MakeDir", "Make a directory"),
    METHOD(FILESYSTEM, "Move", "Rename a file or directory"),
    METHOD(FILESYSTEM, "Remove", "Remove a file or directory"),
    METHOD(FILESYSTEM, "WatchDir", "Follow changes in a directory"),
    METHOD(FILESYSTEM, "CreateWatcher", "Begin to keep the changes in a directory"),
    METHOD(FILESYSTEM, "GetWatcherEvents", "Changes since the last call"),
    METHOD(FILESYSTEM, "RemoveWatcher", "Stop keeping changes"),
    { 0 },
};
