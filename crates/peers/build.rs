//! Compiles the C side of the peers that are asked for by feature; nothing else.

fn main() {
    println!("cargo:rerun-if-changed=c");
    #[cfg(feature = "pmemobj")]
    pmemobj();
}

#[cfg(feature = "pmemobj")]
fn pmemobj() {
    let found = ["/usr/include", "/usr/local/include"]
        .iter()
        .any(|dir| std::path::Path::new(dir).join("libpmemobj.h").exists());
    if !found {
        println!("cargo:warning=libpmemobj.h was not found; next: make setup-peers");
    }
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
