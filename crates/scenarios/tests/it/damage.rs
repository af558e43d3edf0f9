//! Opens 10^5 damaged pools: see `scenarios::damage` for what is claimed of them.

use std::collections::BTreeMap;

use crash::{Model, Rng, Sim};
use pmem::{Options, Ring, Tail};
use scenarios::damage::{Claim, Failure, Judge, Mutation, Outcome, Reference, Variant};

const POOLS: u64 = 100_000;

fn references() -> Vec<Reference> {
    Variant::ALL.iter().map(|&v| Reference::new(v).expect("the reference pool is built")).collect()
}

/// Mutated bytes number `n` and what is claimed of them: everything follows from the number.
fn case(references: &[Reference], n: u64) -> (&Reference, Vec<Mutation>, Vec<u8>, Claim) {
    let mut rng = Rng::seeded(n);
    let reference = &references[n as usize % references.len()];
    let mutations: Vec<_> = (0..=rng.index(4)).map(|_| Mutation::random(&mut rng, reference)).collect();
    let mut bytes = reference.bytes().to_vec();
    mutations.iter().for_each(|m| m.apply(&mut bytes));
    let claim = if (n / 3).is_multiple_of(2) { Claim::Detected } else { Claim::Sane };
    if claim == Claim::Sane {
        reference.rechecksum(&mut bytes);
    }
    (reference, mutations, bytes, claim)
}

/// Two records under one force, of which the power failure left the second alone: it is gone for good, also when the place of the first
/// was written again and retired.
#[test]
fn a_record_behind_a_torn_one_stays_gone() {
    let sim = Sim::new(64 << 10, Model::Words);
    let pool = Options::new().size(8 << 10).create_on(sim.clone()).expect("created");
    let mut ring =
        Ring::create(pool.add_region("ring", 4096).and_then(|r| r.into_area()).expect("region")).expect("ring");
    let (mut torn, mut end) = (None, None);
    for text in ["kept", "torn", "gone"] {
        torn = end.replace(ring.append(&[text.as_bytes()]).expect("appended").end);
        if text == "kept" {
            ring.force().expect("forced");
        }
    }
    let records = pool.info().regions[0].offset + 64;
    drop((ring, pool));
    let torn_at = records + torn.expect("three records").get() - 64;
    sim.store(torn_at, 0).expect("inside");
    let open = || {
        let pool = Options::new().open_on(sim.clone()).expect("opened");
        let (ring, found) = Ring::open(pool.region("ring").and_then(|r| r.into_area()).expect("region")).expect("ring");
        let texts: Vec<_> = found.records.iter().map(|r| ring.payload(r).expect("read").to_vec()).collect();
        (pool, ring, found, texts)
    };
    let (pool, mut ring, found, texts) = open();
    assert_eq!(texts, [b"kept"]);
    assert!(matches!(found.tail, Tail::InDoubt { .. }));
    let end = ring.append(&[b"anew"]).expect("appended").end;
    ring.force().expect("forced");
    ring.retire(end);
    ring.reclaim().expect("reclaimed");
    drop((ring, pool));
    assert_eq!(open().3, Vec::<Vec<u8>>::new());
}

/// What this suite and the fuzzer found, one each: the bytes, whether checksums were recomputed, and what must come of it.
#[test]
fn found_before() {
    for reference in references() {
        let start = |name: &str| reference.region(name).start;
        let (ring, root, heap) = (start("ring"), start("objects"), start("objects.heap"));
        let second = reference.region("ring").end - 64;
        let mark = |word, value| [ring + 8, second + 8].map(|at| Mutation::Word(at + word, value)).to_vec();
        let of_type = |at: usize| [0, 128].map(|slot| Mutation::Flip((start("cells") + slot + at) * 8)).to_vec();
        let empty_line = ring - 4096 + 256; // between two checksummed records
        let found: [(&str, Vec<Mutation>, bool, &str); 13] = [
            ("a root line of zeros passed for no root", vec![Mutation::ZeroLine(root)], false, "root pointer"),
            ("a lap behind the mark overflowed", mark(0, u64::MAX - 63), true, "ring mark"),
            ("a mark inside a line was an unaligned access", mark(0, 0x1001), true, "ring mark"),
            ("an epoch above all that will be written", mark(8, 1 << 31), true, "ring mark epoch"),
            ("a sequence number that cannot be counted on", mark(16, u64::MAX - 1), true, "two-slot cell"),
            ("chunks without table words were free", vec![Mutation::CopyLine(heap, empty_line)], false, "chunk table"),
            ("a huge block lost its head's word", vec![Mutation::Flip((heap + 11 * 8) * 8)], false, "chunk table"),
            ("a cell of another type", of_type(0), true, "WrongLayout"),
            ("a cell of a longer type", of_type(4), true, "two-slot cell"),
            ("both slots hold the older value", copy_slot(start("cells"), 128), false, ""),
            ("the newer slot erased", erase(start("cells") + 128, 128), false, ""),
            ("the mark's newer slot erased", erase(second, 64), false, ""),
            ("the mark's older slot over the newer", vec![Mutation::CopyLine(second, ring)], false, ""),
        ];
        for (what, mutations, rechecksum, error) in found {
            let mut bytes = reference.bytes().to_vec();
            mutations.iter().for_each(|m| m.apply(&mut bytes));
            let claim = if rechecksum { Claim::Sane } else { Claim::Detected };
            if rechecksum {
                reference.rechecksum(&mut bytes);
            }
            let mut judge = Judge::new();
            let outcome = judge.judge(&reference, &bytes, claim).unwrap_or_else(|e| panic!("{what}: {e}"));
            judge.go_on(&outcome).unwrap_or_else(|e| panic!("{what}: {e}"));
            println!("{what}: {outcome:?}");
            let refused = matches!(&outcome, Outcome::Refused(why) if why.contains(error));
            assert!(refused || error.is_empty(), "{what}: {outcome:?}");
            assert_ne!(outcome, Outcome::Equal, "{what}");
        }
    }
}

/// The first slot of a cell over the second.
fn copy_slot(cell: usize, stride: usize) -> Vec<Mutation> {
    (0..stride).step_by(64).map(|at| Mutation::CopyLine(cell + stride + at, cell + at)).collect()
}

fn erase(at: usize, len: usize) -> Vec<Mutation> {
    (at..at + len).step_by(64).map(Mutation::ZeroLine).collect()
}

#[test]
fn the_formulas_of_all_checksums_are_the_right_ones() {
    for reference in references() {
        let mut bytes = reference.bytes().to_vec();
        reference.rechecksum(&mut bytes);
        let differing: Vec<_> = (0..bytes.len()).filter(|&i| bytes[i] != reference.bytes()[i]).collect();
        assert!(differing.is_empty(), "{:?}: {differing:x?}", reference.variant());
    }
}

#[test]
fn undamaged_is_equal() {
    for reference in references() {
        let outcome = Judge::new().judge(&reference, reference.bytes(), Claim::Detected);
        assert_eq!(outcome.expect("equal"), Outcome::Equal, "{:?}", reference.variant());
    }
}

/// A pool is opened, judged and, every fourth one, used.
fn judge(judge: &mut Judge, n: u64, reference: &Reference, bytes: &[u8], claim: Claim) -> Result<Outcome, Failure> {
    let outcome = judge.judge(reference, bytes, claim)?;
    if (n / 12).is_multiple_of(4) {
        judge.go_on(&outcome)?;
    }
    Ok(outcome)
}

type Counts = BTreeMap<(bool, Outcome), u64>;

/// Judges the pools whose number has this remainder, in sixes.
fn judge_every(half: u64) -> (Counts, Vec<String>) {
    let references = references();
    let (mut counts, mut failures) = (Counts::new(), Vec::new());
    let mut judge_of_all = Judge::new();
    for n in (0..POOLS).filter(|n| n / 6 % 2 == half) {
        let (reference, mutations, bytes, claim) = case(&references, n);
        match judge(&mut judge_of_all, n, reference, &bytes, claim) {
            Ok(outcome) => *counts.entry((claim == Claim::Sane, outcome)).or_default() += 1,
            Err(failure) => failures.push(format!("{n} {:?} {claim:?} {mutations:x?}: {failure}", reference.variant())),
        }
    }
    (counts, failures)
}

pub(crate) fn a_hundred_thousand_damaged_pools() {
    let (mut counts, mut failures) = (Counts::new(), Vec::new());
    std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| scope.spawn(move || judge_every(half)));
        for half in halves {
            let (some, wrong) = half.join().expect("a judge does not panic");
            some.into_iter().for_each(|(key, n)| *counts.entry(key).or_default() += n);
            failures.extend(wrong);
        }
    });
    for ((rechecksummed, outcome), count) in &counts {
        println!("{count:7} {} {outcome:?}", if *rechecksummed { "rechecksummed" } else { "as is   " });
    }
    assert!(failures.is_empty(), "{} failures: {:#?}", failures.len(), &failures[..failures.len().min(20)]);
    // Both claims were put to the test: mutations reach checks of every depth.
    let seen = |rechecksummed, wanted: &str| {
        let of = |o: &Outcome| matches!(o, Outcome::Refused(why) if why.contains(wanted));
        counts.iter().any(|((r, outcome), _)| *r == rechecksummed && of(outcome))
    };
    for what in
        ["pool header", "two-slot cell", "checksummed payload", "ring record", "root pointer", "chunk table", "bitmap"]
    {
        assert!(seen(false, what), "no damage of a {what} was found");
    }
    for what in
        ["pool header", "checksummed record place", "ring mark", "logged action", "intent", "span", "BadPointer"]
    {
        assert!(seen(true, what), "no forged {what} was found");
    }
}

/// Bytes whose checksums were recomputed hold other values. A judge who is told that this must be noticed has to object, at every structure.
#[test]
fn the_judge_objects_to_wrong_values() {
    for reference in references() {
        let cells = reference.region("cells").start;
        let log = reference.log().start;
        let heap = reference.region("objects.heap").start;
        let newest = {
            let records = reference.region("ring").start + 64..reference.region("ring").end - 64;
            let at = |at: &usize| u64::from_le_bytes(reference.bytes()[at + 8..at + 16].try_into().expect("8 bytes"));
            records.step_by(64).max_by_key(at).expect("records")
        };
        let wrong: [(&str, &[Mutation]); 7] = [
            ("header", &[Mutation::Flip(40 * 8), Mutation::Flip((4096 + 40) * 8)]),
            ("single cell", &[Mutation::Flip((cells + 8) * 8), Mutation::Flip((cells + 136) * 8)]),
            ("mirrored cell", &[Mutation::Flip((cells + 264) * 8), Mutation::Flip((cells + 392) * 8)]),
            ("checksummed", &[Mutation::Flip((reference.region("checksummed").start + 64 + 33) * 8)]),
            ("ring", &[Mutation::Flip((newest + 33) * 8)]),
            ("root", &[Mutation::Flip((log - 64) * 8 + 5)]),
            // Blocks of class 10 become blocks of class 11, and so on.
            ("chunk table", &[Mutation::Add(heap + 8, 1)]),
        ];
        for (what, mutations) in wrong {
            let mut bytes = reference.bytes().to_vec();
            mutations.iter().for_each(|m| m.apply(&mut bytes));
            assert_ne!(bytes, reference.bytes());
            reference.rechecksum(&mut bytes);
            let verdict = Judge::new().judge(&reference, &bytes, Claim::Detected);
            assert!(verdict.is_err(), "{what}: {verdict:?}");
        }
        // Outside of the claim: contents at rest, here of the first object.
        let mut bytes = reference.bytes().to_vec();
        Mutation::Flip((reference.chunks() + 4096 + 3) * 8).apply(&mut bytes);
        assert_eq!(Judge::new().judge(&reference, &bytes, Claim::Detected).expect("exempt"), Outcome::Equal);
    }
}
