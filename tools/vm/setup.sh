#!/usr/bin/env bash
# Prepares the virtual machine of the power-cut tests: QEMU, Debian's kernel, and a base initramfs.
#
# Idempotent: installs only what is missing (as root; otherwise prints the command), unpacks the kernel
# package without installing it, and keeps every file under ${CAIRN_VM_DIR:-/var/tmp/cairn-vm}.
set -euo pipefail

vm_dir=${CAIRN_VM_DIR:-/var/tmp/cairn-vm}
export PATH=$PATH:/usr/sbin:/sbin
say() { echo "vm setup: $*"; }

# command:package
needs=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static mkfs.ext4:e2fsprogs cpio:cpio
  modprobe:kmod python3:python3)
missing=()
for need in "${needs[@]}"; do
  command -v "${need%%:*}" >/dev/null || missing+=("${need#*:}")
done
# A dynamically linked busybox is no init: it would need its libraries in the guest.
if command -v busybox >/dev/null && ldd "$(command -v busybox)" >/dev/null 2>&1; then
  missing+=(busybox-static)
fi

if [ ${#missing[@]} -gt 0 ]; then
  install=(apt-get install -y --no-install-recommends "${missing[@]}")
  if [ "$(id -u)" != 0 ]; then
    say "missing: ${missing[*]}; run: sudo ${install[*]}" >&2
    exit 1
  fi
  say "installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${install[@]}" >/dev/null
fi

mkdir -p "$vm_dir"
kernel=$vm_dir/kernel
if ! compgen -G "$kernel/boot/vmlinuz-*" >/dev/null; then
  latest() { apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image/ { print $2; exit }'; }
  package=$(latest)
  if [ -z "$package" ]; then
    say "no package lists: running apt-get update"
    apt-get update -qq
    package=$(latest)
  fi
  say "fetching $package (unpacked into $kernel, not installed)"
  rm -rf "$vm_dir/deb"
  mkdir -p "$vm_dir/deb"
  # apt drops its privileges for the download and must be able to write here.
  chmod 777 "$vm_dir/deb"
  (cd "$vm_dir/deb" && apt-get download -qq "$package")
  dpkg-deb -x "$vm_dir"/deb/linux-image-*.deb "$vm_dir/kernel.new"
  rm -rf "$kernel" "$vm_dir/deb"
  mv "$vm_dir/kernel.new" "$kernel"
fi

# The base is rebuilt when this script or busybox is newer than it.
base=$vm_dir/base.cpio.gz
busybox=$(command -v busybox)
if [ "$base" -nt "$0" ] && [ "$base" -nt "$busybox" ] && [ "$base" -nt "$vm_dir/vmlinuz" ]; then
  say "ready ($vm_dir)"
  exit 0
fi

version=$(basename "$(echo "$kernel"/lib/modules/*)")

# QEMU can enter an uncompressed kernel directly, and decompressing it under emulation would take 2.5 of the 8.5
# seconds of a boot. The boot protocol's header says where in the image the compressed kernel lies.
cp "$kernel/boot/vmlinuz-$version" "$vm_dir/vmlinuz"
if grep -q CONFIG_PVH=y "$kernel/boot/config-$version" && grep -q CONFIG_KERNEL_XZ=y "$kernel/boot/config-$version"; then
  python3 - "$kernel/boot/vmlinuz-$version" "$vm_dir/vmlinuz" <<'PYTHON'
import lzma
import struct
import sys

image = open(sys.argv[1], "rb").read()
start = (image[0x1F1] + 1) * 512
offset, length = struct.unpack_from("<II", image, 0x248)
# What follows the xz stream (the kernel's size) is not part of it.
unpacked = lzma.LZMADecompressor().decompress(image[start + offset : start + offset + length])
open(sys.argv[2], "wb").write(unpacked)
PYTHON
fi
depmod -b "$kernel" "$version"
root=$vm_dir/root
rm -rf "$root"
mkdir -p "$root"/{bin,proc,sys,dev,tmp,mnt/pmem,mnt/disk,modules,job}
cp "$busybox" "$root/bin/busybox"

# Modules in load order: what modprobe would load, each after what it depends on. libnvdimm and the drivers on
# top of it hang together by soft dependencies, which modprobe does not print.
{
  for module in virtio_pci virtio_blk crc32c_generic ext4; do
    modprobe -d "$kernel" -S "$version" --show-depends "$module" 2>/dev/null
  done | grep -o "[^/ ]*\.ko" || true
  printf '%s.ko\n' libnvdimm nd_btt nd_pmem dax_pmem device_dax nfit
} | awk '!seen[$0]++' >"$root/modules/order"
# For tools/vm/rdma_test.sh, which loads them itself: Soft-RoCE with the checksum that it asks for by name, who connects by it, and an interface for it.
{
  for module in crc32_generic rdma_rxe rdma_ucm; do
    modprobe -d "$kernel" -S "$version" --show-depends "$module" 2>/dev/null
  done | grep -o "[^/ ]*\.ko" || true
  echo dummy.ko numdummies=1
} | awk '!seen[$0]++' >"$root/modules/order-rdma"
while read -r module _; do
  found=$(find "$kernel/lib/modules" -name "$module" -print -quit)
  if [ -z "$found" ]; then
    say "kernel $version has no module $module" >&2
    exit 1
  fi
  cp "$found" "$root/modules/"
done < <(cat "$root/modules/order" "$root/modules/order-rdma")

(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$base.new"
# A second initramfs is appended to this one: it must begin at a multiple of four bytes.
truncate -s %4 "$base.new"
mv "$base.new" "$base"
rm -rf "$root"
say "kernel $version and base initramfs ready ($vm_dir)"
