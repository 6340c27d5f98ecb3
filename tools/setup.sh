#!/usr/bin/env bash
# Prepares a checkout: system packages (by apt, when root), .venv, and the Python tools that pyproject.toml names.
# Usage: PYTHON=python3 tools/setup.sh
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

# One row: package, then a command that succeeds when what it gives is already here.
REQUIRED="
g++            command -v c++
cmake          command -v cmake
ninja-build    command -v ninja
python3        command -v $PYTHON
python3-venv   $PYTHON -c 'import ensurepip'
python3-dev    $PYTHON -c 'import os, sysconfig as s; os.stat(s.get_path(\"include\") + \"/Python.h\")'
"
OPTIONAL="
libibverbs-dev     test -f /usr/include/infiniband/verbs.h
librdmacm-dev      test -f /usr/include/rdma/rdma_cma.h
ibverbs-providers  ls /usr/lib/*/libibverbs/*.so
librdmacm1         ldconfig -p | grep librdmacm.so.1
shellcheck         command -v shellcheck
tshark             command -v tshark
ucx-utils          command -v ucx_info
util-linux         command -v setarch
openssl            command -v openssl
valgrind           command -v valgrind
iproute2           command -v ip
clang              command -v clang++
libclang-rt-14-dev ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a
etcd-server        command -v etcd
etcd-client        command -v etcdctl
redis-server       command -v redis-server
redis-tools        command -v redis-cli
libssl-dev         test -f /usr/include/openssl/ssl.h
libgnutls28-dev    test -f /usr/include/gnutls/gnutls.h
libngtcp2-dev      test -f /usr/include/ngtcp2/ngtcp2.h
libngtcp2-crypto-gnutls-dev test -f /usr/include/ngtcp2/ngtcp2_crypto_gnutls.h
openssl            command -v openssl
curl               command -v curl
skopeo             command -v skopeo
podman             command -v podman
buildah            command -v buildah
umoci              command -v umoci
docker-registry    command -v docker-registry
chromium           command -v chromium
swift-proxy        command -v swift-proxy-server
swift-account      command -v swift-account-server
swift-container    command -v swift-container-server
swift-object       command -v swift-object-server
"

missing() {
    local package probe
    while read -r package probe; do
        [ -z "$package" ] || eval "$probe" >/dev/null 2>&1 </dev/null || echo "$package"
    done <<<"$1"
}

# Runs a command silently; on failure shows what it printed.
quiet() {
    local output
    output=$("$@" 2>&1) || { printf '%s\n' "$output" >&2; return 1; }
}

apt_install() { quiet env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; }

required=$(missing "$REQUIRED" | xargs)
optional=$(missing "$OPTIONAL" | xargs)
if [ -n "$required$optional" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing system packages: $required $optional"
        quiet apt-get update || echo "apt-get update failed; going on with the lists at hand"
        # shellcheck disable=SC2086 # a list of names
        [ -z "$required" ] || apt_install $required
        for package in $optional; do
            apt_install "$package" || echo "optional package $package is not available; what needs it is skipped"
        done
    else
        [ -z "$required" ] || echo "missing (required): sudo apt-get install $required"
        [ -z "$optional" ] || echo "missing (optional): sudo apt-get install $optional"
    fi
fi

[ -x .venv/bin/pip ] || quiet "$PYTHON" -m venv .venv
mkdir -p build
.venv/bin/python - >build/requirements.txt <<'EOF'
try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
needed = project["project"]
print(*project["build-system"]["requires"], *needed["dependencies"], *needed["optional-dependencies"]["dev"], sep="\n")
EOF
# Whoever may not install system packages can still have these two from wheels.
for tool in cmake ninja; do command -v $tool >/dev/null || echo $tool >>build/requirements.txt; done
quiet .venv/bin/pip install --disable-pip-version-check -r build/requirements.txt
