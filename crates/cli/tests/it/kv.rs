//! `cairn kv`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::{cairn, feed, start, temp};

/// A store of small segments; memory, whatever the directory is on.
fn store(dir: &Path) {
    let made = cairn(dir, "kv create s --segment 64K --domain emulated");
    assert!(made.code == 0 && made.out.contains("in segments of 64.0 KiB, domain emulated"), "{made:?}");
}

#[track_caller]
fn ok(dir: &Path, line: &str) -> String {
    let run = cairn(dir, line);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{line}: {run:?}");
    run.out
}

const FRUIT: &str = "apples\t17\npears\t3\nplums\t40\n";

fn fruit(dir: &Path) {
    store(dir);
    let run = feed(dir, "kv load s", FRUIT.as_bytes());
    assert_eq!((run.code, run.out.as_str()), (0, "3 pairs loaded, 21 B\n"), "{run:?}");
}

fn damage(dir: &Path, file: &str, what: &str) {
    let mut bytes = fs::read(dir.join(file)).unwrap();
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(what.as_bytes())).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    fs::write(dir.join(file), bytes).unwrap();
}

#[test]
fn one_key() {
    let dir = temp();
    let dir = dir.path();
    store(dir);
    assert_eq!(ok(dir, "kv put s apples 17"), "");
    assert_eq!(ok(dir, "kv get s apples"), "17\n");
    assert_eq!(ok(dir, "kv get s apples --raw"), "17");
    assert_eq!(ok(dir, "kv get s 6170706c6573 --format hex"), "3137\n");
    assert_eq!(ok(dir, "kv get s apples --format json"), "\"17\"\n");
    let run = cairn(dir, "kv get s pears");
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (1, "", "s: key \"pears\" has no value\n"));
    assert_eq!(ok(dir, r"kv put s a\x00b two\nlines"), "");
    assert_eq!(ok(dir, r"kv get s a\x00b --raw"), "two\nlines");
    assert_eq!(ok(dir, r"kv get s a\x00b"), "two\\nlines\n");
    assert_eq!(feed(dir, "kv put s picture", b"\x89PNG\t\n\xff").code, 0);
    assert_eq!(ok(dir, "kv get s picture"), "\\x89PNG\\t\\n\\xff\n");
    assert_eq!(ok(dir, "kv get s picture --format json"), "{\"value_hex\":\"89504e47090aff\"}\n");
    assert_eq!(ok(dir, "kv delete s apples nothing picture"), "2 deleted\n");
    assert_eq!(cairn(dir, "kv get s apples").code, 1);
    // For a hundred years, and not.
    assert_eq!(ok(dir, "kv put s later x --expires-in 36500d"), "");
    assert_eq!(ok(dir, "kv scan s"), "a\\x00b\ttwo\\nlines\nlater\tx\n");
    assert_eq!(ok(dir, "kv stats s --json").parse::<Value>().unwrap()["expiring"], 1);
}

#[test]
fn ranges() {
    let dir = temp();
    let dir = dir.path();
    fruit(dir);
    assert_eq!(ok(dir, "kv scan s"), FRUIT);
    assert_eq!(ok(dir, "kv scan s --prefix p --keys-only"), "pears\nplums\n");
    assert_eq!(ok(dir, "kv scan s --from b --to plums"), "pears\t3\n");
    assert_eq!(ok(dir, "kv scan s --reverse --limit 2 --keys-only"), "plums\npears\n");
    assert_eq!(ok(dir, "kv scan s --to 7065 --reverse --format hex"), "6170706c6573\t3137\n");
    assert_eq!(ok(dir, "kv scan s --prefix 70 --count --format hex"), "2\n");
    assert_eq!(ok(dir, "kv scan s --keys-only --limit 1 --format json"), "{\"key\":\"apples\"}\n");
    assert_eq!(ok(dir, "kv scan s --limit 0"), "");
    let before = fs::read(dir.join("s")).unwrap();
    for command in ["get s apples", "scan s", "dump s", "stats s"] {
        ok(dir, &format!("kv {command}"));
    }
    assert!(before == fs::read(dir.join("s")).unwrap(), "reading changes nothing");
    assert_eq!(ok(dir, "kv delete s --from b --to plums"), "1 deleted\n");
    assert_eq!(ok(dir, "kv delete s --prefix p"), "1 deleted\n");
    assert_eq!(ok(dir, "kv scan s"), "apples\t17\n");
}

#[test]
fn what_is_dumped_is_loaded() {
    let dir = temp();
    let dir = dir.path();
    store(dir);
    let odd: Vec<u8> = (0..=255).collect();
    let store = kv::Store::open(dir.join("s")).unwrap();
    store.load((0..20_000u32).map(|n| (n.wrapping_mul(0x9e37_79b9).to_be_bytes(), format!("value {n}\n")))).unwrap();
    store.put(&odd, &odd).unwrap();
    store.put_until(b"later", b"", 1 << 45).unwrap();
    store.close().unwrap();
    for format in ["plain", "hex", "json"] {
        let dumped = ok(dir, &format!("kv dump s --format {format}"));
        assert_eq!(dumped.lines().count(), 20_002, "{format}");
        fs::write(dir.join("dumped"), &dumped).unwrap();
        ok(dir, &format!("kv create {format} --domain emulated"));
        let told = ok(dir, &format!("kv load {format} dumped --format {format}"));
        assert!(told.starts_with("20002 pairs loaded, "), "{told}");
        assert!(ok(dir, &format!("kv dump {format} --format {format}")) == dumped, "{format}");
        let loaded = kv::Store::open(dir.join(format)).unwrap();
        let snapshot = loaded.snapshot().unwrap();
        assert_eq!(snapshot.get(&odd).unwrap(), Some(&odd[..]));
        assert_eq!(snapshot.expires(b"later").unwrap(), Some(1 << 45));
    }
    let object: Value = ok(dir, "kv dump s --format json").lines().last().unwrap().parse().unwrap();
    assert!(object["key_hex"].is_string() && object["value"].is_string(), "{object}");
}

#[test]
fn a_line_that_is_no_pair_is_named_and_what_was_before_is_kept() {
    let dir = temp();
    let dir = dir.path();
    fruit(dir);
    let run = feed(dir, "kv load s", b"a\t1\n\nb\t2\nno tab here\nc\t3\n");
    assert_eq!(run.code, 2, "{run:?}");
    let (what, next) = run.failure();
    assert_eq!(what, "standard input, line 4: there is no tab between key and value (2 pairs loaded, 4 B)");
    assert!(next.contains("cairn help kv load"), "{next}");
    assert_eq!(ok(dir, "kv scan s --to c --keys-only"), "a\napples\nb\n");
    let run = feed(dir, "kv load s --format json", b"{\"key\":\"d\",\"value\":\"1\"}\n{\"key\":\"e\"}\n");
    assert!(
        run.code == 2 && run.failure().0.contains("line 2: expected one of \"value\" and \"value_hex\""),
        "{run:?}"
    );
    assert_eq!(ok(dir, "kv get s d"), "1\n");
    let long = [&vec![b'k'; kv::KEY_MAX + 1][..], b"\tvalue\n"].concat();
    let run = feed(dir, "kv load s", &long);
    assert!(
        run.code == 2 && run.failure().0.contains("line 1") && run.failure().0.contains("65537 is more than"),
        "{run:?}"
    );
    let run = cairn(dir, "kv load s nothing");
    assert!(run.code == 2 && run.failure().0.contains("nothing"), "{run:?}");
}

#[test]
fn backup_and_restore() {
    let dir = temp();
    let dir = dir.path();
    fruit(dir);
    assert_eq!(ok(dir, "kv backup s b"), "b: 3 pairs, 21 B\n");
    ok(dir, "kv delete s apples");
    assert_eq!(ok(dir, "kv restore b r"), "r: 3 pairs, 21 B, each checked\n");
    assert_eq!(ok(dir, "kv dump r"), FRUIT);
    for (line, what, next) in [
        ("kv backup s b", "b: ", "choose another path"),
        ("kv restore b s", "s: ", "choose another path"),
        ("kv backup s no/b", "no/b: ", "check the path"),
        ("kv restore nothing x", "nothing: no such file", "cairn kv create"),
    ] {
        let run = cairn(dir, line);
        assert_eq!(run.code, 2, "{line}: {run:?}");
        let failure = run.failure();
        assert!(failure.0.starts_with(what) && failure.1.contains(next), "{line}: {run:?}");
    }
    damage(dir, "b", "plums40");
    let run = cairn(dir, "kv restore b x");
    assert!(run.code == 1 && run.failure().0.contains("does not match its checksum"), "{run:?}");
    assert!(!dir.join("x").exists());
    assert_eq!(fs::read_dir(dir).unwrap().count(), 3, "nothing is left of what failed");
}

#[test]
fn a_backup_that_is_killed_is_none() {
    let dir = temp();
    let dir = dir.path();
    store(dir);
    let opened = kv::Store::open(dir.join("s")).unwrap();
    opened.load((0..60_000u32).map(|n| (n.to_be_bytes(), [n as u8; 300]))).unwrap();
    opened.close().unwrap();
    let right = ok(dir, "kv dump s --format hex");
    let mut killed = 0;
    for wait in 0..16 {
        let mut backup = start(dir, &["kv", "backup", "s", "b"]);
        std::thread::sleep(std::time::Duration::from_millis(4 << wait));
        // It may have ended by itself.
        let _ = backup.kill();
        backup.wait().unwrap();
        if dir.join("b").exists() {
            break;
        }
        killed += 1;
    }
    assert!(killed > 0);
    // Elsewhere files have names from the beginning, and killed processes leave them.
    let nameless = fs::OpenOptions::new().write(true).custom_flags(rustix::fs::OFlags::TMPFILE.bits() as i32).open(dir);
    let hidden =
        || fs::read_dir(dir).unwrap().filter(|e| e.as_ref().unwrap().file_name().as_encoded_bytes()[0] == b'.');
    assert!(nameless.is_err() || hidden().count() == 0, "a killed backup leaves files");
    assert!(ok(dir, "kv dump b --format hex") == right, "under its name it is whole");
    fs::remove_file(dir.join("b")).unwrap();
    ok(dir, "kv backup s b");
}

#[test]
fn a_store_that_was_not_closed_is_recovered_when_asked() {
    let dir = temp();
    let dir = dir.path();
    store(dir);
    let mut shell = start(dir, &["kv", "shell", "s"]);
    let mut answers = BufReader::new(shell.stdout.take().unwrap()).lines().map(Result::unwrap);
    writeln!(shell.stdin.as_mut().unwrap(), "put apples 17").unwrap();
    assert_eq!(answers.next().unwrap(), "new");
    let run = cairn(dir, "kv get s apples");
    assert!(run.code == 2 && run.failure().0.contains(&format!("open in process {}", shell.id())), "{run:?}");
    writeln!(shell.stdin.as_mut().unwrap(), "begin\nput pears 3\nget pears").unwrap();
    assert!(answers.next().unwrap().starts_with("serializable, sees up to t"));
    assert_eq!((answers.next().unwrap(), answers.next().unwrap()), ("new".into(), "3".into()));
    shell.kill().unwrap();
    shell.wait().unwrap();
    for command in ["get s apples", "scan s", "dump s", "stats s", "backup s b"] {
        let run = cairn(dir, &format!("kv {command}"));
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.failure().0.ends_with("not closed cleanly") && run.failure().1.contains("--recover"), "{run:?}");
    }
    assert_eq!(ok(dir, "kv scan s --recover"), "apples\t17\n");
    assert_eq!(ok(dir, "kv scan s"), "apples\t17\n", "closed now");
}

#[test]
fn the_shell() {
    let dir = temp();
    let dir = dir.path();
    fruit(dir);
    let script = r#"
# two at once
begin
put apples 16
put "sold apples" 1
get apples
scan --keys
range apples pears
commit
begin snapshot
put plums 0
abort
get plums
get nothing
del pears nothing
put short x 1000000
scan s --limit 1
scan --reverse --limit 1
backup b
stats
quit
put never this
"#;
    let run = feed(dir, "kv shell s", script.as_bytes());
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}");
    let mut lines = run.out.lines();
    let mut says = |wanted: &str| {
        let line = lines.next().unwrap_or_default();
        assert!(line.starts_with(wanted), "{wanted:?}: {line:?}\n{run:?}");
    };
    let words = "serializable, sees|replaced|new|16|apples|pears|plums|sold apples|apples\t16|committed at t\
        |snapshot, sees|replaced|aborted|40|(no value)|1 deleted|new|short\tx\t|sold apples\t1|4 pairs as of t|keys      4 with";
    words.split('|').for_each(&mut says);
    assert_eq!(ok(dir, "kv scan s --keys-only"), "apples\nplums\nshort\nsold apples\n");
    assert_eq!(ok(dir, "kv scan b --keys-only"), "apples\nplums\nshort\nsold apples\n");
}

#[test]
fn a_script_ends_with_its_first_mistake() {
    let dir = temp();
    let dir = dir.path();
    fruit(dir);
    for (script, what) in [
        ("get apples\nfrobnicate\n", "there is no command \"frobnicate\" (line 2)"),
        ("put apples\n", "usage: put KEY VALUE [SECONDS] (line 1)"),
        ("commit\n", "there is no transaction: `begin` starts one (line 1)"),
        ("begin\nbegin\n", "there is a transaction already: commit or abort it (line 2)"),
        ("scan --fast\n", "\"--fast\" is no option (line 1)"),
        ("backup s\n", "s: create failed: entity already exists (line 1)"),
        ("\"\n", "a quote is not closed (line 1)"),
    ] {
        let run = feed(dir, "kv shell s", script.as_bytes());
        assert_eq!((run.code, run.failure().0), (2, what), "{run:?}");
    }
    let run = feed(dir, "kv shell s", b"begin\nput apples 0\nput new 1\nfrob\ncommit\n");
    assert_eq!(run.code, 2, "{run:?}");
    let run = feed(dir, "kv shell s", b"begin\nput apples 0\n");
    assert!(run.code != 0 && run.err.contains("not committed"), "{run:?}");
    assert_eq!(ok(dir, "kv dump s"), FRUIT, "neither of them did anything");
}

#[test]
fn statistics() {
    let dir = temp();
    let dir = dir.path();
    fruit(dir);
    let text = ok(dir, "kv stats s");
    assert!(text.starts_with("keys      3 with 16 B, the longest 6 B\nvalues    5 B, the longest 2 B\n"), "{text}");
    let stats: Value = ok(dir, "kv stats s --json").parse().unwrap();
    assert_eq!((&stats["keys"], &stats["key_bytes"], &stats["segment_bytes"]), (&json!(3), &json!(16), &json!(65536)));
    let text = ok(dir, "info s");
    assert!(text.contains("engine      kv") && text.contains("  kv                       kv "), "{text}");
    assert!(ok(dir, "check s").contains("sound"));
}

#[test]
fn a_pool_without_a_store_is_told() {
    let dir = temp();
    let dir = dir.path();
    ok(dir, "create p --size 1M");
    ok(dir, "log create l --bytes 64K");
    fs::write(dir.join("text"), "neither").unwrap();
    for file in ["p", "l", "text", "nothing"] {
        for command in
            ["get F a", "put F a b", "delete F a", "scan F", "dump F", "stats F", "shell F", "backup F b", "load F"]
        {
            let run = feed(dir, &format!("kv {}", command.replace('F', file)), b"");
            assert_eq!(run.code, 2, "{command} {file}: {run:?}");
            assert!(run.failure().0.contains(file), "{run:?}");
        }
    }
    assert!(cairn(dir, "kv put nothing a b").failure().1.contains("cairn kv create"));
    assert!(cairn(dir, r"kv put p a\q b").failure().0.contains("\\q means nothing"));
    assert!(!dir.join("nothing").exists());
}

/// As `head` does.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = temp();
    let dir = dir.path();
    store(dir);
    let pairs: String =
        (0..30_000).map(|n| format!("key {n:06}\tand a value that is a little longer than nothing\n")).collect();
    assert_eq!(feed(dir, "kv load s", pairs.as_bytes()).code, 0);
    let mut dump = start(dir, &["kv", "dump", "s"]);
    let mut first = String::new();
    BufReader::new(dump.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("key 000000\t"), "{first}");
    assert_eq!(dump.wait().unwrap().code(), Some(0));
}

#[test]
fn damage_is_found_and_repaired_beside_a_copy() {
    let dir = temp();
    fruit(dir.path());
    assert!(ok(dir.path(), "kv check s").ends_with("sound\n"));
    damage(dir.path(), "s", "pears");
    let run = cairn(dir.path(), "kv check s");
    assert!(run.code == 1 && run.out.contains("does not match its checksum"), "{run:?}");
    // Nor is it repaired while it is open.
    let open = kv::Options::new().open(dir.path().join("s")).unwrap();
    for how in ["--dry-run", "--repair"] {
        let run = cairn(dir.path(), &format!("kv check s {how}"));
        assert!(run.code == 2 && run.err.contains("in use"), "{how}: {run:?}");
    }
    open.close().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    // What is bad is not printed either.
    for command in ["kv dump s", "kv scan s"] {
        let run = cairn(dir.path(), command);
        assert!(run.code == 1 && run.err.contains("does not match its checksum"), "{command}: {run:?}");
    }
    let before = fs::read(dir.path().join("s")).unwrap();
    assert!(ok(dir.path(), "kv check s --dry-run").contains("a repair would leave 2 keys"));
    assert!(fs::read(dir.path().join("s")).unwrap() == before && !dir.path().join("s.dry-run").exists());
    assert!(ok(dir.path(), "kv check s --repair").contains("2 keys"));
    assert!(fs::read(dir.path().join("s.before-repair")).unwrap() == before);
    assert!(ok(dir.path(), "kv check s").ends_with("sound\n"));
    assert_eq!(ok(dir.path(), "kv dump s"), "apples\t17\nplums\t40\n");
    assert_eq!(cairn(dir.path(), "kv check s --repair").code, 2, "the copy is not overwritten");
}

/// To read all of it would take minutes.
#[test]
fn a_repair_reads_no_further_than_the_pool() {
    let dir = temp();
    fruit(dir.path());
    let path = dir.path().join("s");
    damage(dir.path(), "s", "pears");
    let len = fs::metadata(&path).unwrap().len();
    fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(ok(dir.path(), "kv check s --dry-run").contains("a repair would leave 2 keys"));
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 40, "it is as it was");
    assert!(ok(dir.path(), "kv check s --repair").contains("2 keys"));
    assert!(fs::metadata(&path).unwrap().len() <= len);
    assert_eq!(ok(dir.path(), "kv dump s"), "apples\t17\nplums\t40\n");
}

/// What is behind the damage in a log is left out, and how much that is told.
#[test]
fn a_repair_of_a_killed_store_says_what_it_gives_up() {
    let dir = temp();
    let path = dir.path().join("s");
    let store = kv::Options::new().background(false).create(&path).unwrap();
    for number in 0..300 {
        store.put(format!("key{number:03}").as_bytes(), format!("value{number:03}").as_bytes()).unwrap();
    }
    let mut bytes = fs::read(&path).unwrap(); // as a kill leaves it
    store.close().unwrap();
    let places = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"value020")).collect::<Vec<_>>();
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    fs::write(&path, &bytes).unwrap();
    for how in ["--dry-run", "--repair"] {
        let out = ok(dir.path(), &format!("kv check s {how}"));
        assert!(out.contains("279 whole records of 279 keys behind it are left out"), "{how}: {out}");
        assert!(out.contains("cut off at byte") && out.contains("20 keys"), "{how}: {out}");
    }
    assert!(ok(dir.path(), "kv check s").ends_with("sound\n"));
}

#[test]
fn a_repair_that_fails_leaves_all_as_it_was() {
    let dir = temp();
    fruit(dir.path());
    let path = dir.path().join("s");
    let info = ok(dir.path(), "info s --json");
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let table = info["regions"].as_array().unwrap().iter().find(|region| region["name"] == "kv.table").unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // The kind of a segment that is in use: this cannot be repaired.
    bytes[table["offset"].as_u64().unwrap() as usize + 12288] ^= 0x80;
    fs::write(&path, &bytes).unwrap();
    for how in ["--dry-run", "--repair", "--repair"] {
        let run = cairn(dir.path(), &format!("kv check s {how}"));
        assert!(run.code == 1 && run.err.contains("table of segments"), "{how}: {run:?}");
        assert!(fs::read(&path).unwrap() == bytes, "{how}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{how}");
    }
}
