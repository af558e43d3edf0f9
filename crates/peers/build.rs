//! Compiles the C side of the peers that are asked for by feature, and links their libraries; nothing else.

fn main() {
    println!("cargo:rerun-if-changed=c");
    #[cfg(feature = "pmemobj")]
    pmemobj();
    #[cfg(feature = "pmemlog")]
    pmemlog();
}

#[cfg(any(feature = "pmemobj", feature = "pmemlog"))]
fn need(header: &str) {
    let found =
        ["/usr/include", "/usr/local/include"].iter().any(|dir| std::path::Path::new(dir).join(header).exists());
    if !found {
        println!("cargo:warning={header} was not found; next: make setup-peers");
    }
}

#[cfg(feature = "pmemobj")]
fn pmemobj() {
    need("libpmemobj.h");
    cc::Build::new()
        .files(["c/pool.c", "c/objects.c", "c/hashmap.c", "c/btree.c"])
        .include("c")
        .opt_level(2)
        .flag_if_supported("-std=gnu11")
        .warnings(true)
        .warnings_into_errors(false)
        // The transaction macros are made of setjmp, and leave values unused.
        .flag_if_supported("-Wno-clobbered")
        .flag_if_supported("-Wno-unused-value")
        .compile("cairn_peers_pmemobj");
    println!("cargo:rustc-link-lib=pmemobj");
    println!("cargo:rustc-link-lib=pmem");
}

#[cfg(feature = "pmemlog")]
fn pmemlog() {
    need("libpmemlog.h");
    println!("cargo:rustc-link-lib=pmemlog");
    println!("cargo:rustc-link-lib=pmem");
}
