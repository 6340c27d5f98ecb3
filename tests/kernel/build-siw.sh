#!/usr/bin/env bash
# Makes build/kernel/siw.ko, Soft-iWARP for the testbed's kernel: the distribution builds no such module, so its own source
# is compiled against its own headers, both unpacked and never installed. Does nothing when it is there for this kernel.
# Exit status: 0, or 77 with the reason when a piece is missing (1 in CI, which installs what is missing).
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/kernel/common.sh

tests/kernel/prepare.sh || exit
need make command -v make
need xz-utils command -v xz

lock
read -r version revision <"$FOLDER/version"
[ "$(cat "$FOLDER/siw.version" 2>/dev/null)" != "$version $revision" ] || exit 0
series=$(echo "$version" | cut -d . -f 1-2)

scratch=$(mktemp -d "$FOLDER/siw.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
headers=$(realpath "$scratch")/root/usr/src/linux-headers-$version
for package in "linux-headers-$version" "linux-headers-${version%-*}-common" "linux-kbuild-$series" "linux-source-$series"; do
    download "$package=$revision" "$scratch/package"
    dpkg-deb -x "$scratch"/package/*.deb "$scratch/root"
done
compiler=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$headers/.config")
compiler=${compiler#x86_64-linux-gnu-}
need "$compiler" command -v "$compiler"

# The headers name one another by the place they would be installed to.
sed -i "s|/usr/|$(realpath "$scratch")/root/usr/|" "$headers/Makefile"
tar -xf "$scratch/root/usr/src/linux-source-$series.tar.xz" -C "$scratch" --strip-components 1 \
    "linux-source-$series/drivers/infiniband/sw/siw"
make -s -C "$headers" M="$(realpath "$scratch")/drivers/infiniband/sw/siw" CONFIG_RDMA_SIW=m CC="$compiler" modules \
    >"$FOLDER/siw.log" 2>&1 || { tail -20 "$FOLDER/siw.log"; echo "siw does not compile against $version" >&2; exit 1; }
strip --strip-debug -o "$FOLDER/siw.ko" "$scratch/drivers/infiniband/sw/siw/siw.ko"
echo "$version $revision" >"$FOLDER/siw.version"
