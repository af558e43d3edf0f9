//! Programs in C and C++ that use the interface as any other would: compiled against the header with every warning an error, and with the address and undefined-behaviour
//! sanitizers where the compiler has them; linked with the static library.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// What a program of Rust's standard library needs from the system.
const LIBRARIES: [&str; 4] = ["-lpthread", "-ldl", "-lm", "-lgcc_s"];
const SANITIZERS: &str = "-fsanitize=address,undefined";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Beside this test: cargo builds all kinds of the library before it.
fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libcairn.a");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// Flags of the sanitizers, if a program compiled with them runs here.
static SANITIZED: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = dir.path().join("empty");
    let made = Command::new("cc").arg(SANITIZERS).arg(&source).arg("-o").arg(&program).output().unwrap();
    if made.status.success() && Command::new(&program).status().is_ok_and(|status| status.success()) {
        vec![SANITIZERS, "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    } else {
        eprintln!("compiled without sanitizers, which this compiler has not");
        vec![]
    }
});

fn compiled(source: &str, into: &Path, sanitizers: &[&str]) -> PathBuf {
    let (compiler, standard) = if source.ends_with(".cc") { ("c++", "-std=c++11") } else { ("cc", "-std=c11") };
    let program = into.join(source.replace('.', "_"));
    let made = Command::new(compiler)
        .args([standard, "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-g", "-O1"])
        .args(sanitizers)
        .arg("-I")
        .arg(here("include"))
        .arg(here("tests/c").join(source))
        .arg(library())
        .args(LIBRARIES)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(made.status.success(), "{source}:\n{}", String::from_utf8_lossy(&made.stderr));
    program
}

/// Compiles the program and runs it with an empty folder, on `parent`.
fn run_in(source: &str, parent: &Path) -> Output {
    run_with(source, parent, &[])
}

fn run_with(source: &str, parent: &Path, arguments: &[String]) -> Output {
    let dir = tempfile::tempdir_in(parent).unwrap();
    run_compiled(compiled(source, dir.path(), &SANITIZED), dir.path(), arguments)
}

fn run_compiled(program: PathBuf, dir: &Path, arguments: &[String]) -> Output {
    let source = program.display();
    let output = Command::new(&program).arg(dir).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source}: {}\n{said}", output.status);
    output
}

fn run(source: &str) -> Output {
    run_in(source, &std::env::temp_dir())
}

/// Where a barrier costs nothing, if there is such a place.
fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

#[test]
fn a_log() {
    run("log_basics.c");
    run_in("log_basics.c", &memory());
}

#[test]
fn errors_of_a_log() {
    run("log_errors.c");
}

#[test]
fn a_log_that_is_killed() {
    run_in("log_kill.c", &memory());
    run_in("log_kill.c", Path::new(env!("CARGO_TARGET_TMPDIR")));
}

#[test]
fn a_log_of_many_threads() {
    run_in("log_threads.c", &memory());
}

#[test]
fn a_store() {
    run("kv_basics.c");
}

#[test]
fn a_store_that_is_killed() {
    run_in("kv_kill.c", &memory());
}

#[test]
fn a_store_of_many_threads() {
    run_in("kv_threads.c", &memory());
}

#[test]
fn children_of_a_fork() {
    let dir = tempfile::tempdir_in(memory()).unwrap();
    run_compiled(compiled("fork.c", dir.path(), &[]), dir.path(), &[]);
}

#[test]
fn an_array() {
    run("array_basics.c");
    run_in("array_basics.c", &memory());
}

#[test]
fn an_array_that_is_killed() {
    run_in("array_kill.c", &memory());
    run_in("array_kill.c", Path::new(env!("CARGO_TARGET_TMPDIR")));
}

#[test]
fn logs_and_stores_on_several_machines() {
    let secret = log::fabric::Secret::new(b"what all of them know\0").unwrap();
    let trust = log::fabric::Options { secret: Some(secret), ..Default::default() };
    let dir = tempfile::tempdir_in(memory()).unwrap();
    let serve = |n| log::Replica::serve(dir.path().join(format!("{n}")), "127.0.0.1:0", trust.clone()).unwrap();
    let replicas = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(serve);
    let addresses = replicas.each_ref().map(|replica| replica.address().unwrap().to_string());
    run_with("replicated.c", &memory(), &addresses);
}

#[test]
fn from_cplusplus() {
    run("cplusplus.cc");
}

/// Sizes and places as the header's sources assert them, in numbers.
#[test]
fn c_and_rust_agree_on_structs() {
    let said = String::from_utf8(run("layout.c").stdout).unwrap();
    let expected = "\
cairn_log_options 80
cairn_log_options.frequency 32
cairn_log_options.within_us 40
cairn_log_options.read_only 76
cairn_kv_options 80
cairn_kv_options.transactions 48
cairn_kv_options.reserved 76
cairn_log_counts 104
cairn_log_found 56
cairn_kv_counts 104
cairn_record 24
cairn_pair 32
cairn_change 40
cairn_change.remove 32
cairn_range 40
cairn_range.reverse 36
cairn_array_options 72
cairn_array_options.transactions 56
cairn_array_counts 72
cairn_array_found 40
enum cairn_group 4
";
    assert_eq!(said, expected);
}
