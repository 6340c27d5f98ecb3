# What the testbed's host scripts share: leaving with a reason, and getting what is missing. Sourced, from the project's root.
# In CI (CI=true) missing packages are installed and anything still missing is a failure; elsewhere it is a skip.
export PATH=$PATH:/usr/sbin:/sbin
export DEBIAN_FRONTEND=noninteractive
SKIPPED=77
FOLDER=build/kernel

unavailable() {
    echo "$*" >&2
    [ "${CI:-}" = true ] && exit 1 || exit $SKIPPED
}

apt() { apt-get -qq -o APT::Sandbox::User=root -o DPkg::Lock::Timeout=300 "$@"; }

refresh_lists() { [ "${CI:-}" != true ] || [ "$(id -u)" != 0 ] || apt update >/dev/null || true; }

# need PACKAGE COMMAND…: the command succeeds when what the package gives is here.
need() {
    local package=$1
    shift
    ! "$@" >/dev/null 2>&1 || return 0
    if [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ]; then
        echo "installing $package" >&2
        apt install -y --no-install-recommends "$package" >/dev/null 2>&1 ||
            { refresh_lists; apt install -y --no-install-recommends "$package" >&2; } || true
        ! "$@" >/dev/null 2>&1 || return 0
    fi
    unavailable "$package is not installed: sudo apt-get install $package"
}

# download PACKAGE[=VERSION] FOLDER: leaves the package's file, and nothing else, in the folder.
download() {
    rm -rf "$2" && mkdir -p "$2"
    (cd "$2" && apt download "$1" >/dev/null 2>&1) || { refresh_lists; (cd "$2" && apt download "$1"); } ||
        unavailable "the package $1 cannot be downloaded: is there a network, and has apt-get update run?"
}

# Only one process at a time prepares; the lock goes with the process.
lock() {
    mkdir -p "$FOLDER"
    exec 9>"$FOLDER/lock"
    flock -w 600 9 || unavailable "another process has been preparing $FOLDER for ten minutes"
}
