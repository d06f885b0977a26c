/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The messages of process.Process and filesystem.Filesystem, as tables of wire/protobuf.h. */

#include "wire/protobuf.h"

extern const struct protobuf_field envd_empty[];

extern const struct protobuf_field envd_start_request[];
extern const struct protobuf_field envd_event_response[];   /* of Start and Connect */
extern const struct protobuf_field envd_selector_request[]; /* Connect, CloseStdin */
extern const struct protobuf_field envd_list_response[];
extern const struct protobuf_field envd_update_request[];
extern const struct protobuf_field envd_send_input_request[];
extern const struct protobuf_field envd_stream_input_request[];
extern const struct protobuf_field envd_send_signal_request[];

extern const struct protobuf_field envd_path_request[];   /* Stat, MakeDir, Remove */
extern const struct protobuf_field envd_entry_response[]; /* Stat, MakeDir, Move */
extern const struct protobuf_field envd_move_request[];
extern const struct protobuf_field envd_list_dir_request[];
extern const struct protobuf_field envd_list_dir_response[];
extern const struct protobuf_field envd_watch_request[]; /* WatchDir, CreateWatcher */
extern const struct protobuf_field envd_watch_response[];
extern const struct protobuf_field envd_watcher_message[]; /* {watcherId}, in and out */
extern const struct protobuf_field envd_events_response[];
