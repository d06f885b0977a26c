/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/attach.h"

#include "base/str.h"

#include <string.h>

int execution_exit_code(const json_t *execution)
{
    const char *state = field_text(execution, "state", "");
    int64_t code = field_int(execution, "exit_code", -1);
    int64_t signal_number = field_int(execution, "signal", 0);

    if (strcmp(state, "timeout") == 0)
        return EXIT_TIMEOUT;
    if (code == 0 && json_is_object(json_object_get(execution, "error")))
        return EXIT_SANDGLASS; /* it succeeded, and not all of its output could be kept */
    if (code >= 0 && code <= 255)
        return (int)code;
    if (signal_number > 0)
        return EXIT_SIGNAL_BASE + (int)signal_number;
    return EXIT_SANDGLASS;
}

void execution_explain(const json_t *execution)
{
    const char *state = field_text(execution, "state", "");
    const char *reason = field_text(execution, "reason", "");
    const char *error = field_text(json_object_get(execution, "error"), "message", "");

    if (*error)
        cli_note("%s", error);
    else if (strcmp(state, "timeout") == 0)
        cli_note("timeout: the execution timed out and was stopped%s%s",
                 strcmp(reason, "timeout") == 0 ? "" : ": ",
                 strcmp(reason, "timeout") == 0 ? "" : reason);
    else if (strcmp(state, "output_limit") == 0)
        cli_note("stopped: the execution wrote more than exec.output_spool");
    else if (strcmp(state, "crashed") == 0)
        cli_note("the execution ended with its sandbox%s%s", *reason ? ": " : "", reason);
    else if (strcmp(state, "cancelled") == 0)
        cli_note("the execution was cancelled");
    if (*field_text(execution, "warning", ""))
        cli_note("warning: %s", field_text(execution, "warning", ""));
    if (field_bool(execution, "files_were_reset"))
        cli_note("this is a new sandbox: files were reset (the previous one ended: %s)",
                 field_text(execution, "reset_reason", "unknown"));
}
