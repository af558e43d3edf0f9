//! `cairn bench`.

use std::fs;

use serde_json::Value;

use super::{Run, cairn, temp};

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

/// The rows of a run, and the run.
fn rows_of(dir: &std::path::Path, line: &str) -> Vec<Value> {
    // Without atomicity a transaction that meets another one behind its first change ends the run: hardly ever, where a thread is off its processor in the midst of one.
    let is_cut_short = |run: &Run| run.code == 2 && line.contains("none") && run.err.contains("has no atomicity");
    let again = || cairn(dir, &format!("{line} --json -"));
    let run = std::iter::repeat_with(again)
        .take(4)
        .find(|run| !is_cut_short(run))
        .unwrap_or_else(|| panic!("{line}: four runs were cut short"));
    assert_eq!(run.code, 0, "{line}: {run:?}");
    run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// In memory, if there is some: a barrier on a disk takes thousands of times as long as one of memory.
fn temp_in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| temp())
}

#[test]
fn engines_are_compared_in_every_experiment() {
    let dir = temp_in_memory();
    for (line, params) in [
        ("tx-overwrite --objects 4 --bytes 64", vec!["objects", "bytes", "set"]),
        ("tx-alloc", vec!["op", "bytes"]),
        ("ycsb --workload a --keys 500", vec!["workload", "keys", "key_bytes", "value_bytes", "distribution"]),
        ("dependent --keys 500", vec!["arrival", "writers", "op"]),
        ("worst-case --bytes 64", vec!["bytes", "object"]),
        ("structures --structure list,treap --keys 200 --list-keys 20", vec!["keys", "value_bytes"]),
        ("structures --structure graph --keys 200", vec!["keys", "degree"]),
        ("smallbank --customers 100", vec!["customers", "hot", "hot_percent"]),
        ("tpcc --customers 20 --items 50", vec!["mix", "declare", "warehouses", "customers", "items"]),
    ] {
        let rows = rows_of(dir.path(), &format!("bench {line} --quick --dir . --engine none,inplace --threads 2"));
        let name = line.split(' ').next().unwrap();
        assert!(rows.len() >= 2 && rows.len().is_multiple_of(2), "{name}: {} rows", rows.len());
        for pair in rows.chunks(2) {
            assert_eq!((&pair[0]["engine"], &pair[1]["engine"]), (&Value::from("none"), &Value::from("inplace")));
            for row in pair {
                assert_eq!((&row["experiment"], &row["threads"]), (&Value::from(name), &Value::from(2)));
                assert!(params.iter().all(|param| row["params"].get(param).is_some()), "{row}");
                assert!(row["ops"].as_u64() > Some(0), "{row}");
                // A pair of transactions has no latency of its own.
                assert_eq!(row["p99_ns"].is_number(), row["params"]["op"] != "pair", "{row}");
                assert!(row["barriers_per_op"].is_number() && row["baseline"] == "none", "{row}");
                assert!(row["ratio"]["median"].as_f64() > Some(0.0), "{row}");
            }
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the pools are gone");
}

#[test]
fn tables_and_plots() {
    let dir = temp_in_memory();
    let run = cairn(dir.path(), "bench worst-case --quick --dir . --bytes 64 --threads 1 --plot plots");
    assert_eq!(run.code, 0, "{run:?}");
    for what in [
        "x none",
        "undo",
        "inplace",
        "worst-case: bytes=64 object=own threads=1",
        "machine:",
        "plots/worst-case-t1.svg",
    ] {
        assert!(run.out.contains(what), "{what}: {run:?}");
    }
    assert!(fs::read_to_string(dir.path().join("plots/worst-case-t1.svg")).unwrap().contains("inplace"));
}

/// In the table and in the rows: never silently.
#[cfg(not(feature = "peers"))]
#[test]
fn a_peer_that_is_not_there_is_reported() {
    let dir = temp();
    let line = "bench tx-alloc --quick --dir . --engine reference --peer pmemobj --threads 1";
    let run = cairn(dir.path(), line);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("pmemobj is missing: not in this build: make setup-peers"), "{run:?}");
    let rows = rows_of(dir.path(), line);
    let missing: Vec<_> = rows.iter().filter(|row| row["engine"] == "pmemobj").collect();
    assert!(missing.len() == 3 && missing.iter().all(|row| row["missing"].is_string() && row["ops"] == 0), "{rows:?}");
}

#[cfg(feature = "peers")]
#[test]
fn the_peer_takes_part() {
    let dir = temp();
    let line = "bench ycsb --quick --dir /dev/shm --keys 500 --engine none --peer pmemobj --threads 2";
    let rows = rows_of(dir.path(), line);
    assert_eq!(rows.len(), 24);
    for row in rows.iter().filter(|row| row["missing"].is_null()) {
        assert_eq!((&row["baseline"], &row["domain"]), (&Value::from("pmemobj"), &Value::from("emulated")), "{row}");
    }
}

#[test]
fn a_trace_is_replayed() {
    let dir = temp_in_memory();
    fs::write(dir.path().join("good"), "put a 100\nget a\nscan a 3 # all\ndelete a\n").unwrap();
    fs::write(dir.path().join("bad"), "put a 100\nput b\n").unwrap();
    let rows = rows_of(dir.path(), "bench ycsb --quick --dir . --trace good --threads 1 --engine undo");
    assert_eq!((rows.len(), &rows[0]["params"]["trace"]), (1, &Value::from("good")));
    let run = cairn(dir.path(), "bench ycsb --quick --dir . --trace bad");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.failure().0.contains("bad:2: how many bytes?"), "{run:?}");
}

#[test]
fn logs_are_compared() {
    let dir = temp_in_memory();
    let line =
        "bench log-append --quick --dir . --bytes 64 --threads 1,2 --policy sync,freq:8,group:16 --peer flex,pwrite";
    let rows = rows_of(dir.path(), line);
    let who: Vec<_> =
        rows.iter().map(|row| (row["engine"].as_str().unwrap(), row["params"]["policy"].as_str().unwrap())).collect();
    let once = [
        ("bare", "sync"),
        ("log", "sync"),
        ("log", "freq:8"),
        ("log", "group:16"),
        ("flex", "sync"),
        ("pwrite", "sync"),
    ];
    assert_eq!(who, [once, once].concat());
    for row in &rows {
        assert_eq!((&row["experiment"], &row["params"]["bytes"]), (&Value::from("log-append"), &Value::from(64)));
        assert!(row["params"]["window"].is_u64() && row["p99_ns"].is_number() && row["baseline"] == "flex", "{row}");
        assert!(row["of_limit"]["median"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["barriers_per_op"].is_number(), row["engine"] != "pwrite", "{row}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the logs are gone");

    let run = cairn(dir.path(), "bench log-append --quick --dir . --bytes 64 --threads 1 --policy freq:4 --plot plots");
    assert_eq!(run.code, 0, "{run:?}");
    for what in ["log-append: bytes=64 threads=1", "of bare", "log freq:4 (window 4)", "plots/log-append-t1.svg"] {
        assert!(run.out.contains(what), "{what}: {run:?}");
    }
}

/// Each backup is a process of its own.
#[test]
fn logs_with_backups_are_compared() {
    let dir = temp_in_memory();
    let line = "bench log-replicate --quick --dir . --room 1M --bytes 64 --backups 0,1,2 --copies local+remote";
    let rows = rows_of(dir.path(), line);
    assert_eq!(rows.len(), 3 * 3);
    for row in &rows {
        assert_eq!(
            (&row["experiment"], &row["params"]["transport"]),
            (&"log-replicate".into(), &"tcp".into()),
            "{row}"
        );
        assert!(row["params"]["backups"].is_u64() && row["p99_ns"].is_number() && row["ratio"].is_object(), "{row}");
    }
    let rows = rows_of(dir.path(), "bench log-takeover --quick --dir . --live 1M");
    let own: Vec<_> = rows.iter().map(|row| row["params"]["own_copy"].as_str().unwrap()).collect();
    assert_eq!(own, ["alone", "there", "lost", "never"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the copies are gone");

    let line = "bench replicated-log --quick --dir . --room 1M --bytes 64 --backups 1,2 --replicas remote";
    let run = cairn(dir.path(), line);
    assert_eq!(run.code, 0, "{run:?}");
    for what in ["log sync 1 backup", "2 backups take", "pipelined:16 with one backup is", "asked for: at most 1.25"] {
        assert!(run.out.contains(what), "{what}: {run:?}");
    }
}

#[test]
fn wrong_policies_and_baselines_are_refused() {
    let dir = temp();
    for (line, what) in [
        ("log-append --policy sometimes", "sync, freq:N, group:N"),
        ("log-append --policy freq:0", "1 to 512"),
        ("log-append --baseline group:9", "--baseline group:9: it does not take part"),
        ("log-append --bytes 0 --quick --dir .", "0 bytes"),
        ("figures --paper venus", "choose from: arcadia, kamino"),
        ("figures --paper arcadia --figure 4", "choose from: 5a, 5b"),
        ("log-replicate --policy group:8", "sync, pipelined:N, freq:N"),
        ("log-replicate --backups 9 --quick --dir .", "8 at most"),
        ("log-takeover --backups 1 --quick --dir .", "from 2 to 8"),
    ] {
        let run = cairn(dir.path(), &format!("bench {line}"));
        assert_eq!(run.code, 2, "{line}: {run:?}");
        assert!(run.err.contains(what), "{line}: {run:?}");
    }
}

#[test]
fn figures_of_a_paper() {
    let dir = temp_in_memory();
    let run = cairn(dir.path(), "bench figures --paper arcadia --figure 8 --quick --dir . --json rows.json");
    assert_eq!(run.code, 0, "{run:?}");
    for what in ["arcadia 8a: ", "arcadia 8b: ", "no hardware counters", "bound 32", "paper: group commit", "machine:"]
    {
        assert!(run.out.contains(what), "{what}: {run:?}");
    }
    let text = fs::read_to_string(dir.path().join("rows.json")).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().all(|row| row["experiment"] == "figures" && row["params"]["paper"] == "arcadia"));
    assert!(["8a", "8c", "8d"].iter().all(|figure| rows.iter().any(|row| row["params"]["figure"] == *figure)));
}

/// At each level they have; a store that has none is missing.
#[test]
fn stores_are_compared() {
    let dir = temp_in_memory();
    let rows = |line: &str| rows_of(dir.path(), &format!("bench {line} --quick --dir . --threads 1 --engine kv,btree"));
    let kv = rows("kv --workload put,c --keys 300 --value-bytes 64");
    let who: Vec<_> =
        kv.iter().map(|row| (row["params"]["workload"].as_str().unwrap(), row["engine"].as_str().unwrap())).collect();
    let [load, put, c] = ["load", "put", "C"].map(|workload| [(workload, "kv"), (workload, "btree")]);
    assert_eq!(who, [load, put, c].concat());
    assert!(kv.iter().all(|row| row["ops"].as_u64() > Some(0)), "{kv:?}");
    assert!(kv[..2].iter().all(|row| row["file_bytes"].as_u64() > Some(300 * 64)), "{kv:?}");
    assert!(kv[2..].iter().all(|row| row["barriers_per_op"].is_number() && row["max_ns"].is_number()), "{kv:?}");

    let midas = rows("midas --scenario s1");
    let who: Vec<_> = midas.iter().map(|row| (&row["engine"], &row["params"]["isolation"])).collect();
    let both = ["serializable", "snapshot"].map(|level| (Value::from("kv"), Value::from(level)));
    assert_eq!(who, [(&both[0].0, &both[0].1), (&both[1].0, &both[1].1), (&"btree".into(), &both[0].1)]);
    assert!(midas.iter().all(|row| row["abort_rate"].as_f64() == Some(0.0)), "{midas:?}");

    let open = rows("kv-open --keys 300");
    assert!(open.len() == 2 && open.iter().all(|row| row["ops"] == 5), "{open:?}");
    let space = rows("kv-space --keys 50 --overwrites 200 --looks 2");
    assert!(space.len() == 4 && space.iter().all(|row| row["file_bytes"].as_u64() > Some(0)), "{space:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the stores are gone");
}

#[test]
fn a_scenario_of_the_thesis() {
    let dir = temp_in_memory();
    let run = cairn(dir.path(), "bench figures --paper midas --figure 6.6 --quick --dir . --plot plots");
    assert_eq!(run.code, 0, "{run:?}");
    for what in ["midas 6.6: S1, aborted attempts", "kv serializable", "kv snapshot", "plots/midas-6.6.svg"] {
        assert!(run.out.contains(what), "{what}: {run:?}");
    }
    assert!(fs::read_to_string(dir.path().join("plots/midas-6.6.svg")).unwrap().contains("kv snapshot"));
}

#[test]
fn the_server_is_held_against_memcached() {
    let dir = temp_in_memory();
    let line = "bench server --memcached --quick --requests 2k --keys 200 --test set,mix --pipeline 1,7 --connections 5 --clients 2 --dir .";
    let rows = rows_of(dir.path(), line);
    let who: Vec<&str> = rows.iter().map(|row| row["engine"].as_str().unwrap()).collect();
    assert_eq!(who, ["memcached", "cairn-memcached"].repeat(4));
    for row in &rows {
        assert!(row["ops_per_s"].as_f64().unwrap() > 0.0 && row["p99_ns"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(
            (&row["baseline"], &row["params"]["clients"]),
            (&Value::from("memcached"), &Value::from(2)),
            "{row}"
        );
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "files are left");
    let run = cairn(dir.path(), "bench server --memcached --quick --test lpush --dir .");
    assert!(run.code != 0 && run.failure().0.contains("lpush"), "{run:?}");
}

#[test]
fn the_server_is_held_against_redis() {
    let dir = temp_in_memory();
    let rows = rows_of(dir.path(), "bench server --quick --requests 2k --keys 200 --test set --pipeline 4 --dir .");
    let who: Vec<&str> = rows.iter().map(|row| row["engine"].as_str().unwrap()).collect();
    assert_eq!(who, ["redis", "redis-volatile", "cairn"]);
    for row in &rows {
        assert!(row["ops_per_s"].as_f64().unwrap() > 0.0 && row["p99_ns"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!((&row["baseline"], &row["params"]["pipeline"]), (&Value::from("redis"), &Value::from(4)), "{row}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "files are left");
}
