//! The procedures on every engine and the store, and the audit on procedures that are wrong.

use std::path::Path;

use heap::{Heap, Options, Policy};
use structures::{BTree, BTreeOptions, HashMap, HashMapOptions, KvMap};
use tx::{Engine, Isolation, Kv, KvTx, Reference};

use super::keys::View;
use super::procedures::{self, Accounts, PENALTY, Table};
use super::*;

const SMALL: Bank = Bank { customers: 40, hot: 4, hot_percent: 50 };

/// With so little room for the copies of a partial backup that they are given up.
fn heap(dir: &Path, policy: Policy) -> Heap {
    let options = Options::new().policy(policy).coordinator(false).bytes(4 << 20).alpha(0.005);
    Heap::create(dir.join("bank"), &options).unwrap()
}

fn store(dir: &Path) -> kv::Store {
    kv::Options::new().create(dir.join("store")).unwrap()
}

fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in(crate::contest::memory()).unwrap()
}

fn hash(tx: &mut impl tx::Transaction) -> tx::Result<HashMap> {
    HashMap::create(tx, &HashMapOptions::new().capacity(SMALL.customers))
}

/// Runs so many procedures on that many threads. Returns what was gained and how many were refused.
fn work(open: &dyn Open, threads: u64, count: usize) -> (i64, u64) {
    let one = |thread| {
        let (mut random, mut gained, mut refused) = (Random::new(thread), 0, 0);
        for _ in 0..count {
            let done = open.run(&SMALL.next(&mut random)).unwrap();
            assert!(!done.refused || done.gained == 0);
            gained += done.gained;
            refused += u64::from(done.refused);
        }
        (gained, refused)
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        let all = all.into_iter().map(|thread| thread.join().unwrap());
        all.fold((0, 0), |(gained, refused), one| (gained + one.0, refused + one.1))
    })
}

/// The same work gains the same and leaves the same everywhere.
#[test]
fn everybody_ends_alike() {
    let reference = Reference::with_capacity(16 << 20);
    let open = InObjects::populate(&reference, &SMALL, |tx| hash(tx)).unwrap();
    let told = work(&open, 1, 2000);
    let books = open.books().unwrap();
    assert!(told.1 > 50 && told.1 < 1000, "{told:?}");
    audit("reference", &SMALL, &books, told.0).unwrap();
    let same = |who: &str, open: &dyn Open| {
        assert_eq!((work(open, 1, 2000), open.books().unwrap()), (told, books), "{who}");
    };
    for policy in Policy::ALL {
        let dir = memory();
        let engine = heap(dir.path(), policy);
        same(policy.name(), &InObjects::populate(&engine, &SMALL, |tx| hash(tx)).unwrap());
        let options = BTreeOptions::new().key_max(16);
        same(policy.name(), &InObjects::populate(&engine, &SMALL, |tx| BTree::create(tx, &options)).unwrap());
        let tree = engine.transact(Isolation::Strict, |tx| BTree::create(tx, &BTreeOptions::new())).unwrap();
        same("a structure's keys", &InKeys::populate(&KvMap::new(&engine, tree), &SMALL).unwrap());
        assert_eq!(engine.stats().evictions > 0, policy == Policy::InPlacePartial, "{policy}");
    }
    let dir = memory();
    same("kv", &InKeys::populate(&store(dir.path()), &SMALL).unwrap());
}

#[test]
fn four_threads() {
    let check = |who: &str, open: &dyn Open| {
        let (gained, _) = work(open, 4, 500);
        audit(who, &SMALL, &open.books().unwrap(), gained).unwrap();
    };
    for policy in Policy::ALL {
        let dir = memory();
        let engine = heap(dir.path(), policy);
        check(policy.name(), &InObjects::populate(&engine, &SMALL, |tx| hash(tx)).unwrap());
    }
    let dir = memory();
    check("kv", &InKeys::populate(&store(dir.path()), &SMALL).unwrap());
}

/// Procedures of a bank that makes a mistake.
struct Wrong<'s>(&'s kv::Store, Mistake);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// The last of several changes is forgotten.
    LosesAChange,
    /// Savings are thought to be higher than they are.
    Overdraws,
}

struct WrongView<'t, T>(View<'t, T>, Mistake);

impl<T: KvTx> Accounts for WrongView<'_, T> {
    type At = (Table, [u8; 9]);

    fn find(&self, name: &Name) -> tx::Result<u64> {
        self.0.find(name)
    }

    fn account(&self, table: Table, customer: u64) -> tx::Result<Self::At> {
        Ok((table, self.0.account(table, customer)?))
    }

    fn read(&self, (table, at): Self::At) -> tx::Result<i64> {
        let more = self.1 == Mistake::Overdraws && table == Table::Savings;
        Ok(self.0.read(at)? + if more { 1_000_000 } else { 0 })
    }

    fn write(&mut self, changes: &[(Self::At, i64)]) -> tx::Result<()> {
        let kept = if self.1 == Mistake::LosesAChange && changes.len() > 1 { changes.len() - 1 } else { changes.len() };
        let back = |((table, at), balance): &(Self::At, i64)| {
            let more = self.1 == Mistake::Overdraws && *table == Table::Savings;
            (*at, balance - if more { 1_000_000 } else { 0 })
        };
        let changes: Vec<_> = changes[..kept].iter().map(back).collect();
        self.0.write(&changes)
    }
}

impl Open for Wrong<'_> {
    fn run(&self, procedure: &Procedure) -> Result<Done> {
        let run = |tx: &mut kv::Transaction<'_>| procedures::run(&mut WrongView(View(tx), self.1), procedure);
        done(Kv::transact(self.0, Isolation::Serializable, run), 1)
    }

    fn books(&self) -> Result<Books> {
        unreachable!("the bank's own are looked at")
    }
}

#[test]
fn the_audit_notices() {
    for (mistake, what) in
        [(Mistake::LosesAChange, "cents, expected"), (Mistake::Overdraws, "a savings account with -")]
    {
        let dir = memory();
        let store = store(dir.path());
        let right = InKeys::populate(&store, &SMALL).unwrap();
        audit("kv", &SMALL, &right.books().unwrap(), 0).unwrap();
        // No Amalgamate, which would take what is not there.
        let (mut random, mut gained) = (Random::new(3), 0);
        for _ in 0..4000 {
            let procedure = SMALL.next(&mut random);
            if mistake == Mistake::LosesAChange || !matches!(procedure, Procedure::Amalgamate { .. }) {
                gained += Wrong(&store, mistake).run(&procedure).unwrap().gained;
            }
        }
        let error = audit("kv", &SMALL, &right.books().unwrap(), gained).unwrap_err().to_string();
        assert!(error.contains(what), "{mistake:?}: {error}");
    }
    let few = Books { accounts: 2 * SMALL.customers - 1, ..Books::default() };
    assert!(audit("kv", &SMALL, &few, 0).unwrap_err().to_string().contains("79 accounts, there were 80"));
}

/// The read-only anomaly (Fekete et al. 2004; Alomar et al. 2008): a check is looked at; meanwhile savings are emptied, and Balance shows it. The check, which
/// comes later by that, must then cost the penalty. `None` if the check has to be tried again, which finds that out.
fn anomaly<K: Kv>(store: &K, isolation: Isolation) -> Option<i64> {
    let bank = |procedure: Procedure| {
        let mut tx = store.begin(isolation).ok()?;
        let gained = procedures::run(&mut View(&mut tx), &procedure).ok()?;
        tx.commit().ok().map(|()| gained)
    };
    let empty = Procedure::TransactSavings { of: 7, amount: -AT_FIRST };
    bank(Procedure::SendPayment { between: [7, 8], amount: AT_FIRST }).expect("alone");

    let mut check = store.begin(isolation).expect("a slot");
    let customer = View(&mut check).find(&name(7)).expect("there");
    let [savings, checking] = [Table::Savings, Table::Checking].map(|table| {
        let view = View(&mut check);
        view.read(view.account(table, customer).expect("there")).expect("alone")
    });
    assert_eq!((savings, checking), (AT_FIRST, 0));
    bank(empty)?; // in the check's way, or the other way round
    assert_eq!(bank(Procedure::Balance { of: 7 }), Some(0));
    let gained = procedures::run(&mut View(&mut check), &Procedure::WriteCheck { of: 7, amount: 100 }).ok()?;
    check.commit().ok().map(|()| gained)
}

/// Seen to happen where the level allows it, and nowhere else.
#[test]
fn a_check_that_should_have_cost_the_penalty() {
    let dir = memory();
    let kv = store(dir.path());
    InKeys::populate(&kv, &SMALL).unwrap();
    assert_eq!(anomaly(&kv, Isolation::Serializable), None);
    let gained = InKeys::populate(&kv, &SMALL).unwrap().run(&Procedure::WriteCheck { of: 7, amount: 30_000 }).unwrap();
    assert_eq!(gained.gained, -30_000 - PENALTY);

    InKeys::populate(&kv, &SMALL).unwrap();
    assert_eq!(anomaly(&kv, Isolation::Snapshot), Some(-100), "snapshot isolation has the anomaly");

    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::None) {
        let dir = memory();
        let engine = heap(dir.path(), policy);
        let tree = engine.transact(Isolation::Strict, |tx| BTree::create(tx, &BTreeOptions::new())).unwrap();
        let keys = KvMap::new(&engine, tree);
        InKeys::populate(&keys, &SMALL).unwrap();
        for isolation in Isolation::ALL {
            assert_eq!(anomaly(&keys, isolation), None, "{policy} {isolation}");
            InKeys::populate(&keys, &SMALL).unwrap();
        }
    }
}

/// In place and without atomicity one barrier for what changes something, undo three, whatever it changes; none for the others.
#[test]
fn barriers_are_counted() {
    for policy in Policy::ALL {
        let dir = memory();
        let engine = heap(dir.path(), policy);
        let open = InObjects::populate(&engine, &SMALL, |tx| hash(tx)).unwrap();
        let wanted = if policy == Policy::Undo { 3 } else { 1 };
        let mut random = Random::new(5);
        for _ in 0..300 {
            let procedure = SMALL.next(&mut random);
            engine.apply_pending().unwrap();
            let counts = || engine.pool().stats().drains - engine.stats().misses; // copies apart that a partial backup did not have
            let before = counts();
            let done = open.run(&procedure).unwrap();
            let drains = counts() - before;
            let reads = done.refused || matches!(procedure, Procedure::Balance { .. });
            assert_eq!(drains, if reads { 0 } else { wanted }, "{policy}: {procedure:?}");
        }
    }
}

/// Half of those who are picked are of the hotspot, as told; procedures come as often as they should.
#[test]
fn procedures_are_mixed() {
    let (mut random, mut hot, mut payments) = (Random::new(1), 0, 0);
    for _ in 0..10_000 {
        hot += u64::from(SMALL.customer(&mut random) < SMALL.hot);
        payments += u64::from(matches!(SMALL.next(&mut random), Procedure::SendPayment { .. }));
    }
    assert!((4_800..5_200).contains(&hot) && (2_350..2_650).contains(&payments), "{hot} {payments}");
    assert_eq!(&name(1234), b"customer00001234");
}
