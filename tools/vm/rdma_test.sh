#!/usr/bin/env bash
# A log whose leader writes its copies by RDMA, in a virtual machine: libfabric's provider verbs over Soft-RoCE, which takes no hardware. Copies and the leader are killed; every
# record that was acknowledged must be read back. A part of `make test-vm`.
#
#   RECORDS=300 tools/vm/rdma_test.sh
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
vm_dir=${CAIRN_VM_DIR:-/var/tmp/cairn-vm}
work=$vm_dir/rdma
export PATH=$PATH:/usr/sbin:/sbin
say() { echo "vm test: $*"; }
fail() { say "FAILED: $*" >&2; exit 1; }

"$here/../setup.sh" --fabric
"$here/setup.sh"
cd "$here/../.."
say "building cairn with libfabric"
cargo build --quiet --release -p cairn-cli --features cairn-cli/libfabric
cairn=$(readlink -f "${CARGO_TARGET_DIR:-target}/release/cairn")

# What the guest needs besides: the program, the tool that makes the device, verbs' driver for it, and their libraries.
tree=$work/tree
rm -rf "$work"
mkdir -p "$tree/bin" "$tree/etc/libibverbs.d"
with_libraries() { # file, place in the guest
  install -D -m 755 "$1" "$tree$2"
  ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
    [ -e "$tree$library" ] || install -D -m 755 "$library" "$tree$library"
  done
}
with_libraries "$cairn" /bin/cairn
strip "$tree/bin/cairn"
with_libraries "$(command -v rdma)" /bin/rdma
driver=$(compgen -G '/usr/lib/*/libibverbs/librxe-rdmav*.so') || fail "no driver of verbs for Soft-RoCE: install ibverbs-providers"
with_libraries "$driver" "$driver"
cp /etc/libibverbs.d/rxe.driver "$tree/etc/libibverbs.d/"

status=0
timeout 900 "$here/run.sh" -w "$work" -o "$work/output" -r "$tree" -f "$here/rdma-guest" /job/rdma-guest "${RECORDS:-300}" \
  </dev/null || status=$?
cat "$work/output"
grep -q '^passed' "$work/output" || fail "the log by RDMA (status $status); the guest's console: $(tail -n 20 "$work/kernel-console")"
say "a log by RDMA: passed"
