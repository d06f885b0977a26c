# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts: where the project is, and installing Debian packages that are missing.
# Quiet when there is nothing to do.

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '%s\n' "$*" >&2; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        say "this needs root: $*"
        say "install sudo, or run the command above as root, then run this again"
        return 1
    fi
}

enabled_units() {
    [ -d /run/systemd/system ] || return 0
    systemctl list-unit-files --state=enabled --no-legend --plain | cut -d' ' -f1 | sort
}

# without_services COMMAND...: services of packages that it installs are started neither now nor at the next boot. An engine
# that the tests need is one that they start themselves.
without_services() {
    local policy=/usr/sbin/policy-rc.d before code=0 unit
    if [ -e "$policy" ]; then
        "$@"
        return
    fi
    before=$(enabled_units)
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    "$@" || code=$?
    as_root rm -f "$policy"
    for unit in $(comm -13 <(printf '%s\n' "$before") <(enabled_units)); do
        as_root systemctl --quiet disable "$unit"
    done
    return "$code"
}

# need_packages NAME...: installs what dpkg does not know as installed.
need_packages() {
    local missing=() name
    for name in "$@"; do
        dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || {
        say "these Debian packages (or what your distribution calls them) are needed: ${missing[*]}"
        return 1
    }
    say "installing: ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null
    without_services as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build_packages=(
    gcc libc6-dev meson ninja-build pkg-config musl-tools linux-libc-dev
    libevent-dev libjansson-dev libyaml-dev libsqlite3-dev libhiredis-dev libseccomp-dev libssl-dev zlib1g-dev
)

# configure DIR [meson options]: sets up a build directory once.
configure() {
    local dir=$1
    shift
    [ -f "$dir/build.ninja" ] && return 0
    rm -rf "$dir"
    meson setup "$dir" "$project" "$@" >"$dir.log" 2>&1 || {
        cat "$dir.log" >&2
        return 1
    }
    mv "$dir.log" "$dir/setup.log"
}

# compile DIR: quiet unless something is built or fails.
compile() {
    local log
    log=$(mktemp)
    if ! ninja -C "$1" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}
