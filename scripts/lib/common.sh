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
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build_packages=(
    gcc libc6-dev meson ninja-build pkg-config musl-tools linux-libc-dev
    libevent-dev libjansson-dev libyaml-dev libsqlite3-dev libseccomp-dev libssl-dev zlib1g-dev
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
