# The commands of this repository. `make` alone lists them.
#
# `check` only reads; `fmt` and `fix` write. `test`, `check` and `crash` are the gate; what ends in `-long`, `fuzz`, `miri`, `tsan`, `demo`, `capi` and the tests of peers, fabric, RocksDB, upgrades and virtual machines are not in it.

.DEFAULT_GOAL := help
.PHONY: help setup setup-peers setup-fabric test alone test-deep crash demo capi check package test-peers test-fabric test-rocksdb fmt fix fuzz test-vm test-upgrade crash-long kill-long every-long recovery-long churn-long object-long space-long redis-long bench-long histories-long sim-long soak-replicated soak-chain test-porcupine miri tsan

SHELL := /bin/bash
CARGO ?= cargo

# For `make fuzz`: one target and how long.
FUZZ_TARGET ?= open
FUZZ_SECONDS ?= 300
# For `make test-vm` and `make test-rocksdb`: how often the machine, or each database, is killed.
KILLS ?= 50
# For `make crash` and `make crash-long`: states per scenario; and the seed of both. `cairn crash` by itself has 20,000.
GATE_BUDGET ?= 6000
BUDGET ?= 20000000
SEED ?= 1
# For `make recovery-long`, `make churn-long` and `make object-long`.
RECOVERY_BYTES ?= 1073741824
CHURN_SECONDS ?= 600
ROUNDS ?= 20000
OBJECT_BYTES ?= 1073741824
# For `make space-long`: how many stores.
SPACE_SEEDS ?= 200
# For `make bench-long`: where stores go that are to be on a disk.
DISK ?= /var/tmp
# For `make histories-long`: committed transactions, shared by four histories.
TRANSACTIONS ?= 4000000
# For `make soak-replicated` and `make soak-chain`.
MINUTES ?= 10
# For `make test-upgrade`.
FROM ?=
# For `make sim-long`; SEED too.
SCHEDULES ?= 1000000
# For `make demo`: further options, see `cairn help demo`.
DEMO ?=

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: ## Install what is missing from Debian (says what it does, runs again without harm)
	@tools/setup.sh

setup-peers: ## As setup, and what the benchmark's peers need (Debian's libpmemobj, libpmemlog, LMDB, RocksDB, Berkeley DB)
	@tools/setup.sh --peers

setup-fabric: ## As setup, and what RDMA needs (Debian's libfabric)
	@tools/setup.sh --fabric

# What takes longest stands in modules called `deep`.
test: setup alone test-porcupine ## Set-up, then the tests, without the slowest ones
	$(CARGO) test --workspace -- --skip deep::

# In the workspace every crate has the features that any other one asks for; who depends on one has not.
alone: ## Each package that is published compiles by itself, with its own features: as who depends on it has it
	for manifest in $$(grep -l '^publish = true' crates/*/Cargo.toml); do $(CARGO) check --quiet --manifest-path $$manifest || exit 1; done
	for feature in kv heap structures log array mvcc replication serde; do \
		$(CARGO) check --quiet --manifest-path crates/cairn/Cargo.toml --no-default-features --features $$feature || exit 1; done

test-deep: setup ## The slowest tests: each barrier and each step of a protocol is left out in turn, and some workload notices
	$(CARGO) test --workspace -- deep::

# The command that the tests have built: cargo would build a package on its own with other features, and nearly everything anew.
crash: setup ## All built-in crash scenarios, each with a part of the budget that `cairn crash` has by itself: some minutes
	$(CARGO) test --workspace --no-run
	"$${CARGO_TARGET_DIR:-target}/debug/cairn" crash --seed $(SEED) --budget $(GATE_BUDGET)

demo: setup ## Kill a working process 20 times and lose nothing: a minute; DEMO='--trace FILE' runs operations of yours
	@mkdir -p target
	$(CARGO) run --release --package cairn-cli --features redb -- demo --report target/demo.html $(DEMO)

capi: setup ## The C library: target/release/libcairn.so and libcairn.a, for crates/capi/include/cairn.h
	$(CARGO) build --release --package capi

check: setup test-porcupine ## The gate, read-only: format, clippy, docs, arrows, licences, links, tests, crash scenarios
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps
	$(CARGO) xtask check
	$(CARGO) test --workspace
	$(MAKE) crash

test-peers: setup-peers ## Clippy and tests of the peers and of the benchmark with them
	$(CARGO) clippy --package peers --package bench --package cairn-cli --features cairn-cli/peers --all-targets -- -D warnings
	PMEM_IS_PMEM_FORCE=1 $(CARGO) test --package peers --package bench --package cairn-cli --features cairn-cli/peers

test-fabric: setup-fabric ## Clippy and tests of transport, log and command with RDMA: libfabric's providers that need no hardware
	$(CARGO) clippy --package cairn-fabric --package cairn-log --package bench --package cairn-cli --features cairn-fabric/libfabric,cairn-log/libfabric,cairn-cli/libfabric --all-targets -- -D warnings
	$(CARGO) test --package cairn-fabric --package cairn-log --features cairn-fabric/libfabric,cairn-log/libfabric
	$(CARGO) test --package cairn-cli --features cairn-cli/libfabric --test it replicated::transports

test-rocksdb: setup-peers ## Kill RocksDB on a Cairn log KILLS=50 times in each of six ways, in memory and on disk
	CAIRN_KILLS=$(KILLS) $(CARGO) test --release --package peers --features rocksdb --test it -- --nocapture

package: ## Package what is published, and compile each package alone, as crates.io would have it
	$(CARGO) package --allow-dirty $$(grep -l '^publish = true' crates/*/Cargo.toml | xargs grep -hm1 '^name' | sed 's/.*"\(.*\)"/-p \1/')

fmt: ## Format all sources
	$(CARGO) fmt --all

fix: fmt ## Format, then apply what clippy can repair by itself
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged

fuzz: ## Fuzz one target: FUZZ_TARGET=open FUZZ_SECONDS=300 (needs cargo-fuzz)
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { echo 'error: cargo-fuzz is not installed'; echo 'next: cargo install --locked cargo-fuzz'; exit 1; }
	RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $(FUZZ_TARGET) -- -max_total_time=$(FUZZ_SECONDS) -timeout=20 -max_len=2048 -len_control=0

test-vm: ## Kill a virtual machine KILLS=50 times while it writes (records and stores on ext4 and DAX, heaps on ext4); then a log by RDMA in one (installs QEMU)
	KILLS=$(KILLS) tools/vm/test.sh

crash-long: ## All built-in crash scenarios with a large budget: BUDGET=20000000 SEED=1
	$(CARGO) run --release --package cairn-cli -- crash --budget $(BUDGET) --seed $(SEED)

kill-long: ## Kill a process with several threads 1000 times while it commits to heaps, on tmpfs and on disk, and 500 times to a store
	CAIRN_KILLS=1000 $(CARGO) test --release --package cairn-heap --test it kill:: -- --nocapture
	CAIRN_KILLS=500 $(CARGO) test --release --package cairn-kv --test it as_many_kills -- --nocapture

every-long: ## Every operation of a heap, and of a log, beside every other, in ROUNDS (20000) rounds of three threads
	CAIRN_EVERY=$(ROUNDS) $(CARGO) test --release --package cairn-heap --test it every:: -- --nocapture
	CAIRN_EVERY=$(ROUNDS) $(CARGO) test --release --package cairn-log --test it every:: -- --nocapture

recovery-long: ## How long a heap of RECOVERY_BYTES (1 GiB) takes to recover, in memory and on disk
	CAIRN_RECOVERY_BYTES=$(RECOVERY_BYTES) $(CARGO) test --release --package cairn-heap --test it recovery::how_long -- --nocapture

bench-long: setup-peers ## Stores of keys and values beside their peers, an hour: sizes, shapes and tails that `cairn bench kv` leaves out, in memory and in DISK (/var/tmp)
	$(CARGO) build --release --package cairn-cli --features cairn-cli/peers
	PMEM_IS_PMEM_FORCE=1 tools/bench-long.sh "$${CARGO_TARGET_DIR:-target}" $(DISK)

churn-long: ## Objects come and go for CHURN_SECONDS (600) with each of four policies, and with versions beside snapshots: memory and pool must not grow
	CAIRN_CHURN_SECONDS=$(CHURN_SECONDS) $(CARGO) test --release --package cairn-mvcc --test memory churning_for_long -- --nocapture
	CAIRN_CHURN_SECONDS=$(CHURN_SECONDS) $(CARGO) test --release --package cairn-heap --test memory churning_for_long -- --nocapture

object-long: ## One object of OBJECT_BYTES (1 GiB): written, rolled back, overwritten, recovered
	CAIRN_OBJECT_BYTES=$(OBJECT_BYTES) $(CARGO) test --release --package cairn-heap --test it large:: -- --nocapture

space-long: ## Fill stores of 16 to 256 MiB with anything, and empty them in any way, with restarts and kills, on full disks too: SPACE_SEEDS=200
	CAIRN_SPACE_MIB=256 CAIRN_SPACE_SEEDS=$(SPACE_SEEDS) $(CARGO) test --release --package cairn-kv --test it full:: -- --nocapture
	CAIRN_SPACE_MIB=256 CAIRN_SPACE_SEEDS=$(SPACE_SEEDS) $(CARGO) test --release --package cairn-server --test it full:: -- --nocapture

redis-long: setup ## A million random commands, and 220 000 random scripts, to `cairn serve` and to redis-server, whose answers must be the same, on stores and on heaps: some minutes
	CAIRN_ROUNDS=1700 $(CARGO) test --package cairn-server --test it -- differential::replies_

histories-long: ## Random transactions of 8 threads, checked for cycles and real time: TRANSACTIONS=4000000
	CAIRN_TRANSACTIONS=$(TRANSACTIONS) $(CARGO) test --release --package cairn-kv --test it histories -- --nocapture

# Debian's python3 has all that these need.
soak-replicated: setup ## Three machines of `cairn serve --etcd` under load, killed, paused, restarted; as root cut off, slow, with full disks; histories linearizable: MINUTES=10
	$(CARGO) build --release --package cairn-cli
	/usr/bin/python3 tools/soak-replicated.py --cairn $${CARGO_TARGET_DIR:-target}/release/cairn --minutes $(MINUTES)

soak-chain: setup ## Three machines of `cairn chain serve` likewise: histories linearizable, and each numbered request carried out once: MINUTES=10
	$(CARGO) build --release --package cairn-cli
	/usr/bin/python3 tools/soak-chain.py --cairn $${CARGO_TARGET_DIR:-target}/release/cairn --minutes $(MINUTES)

test-porcupine: setup ## The checker of histories: format, vet, and histories that are linearizable or not
	@cd tools/porcupine && unformatted=$$(gofmt -l .) && { [ -z "$$unformatted" ] || { echo "error: not formatted: $$unformatted"; echo 'next: gofmt -w tools/porcupine'; exit 1; }; }
	cd tools/porcupine && go vet . && go test .

test-upgrade: ## Three machines of `cairn serve --etcd` under load get this program one after the other, and the earlier one again: FROM=commit (the last one with an older wire version)
	$(CARGO) build --release --package cairn-cli
	/usr/bin/python3 tools/test-upgrade.py --new $${CARGO_TARGET_DIR:-target}/release/cairn --from "$(FROM)"

sim-long: ## Random schedules of a replicated log, and of a chain, with all that goes wrong: SCHEDULES=1000000 SEED=1
	CAIRN_SCHEDULES=$(SCHEDULES) CAIRN_SEED=$(SEED) $(CARGO) test --release --package cairn-log --lib -- schedules_lose_nothing a_log_that_grows --nocapture
	CAIRN_SCHEDULES=$(SCHEDULES) CAIRN_SEED=$(SEED) $(CARGO) test --release --package cairn-chain --lib -- schedules_lose_nothing --nocapture

# Both need the nightly toolchain: its interpreter, or the sources of the standard library, which is built with the sanitizer too.
NIGHTLY = $(CARGO) +nightly
define nightly_with
	@rustup component list --toolchain nightly 2>/dev/null | grep -q '^$(1).*(installed)' || { echo 'error: the nightly toolchain with $(1) is not installed'; echo 'next: rustup toolchain install nightly --component $(1)'; exit 1; }
endef

miri: ## Undefined behaviour: every engine on plain memory, interpreted by Miri (a quarter of an hour; needs nightly with miri)
	$(call nightly_with,miri)
	MIRIFLAGS=-Zmiri-disable-isolation $(NIGHTLY) miri test --target-dir target/miri --package scenarios --test it plain::

tsan: ## Data races: every engine on plain memory and the stress tests of heap and kv, with ThreadSanitizer (needs nightly with rust-src)
	$(call nightly_with,rust-src)
	RUSTFLAGS=-Zsanitizer=thread TSAN_OPTIONS="suppressions=$(CURDIR)/tools/tsan.txt halt_on_error=1" \
	  $(NIGHTLY) test -Zbuild-std --target x86_64-unknown-linux-gnu --target-dir target/tsan --package scenarios --test it plain::
