/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/envd/messages.h"

#define REPEATED .is_repeated = true

const struct protobuf_field envd_empty[] = { { 0 } };

/* --- process --------------------------------------------------------------------------------- */

static const struct protobuf_field size_fields[] = {
    { 1, "cols", PROTOBUF_UINT32 },
    { 2, "rows", PROTOBUF_UINT32 },
    { 0 },
};

static const struct protobuf_field pty_fields[] = {
    { 1, "size", PROTOBUF_MESSAGE, .fields = size_fields },
    { 0 },
};

static const struct protobuf_field config_fields[] = {
    { 1, "cmd", PROTOBUF_TEXT },
    { 2, "args", PROTOBUF_TEXT, REPEATED },
    { 3, "envs", PROTOBUF_TEXT_MAP },
    { 4, "cwd", PROTOBUF_TEXT },
    { 0 },
};

static const struct protobuf_field selector_fields[] = {
    { 1, "pid", PROTOBUF_UINT32 },
    { 2, "tag", PROTOBUF_TEXT },
    { 0 },
};

static const struct protobuf_field input_fields[] = {
    { 1, "stdin", PROTOBUF_BYTES },
    { 2, "pty", PROTOBUF_BYTES },
    { 0 },
};

const struct protobuf_field envd_start_request[] = {
    { 1, "process", PROTOBUF_MESSAGE, .fields = config_fields },
    { 2, "pty", PROTOBUF_MESSAGE, .fields = pty_fields },
    { 3, "tag", PROTOBUF_TEXT },
    { 4, "stdin", PROTOBUF_BOOL },
    { 0 },
};

const struct protobuf_field envd_selector_request[] = {
    { 1, "process", PROTOBUF_MESSAGE, .fields = selector_fields },
    { 0 },
};

static const struct protobuf_field start_fields[] = {
    { 1, "pid", PROTOBUF_UINT32 },
    { 0 },
};

static const struct protobuf_field data_fields[] = {
    { 1, "stdout", PROTOBUF_BYTES },
    { 2, "stderr", PROTOBUF_BYTES },
    { 3, "pty", PROTOBUF_BYTES },
    { 0 },
};

static const struct protobuf_field end_fields[] = {
    { 1, "exitCode", PROTOBUF_SINT32 },
    { 2, "exited", PROTOBUF_BOOL },
    { 3, "status", PROTOBUF_TEXT },
    { 4, "error", PROTOBUF_TEXT },
    { 0 },
};

static const struct protobuf_field event_fields[] = {
    { 1, "start", PROTOBUF_MESSAGE, .fields = start_fields },
    { 2, "data", PROTOBUF_MESSAGE, .fields = data_fields },
    { 3, "end", PROTOBUF_MESSAGE, .fields = end_fields },
    { 4, "keepalive", PROTOBUF_MESSAGE, .fields = envd_empty },
    { 0 },
};

const struct protobuf_field envd_event_response[] = {
    { 1, "event", PROTOBUF_MESSAGE, .fields = event_fields },
    { 0 },
};

static const struct protobuf_field info_fields[] = {
    { 1, "config", PROTOBUF_MESSAGE, .fields = config_fields },
    { 2, "pid", PROTOBUF_UINT32 },
    { 3, "tag", PROTOBUF_TEXT },
    { 0 },
};

const struct protobuf_field envd_list_response[] = {
    { 1, "processes", PROTOBUF_MESSAGE, REPEATED, .fields = info_fields },
    { 0 },
};

const struct protobuf_field envd_update_request[] = {
    { 1, "process", PROTOBUF_MESSAGE, .fields = selector_fields },
    { 2, "pty", PROTOBUF_MESSAGE, .fields = pty_fields },
    { 0 },
};

const struct protobuf_field envd_send_input_request[] = {
    { 1, "process", PROTOBUF_MESSAGE, .fields = selector_fields },
    { 2, "input", PROTOBUF_MESSAGE, .fields = input_fields },
    { 0 },
};

static const struct protobuf_field stream_data_fields[] = {
    { 2, "input", PROTOBUF_MESSAGE, .fields = input_fields },
    { 0 },
};

const struct protobuf_field envd_stream_input_request[] = {
    { 1, "start", PROTOBUF_MESSAGE, .fields = envd_selector_request },
    { 2, "data", PROTOBUF_MESSAGE, .fields = stream_data_fields },
    { 3, "keepalive", PROTOBUF_MESSAGE, .fields = envd_empty },
    { 0 },
};

static const struct protobuf_name signal_names[] = {
    { "SIGNAL_UNSPECIFIED", 0 },
    { "SIGNAL_SIGKILL", 9 },
    { "SIGNAL_SIGTERM", 15 },
    { 0 },
};

const struct protobuf_field envd_send_signal_request[] = {
    { 1, "process", PROTOBUF_MESSAGE, .fields = selector_fields },
    { 2, "signal", PROTOBUF_ENUM, .names = signal_names },
    { 0 },
};

/* --- filesystem ------------------------------------------------------------------------------ */

static const struct protobuf_name file_types[] = {
    { "FILE_TYPE_UNSPECIFIED", 0 },
    { "FILE_TYPE_FILE", 1 },
    { "FILE_TYPE_DIRECTORY", 2 },
    { "FILE_TYPE_SYMLINK", 3 },
    { 0 },
};

static const struct protobuf_name event_types[] = {
    { "EVENT_TYPE_UNSPECIFIED", 0 },
    { "EVENT_TYPE_CREATE", 1 },
    { "EVENT_TYPE_WRITE", 2 },
    { "EVENT_TYPE_REMOVE", 3 },
    { "EVENT_TYPE_RENAME", 4 },
    { "EVENT_TYPE_CHMOD", 5 },
    { 0 },
};

static const struct protobuf_field entry_fields[] = {
    { 1, "name", PROTOBUF_TEXT },
    { 2, "type", PROTOBUF_ENUM, .names = file_types },
    { 3, "path", PROTOBUF_TEXT },
    { 4, "size", PROTOBUF_INT64 },
    { 5, "mode", PROTOBUF_UINT32 },
    { 6, "permissions", PROTOBUF_TEXT },
    { 7, "owner", PROTOBUF_TEXT },
    { 8, "group", PROTOBUF_TEXT },
    { 9, "modifiedTime", PROTOBUF_TIMESTAMP },
    { 10, "symlinkTarget", PROTOBUF_TEXT },
    { 11, "metadata", PROTOBUF_TEXT_MAP },
    { 12, "isSymlink", PROTOBUF_BOOL },
    { 0 },
};

const struct protobuf_field envd_path_request[] = {
    { 1, "path", PROTOBUF_TEXT },
    { 0 },
};

const struct protobuf_field envd_entry_response[] = {
    { 1, "entry", PROTOBUF_MESSAGE, .fields = entry_fields },
    { 0 },
};

const struct protobuf_field envd_move_request[] = {
    { 1, "source", PROTOBUF_TEXT },
    { 2, "destination", PROTOBUF_TEXT },
    { 0 },
};

const struct protobuf_field envd_list_dir_request[] = {
    { 1, "path", PROTOBUF_TEXT },
    { 2, "depth", PROTOBUF_UINT32 },
    { 0 },
};

const struct protobuf_field envd_list_dir_response[] = {
    { 1, "entries", PROTOBUF_MESSAGE, REPEATED, .fields = entry_fields },
    { 0 },
};

const struct protobuf_field envd_watch_request[] = {
    { 1, "path", PROTOBUF_TEXT },
    { 2, "recursive", PROTOBUF_BOOL },
    { 3, "includeEntry", PROTOBUF_BOOL },
    { 4, "allowNetworkMounts", PROTOBUF_BOOL },
    { 0 },
};

static const struct protobuf_field file_event_fields[] = {
    { 1, "name", PROTOBUF_TEXT },
    { 2, "type", PROTOBUF_ENUM, .names = event_types },
    { 3, "entry", PROTOBUF_MESSAGE, .fields = entry_fields },
    { 0 },
};

const struct protobuf_field envd_watch_response[] = {
    { 1, "start", PROTOBUF_MESSAGE, .fields = envd_empty },
    { 2, "filesystem", PROTOBUF_MESSAGE, .fields = file_event_fields },
    { 3, "keepalive", PROTOBUF_MESSAGE, .fields = envd_empty },
    { 0 },
};

const struct protobuf_field envd_watcher_message[] = {
    { 1, "watcherId", PROTOBUF_TEXT },
    { 0 },
};

const struct protobuf_field envd_events_response[] = {
    { 1, "events", PROTOBUF_MESSAGE, REPEATED, .fields = file_event_fields },
    { 0 },
};
