#!/usr/bin/env bash
# Makes build/kernel/{vmlinux,initrd.gz,version}: the distribution's stock kernel, unpacked and never installed, and an
# initramfs of busybox and the modules it needs. Does nothing when they are there and newer than what they are made by.
# Exit status: 0, or 77 with the reason when a piece is missing (1 in CI, which installs what is missing).
set -euo pipefail
cd "$(dirname "$0")/../../.."
. tests/kernel/host/common.sh

PACKAGES="
qemu-system-x86    command -v qemu-system-x86_64
busybox-static     command -v busybox && busybox poweroff --help
cpio               command -v cpio
kmod               command -v depmod
xz-utils           command -v xz
iproute2           command -v rdma
ibverbs-providers  ls /usr/lib/*/libibverbs/librxe-*.so
ibverbs-utils      command -v ibv_rc_pingpong
rdmacm-utils       command -v rping
perftest           command -v ib_write_bw
python3-pyverbs    /usr/bin/python3 -c 'import pyverbs.device'
"
# Without crc32_generic adding an rxe link fails with ENOENT. The last three are for Soft-iWARP, see build-siw.sh.
MODULES="virtio_pci virtio_console virtio_net virtio_rng 9p 9pnet_virtio overlay veth sch_netem
    crc32_generic ib_uverbs rdma_ucm rdma_rxe crc32c_generic libcrc32c iw_cm"

[ "$(uname -sm)" = "Linux x86_64" ] || unavailable "the testbed needs Linux on x86-64, and this is $(uname -sm)"
command -v apt-get >/dev/null || unavailable "the testbed's kernel is a Debian package, and there is no apt-get"
require "$PACKAGES"

lock
made=$FOLDER/version
[ ! -s $made ] || [ $made -ot tests/kernel/host/prepare.sh ] || [ $made -ot tests/kernel/guest/init ] || exit 0

image() { apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image/ { print $2; exit }'; }
image=$(image)
[ -n "$image" ] || { refresh_lists; image=$(image); }
[ -n "$image" ] || unavailable "apt knows no package linux-image-amd64: has apt-get update run?"
version=${image#linux-image-}

rm -rf $FOLDER/prepare.*
scratch=$(mktemp -d $FOLDER/prepare.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
rm -f $made
if ! ls $FOLDER/"$image"_*.deb >/dev/null 2>&1; then
    download "$image" "$scratch/package"
    rm -f $FOLDER/linux-image-*.deb
    mv "$scratch"/package/*.deb $FOLDER
fi
package=$(ls $FOLDER/"$image"_*.deb)
dpkg-deb -x "$package" "$scratch/kernel"
[ -e "$scratch/kernel/lib" ] || ln -s usr/lib "$scratch/kernel/lib"
depmod -b "$scratch/kernel" "$version"

# Unpacked here, the kernel need not unpack itself under emulation: three seconds less.
vmlinuz=$scratch/kernel/boot/vmlinuz-$version
start=$(grep -abo -P '\xfd7zXZ\x00' "$vmlinuz" | sed -n '1s/:.*//p')
xz -dc --single-stream < <(tail -c +$((${start:-0} + 1)) "$vmlinuz") >$FOLDER/vmlinux 2>/dev/null ||
    cp "$vmlinuz" $FOLDER/vmlinux

ramfs=$scratch/ramfs
mkdir -p "$ramfs"/{bin,dev,proc,sys,modules,layer,lower,writable,root}
cp "$(command -v busybox)" "$ramfs/bin/busybox"
install -m 755 tests/kernel/guest/init "$ramfs/init"
# Numbered in the order of loading: a module after those it needs.
for module in $MODULES; do
    modprobe -S "$version" -d "$scratch/kernel" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
done | awk '!seen[$0]++ { printf "%s %03d\n", $0, NR }' | while read -r file number; do
    name=$ramfs/modules/$number-$(basename "${file%%.ko*}").ko
    case $file in
        *.xz) xz -dc "$file" >"$name" ;;
        *) cp "$file" "$name" ;;
    esac
done
(cd "$ramfs" && find . | cpio -o -H newc --quiet | gzip -1) >$FOLDER/initrd.gz
echo "$version $(dpkg-deb -f "$package" Version)" >$made
