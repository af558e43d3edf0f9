#!/usr/bin/env bash
# Boots the guest once and runs a command in it; becomes QEMU, so that killing this process cuts the guest's power.
#
#   run.sh [options] COMMAND [ARG...]       COMMAND runs in the guest's shell; files given with -f are in /job
#     -f FILE     copy FILE (static: no libraries follow) to /job in the guest; repeatable
#     -r DIR      copy what is in DIR into the guest's root
#     -d IMAGE    a virtio disk with ext4, mounted on /mnt/disk; made (256 MiB) if it does not exist
#     -D OPTIONS  how the disk is mounted (barrier=1; barrier=0: ext4 never flushes the disk's cache)
#     -l FILE     log every write and flush of the disk there (see disk_cache.py), and slow its writes down to
#                 500 a second, so that a kill finds some in its cache
#     -p IMAGE    an NVDIMM with ext4, mounted on /mnt/pmem; made (256 MiB) if it does not exist
#     -O OPTIONS  how the NVDIMM is mounted (dax=always; dax=never: the control without DAX)
#     -W N        guest kernel writes dirty pages back after N hundredths of a second (0: only when synced)
#     -o FILE     what the command prints goes there (standard output)
#     -w DIR      work directory (${CAIRN_VM_DIR}/work); not to be shared by two guests that run at the same time
#
# The guest prints "@@UP seconds" before and "@@EXIT status" after the command. No hardware virtualisation is needed.
#
# What a kill loses: the guest's memory, and with it its page cache. What it keeps: everything that the virtual disk has
# acknowledged, flushed or not, since this host's page cache survives the death of QEMU (disk_cache.py takes away what
# a disk's own cache may lose), and every store to the NVDIMM, flushed or not (CPU caches are not emulated).
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
vm_dir=${CAIRN_VM_DIR:-/var/tmp/cairn-vm}
export PATH=$PATH:/usr/sbin:/sbin
memory_mib=512
files=() tree='' disk='' disk_options=barrier=1 log='' pmem='' pmem_options=dax=always writeback=0 output='' work=$vm_dir/work
while getopts f:r:d:D:l:p:O:W:o:w: option; do
  case $option in
    f) files+=("$OPTARG") ;;
    r) tree=$OPTARG ;;
    d) disk=$OPTARG ;;
    D) disk_options=$OPTARG ;;
    l) log=$OPTARG ;;
    p) pmem=$OPTARG ;;
    O) pmem_options=$OPTARG ;;
    W) writeback=$OPTARG ;;
    o) output=$OPTARG ;;
    w) work=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ -f "$vm_dir/base.cpio.gz" ] || { echo "run.sh: no guest in $vm_dir: run $here/setup.sh" >&2; exit 2; }

rm -rf "$work/root"
mkdir -p "$work/root/job"
[ -z "$tree" ] || cp -a "$tree/." "$work/root/"
install -m 755 "$here/guest-init" "$work/root/init"
[ ${#files[@]} = 0 ] || cp -L "${files[@]}" "$work/root/job/"
echo "$*" >"$work/root/job/command"
(cd "$work/root" && find . | cpio -o -H newc --quiet) | cat "$vm_dir/base.cpio.gz" - >"$work/initrd"

arguments="console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off cairn.writeback=$writeback"
machine=q35 sizes=$memory_mib
devices=()
if [ -n "$disk" ]; then
  if [ ! -f "$disk" ]; then
    truncate -s 256M "$disk"
    mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 "$disk"
  fi
  devices+=(-blockdev "driver=file,node-name=image,filename=$disk" -device "virtio-blk-pci,drive=disk")
  if [ -n "$log" ]; then
    : >"$log"
    devices+=(-blockdev "driver=file,node-name=log,filename=$log"
      -blockdev "driver=blklogwrites,node-name=logged,file=image,log=log"
      -object "throttle-group,id=slow,x-iops-write=500,x-iops-write-max=500"
      -blockdev "driver=throttle,node-name=disk,throttle-group=slow,file=logged")
  else
    devices+=(-blockdev "driver=raw,node-name=disk,file=image")
  fi
  arguments+=" cairn.disk=$disk_options"
fi
if [ -n "$pmem" ]; then
  [ -f "$pmem" ] || python3 "$here/mkpmem.py" "$pmem" 256
  bytes=$(stat -c %s "$pmem")
  machine=q35,nvdimm=on
  sizes=$memory_mib,slots=2,maxmem=$((memory_mib + bytes / 1048576 + 1024))M
  devices+=(-object "memory-backend-file,id=nv,share=on,mem-path=$pmem,size=$bytes" -device "nvdimm,id=nv0,memdev=nv")
  arguments+=" cairn.pmem=$pmem_options"
fi
if [ -n "$output" ]; then
  : >"$output"
  devices+=(-serial "file:$work/kernel-console" -serial "file:$output")
else
  devices+=(-serial "file:$work/kernel-console" -serial stdio)
fi

exec qemu-system-x86_64 -accel tcg,thread=multi -cpu max -machine "$machine" -m "$sizes" -smp 2 \
  -display none -vga none -nodefaults -no-user-config -no-reboot -monitor none \
  -kernel "$vm_dir/vmlinuz" -initrd "$work/initrd" -append "$arguments" "${devices[@]}"
