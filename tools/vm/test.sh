#!/usr/bin/env bash
# Power-cut tests in a virtual machine (`make test-vm`); not part of the gate. About twenty minutes on two cores.
#
#   KILLS=50 SEED=7 tools/vm/test.sh        cuts per medium (50), seed (random; printed)
#
# Every check that can pass has a control beside it that must fail; where a control does not fail, the test fails, since it
# would have proved nothing.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
kills=${KILLS:-50}
seed=${SEED:-$RANDOM}
vm_dir=${CAIRN_VM_DIR:-/var/tmp/cairn-vm}
target=x86_64-unknown-linux-gnu
say() { echo "vm test: $*"; }
fail() { say "FAILED: $*" >&2; exit 1; }

[ "$(uname -m)" = x86_64 ] || fail "the guest is x86-64, and so must the worker be"
"$here/setup.sh"
# One run at a time: the images have fixed names.
exec 9>"$vm_dir/lock"
flock -n 9 || fail "another run uses $vm_dir"
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

# Static, since the guest has no libraries. --target keeps the flag from build scripts and macros.
cd "$here/../.."
say "building the workers"
build() { # package feature example
  RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols" \
    cargo build --quiet --release --target $target -p "$1" --features "$2" --example "$3"
  readlink -f "${CARGO_TARGET_DIR:-target}/$target/release/examples/$3"
}
worker=$(build cairn-pmem failpoints vm_worker)
heap_worker=$(build cairn-heap no-drains vm_heap_worker)
store_worker=$(build cairn-kv no-drains vm_store_worker)

scratch=$vm_dir/bytes
rm -rf "$scratch"
mkdir -p "$scratch"

kill_test() { "$here/kill_test.py" --worker "$worker" --seed "$seed" "$@"; }
heap_test() { kill_test disk --worker "$heap_worker" --mode "$@"; }
store_test() { kill_test "$@" --worker "$store_worker" --mode durable; }

must_lose() { # what arguments...
  say "control: $1: must lose data"
  shift
  status=0
  kill_test "$@" || status=$?
  [ $status = 1 ] || fail "the control ended with status $status: it lost nothing, so the test proves nothing"
}

say "bytes per sync on the guest's quiet disk"
# A page, and per mille for a commit of the file system's journal in between.
"$here/run.sh" -w "$scratch" -d "$scratch/disk" -o "$scratch/output" -f "$worker" \
  /job/vm_worker /mnt/disk bytes-per-sync --assert 4200 </dev/null
grep -v '^@@' "$scratch/output"
grep -q '^asserted' "$scratch/output" || fail "bytes per sync"
rm -f "$scratch/disk"

# This kernel may be newer than the guest's and have large folios, which the guest's ext4 has not; but others write here too.
if [ -e "/sys/dev/block/$(stat -c %Hd:%Ld "$scratch")/stat" ]; then
  say "bytes per sync on this host's disk"
  "$worker" "$scratch" bytes-per-sync --assert 65536
else
  say "$scratch has no block device with statistics: bytes per sync not measured on this host"
fi

must_lose "drains without a sync" disk --kills 5 --no-sync
must_lose "syncs that do not flush the disk's cache" disk --kills 20 --no-barrier
must_lose "a heap whose drains do not sync" disk --worker "$heap_worker" --mode inplace --kills 5 --no-sync
must_lose "a store whose drains do not sync" disk --worker "$store_worker" --mode durable --kills 5 --no-sync

say "without DAX the same device is a file"
kill_test nodax --kills 1

say "$kills cuts on a disk and on persistent memory, seed $seed"
kill_test disk --kills "$kills" &
disk=$!
kill_test dax --kills "$kills" &
dax=$!
wait $disk || fail "disk"
wait $dax || fail "persistent memory"

say "$kills cuts for each policy of a heap on a disk"
heap_test inplace --kills "$kills" &
in_place=$!
heap_test undo --kills "$kills" &
undo=$!
wait $in_place || fail "heap, in place"
wait $undo || fail "heap, undo"
heap_test eaw --kills "$kills" || fail "heap, eaw"

say "$kills cuts for a store on a disk and on persistent memory"
store_test disk --kills "$kills" &
disk=$!
store_test dax --kills "$kills" &
dax=$!
wait $disk || fail "store, disk"
wait $dax || fail "store, persistent memory"
say "a log whose leader writes its copies by RDMA"
"$here/rdma_test.sh"
say "passed"
