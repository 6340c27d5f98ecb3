#!/bin/sh
# Finds the missing system packages that building (run) or also testing (test) needs. As root on a system with apt it
# installs them, without starting their services; otherwise it prints what is missing. It exits with 1 if something
# that building needs is still missing; packages that only tests need may stay missing.
# `list` prints all packages; `headers` the present headers of optional libraries; `has` exits with 0 if one is present.
# Usage: tools/packages.sh run|test|list|headers|has PACKAGE       PYTHON=python3 CXX=c++
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
CXX=${CXX:-$(command -v c++ || command -v g++ || command -v clang++ || echo c++)}
POLICY=${POLICY:-/usr/sbin/policy-rc.d}
PATH=$PATH:/usr/sbin:/sbin  # ldconfig and ip are there, and ordinary users' PATH has neither folder

# needed for | Debian package | the same for other systems | a command that succeeds if it is present
# shellcheck disable=SC2016 # expanded when the probe runs
ROWS='
run |g++            |a C++20 compiler: g++ 11 or clang++ 14, or newer |cxx20
run |python3        |Python 3.10 or newer                             |$PYTHON -c "import sys; sys.exit(sys.version_info < (3, 10))"
run |python3-venv   |the modules venv and ensurepip of Python         |$PYTHON -c "import ensurepip, venv"
run |python3-dev    |the C headers of Python                          |$PYTHON -c "import os, sysconfig as s; os.stat(s.get_path(\"include\") + \"/Python.h\")"
test|libibverbs-dev |the headers of libibverbs                        |header infiniband/verbs.h
test|librdmacm-dev  |the headers of librdmacm                         |header rdma/rdma_cma.h
test|libssl-dev     |the headers of OpenSSL 3                         |header openssl/ssl.h
test|libgnutls28-dev|the headers of GnuTLS                            |header gnutls/gnutls.h
test|libngtcp2-dev  |the headers of ngtcp2 0.12                       |header ngtcp2/ngtcp2.h
test|libngtcp2-crypto-gnutls-dev|the headers of ngtcp2_crypto_gnutls  |header ngtcp2/ngtcp2_crypto_gnutls.h
test|ibverbs-providers|the providers of libibverbs (rdma-core)        |ls /usr/lib*/libibverbs/*.so /usr/lib/*/libibverbs/*.so | grep .
test|librdmacm1     |librdmacm                                        |ldconfig -p | grep librdmacm.so.1
test|util-linux     |setarch                                          |command -v setarch
test|iproute2       |ip                                               |command -v ip
test|openssl        |openssl                                          |command -v openssl
test|curl           |curl                                             |command -v curl
test|shellcheck     |shellcheck                                       |command -v shellcheck
test|valgrind       |valgrind                                         |command -v valgrind
test|clang          |clang++                                          |command -v clang++
test|libclang-rt-dev|the libFuzzer of clang (compiler-rt)             |libfuzzer
test|tshark         |tshark                                           |command -v tshark
test|ucx-utils      |ucx_info (UCX)                                   |command -v ucx_info
test|etcd-server    |etcd                                             |command -v etcd
test|etcd-client    |etcdctl                                          |command -v etcdctl
test|redis-server   |redis-server                                     |command -v redis-server
test|redis-tools    |redis-cli                                        |command -v redis-cli
test|systemd        |systemd-analyze                                  |command -v systemd-analyze
test|skopeo         |skopeo                                           |command -v skopeo
test|podman         |podman                                           |command -v podman
test|buildah        |buildah                                          |command -v buildah
test|umoci          |umoci                                            |command -v umoci
test|docker-registry|docker-registry                                  |command -v docker-registry
test|chromium       |chromium                                         |command -v chromium
test|swift-proxy    |swift-proxy-server (OpenStack Swift)             |command -v swift-proxy-server
test|swift-account  |swift-account-server                             |command -v swift-account-server
test|swift-container|swift-container-server                           |command -v swift-container-server
test|swift-object   |swift-object-server                              |command -v swift-object-server
'

cxx20() {
    printf '%s\n' '#include <span>' '#if __clang_major__ ? __clang_major__ < 14 : __GNUC__ < 11' '#error' '#endif' |
        $CXX -std=c++20 -fsyntax-only -x c++ -
}
header() { echo "#include <$1>" | $CXX -fsyntax-only -x c++ -; }
libfuzzer() {
    echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, long) { return 0; }' |
        clang++ -x c++ -fsanitize=fuzzer,address - -o /dev/null
}

rows() { echo "$ROWS" | sed -n 's/ *| */|/gp'; }

# missing LEVEL package|tool: that column of the rows of the level ('*': of all) whose probe fails, one in a line.
missing() {
    rows | while IFS='|' read -r level package tool probe; do
        # shellcheck disable=SC2254 # a pattern
        case $level in $1) ;; *) continue ;; esac
        (eval "$probe") >/dev/null 2>&1 </dev/null && continue
        case $2 in package) echo "$package" ;; tool) echo "$tool" ;; esac
    done
}
one_line() { awk -v gap="${1:- }" '{ printf "%s%s", (NR > 1 ? gap : ""), $0 } END { if (NR) print "" }'; }

# apt_install STEP PACKAGE…
apt_install() {
    step=$1
    shift
    echo "  installing: $*"
    DEBIAN_FRONTEND=noninteractive tools/step.sh "$step" \
        apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
}

# Debian starts a package's services when it installs the package, unless policy-rc.d exits with 101; it also enables
# them for the next boot. A policy-rc.d of the machine stays as it is; one that a killed run left is known by its mark.
MARK='# Temporary: tools/packages.sh of Verbena is installing packages for tests.'
units() { find /etc/systemd/system -type l -printf '%l\n' 2>/dev/null | sed 's,.*/,,' | sort -u; }
forbid_services() {
    mkdir -p build
    units >build/units
    ours=
    [ -e "$POLICY" ] && ! grep -qxF "$MARK" "$POLICY" || ours=yes
    trap restore_services EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    [ -z "$ours" ] || printf '#!/bin/sh\n%s\nexit 101\n' "$MARK" >"$POLICY"
    [ -z "$ours" ] || chmod 755 "$POLICY"
}
restore_services() {
    [ -z "$ours" ] || rm -f "$POLICY"
    new=$(units | comm -13 build/units - | one_line)
    # shellcheck disable=SC2086 # a list of names
    [ -z "$new" ] || ! command -v systemctl >/dev/null || systemctl --quiet disable $new || true
    rm -f build/units
    trap - EXIT
}

# All at once; if apt refuses, one by one, so that one broken package does not keep the others away.
install_packages() {
    forbid_services
    tools/step.sh apt-update apt-get update -o DPkg::Lock::Timeout=300 ||
        echo "  apt-get update failed: the present package lists are used"
    available=
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            available="$available $package"
        else
            echo "  $package is not available here"
        fi
    done
    # shellcheck disable=SC2086 # a list of names
    if [ -n "$available" ] && ! apt_install apt-install $available; then
        for package in $available; do apt_install "apt-$package" "$package" || true; done
    fi
    restore_services
}

case ${1:-} in
list) rows | cut -d '|' -f 1,2 | tr '|' ' '; exit ;;
has) ! missing '*' package | grep -qxF "$2"; exit ;;
headers) rows | sed -n 's/.*|header //p' | while read -r name; do ! header "$name" 2>/dev/null || echo "$name"; done; exit ;;
run) levels=run ;;
test) levels='run test' ;;
*) sed -n 's/^# Usage: /usage: /p' "$0" >&2; exit 2 ;;
esac

if [ "$(uname -s)" != Linux ]; then
    echo "Verbena runs on Linux only: it needs epoll, eventfd and memfd. This system is $(uname -s)." >&2
    exit 1
fi
packages=$(for level in $levels; do missing "$level" package; done | one_line)
[ -n "$packages" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # shellcheck disable=SC2086 # a list of names
    install_packages $packages
fi
needed=$(missing run package | one_line)
skipped=$(missing test package | one_line)
if [ "$levels" != run ] && [ -n "$skipped" ]; then
    echo "  not installed, so that some wires are not built and some tests are skipped:"
    missing test tool | one_line ', ' | fold -s -w 110 | sed 's/^/    /'
    ! command -v apt-get >/dev/null || echo "    to install: sudo apt-get install $skipped"
fi
if [ -n "$needed" ]; then
    echo "Verbena cannot be built here. Missing:"
    missing run tool | sed 's/^/    /'
    ! command -v apt-get >/dev/null || echo "To install: sudo apt-get install $needed"
    exit 1
fi >&2
