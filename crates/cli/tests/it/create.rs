//! `cairn create` and `cairn info`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{cairn, temp};

#[test]
fn a_created_pool_is_shown() {
    let dir = temp();
    let run = cairn(dir.path(), "create p --size 1M --layout shop-1 --domain file");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("1.0 MiB") && run.out.contains("domain file: survives power loss"), "{run:?}");
    assert_eq!(fs::metadata(dir.path().join("p")).unwrap().permissions().mode() & 0o777, 0o600);

    let info = cairn(dir.path(), "info p --json");
    assert_eq!(info.code, 0, "{info:?}");
    let json = info.json();
    assert_eq!(json["size"], 1 << 20);
    assert_eq!(json["layout"], "shop-1");
    assert_eq!(json["generation"], 1);
    assert_eq!(json["closed_cleanly"], true);
    assert_eq!(json["regions"].as_array().unwrap().len(), 0);
    assert_eq!(json["id"].as_str().unwrap().len(), 16);

    let text = cairn(dir.path(), "info p");
    assert!(text.out.contains("layout      shop-1"), "{text:?}");
}

#[test]
fn info_shows_regions() {
    let dir = temp();
    let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p")).unwrap();
    drop(pool.add_region("counters", 8192).unwrap());
    pool.close().unwrap();
    let region = &cairn(dir.path(), "info p --json").json()["regions"][0];
    assert_eq!((&region["name"], &region["kind"], &region["bytes"]), (&"counters".into(), &"raw".into(), &8192.into()));
    assert!(cairn(dir.path(), "info p").out.contains("counters"));
}

#[test]
fn latency_is_for_the_emulated_domain() {
    let dir = temp();
    let run = cairn(dir.path(), "create p --size 1M --domain emulated --nvm-latency drain=300,line=60");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("not power loss"), "{run:?}");
}

#[test]
fn failures_say_what_where_and_what_next() {
    let dir = temp();
    fs::write(dir.path().join("text"), "not a pool at all").unwrap();
    assert_eq!(cairn(dir.path(), "create p --size 1M").code, 0);
    for (line, code, what, next) in [
        ("create p --size 1M", 2, "p: create failed", "another path"),
        ("create gone/p --size 1M", 2, "gone/p: ", "path"),
        ("create q --size 1", 2, "q: pool size in bytes: 1 is outside", "help create"),
        ("info gone", 2, "gone: open failed", "cairn create"),
        ("info text", 2, "text: not a pool", "check the path"),
        ("check gone", 2, "gone: open failed", "cairn create"),
        ("check text", 2, "text: not a pool", "check the path"),
    ] {
        let run = cairn(dir.path(), line);
        assert_eq!(run.code, code, "{line}: {run:?}");
        let failure = run.failure();
        assert!(failure.0.contains(what) && failure.1.contains(next), "{line}: {run:?}");
    }
    assert!(!dir.path().join("q").exists());
}

#[test]
fn persistent_memory_is_not_pretended() {
    let dir = temp();
    let run = cairn(dir.path(), "create p --size 1M --domain pmem");
    // On a machine with persistent memory below the temporary directory, there is nothing to refuse.
    if run.code != 0 {
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.failure().0.contains("no "), "{run:?}");
        assert!(!dir.path().join("p").exists());
    }
}

#[test]
fn a_pool_in_use_names_its_holder() {
    let dir = temp();
    let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p")).unwrap();
    for line in ["info p", "check p", "check --recover p"] {
        let run = cairn(dir.path(), line);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.failure().0.contains(&format!("process {}", std::process::id())), "{run:?}");
    }
    drop(pool);
}
