//! Damaged files and the real commands: their exit codes, and that they end by themselves.

use std::collections::BTreeSet;
use std::path::Path;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use self::files::{KINDS, Kind, Mutation, Sample, Unread, read};
use super::{cairn, temp};

#[allow(dead_code, reason = "shared with the test of the command's own function")]
#[path = "../../src/commands/check/damage/files.rs"]
mod files;

const SEED: u64 = 1;

/// The same in process, and thousands of them: `commands/check/damage.rs`.
#[test]
fn check_ends_by_itself_and_tells_by_its_exit_code() {
    let dir = temp();
    let path = dir.path().join("f");
    let mut codes = BTreeSet::new();
    for (number, (kind, closed)) in KINDS.iter().flat_map(|kind| [(*kind, true), (*kind, false)]).enumerate() {
        let sample = Sample::make(kind, closed, &path);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED ^ (number as u64) << 32);
        for sort in 0..Mutation::NAMES.len() {
            let mutation = Mutation::draw(&mut rng, sort, &sample);
            let bytes = mutation.apply(&sample);
            std::fs::write(&path, &bytes).unwrap();
            let run = cairn(dir.path(), if closed { "check f" } else { "check f --recover" });
            std::fs::write(&path, &bytes).unwrap();
            let own = read(kind, &path, closed);
            let what = format!("{kind:?}, closed: {closed}, {mutation:?}, seed {SEED}: {own:?}: {run:?}");
            assert!((0..=2).contains(&run.code), "{what}");
            assert!(run.code != 0 || !matches!(own, Err(Unread::Rejected(_))), "{what}");
            codes.insert(run.code);
        }
    }
    assert!(codes.is_superset(&BTreeSet::from([0, 1])), "{codes:?}");
}

/// What each command of a store says of one that is damaged: `f`.
const COMMANDS: &[&str] = &[
    "check f --recover",
    "kv check f --recover",
    "kv get f key12 --recover",
    "kv scan f --recover",
    "kv dump f --recover",
    "kv stats f --recover",
    "kv put f key12 value",
    "kv delete f key12",
    "kv backup f copy --recover",
    "serve f --redis 127.0.0.1:0 --threads 1",
];

/// Where a region of the store begins.
fn region(path: &Path, name: &str) -> usize {
    let pool = pmem::Options::new().open(path).unwrap();
    pool.region(name).unwrap().areas()[0].offset() as usize
}

#[test]
fn a_store_without_its_checkpoint_is_damaged_for_every_command() {
    let dir = temp();
    let path = dir.path().join("f");
    for closed in [true, false] {
        let sample = Sample::make(Kind::Store, closed, &path);
        std::fs::write(&path, &sample.bytes).unwrap();
        // Both pages: each has a copy.
        let front = region(&path, "kv.table");
        let mut bytes = sample.bytes.clone();
        bytes[front..][..2 * files::PAGE].fill(0);
        for line in COMMANDS {
            std::fs::write(&path, &bytes).unwrap();
            let run = cairn(dir.path(), line);
            assert_eq!(run.code, 1, "closed: {closed}: {line}: {run:?}");
            let said = format!("{}{}", run.out, run.err);
            assert!(said.contains("damaged"), "{line}: {run:?}");
        }
    }
}

/// Lengths of records and nodes among them: whatever a command finds, it is damage.
#[test]
fn what_a_command_finds_damaged_in_a_store_is_exit_code_1() {
    let dir = temp();
    let path = dir.path().join("f");
    let sample = Sample::make(Kind::Store, true, &path);
    std::fs::write(&path, &sample.bytes).unwrap();
    let data = region(&path, kv::NAME);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut damaged = 0;
    for _ in 0..25 {
        let mutation = loop {
            match Mutation::draw(&mut rng, 0, &sample) {
                Mutation::Bit { at, .. } if at >= data => break Mutation::Bit { at, bit: 7 },
                _ => {}
            }
        };
        for line in ["check f", "kv scan f", "kv get f key12", "kv put f key12 value", "kv stats f"] {
            std::fs::write(&path, mutation.apply(&sample)).unwrap();
            let run = cairn(dir.path(), line);
            assert!(run.code <= 1, "{mutation:?}, seed {SEED}: {line}: {run:?}");
            damaged += run.code;
        }
    }
    assert!(damaged > 0);
}

#[test]
fn a_healthy_replica_of_a_log_is_sound_and_is_no_empty_log() {
    let dir = temp();
    let sample = Sample::make(Kind::Copy, true, &dir.path().join("f"));
    std::fs::write(dir.path().join("f"), &sample.bytes).unwrap();
    for line in ["check f", "log check f"] {
        let run = cairn(dir.path(), line);
        assert!(run.code == 0 && run.out.contains("records"), "{line}: {run:?}");
        assert!(run.out.contains(" of log "), "{line}: {run:?}");
    }
    for line in ["log cat f", "log tail f", "log stats f", "log append f"] {
        let run = cairn(dir.path(), line);
        assert!(run.code == 2 && run.failure().0.contains("replica"), "{line}: {run:?}");
    }
}

/// What an error, or a check that found something, says to do next: a command of it must end well when it is followed as it stands, and leave a sound store.
#[test]
fn the_advice_about_a_damaged_store_can_be_followed() {
    let dir = temp();
    let path = dir.path().join("f");
    std::fs::write(&path, &Sample::make(Kind::Store, true, &path).bytes).unwrap();
    let backup = cairn(dir.path(), "kv backup f backup");
    assert_eq!(backup.code, 0, "{backup:?}");
    let (mut kinds, mut rng) = (BTreeSet::new(), Xoshiro256PlusPlus::seed_from_u64(SEED));
    for closed in [true, false] {
        let sample = Sample::make(Kind::Store, closed, &path);
        std::fs::write(&path, &sample.bytes).unwrap();
        let table = region(&path, "kv.table");
        let drawn: Vec<Vec<u8>> = (0..8 * Mutation::NAMES.len())
            .map(|n| Mutation::draw(&mut rng, n % Mutation::NAMES.len(), &sample).apply(&sample))
            .collect();
        let with = |at: usize, len: usize| {
            let mut bytes = sample.bytes.clone();
            bytes[at..][..len].fill(0x55);
            bytes
        };
        // What no repair can do without: the header, the checkpoint, the table of segments.
        let chosen = [with(0, 2 * files::PAGE), with(table, 2 * files::PAGE), with(table + 3 * files::PAGE, 64)];
        for (number, bytes) in drawn.iter().chain(&chosen).enumerate() {
            for line in ["kv check f", "kv dump f", "kv stats f"] {
                for file in ["f", "f.before-repair", "new"] {
                    drop(std::fs::remove_file(dir.path().join(file)));
                }
                std::fs::write(&path, bytes).unwrap();
                kinds.insert(follow(dir.path(), line, &format!("closed: {closed}, damage {number}, seed {SEED}")));
            }
        }
    }
    // All ways out were taken.
    assert_eq!(kinds, BTreeSet::from(["none", "repair", "restore"]));
}

/// Runs the command, and what it says to do next.
fn follow(dir: &Path, line: &str, what: &str) -> &'static str {
    let mut run = cairn(dir, line);
    if run.err.contains("not closed cleanly\nnext: repeat it with --recover,") {
        run = cairn(dir, &format!("{line} --recover"));
    }
    let is_damaged = run.code == 1 || run.err.contains("damaged");
    if !is_damaged {
        return "none";
    }
    let said = format!("{}{}", run.out, run.err);
    let what = format!("{what}: {line}: {run:?}");
    let commands: Vec<String> = said
        .split('`')
        .filter_map(|part| part.strip_prefix("cairn "))
        .map(|command| command.replace("BACKUP PATH", "backup new"))
        .collect();
    let done = |command: &str| {
        let run = cairn(dir, command);
        assert_eq!(run.code, 0, "{what}\n{command}: {run:?}");
    };
    let is_repair = said.contains("`cairn kv check --dry-run f`");
    if is_repair {
        done("kv check --dry-run f");
        done("kv check --repair f");
        for sound in ["kv check f", "kv dump f", "kv stats f"] {
            done(sound);
        }
    }
    for command in commands.iter().filter(|command| command.starts_with("kv restore")) {
        assert_eq!(command, "kv restore backup new", "{what}");
        done(command);
        done("kv check new");
    }
    assert!(is_repair || commands.iter().any(|command| command.starts_with("kv restore")), "no command: {what}");
    assert!(!said.contains("run `cairn kv check`"), "what was just run: {what}");
    if is_repair { "repair" } else { "restore" }
}
