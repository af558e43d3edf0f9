//! Hash map and B+tree in a heap, explored; and that what watches over them sees something.

use std::ops::ControlFlow::Continue;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crash::{Config, Model, Rng, Scenario};
use heap::Policy;
use scenarios::Named;
use scenarios::heap::End;
use scenarios::structures::{Bug, Edit, Hash, Kind, LENS, List, MANY, Op, Pairs, START, Search, Tree};
use structures::Map;
use tx::{Engine, Isolation, Reference};

use super::in_parallel;

const FILE: Model = Model::File { sector: 512 };
const GROWING: Hash = Hash { grows: true };
const FIXED: Hash = Hash { grows: false };
const BST: Search = Search { balanced: false };
const TREAP: Search = Search { balanced: true };

pub fn is_one(named: &Named) -> bool {
    FIRST.iter().chain(&LINKED).any(|kind| named.name.starts_with(kind))
}

/// Names begin so.
const FIRST: [&str; 2] = ["hash", "btree"];
const LINKED: [&str; 4] = ["list", "bst", "treap", "graph"];

/// Those of few keys; of the others see `many_keys_make_many_nodes`.
fn all(kinds: &[&str]) -> Vec<&'static Named> {
    let is_one = |name: &str| kinds.iter().any(|kind| name.starts_with(kind)) && !name.ends_with("-many");
    scenarios::ALL.iter().filter(|named| is_one(named.name)).collect()
}

/// Few images a crash point, so that every one is reached; crashes in recovery, too.
#[test]
fn explored() {
    let deep = |seed| Config::seeded(seed).budget(1_600).point_budget(8).nested_budget(4);
    let configs = [
        deep(1),
        deep(3).model(Model::Lines),
        deep(4).model(FILE),
        Config::seeded(5).budget(2_000).point_budget(20).depth(1),
    ];
    let all = all(&FIRST);
    assert_eq!(all.len(), 26);
    in_parallel(all.len() * configs.len(), |at| {
        let (named, config) = (all[at / configs.len()], &configs[at % configs.len()]);
        let report = named.run(config);
        println!("{}: {report}", named.name);
        assert!(report.violation().is_none(), "{}: {report}", named.name);
        // Recoveries crashed may use up what the last points of a long schedule would need; without them every one is reached.
        let most = if config.depth == 1 { 0 } else { report.points / 10 };
        assert!(report.unexplored <= most && report.states > 100, "{}: {report}", named.name);
    });
}

/// What else runs in this process, and takes numbers of threads, changes nothing of an exploration.
#[test]
fn the_same_beside_others() {
    let named = |name| scenarios::ALL.iter().find(|named| named.name == name).unwrap();
    let run = |name, seed| {
        let report = named(name).run(&Config::seeded(seed).budget(200).point_budget(2).depth(1));
        (report.points, report.drains, report.states)
    };
    let alone = run("hash-fixed-inplace-2", 1);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                run("hash-inplace-2", 2);
            }
        });
        let beside: Vec<_> = (0..10).map(|_| run("hash-fixed-inplace-2", 1)).collect();
        ended.store(true, Relaxed);
        assert_eq!(beside, [alone; 10]);
    });
}

/// What changes single words of few nodes needs fewer images: every policy there is, one thread and two.
#[test]
fn linked_nodes_explored() {
    let threads = |policy| if policy == Policy::None { 1 } else { 2 };
    let cases: Vec<_> =
        Policy::ALL.iter().flat_map(|&policy| (1..=threads(policy)).map(move |n| (policy, n))).collect();
    let configs = [
        Config::seeded(1).budget(1_200).point_budget(5).nested_budget(2),
        Config::seeded(2).budget(1_200).point_budget(5).nested_budget(2).model(FILE),
        Config::seeded(3).budget(1_200).point_budget(12).depth(1),
    ];
    in_parallel(3 * cases.len() * configs.len(), |at| {
        let (kind, at) = (at % 3, at / 3);
        let ((policy, threads), config) = (cases[at / configs.len()], &configs[at % configs.len()]);
        let report = match kind {
            0 => crash::run(Pairs::new("list", List, policy, threads), config),
            1 => crash::run(Pairs::new("bst", BST, policy, threads), config),
            _ => crash::run(Pairs::new("treap", TREAP, policy, threads), config),
        };
        println!("{kind} {policy} {threads}: {report}");
        assert!(report.violation().is_none(), "{kind} {policy} {threads}: {report}");
        let most = if config.depth == 1 { 0 } else { report.points / 5 };
        assert!(report.unexplored <= most && report.states > 100, "{kind} {policy} {threads}: {report}");
    });
}

/// Some drains of each scenario, other ones of the next: an open of the pool after it takes only for durable what is.
#[test]
fn failing_drains() {
    let all = all(&[&FIRST[..], &LINKED].concat());
    in_parallel(all.len(), |at| {
        let models = [Model::Words, FILE].into_iter().cycle();
        for (drain, model) in (1 + at as u64 % 7..50).step_by(7).zip(models) {
            let config = Config::seeded(31).depth(1).budget(60).point_budget(2).model(model).fail_drain(drain);
            let report = all[at].run(&config);
            assert!(report.violation().is_none(), "{}: {report}", all[at].name);
        }
    });
}

// ---- what the workloads reach ---------------------------------------------------------------------------------------

/// Growth of a structure, operation by operation: blocks beside entries and values, and the longest way to a pair.
fn shapes<K: Kind>(kind: K, seed: u64) -> Vec<(u64, u32)> {
    let (engine, keys) = (Reference::new(), kind.keys());
    let value = |len| vec![1; len];
    let first = (0..START).map(|key| Edit::Put(key, LENS[key % LENS.len()])).collect();
    let ops = Pairs::new("shapes", kind, Policy::InPlace, 1).ops(&mut Rng::seeded(seed));
    let changes = ops.into_iter().filter_map(|(_, op)| match op {
        Op::Change(edits, End::Commit) => Some(edits),
        _ => None,
    });
    engine.transact(Isolation::Strict, |tx| kind.create(tx)).expect("created");
    let change = |edits: Vec<Edit>| {
        engine.transact(Isolation::Strict, |tx| -> tx::Result<_> {
            let map = kind.open(tx)?;
            edits.iter().try_for_each(|edit| match *edit {
                Edit::Put(key, len) => map.put(tx, &keys[key], &value(len)).map(drop),
                Edit::Delete(key) => map.delete(tx, &keys[key]).map(drop),
            })?;
            let mut apart = 0;
            map.for_each(tx, |_, value| {
                apart += u64::from(!K::ORDERED || value.len() > 16);
                Continue(())
            })?;
            let report = map.verify(tx)?;
            Ok((report.blocks - apart, report.depth))
        })
    };
    [first].into_iter().chain(changes).map(|edits| change(edits).expect("changed")).collect()
}

/// What happens in how many of the first workloads: nodes more than before, nodes fewer, this many nodes, this long a way.
fn happens<K: Kind>(kind: K, nodes: u64, depth: u32) -> [usize; 4] {
    let of = |seed| {
        let shapes = shapes(kind, seed);
        println!("{kind:?} {seed}: {shapes:?}");
        let steps = || shapes.windows(2).map(|pair| (pair[0].0, pair[1].0));
        [
            steps().any(|(before, after)| after > before),
            steps().any(|(before, after)| after < before),
            shapes.iter().any(|shape| shape.0 >= nodes),
            shapes.iter().any(|shape| shape.1 >= depth),
        ]
    };
    (1..6).map(of).fold([0; 4], |sum, seen| std::array::from_fn(|at| sum[at] + usize::from(seen[at])))
}

/// The seeds that `explored` uses see everything there is: splits, merges, three levels; a directory node, split and doubled; a chain.
#[test]
fn everything_happens() {
    // The way goes on to a value's block.
    let [splits, merges, _, levels] = happens(Tree, 0, 4);
    assert!(splits >= 4 && merges >= 2 && levels >= 4, "{splits} {merges} {levels}");
    // Root, page, node of eight words, a bucket of each length of path; a further one only behind a doubling.
    let [splits, _, doubled, nodes] = happens(GROWING, 8, 4);
    assert!(splits >= 3 && doubled >= 2 && nodes >= 3, "{splits} {doubled} {nodes}");
    let [chains, ..] = happens(FIXED, 0, 0);
    assert!(chains >= 3, "{chains}");
}

/// Two hundred keys make what a few dozen do not: three levels of a tree whose leaves are full, a map of dozens of buckets.
#[test]
fn many_keys_make_many_nodes() {
    fn shape<K: Kind>(kind: K) -> (u64, u32) {
        let engine = Reference::new();
        let report = engine.transact(Isolation::Strict, |tx| {
            kind.create(tx)?;
            let map = kind.open(tx)?;
            for key in &K::many()[..MANY - 30] {
                map.put(tx, key, &[1; 8])?;
            }
            map.verify(tx)
        });
        report.map(|report| (report.blocks - if K::ORDERED { 0 } else { report.entries }, report.depth)).expect("made")
    }
    let ((leaves, levels), (buckets, _)) = (shape(Tree), shape(GROWING));
    assert!(leaves > 20 && levels >= 3 && buckets > 16, "{leaves} nodes on {levels} levels, {buckets} blocks");
    in_parallel(2, |at| {
        let config = Config::seeded(7).budget(150).point_budget(3).nested_budget(2).schedules(2);
        let named = scenarios::ALL.iter().filter(|named| named.name.ends_with("-many")).nth(at).expect("built in");
        let report = named.run(&config);
        assert!(report.violation().is_none() && report.points > 20, "{report}");
    });
}

/// Destroyed and made anew in one transaction, in bulk where there is that: all of it, or nothing.
#[test]
fn made_anew() {
    fn explore<K: Kind>(kind: K) {
        let ops = [commit(&[Edit::Put(START, 40), Edit::Delete(2)]), Op::Remake, commit(&[Edit::Put(1, 136)])];
        for policy in [Policy::InPlace, Policy::InPlacePartial, Policy::Undo, Policy::Eaw] {
            let script = ops.iter().map(|op| (0, op.clone())).collect();
            let config = Config::seeded(9).budget(120).point_budget(4).nested_budget(2).nested_share(30);
            let report = crash::run(Pairs::new("anew", kind, policy, 1).script(script), &config);
            assert!(report.violation().is_none() && report.points > 10, "{kind:?} {policy}: {report}");
        }
    }
    in_parallel(6, |at| match at {
        0 => explore(Tree),
        1 => explore(GROWING),
        2 => explore(FIXED),
        3 => explore(List),
        4 => explore(BST),
        _ => explore(TREAP),
    });
    // And it is drawn.
    let drawn = |seed| Pairs::new("drawn", Tree, Policy::InPlace, 2).ops(&mut Rng::seeded(seed));
    assert!((0..30).flat_map(drawn).any(|(_, op)| op == Op::Remake));
}

// ---- the check sees something ---------------------------------------------------------------------------------------

/// Explores a script as it is, and with a bug: the first must be clean, the second say this.
fn shows<K: Kind>(kind: K, ops: Vec<Op>, bug: Bug, message: &str) {
    for policy in Policy::ALL.into_iter().filter(|&policy| policy != Policy::None) {
        let script = || Pairs::new("bug", kind, policy, 1).script(ops.iter().map(|op| (0, op.clone())).collect());
        let config = Config::seeded(1).budget(400).point_budget(40).depth(1);
        let report = crash::run(script(), &config);
        assert!(report.violation().is_none(), "{report}");
        let report = crash::run(script().with(bug), &config.shrink(false));
        let found = report.violation().unwrap_or_else(|| panic!("{kind:?}: nobody noticed {bug:?}"));
        println!("{kind:?} {policy} {bug:?}: {}", found.message);
        assert!(found.message.contains(message), "{bug:?}: {found}");
    }
}

fn each(ops: &[Op], bug: Bug, message: &str) {
    shows(GROWING, ops.to_vec(), bug, message);
    shows(FIXED, ops.to_vec(), bug, message);
    shows(Tree, ops.to_vec(), bug, message);
    shows(List, ops.to_vec(), bug, message);
    shows(BST, ops.to_vec(), bug, message);
    shows(TREAP, ops.to_vec(), bug, message);
}

fn commit(edits: &[Edit]) -> Op {
    Op::Change(edits.to_vec(), End::Commit)
}

#[test]
fn two_transactions_where_one_was_promised() {
    let two = [commit(&[Edit::Put(1, 40), Edit::Put(START, 16)])];
    each(&two, Bug::Piecewise, "in doubt [1000]");
    let split = [commit(&[Edit::Put(START, 8), Edit::Delete(2)])];
    each(&split, Bug::Piecewise, "in doubt [1000]");
}

#[test]
fn a_value_that_is_gone_before_the_new_one_comes() {
    each(&[commit(&[Edit::Put(3, 136)])], Bug::DeleteThenPut, "key 3: found None");
}

#[test]
fn an_acknowledgement_before_the_commit() {
    each(&[commit(&[Edit::Put(START, 16)])], Bug::EarlyAck, "acknowledged Some");
}

#[test]
fn a_block_that_nobody_reaches() {
    each(&[commit(&[Edit::Delete(4)]), Op::Apply], Bug::Leak, "reachable");
}
