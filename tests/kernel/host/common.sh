# What the testbed's host scripts share: getting what is missing, or leaving with the reason. Sourced in the project's root.
# In CI (CI=true) root installs missing packages, and what is missing still is a failure; elsewhere it is a skip.
export PATH=$PATH:/usr/sbin:/sbin
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
FOLDER=build/kernel
SKIPPED=77

unavailable() {
    echo "$*" >&2
    [ "${CI:-}" != true ] || exit 1
    exit $SKIPPED
}

apt() { apt-get -qq -o APT::Sandbox::User=root -o DPkg::Lock::Timeout=300 "$@"; }
may_install() { [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
refresh_lists() { ! may_install || apt update >/dev/null 2>&1 || true; }

missing() {
    local package probe
    while read -r package probe; do
        [ -z "$package" ] || eval "$probe" >/dev/null 2>&1 </dev/null || echo "$package"
    done <<<"$1"
}

# require ROWS: one row is a package, then a command that succeeds when what it gives is here.
require() {
    local packages
    packages=$(missing "$1" | xargs)
    if [ -n "$packages" ] && may_install; then
        refresh_lists
        # shellcheck disable=SC2086 # a list of names
        apt install -y --no-install-recommends $packages >/dev/null 2>&1 || true
        packages=$(missing "$1" | xargs)
    fi
    [ -z "$packages" ] || unavailable "missing: sudo apt-get install $packages"
}

# download PACKAGE[=VERSION] FOLDER: leaves the package's file, and nothing else, in the folder.
download() {
    rm -rf "$2" && mkdir -p "$2"
    (cd "$2" && apt download "$1" >/dev/null 2>&1) || { refresh_lists; (cd "$2" && apt download "$1" >&2); } ||
        unavailable "the package $1 cannot be downloaded: is there a network, and has apt-get update run?"
}

# Only one process at a time prepares; the lock goes with the process.
lock() {
    mkdir -p $FOLDER
    exec 9>$FOLDER/lock
    flock -w 600 9 || unavailable "another process has been preparing $FOLDER for ten minutes"
}
