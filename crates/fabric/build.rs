//! Compiles the C side of the libfabric backend, if that is asked for by feature, and links the library; nothing else.

fn main() {
    println!("cargo:rerun-if-changed=src/libfabric/shim.c");
    println!("cargo:rerun-if-changed=src/libfabric/shim.h");
    #[cfg(feature = "libfabric")]
    libfabric();
}

#[cfg(feature = "libfabric")]
fn libfabric() {
    let header = "rdma/fabric.h";
    // Says which package is missing before the compiler does.
    if !["/usr/include", "/usr/local/include"].iter().any(|dir| std::path::Path::new(dir).join(header).exists()) {
        println!("cargo:warning={header} was not found; next: make setup-fabric");
    }
    let mut build = cc::Build::new();
    build.file("src/libfabric/shim.c").opt_level(2).flag_if_supported("-std=gnu11");
    build.compile("cairn_fabric_shim");
    println!("cargo:rustc-link-lib=fabric");
}
