#!/usr/bin/env bash
# Builds the Dockerfiles where no registry of images can be reached and no engine runs: a clean Debian by mmdebstrap as their
# base, buildah with chroot isolation as their builder. Then each image runs its own command: the store answers redis-cli, the
# registry takes a blob and gives it back.
# Usage (as root): tools/image.sh [store|registry …]    leaves localhost/verbena and localhost/verbena-registry in buildah's store
set -euo pipefail
cd "$(dirname "$0")/.."
base=localhost/verbena-base
for needed in mmdebstrap buildah curl redis-cli; do
    command -v $needed >/dev/null || { echo "missing: $needed; apt-get install mmdebstrap buildah curl redis-tools" >&2; exit 77; }
done
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
folder=$(mktemp -d) container='' server=''
clean() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$container" ] || buildah rm "$container" >/dev/null
    rm -rf "$folder"
}
trap clean EXIT

if ! buildah inspect --type image $base >/dev/null 2>&1; then
    mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$folder/base.tar"
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$folder/base.tar" /
    buildah commit --quiet --rm "$container" $base
    container=''
    rm "$folder/base.tar"
fi
git archive --prefix=source/ HEAD | tar -x -C "$folder"
# What this machine needs to reach the packages is lent, not built in.
lent=()
for file in /etc/pip.conf /etc/ssl/certs; do [ ! -e $file ] || lent+=(--volume "$file:$file:ro"); done

# begin FILE IMAGE COMMAND…: builds the image and runs it, in the host's network; its output goes to $folder/log.
begin() {
    local file=$1 image=$2
    shift 2
    buildah build --network host --build-arg BASE=$base "${lent[@]}" -f "$folder/source/$file" -t "$image" "$folder/source"
    container=$(buildah from "$image")
    install -m 400 -o 747 /dev/stdin "$folder/kv-password" <<<a-password
    buildah run --volume "$folder/kv-password:/run/secrets/kv-password:ro" \
        --env VERBENA_KV_PASSWORD_FILE=/run/secrets/kv-password "$container" -- "$@" >"$folder/log" 2>&1 &
    server=$!
}

# The program ends by SIGTERM, with status 0.
end() {
    kill "$(sed -n 's/.* process //p' "$folder/log")"
    wait $server
    server=''
    cat "$folder/log"
    buildah rm "$container" >/dev/null
    container=''
}

store() {
    begin Dockerfile localhost/verbena verbena serve --kv-listen-address 0.0.0.0 --port 5986 --metrics-listen 127.0.0.1:5988
    curl --silent --fail --retry 50 --retry-connrefused --retry-delay 1 http://127.0.0.1:5988/healthz >/dev/null
    [ "$(REDISCLI_AUTH=a-password redis-cli -p 5986 ping)" = PONG ]
    end
    echo "localhost/verbena: built, and redis-cli was answered by it"
}

registry() {
    begin Dockerfile.rdma localhost/verbena-registry verbena registry --port 5987 --rdma-enabled --rdma-listen-addr 127.0.0.1 \
        --rdma-listen-port 0 --registry-anonymous delete
    curl --silent --fail --retry 50 --retry-connrefused --retry-delay 1 http://127.0.0.1:5987/v2/ >/dev/null
    local blob=$folder/source/Dockerfile.rdma url=http://127.0.0.1:5987/v2/app/blobs digest
    digest=sha256:$(sha256sum "$blob" | cut -d ' ' -f 1)
    curl -sSf --data-binary "@$blob" -H 'Content-Type: application/octet-stream' "$url/uploads/?digest=$digest"
    curl -sSf "$url/$digest" | cmp - "$blob"
    end
    echo "localhost/verbena-registry: built, and a blob came back from it"
}

[ $# -gt 0 ] || set -- store registry
for image; do "$image"; done
