#!/usr/bin/env bash
# Makes build/kernel/siw.ko, Soft-iWARP for the testbed's kernel. The distribution builds no such module, so its own source
# is compiled against its own headers, both unpacked and never installed. Does nothing when the module is there already.
# Exit status: 0, or 77 with the reason when a piece is missing (1 in CI, which installs what is missing).
set -euo pipefail
cd "$(dirname "$0")/../../.."
. tests/kernel/host/common.sh

tests/kernel/host/prepare.sh
lock
read -r version revision <$FOLDER/version
[ "$(cat $FOLDER/siw.version 2>/dev/null)" != "$version $revision" ] || exit 0
series=$(cut -d . -f 1-2 <<<"$version")

rm -rf $FOLDER/siw.build.*
scratch=$(realpath "$(mktemp -d $FOLDER/siw.build.XXXXXX)")
trap 'rm -rf "$scratch"' EXIT
for package in "headers-$version" "headers-${version%-*}-common" "kbuild-$series" "source-$series"; do
    download "linux-$package=$revision" "$scratch/package"
    dpkg-deb -x "$scratch"/package/*.deb "$scratch/unpacked"
done
headers=$scratch/unpacked/usr/src/linux-headers-$version
# The headers name one another by the place they would be installed to.
sed -i "s|/usr/|$scratch/unpacked/usr/|" "$headers/Makefile"
compiler=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$headers/.config")
compiler=${compiler#x86_64-linux-gnu-}
require "
make       command -v make
libelf1    ldconfig -p | grep libelf.so.1
$compiler  command -v $compiler
"

siw=drivers/infiniband/sw/siw
tar -xf "$scratch/unpacked/usr/src/linux-source-$series.tar.xz" -C "$scratch" --strip-components 1 \
    "linux-source-$series/$siw"
make -s -C "$headers" M="$scratch/$siw" CONFIG_RDMA_SIW=m CC="$compiler" modules >$FOLDER/siw.log 2>&1 ||
    { tail -20 $FOLDER/siw.log >&2; echo "siw does not compile against $version" >&2; exit 1; }
strip --strip-debug -o $FOLDER/siw.ko "$scratch/$siw/siw.ko"
echo "$version $revision" >$FOLDER/siw.version
