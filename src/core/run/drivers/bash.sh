# SPDX-License-Identifier: Apache-2.0
# The bash of a context: evaluates code after code in one shell, so that directory, variables and functions live on.
#
# Requests come on the original stdin, each ending with a NUL: a line "TOKEN NUMBER", then the code. The end of a run is
# told in a frame in the original stdout and in the original stderr.
exec 107<&0 108>&1 109>&2 </dev/null

__sandglass_frame() {
    local LC_ALL=C
    printf '\x1e%sm%04x\n%s' "$__sandglass_token" "${#1}" "$1"
}

__sandglass_both() {
    __sandglass_frame "$1" >&108
    __sandglass_frame "$1" >&109
}

__sandglass_end() {
    local child
    for child in $(</proc/$1/task/$1/children); do __sandglass_end "$child"; done
    kill -KILL "$1"
}

# What an interrupted run has left in the background goes with it; jobs of earlier runs stay.
__sandglass_end_jobs() {
    local job
    for job in $(jobs -p); do
        [[ " $__sandglass_jobs " == *" $job "* ]] || __sandglass_end "$job"
    done 2>/dev/null
}

# Asking for the jobs takes a process: only when there are new ones.
__sandglass_note_jobs() {
    [ "${!:-}" = "$__sandglass_last_job" ] && return
    __sandglass_last_job=${!:-}
    __sandglass_jobs=$(jobs -p)
    __sandglass_jobs=${__sandglass_jobs//$'\n'/ }
}

__sandglass_tell() {
    local state=ok
    [ "$__sandglass_interrupted" = 1 ] && __sandglass_end_jobs
    __sandglass_note_jobs
    [ "$__sandglass_interrupted" = 1 ] && state=error &&
        __sandglass_frame '{"type":"error","name":"Interrupted","value":"interrupted","frames":[]}' >&108
    __sandglass_both "{\"type\":\"done\",\"state\":\"$state\",\"exit_code\":$1}"
}

trap : INT
while IFS= read -r -d '' -u 107 __sandglass_code; do
    __sandglass_head=${__sandglass_code%%$'\n'*}
    __sandglass_token=${__sandglass_head% *}
    __sandglass_code=${__sandglass_code#*$'\n'}
    __sandglass_interrupted=0
    __sandglass_both '{"type":"begin"}'
    # Sourced, not evaluated in a function: what it declares is global, and an interrupt can leave it. A second interrupt may
    # come when the code has been left already: it must not leave the function that tells the end.
    trap '__sandglass_interrupted=1; [ "$__sandglass_running" = 0 ] || return 130 2>/dev/null' INT
    __sandglass_running=1
    # Errors name what is sourced: /dev/stdin says more than a number of a descriptor.
    . /dev/stdin 107<&- 108>&- 109>&- <<<"exec </dev/null; $__sandglass_code"
    __sandglass_status=$? __sandglass_running=0
    trap : INT
    __sandglass_tell "$__sandglass_status"
done
