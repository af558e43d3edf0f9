//! The cases of Hermitage (Kleppmann, *Hermitage: Testing the "I" in ACID*, 2014), with scans for predicates. Each names what Adya calls it.

use std::sync::Arc;

use tx::Keys;

use super::script::{Actor, Stage, TWO, each_level};
use super::{Subject, key_checks};
use crate::check::Check;

pub(super) fn hermitage<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    key_checks!(
        group,
        g0,
        g1a,
        g1b,
        g1c,
        otv,
        otv_begun_later,
        pmp_read,
        pmp_write,
        p4,
        p4_insert,
        p4_delete,
        g_single,
        g_single_dependencies,
        g_single_write_1,
        g_single_write_2,
        g2_item,
        g2_item_read_late,
        g2,
        g2_two_edges,
        acknowledged,
    )
}

fn all() -> Keys {
    Keys::all()
}

/// Pairs with such a value, as a predicate finds them.
fn matching<S: Subject>(actor: &mut Actor<'_, S>, is: impl Fn(i64) -> bool) -> Vec<String> {
    let found = actor.scan(&all()).unwrap_or_default();
    found.into_iter().filter(|(_, value)| is(*value)).map(|(key, _)| key).collect()
}

/// Dirty write.
fn g0<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.put("1", 11);
        t2.put("1", 12);
        t1.put("2", 21);
        t1.commit();
        t2.put("2", 22);
        t2.commit();
        match (t1.committed, t2.committed) {
            (true, true) => stage.ends_as(&[&[("1", 11), ("2", 21)], &[("1", 12), ("2", 22)]]),
            (true, false) => stage.ends_as(&[&[("1", 11), ("2", 21)]]),
            (false, true) => stage.ends_as(&[&[("1", 12), ("2", 22)]]),
            (false, false) => stage.ends_as(&[TWO]),
        }
    });
}

/// Aborted read.
fn g1a<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.put("1", 101);
        t1.put("3", 103);
        t2.sees("1", 10);
        t2.sees_all(&all(), TWO);
        t1.abort();
        t2.sees_all(&all(), TWO);
        t2.sees("1", 10);
        t2.commit();
        stage.ends_as(&[TWO]);
    });
}

/// Intermediate read.
fn g1b<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.put("1", 101);
        t2.sees_one_of(&all(), &[TWO]);
        t1.put("1", 11);
        t1.commit();
        t2.sees_one_of(&all(), &[TWO]);
        t2.commit();
        stage.ends_as(&[if t1.committed { &[("1", 11), ("2", 20)] } else { TWO }]);
    });
}

/// Circular information flow.
fn g1c<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.put("1", 11);
        t2.put("2", 22);
        t1.sees("2", 20);
        t2.sees("1", 10);
        t1.commit();
        t2.commit();
        stage.skew(&[&t1, &t2]); // each has missed the other
    });
}

/// Observed transaction vanishes.
fn otv<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [t1, t2, t3] = stage.actors();
        observe(stage, t1, t2, Some(t3), &[TWO, &[("1", 11), ("2", 19)]]);
    });
}

/// The same, the observer begins when there is something to observe.
fn otv_begun_later<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [t1, t2] = stage.actors();
        let now: &[(&str, i64)] = &[("1", 11), ("2", 19)];
        let allowed = [now, if stage.real_time { now } else { TWO }];
        observe(stage, t1, t2, None, &allowed);
    });
}

fn observe<'s, S: Subject>(
    stage: &Stage<'s, S>,
    mut t1: Actor<'s, S>,
    mut t2: Actor<'s, S>,
    t3: Option<Actor<'s, S>>,
    allowed: &[&[(&str, i64)]],
) {
    t1.put("1", 11);
    t1.put("2", 19);
    t2.put("1", 12);
    t1.commit();
    let mut t3 = t3.unwrap_or_else(|| stage.begin());
    let first = t3.get("1");
    t2.put("2", 18);
    let second = t3.get("2");
    t2.commit();
    if t1.committed {
        t3.sees_one_of(&all(), allowed);
    }
    if let (Some(first), Some(second)) = (first, second) {
        t3.sees("2", second);
        t3.sees("1", first);
        t3.sees_all(&all(), &[("1", first.unwrap_or(0)), ("2", second.unwrap_or(0))]);
    }
    t3.commit();
}

/// Predicate-many-preceders, as a reader.
fn pmp_read<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.sees_all(&all(), TWO);
        t2.put("3", 30);
        t2.commit();
        t1.sees_all(&all(), TWO);
        t1.sees("3", None);
        t1.commit();
    });
}

/// As a writer.
fn pmp_write<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        for (key, value) in t1.scan(&all()).unwrap_or_default() {
            t1.put(&key, value + 10);
        }
        for key in matching(&mut t2, |value| value == 20) {
            t2.delete(&key);
        }
        t1.commit();
        t2.commit();
        match (t1.committed, t2.committed) {
            (true, true) => stage.ends_as(&[&[("2", 30)], &[("1", 20)]]),
            (true, false) => stage.ends_as(&[&[("1", 20), ("2", 30)]]),
            (false, true) => stage.ends_as(&[&[("1", 10)]]),
            (false, false) => stage.ends_as(&[TWO]),
        }
    });
}

/// Lost update.
fn p4<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.sees("1", 10);
        t2.sees("1", 10);
        t1.put("1", 11);
        t2.put("1", 12);
        t1.commit();
        t2.commit();
        stage.not_all(&[&t1, &t2]);
    });
}

/// Two inserts of one key: the second overwrites.
fn p4_insert<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        for (key, looks) in [("3", true), ("4", false)] {
            let [mut t1, mut t2] = stage.actors();
            let mut there = [None; 2];
            for (t, there) in [&mut t1, &mut t2].into_iter().zip(&mut there) {
                if looks {
                    t.sees(key, None);
                }
                *there = t.put(key, 30);
            }
            t1.commit();
            t2.commit();
            if there == [Some(false); 2] {
                stage.not_all(&[&t1, &t2]);
            }
        }
    });
}

/// A delete and an update, a delete and a delete.
fn p4_delete<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.sees("1", 10);
        t2.sees("1", 10);
        t1.delete("1");
        t2.put("1", 11);
        t1.commit();
        t2.commit();
        stage.not_all(&[&t1, &t2]);
        let [mut t3, mut t4] = stage.actors();
        let there = [t3.delete("2"), t4.delete("2")];
        t3.commit();
        t4.commit();
        if there == [Some(true); 2] {
            stage.not_all(&[&t3, &t4]);
        }
    });
}

/// Read skew.
fn g_single<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.sees("1", 10);
        t2.sees_all(&all(), TWO);
        t2.put("1", 12);
        t2.put("2", 18);
        t2.commit();
        t1.sees("2", 20);
        t1.commit();
    });
}

/// Read skew through predicates.
fn g_single_dependencies<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.sees_all(&all(), TWO);
        t2.put("1", 12);
        t2.put("3", 18);
        t2.delete("2");
        t2.commit();
        t1.sees_all(&all().reverse(), &[("2", 20), ("1", 10)]);
        t1.commit();
    });
}

/// Read skew, then a write by predicate.
fn g_single_write_1<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.sees("1", 10);
        t2.sees_all(&all(), TWO);
        t2.put("1", 12);
        t2.put("2", 18);
        t2.commit();
        for key in matching(&mut t1, |value| value == 20 || value == 18) {
            t1.delete(&key);
        }
        t1.commit();
        stage.not_all(&[&t1, &t2]);
    });
}

/// The same, the write comes before the commit.
fn g_single_write_2<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.sees("1", 10);
        t2.sees_all(&all(), TWO);
        t2.put("1", 12);
        t2.put("2", 18);
        for key in matching(&mut t1, |value| value == 20) {
            t1.delete(&key);
        }
        t2.commit();
        t1.commit();
        stage.not_all(&[&t1, &t2]);
    });
}

/// Write skew.
fn g2_item<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        for t in [&mut t1, &mut t2] {
            t.sees("1", 10);
            t.sees("2", 20);
        }
        t1.put("1", 11);
        t2.put("2", 21);
        t1.commit();
        t2.commit();
        stage.skew(&[&t1, &t2]);
    });
}

/// Write skew with a transaction that reads what is old by then.
fn g2_item_read_late<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.sees_all(&all(), TWO);
        t1.put("1", 11);
        t1.commit();
        t2.late = true;
        t2.sees("1", 10);
        t2.sees("2", 20);
        t2.put("2", 21);
        t2.commit();
        if !t2.saw_later {
            stage.skew(&[&t1, &t2]);
        }
    });
}

/// Write skew through predicates.
fn g2<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.sees_all(&all(), TWO);
        t2.sees_all(&all(), TWO);
        t1.put("3", 30);
        t2.put("4", 42);
        t1.commit();
        t2.commit();
        stage.skew(&[&t1, &t2]);
    });
}

/// Of two anti-dependencies one ends in a transaction that only reads (Fekete et al., *A Read-Only Transaction Anomaly Under Snapshot
/// Isolation*, 2004).
fn g2_two_edges<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        let [mut t1, mut t2] = stage.actors();
        t1.sees_all(&all(), TWO);
        t2.sees("2", 20);
        t2.put("2", 25);
        t2.commit();
        let mut t3 = stage.begin();
        let now = t3.get("2") == Some(Some(25));
        assert!(now || !t2.committed || !stage.real_time, "at {}: begun after a commit and not seen it", stage.level);
        t3.sees("1", 10);
        t3.commit();
        t1.put("1", 0);
        t1.commit();
        if now {
            stage.skew(&[&t1, &t2, &t3]);
        }
    });
}

/// A transaction that begins after a commit sees it.
fn acknowledged<S: Subject>(s: &Arc<S>) {
    each_level(&**s, TWO, |stage| {
        if !stage.real_time {
            return;
        }
        for round in 0..20 {
            let mut writer = stage.begin();
            writer.put("1", 100 + round);
            writer.put("3", round);
            writer.commit();
            let mut reader = stage.begin();
            reader.sees("1", 100 + round);
            reader.sees_all(&all(), &[("1", 100 + round), ("2", 20), ("3", round)]);
            reader.commit();
            let mut eraser = stage.begin();
            eraser.delete("3");
            eraser.commit();
            assert!(writer.committed && reader.committed && eraser.committed, "at {}: nobody was there", stage.level);
            let mut reader = stage.begin();
            reader.sees_all(&all(), &[("1", 100 + round), ("2", 20)]);
            reader.sees("3", None);
            reader.commit();
        }
    });
}
