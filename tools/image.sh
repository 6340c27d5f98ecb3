#!/usr/bin/env bash
# Builds Dockerfile.rdma where no registry of images can be reached and no engine runs: a clean Debian by mmdebstrap as its
# base, buildah with chroot isolation as its builder. Then the image's own command pushes a blob to itself and reads it back.
# Usage (as root): tools/image.sh [IMAGE]    leaves IMAGE (localhost/verbena-registry) in buildah's store
set -euo pipefail
cd "$(dirname "$0")/.."
image=${1:-localhost/verbena-registry} base=localhost/verbena-base
for needed in mmdebstrap buildah curl; do
    command -v $needed >/dev/null || { echo "missing: apt-get install $needed" >&2; exit 77; }
done
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if ! buildah inspect --type image $base >/dev/null 2>&1; then
    mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$folder/base.tar"
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$folder/base.tar" /
    buildah commit --quiet --rm "$container" $base
fi
git archive HEAD | tar -x -C "$folder"
# What this machine needs to reach the packages is lent, not built in.
lent=()
for file in /etc/pip.conf /etc/ssl/certs; do [ ! -e $file ] || lent+=(--volume "$file:$file:ro"); done
buildah build --network host --build-arg BASE=$base "${lent[@]}" -f "$folder/Dockerfile.rdma" -t "$image" "$folder"

container=$(buildah from "$image")
trap 'buildah rm "$container" >/dev/null; rm -rf "$folder"' EXIT
buildah run "$container" -- verbena registry --port 5987 --rdma-enabled --rdma-listen-addr 127.0.0.1 --rdma-listen-port 0 \
    --registry-anonymous delete >"$folder/log" 2>&1 &
server=$!
curl --silent --fail --retry 50 --retry-connrefused --retry-delay 1 http://127.0.0.1:5987/v2/ >/dev/null
digest=sha256:$(sha256sum "$folder/Dockerfile.rdma" | cut -d ' ' -f 1)
url=http://127.0.0.1:5987/v2/app/blobs
curl -sSf --data-binary "@$folder/Dockerfile.rdma" -H 'Content-Type: application/octet-stream' "$url/uploads/?digest=$digest"
curl -sSf "$url/$digest" | cmp - "$folder/Dockerfile.rdma"
kill "$(sed -n 's/.* registry, process //p' "$folder/log")"
wait $server
cat "$folder/log"
echo "$image: built, and a blob came back from it"
