#!/usr/bin/env bash
# Makes a Debian machine ready to build and test this repository.
#
# Run it as often as you like: it installs only what is missing, says so, and needs neither the network nor root when
# everything is there. `--peers` also installs what the benchmark's peers need (cargo feature `peers`), `--fabric` what RDMA needs (cargo feature
# `libfabric` of the crate `fabric`).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'error: %s\nnext: %s\n' "$1" "$2" >&2
    exit 1
}

# 1. Debian packages: a C compiler and its headers link every Rust program.
missing=()
command -v make >/dev/null || missing+=(make)
command -v cc >/dev/null || missing+=(gcc)
# The C header is C++, too.
command -v c++ >/dev/null || missing+=(g++)
if ! echo '#include <stdlib.h>' | cc -E -x c - >/dev/null 2>&1; then
    missing+=(libc6-dev)
fi
# The interface of etcd is compiled from its description when membership is built.
command -v protoc >/dev/null || missing+=(protobuf-compiler)
[[ -e /usr/include/google/protobuf/descriptor.proto ]] || missing+=(libprotobuf-dev)
# What tests of membership start.
command -v etcd >/dev/null || missing+=(etcd-server)
command -v etcdctl >/dev/null || missing+=(etcd-client)
# Hosts of tests, and cuts between them.
command -v ip >/dev/null || missing+=(iproute2)
command -v iptables >/dev/null || [[ -x /usr/sbin/iptables ]] || missing+=(iptables)
# What tests of the server start: the real servers to compare with, and the real clients.
command -v redis-server >/dev/null || missing+=(redis-server)
command -v redis-cli >/dev/null || missing+=(redis-tools)
command -v memcached >/dev/null || missing+=(memcached)
/usr/bin/python3 -c 'import redis' 2>/dev/null || missing+=(python3 python3-redis)
/usr/bin/python3 -c 'import pymemcache' 2>/dev/null || missing+=(python3 python3-pymemcache)
command -v chromium-headless-shell >/dev/null || missing+=(chromium-headless-shell)
command -v openssl >/dev/null || missing+=(openssl)
command -v strace >/dev/null || missing+=(strace)
PATH=$PATH:/usr/sbin:/sbin command -v mkfs.ext4 >/dev/null || missing+=(e2fsprogs)
PATH=$PATH:/usr/sbin:/sbin command -v mkfs.xfs >/dev/null || missing+=(xfsprogs)
PATH=$PATH:/usr/sbin:/sbin command -v mount >/dev/null || missing+=(mount)
command -v go >/dev/null || missing+=(golang-go)
if [[ ${1-} == --peers ]]; then
    [[ -e /usr/include/libpmemobj.h ]] || missing+=(libpmemobj-dev)
    [[ -e /usr/include/libpmemlog.h ]] || missing+=(libpmemlog-dev)
    [[ -e /usr/include/lmdb.h ]] || missing+=(liblmdb-dev)
    [[ -e /usr/include/rocksdb/c.h ]] || missing+=(librocksdb-dev)
    [[ -e /usr/include/db.h ]] || missing+=(libdb-dev)
fi
if [[ ${1-} == --fabric ]]; then
    [[ -e /usr/include/rdma/fabric.h ]] || missing+=(libfabric-dev)
fi

if ((${#missing[@]})); then
    command -v apt-get >/dev/null ||
        fail "missing: ${missing[*]}, and this is no Debian (no apt-get)" "install them with your system's package manager"
    if ((EUID == 0)); then
        as_root=()
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=(sudo)
    else
        fail "missing from Debian: ${missing[*]}, and only root can install" \
            "run as root: apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    fi
    say "installing ${missing[*]}"
    # Servers that Debian starts when it installs them stay as they are; the tests start their own.
    "${as_root[@]}" apt-get update -q
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

# 2. Rust. Debian's own is older than what the workspace asks for, so this script does not install it.
wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
for need in cargo rustc; do
    command -v "$need" >/dev/null ||
        fail "no Rust: $need is not on the PATH" "install Rust $wanted or newer with rustup, then run this again"
done
found=$(rustc --version | cut -d' ' -f2)
oldest=$(printf '%s\n%s\n' "$wanted" "${found%%-*}" | sort -V | head -n1)
[[ $oldest == "$wanted" ]] ||
    fail "Rust $found is older than $wanted, which Cargo.toml asks for" "rustup update stable"

# 3. Programs in Go: go-ycsb's client with its binding for Redis, for a test of the server; porcupine, which checks histories (tools/soak-replicated.py).
for tool in ycsb porcupine; do
    built=target/tools/$tool
    if [[ ! -e $built || -n $(find tools/$tool -newer $built -name '*.go' -o -newer $built -name 'go.*') ]]; then
        say "building $built"
        mkdir -p target/tools
        (cd tools/$tool && go build -o ../../$built .) ||
            fail "$built cannot be built" "look at what go says above; it fetches modules from proxy.golang.org the first time"
    fi
done

if ((${#missing[@]})); then
    say "done: installed ${missing[*]}; Rust $found"
else
    say "nothing to do: $(cc --version | head -n1), Rust $found"
fi
