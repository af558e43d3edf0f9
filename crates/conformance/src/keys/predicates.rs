//! Write skew about what is not there: two transactions look, find a gap, and each fills the other's.

use std::sync::Arc;

use tx::{Isolation, Keys};

use super::script::{Actor, Stage, each_level};
use super::{Subject, key_checks};
use crate::check::Check;

pub(super) fn predicates<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    key_checks!(
        group,
        absent_keys,
        absent_keys_deleted_before,
        keys_deleted_since,
        found_keys_deleted_since,
        empty_ranges,
        before_the_first,
        after_the_last,
        between,
        backwards,
        prefixes,
        open_ends,
        up_to_where_it_stopped,
        beside_own_inserts,
        in_a_large_range,
        after_splits,
        after_merges,
    )
}

fn range(from: &str, to: &str) -> Keys {
    Keys::from(from.as_bytes()).until(to.as_bytes())
}

/// When the second one looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Together,
    Second,
    AfterCommit,
}

type Step<'f, S> = &'f dyn Fn(&mut Actor<'_, S>);

/// Each looks and then writes what the other one has looked for.
fn skew<S: Subject>(s: &S, begin: &[(&str, i64)], looks: [Step<'_, S>; 2], writes: [Step<'_, S>; 2]) {
    each_level(s, begin, |stage| {
        // Both look first; or one has written by then; or one has committed, and what the other looks for has been passed over.
        for order in [Order::Together, Order::Second, Order::AfterCommit] {
            let [mut t1, mut t2] = stage.actors();
            looks[0](&mut t1);
            if order != Order::Together {
                writes[0](&mut t1);
            }
            if order == Order::AfterCommit {
                t1.commit();
                t2.late = true;
            }
            looks[1](&mut t2);
            if order == Order::Together {
                writes[0](&mut t1);
            }
            writes[1](&mut t2);
            t1.commit();
            t2.commit();
            if !t2.saw_later {
                stage.skew(&[&t1, &t2]);
            }
            put_back(stage, begin);
        }
    });
}

/// The contents to begin with.
fn put_back<S: Subject>(stage: &Stage<'_, S>, begin: &[(&str, i64)]) {
    let mut t = stage.begin();
    for (key, _) in t.scan(&Keys::all()).unwrap_or_default() {
        t.delete(&key);
    }
    for &(key, value) in begin {
        t.put(key, value);
    }
    t.commit();
    assert!(t.committed, "at {}: alone, and did not commit", stage.level);
}

fn absent_keys<S: Subject>(s: &Arc<S>) {
    skew(
        &**s,
        &[("m", 1)],
        [&|t| t.sees("a", None), &|t| t.sees("z", None)],
        [&|t| _ = t.put("z", 1), &|t| _ = t.put("a", 1)],
    );
}

fn absent_keys_deleted_before<S: Subject>(s: &Arc<S>) {
    each_level(&**s, &[("a", 1), ("z", 1)], |stage| {
        let mut eraser = stage.begin();
        eraser.delete("a");
        eraser.delete("z");
        eraser.commit();
        let [mut t1, mut t2] = stage.actors();
        t1.sees("a", None);
        t2.sees("z", None);
        t1.put("z", 2);
        t2.put("a", 2);
        t1.commit();
        t2.commit();
        stage.skew(&[&t1, &t2]);
    });
}

fn keys_deleted_since<S: Subject>(s: &Arc<S>) {
    skew(
        &**s,
        &[("a", 1), ("z", 1)],
        [&|t| t.sees("a", 1), &|t| t.sees("z", 1)],
        [&|t| _ = t.delete("z"), &|t| _ = t.delete("a")],
    );
}

fn found_keys_deleted_since<S: Subject>(s: &Arc<S>) {
    skew(
        &**s,
        &[("a1", 1), ("a2", 1), ("z1", 1), ("z2", 1)],
        [&|t| t.sees_all(&range("a", "b"), &[("a1", 1), ("a2", 1)]), &|t| {
            t.sees_all(&range("z", "zz"), &[("z1", 1), ("z2", 1)])
        }],
        [&|t| _ = t.delete("z2"), &|t| _ = t.delete("a1")],
    );
}

fn empty_ranges<S: Subject>(s: &Arc<S>) {
    skew(
        &**s,
        &[("m", 1)],
        [&|t| t.sees_all(&range("a", "b"), &[]), &|t| t.sees_all(&range("x", "y"), &[])],
        [&|t| _ = t.put("x5", 1), &|t| _ = t.put("a5", 1)],
    );
}

const FOUR: &[(&str, i64)] = &[("a3", 1), ("a6", 1), ("x3", 1), ("x6", 1)];

/// Both have looked at all of their half of [`FOUR`]; then these are inserted.
fn inserts<S: Subject>(s: &S, keys: [&str; 2], looks: impl Fn(Keys) -> Keys) {
    let reverse = looks(Keys::all()).reverse;
    let see = |t: &mut Actor<'_, S>, from: &str, to: &str, pairs: &[(&str, i64)]| {
        let mut pairs = pairs.to_vec();
        if reverse {
            pairs.reverse();
        }
        t.sees_all(&looks(range(from, to)), &pairs);
    };
    skew(
        s,
        FOUR,
        [&|t| see(t, "a", "b", &FOUR[..2]), &|t| see(t, "x", "y", &FOUR[2..])],
        [&|t| _ = t.put(keys[1], 1), &|t| _ = t.put(keys[0], 1)],
    );
}

fn before_the_first<S: Subject>(s: &Arc<S>) {
    inserts(&**s, ["a", "x"], |keys| keys);
    inserts(&**s, ["a2", "x2"], |keys| keys);
}

fn after_the_last<S: Subject>(s: &Arc<S>) {
    inserts(&**s, ["a7", "x7"], |keys| keys);
}

fn between<S: Subject>(s: &Arc<S>) {
    inserts(&**s, ["a4", "x4"], |keys| keys);
}

fn backwards<S: Subject>(s: &Arc<S>) {
    for keys in [["a", "x"], ["a2", "x2"], ["a4", "x4"], ["a7", "x7"]] {
        inserts(&**s, keys, Keys::reverse);
    }
}

fn prefixes<S: Subject>(s: &Arc<S>) {
    for keys in [["a", "x"], ["a30", "x30"], ["a9", "x9"]] {
        inserts(&**s, keys, |range| {
            let first = if range.contains(b"a3") { "a" } else { "x" };
            Keys { reverse: range.reverse, ..Keys::prefix(first.as_bytes()) }
        });
    }
}

fn open_ends<S: Subject>(s: &Arc<S>) {
    skew(
        &**s,
        &[("m", 1)],
        [&|t| t.sees_all(&Keys::from(b"n"), &[]), &|t| t.sees_all(&Keys::all().until(b"l"), &[])],
        [&|t| _ = t.put("a", 1), &|t| _ = t.put("z", 1)],
    );
}

/// A scan that was stopped has seen what is up to there.
fn up_to_where_it_stopped<S: Subject>(s: &Arc<S>) {
    for reverse in [false, true] {
        let keys = |from, to| if reverse { range(from, to).reverse() } else { range(from, to) };
        let new = if reverse { ["a8", "x8"] } else { ["a1", "x1"] };
        let first = if reverse { [FOUR[1], FOUR[3]] } else { [FOUR[0], FOUR[2]] };
        skew(
            &**s,
            FOUR,
            [&|t| t.sees_first(&keys("a", "b"), first[0]), &|t| t.sees_first(&keys("x", "y"), first[1])],
            [&|t| _ = t.put(new[1], 1), &|t| _ = t.put(new[0], 1)],
        );
    }
}

fn beside_own_inserts<S: Subject>(s: &Arc<S>) {
    skew(
        &**s,
        &[("m", 1)],
        [
            &|t| {
                t.put("a5", 1);
                t.sees_all(&range("a", "b"), &[("a5", 1)]);
            },
            &|t| {
                t.put("x5", 1);
                t.sees_all(&range("x", "y"), &[("x5", 1)]);
            },
        ],
        [&|t| _ = t.put("x6", 1), &|t| _ = t.put("a4", 1)],
    );
}

/// Puts or deletes many keys around `middle`, none of them in `middle0..middle9`. A transaction that is not alone may fail.
fn around<S: Subject>(stage: &Stage<'_, S>, middle: &str, put: bool, alone: bool) {
    for part in 0..6 {
        let mut t = stage.begin();
        for n in 0..50 {
            let key = format!("{middle}{}{part}{n:02}", if n % 2 == 0 { "!" } else { "~" });
            if put {
                t.put(&key, 7)
            } else {
                t.delete(&key)
            };
        }
        t.commit();
        assert!(t.committed || !alone, "at {}: alone, and did not commit", stage.level);
    }
}

fn in_a_large_range<S: Subject>(s: &Arc<S>) {
    each_level(&**s, &[("g5", 1), ("s5", 1)], |stage| {
        around(stage, "g", true, true);
        around(stage, "s", true, true);
        let [mut t1, mut t2] = stage.actors();
        assert!(t1.scan(&range("g", "h")).is_none_or(|found| found.len() == 301));
        assert!(t2.scan(&range("s", "t").reverse()).is_none_or(|found| found.len() == 301));
        t1.put("s4", 1);
        t2.put("g4", 1);
        t1.commit();
        t2.commit();
        stage.skew(&[&t1, &t2]);
    });
}

/// What was looked at has come to lie elsewhere before it changes.
fn moved<S: Subject>(s: &S, grows: bool) {
    each_level(s, &[("m5", 1), ("y", 1)], |stage| {
        if !grows {
            around(stage, "m", true, true);
        }
        let [mut t1, mut t2] = stage.actors();
        t1.sees_all(&range("m0", "m9"), &[("m5", 1)]);
        t1.sees("m3", None);
        around(stage, "m", grows, false);
        t2.sees("y", 1);
        t2.put("m4", 1);
        t1.put("y", 2);
        t2.commit();
        t1.commit();
        // A transaction that has seen the moving may fail for it.
        if stage.kept >= Isolation::Serializable {
            stage.skew(&[&t1, &t2]);
        }
    });
}

fn after_splits<S: Subject>(s: &Arc<S>) {
    moved(&**s, true);
}

fn after_merges<S: Subject>(s: &Arc<S>) {
    moved(&**s, false);
}
