//! Compiles the C side of the peers that are asked for by feature, and links their libraries; nothing else.

fn main() {
    println!("cargo:rerun-if-changed=c");
    #[cfg(feature = "pmemobj")]
    pmemobj();
    #[cfg(feature = "pmemlog")]
    link("libpmemlog.h", &["pmemlog", "pmem"]);
    #[cfg(feature = "lmdb")]
    link("lmdb.h", &["lmdb"]);
    #[cfg(feature = "rocksdb")]
    {
        compile("cairn_peers_rocksdb", &["c/rocksdb.c"], &[]);
        rocksdb_wal();
        link("rocksdb/c.h", &["rocksdb"]);
    }
    #[cfg(feature = "bdb")]
    {
        compile("cairn_peers_bdb", &["c/bdb.c"], &[]);
        link("db.h", &["db-5.3"]);
    }
    #[cfg(feature = "syncs")]
    compile("cairn_peers_sync", &["c/sync.c"], &[]);
}

/// Says which package is missing before the linker does.
#[allow(dead_code)] // not with every feature
fn link(header: &str, libraries: &[&str]) {
    let found =
        ["/usr/include", "/usr/local/include"].iter().any(|dir| std::path::Path::new(dir).join(header).exists());
    if !found {
        println!("cargo:warning={header} was not found; next: make setup-peers");
    }
    for library in libraries {
        println!("cargo:rustc-link-lib={library}");
    }
}

#[cfg(feature = "syncs")]
fn compile(name: &str, files: &[&str], flags: &[&str]) {
    let mut build = cc::Build::new();
    build.files(files).include("c").opt_level(2).flag_if_supported("-std=gnu11").warnings_into_errors(false);
    for flag in flags {
        build.flag_if_supported(flag);
    }
    build.compile(name);
}

/// RocksDB with another write-ahead log, whose C functions are those of crate `capi`.
#[cfg(feature = "rocksdb")]
fn rocksdb_wal() {
    const INTEGRATION: &str = "../../integrations/rocksdb";
    let header = "../capi/include";
    println!("cargo:rerun-if-changed={INTEGRATION}");
    println!("cargo:rerun-if-changed={header}");
    let ours = ["cairn_wal.cc", "wal_log.cc"].map(|file| format!("{INTEGRATION}/{file}"));
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).includes([INTEGRATION, header]).files(ours).file("c/rocksdb_wal.cc");
    build.compile("cairn_peers_rocksdb_wal");
}

#[cfg(feature = "pmemobj")]
fn pmemobj() {
    // The transaction macros are made of setjmp, and leave values unused.
    let flags = ["-Wno-clobbered", "-Wno-unused-value"];
    compile("cairn_peers_pmemobj", &["c/pool.c", "c/objects.c", "c/hashmap.c", "c/btree.c"], &flags);
    link("libpmemobj.h", &["pmemobj", "pmem"]);
}
