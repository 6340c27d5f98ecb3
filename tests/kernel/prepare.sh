#!/usr/bin/env bash
# Makes build/kernel/{vmlinux,initrd.gz,version}: the distribution's stock kernel, unpacked and never installed, and an
# initramfs of busybox and the modules it needs. Does nothing when they are there and newer than this script.
# Exit status: 0, or 77 with the reason when a piece is missing (1 in CI, which installs what is missing).
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/kernel/common.sh

# Without crc32_generic adding an rxe link fails with ENOENT. The last three carry Soft-iWARP, see build-siw.sh.
MODULES="virtio_pci virtio_console virtio_net virtio_rng 9p 9pnet_virtio overlay veth sch_netem
    crc32_generic ib_uverbs rdma_ucm rdma_rxe crc32c_generic libcrc32c iw_cm"

[ "$(uname -sm)" = "Linux x86_64" ] || unavailable "the testbed needs Linux on x86-64, this is $(uname -sm)"
need qemu-system-x86 command -v qemu-system-x86_64
need busybox-static command -v busybox
need cpio command -v cpio
need kmod command -v depmod
need xz-utils command -v xz
need iproute2 command -v rdma
need rdma-core test -d /etc/rdma
need ibverbs-providers sh -c 'ls /usr/lib/*/libibverbs/librxe-*.so'
need ibverbs-utils command -v ibv_devinfo
need rdmacm-utils command -v rping
need perftest command -v ib_write_bw
need python3-pyverbs /usr/bin/python3 -c 'import pyverbs.device'

lock
fresh() { [ -s "$FOLDER/version" ] && [ "$FOLDER/version" -nt tests/kernel/prepare.sh ] && [ "$FOLDER/version" -nt tests/kernel/guest/init ]; }
! fresh || exit 0

command -v apt-get >/dev/null || unavailable "the testbed takes its kernel from a Debian package, and there is no apt-get"
image() { apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image/ { print $2; exit }'; }
image=$(image)
[ -n "$image" ] || { refresh_lists; image=$(image); }
[ -n "$image" ] || unavailable "apt knows no package linux-image-amd64: has apt-get update run?"
version=${image#linux-image-}

scratch=$(mktemp -d "$FOLDER/prepare.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
rm -f "$FOLDER/version"
package=$(find "$FOLDER" -maxdepth 1 -name "${image}_*.deb" | head -1)
if [ -z "$package" ]; then
    echo "downloading $image" >&2
    download "$image" "$scratch/package"
    rm -f "$FOLDER"/linux-image-*.deb
    mv "$scratch"/package/*.deb "$FOLDER"
    package=$(find "$FOLDER" -maxdepth 1 -name "${image}_*.deb" | head -1)
fi
dpkg-deb -x "$package" "$scratch/kernel"
[ -e "$scratch/kernel/lib" ] || ln -s usr/lib "$scratch/kernel/lib"
depmod -b "$scratch/kernel" "$version"

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
(cd "$ramfs" && find . | cpio -o -H newc --quiet | gzip -1) >"$scratch/initrd.gz"

# Unpacked here, the kernel need not unpack itself under emulation: three seconds less.
vmlinuz=$scratch/kernel/boot/vmlinuz-$version
start=$(LC_ALL=C grep -abom 1 -P '\xfd7zXZ\x00' "$vmlinuz" | cut -d : -f 1 | head -1)
tail -c +$((${start:-0} + 1)) "$vmlinuz" | xz -dc --single-stream >"$FOLDER/vmlinux" 2>/dev/null || cp "$vmlinuz" "$FOLDER/vmlinux"
mv "$scratch/initrd.gz" "$FOLDER/initrd.gz"
dpkg-deb -f "$package" Version | sed "s/^/$version /" >"$FOLDER/version"
