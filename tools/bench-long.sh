#!/usr/bin/env bash
# What `make bench-long` measures: tools/bench-long.sh TARGET_DIRECTORY DISK_DIRECTORY. One row per line goes to TARGET_DIRECTORY/bench-long.jsonl,
# tables to the terminal.
set -euo pipefail

target=$1 disk=$2
rows="$target/bench-long.jsonl"
peers=lmdb,lmdb-writemap,rocksdb,redb,fjall,pmemobj-hashmap
: >"$rows"

measure() {
    echo "== $*"
    "$target/release/cairn" bench "$@" --json "$target/bench-long.part" --rounds 15
    cat "$target/bench-long.part" >>"$rows"
    rm -f "$target/bench-long.part"
}

# Sizes of values, and shapes: deletions, reading what was just written.
measure kv --peer "$peers" --workload put,A,C,readback,churn --keys 100k --value-bytes 16,100,1024,4096 --threads 1,2
measure kv --peer "$peers" --workload put,A --keys 5k --value-bytes 65536 --threads 1
# More keys than caches hold.
measure kv --peer "$peers" --workload put,A,C,E --keys 1M,5M --value-bytes 100 --threads 1,2
# On a disk: as many bytes as half of the memory has, which its cache does not keep beside all the stores.
bytes=$(awk '/MemTotal/ { print int($2 * 1024 / 2) }' /proc/meminfo)
measure kv --peer "$peers" --workload put,A,C --keys $((bytes / 4150)) --value-bytes 4096 --threads 1,8 --dir "$disk" --round-ms 200
# Opening after a kill, and space.
measure kv-open --peer "$peers" --keys 1M --dir "$disk"
measure kv-space --peer "$peers" --keys 100k
echo "rows: $rows"
