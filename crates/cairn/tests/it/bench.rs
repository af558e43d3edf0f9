//! `cairn bench limits`.

use std::fs;

use serde_json::Value;

use super::{cairn, temp};

#[test]
fn limits_of_a_directory() {
    let dir = temp();
    let run = cairn(dir.path(), "bench limits --quick --dir . --domain emulated --json rows.json");
    assert_eq!(run.code, 0, "{run:?}");
    for what in ["store+flush+drain", "copy_nt+drain", "flush lines", "stream", "crc32c", "xxh3", "fetch_add"] {
        assert!(run.out.contains(what), "{what}: {run:?}");
    }
    let text = fs::read_to_string(dir.path().join("rows.json")).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let barrier =
        rows.iter().find(|row| row["params"]["op"] == "store+flush+drain" && row["params"]["bytes"] == 256).unwrap();
    assert_eq!(barrier["experiment"], "limits");
    assert_eq!(barrier["barriers_per_op"], 1.0);
    assert_eq!(barrier["lines_per_op"], 4.0);
    assert_eq!(barrier["domain"], "emulated");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["rows.json"], "the pools are gone");
}

#[test]
fn json_on_standard_output_is_nothing_else() {
    let dir = temp();
    let run = cairn(dir.path(), "bench limits --quick --dir . --domain emulated --json -");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{run:?}");
}

#[test]
fn a_directory_that_is_not_there() {
    let dir = temp();
    let run = cairn(dir.path(), "bench limits --quick --dir gone");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.failure().0.contains("gone"), "{run:?}");
    let run = cairn(dir.path(), "bench limits --quick --json gone/rows.json");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.failure().0.contains("gone/rows.json"), "{run:?}");
}
