//! Typed tables: the order of keys, round trips, ranges, and what is told when types do not fit.

use std::fmt::Debug;

use kv::{Error, Isolation, KeyCode, Keys, Plain, Store, Table, ValueCode};
use proptest::prelude::*;

fn store() -> (tempfile::TempDir, Store) {
    let dir = crate::memory();
    let store = Store::open(dir.path().join("store")).unwrap();
    (dir, store)
}

// ---- keys ---------------------------------------------------------------------------------------------------------

fn whole<K: KeyCode>(key: &K) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode_last(&mut bytes);
    bytes
}

fn parted<K: KeyCode>(key: &K) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

/// Order, round trips, and that what stands alone is never the beginning of another.
fn holds<K: KeyCode<Owned = K> + Ord + Debug + Clone>(a: &K, b: &K) -> Result<(), TestCaseError> {
    prop_assert_eq!(whole(a).cmp(&whole(b)), a.cmp(b), "{:?} {:?}", a, b);
    prop_assert_eq!(parted(a).cmp(&parted(b)), a.cmp(b), "{:?} {:?}, with more behind", a, b);
    prop_assert!(a == b || !parted(a).starts_with(&parted(b)), "{:?} begins as {:?}", a, b);
    let bytes = whole(a);
    let mut rest = &bytes[..];
    prop_assert_eq!(&K::decode_last(&mut rest).unwrap(), a);
    prop_assert!(rest.is_empty());
    let mut bytes = parted(a);
    bytes.push(7);
    let mut rest = &bytes[..];
    prop_assert_eq!(&K::decode(&mut rest).unwrap(), a);
    prop_assert_eq!(rest, [7]);
    Ok(())
}

/// Bytes and text near each other: with zeros, 255s, and common beginnings.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(254), Just(255), any::<u8>()], 0..6)
}

fn text() -> impl Strategy<Value = String> {
    let letter = prop_oneof![Just('\0'), Just('\u{1}'), Just('a'), Just('ÿ'), Just('\u{10ffff}')];
    proptest::collection::vec(letter, 0..5).prop_map(|letters| letters.into_iter().collect())
}

macro_rules! pairs_hold {
    ($($a:ident, $b:ident: $strategy:expr;)*) => {
        proptest! {
            #[test]
            fn encoded_keys_sort_as_keys_do($($a in $strategy, $b in $strategy,)*) {
                $(holds(&$a, &$b)?;)*
            }
        }
    };
}

pairs_hold! {
    a1, b1: any::<u8>();
    a2, b2: any::<u32>();
    a3, b3: any::<u128>();
    a4, b4: any::<i8>();
    a5, b5: any::<i64>();
    a6, b6: any::<i128>();
    a7, b7: any::<bool>();
    a8, b8: bytes();
    a9, b9: text();
    a10, b10: any::<[u8; 3]>();
    a11, b11: proptest::option::of(-2..2i16);
}

macro_rules! tuples_hold {
    ($($a:ident, $b:ident: $strategy:expr;)*) => {
        proptest! {
            #[test]
            fn encoded_tuples_sort_as_tuples_do($($a in $strategy, $b in $strategy,)*) {
                $(holds(&$a, &$b)?;)*
            }
        }
    };
}

tuples_hold! {
    a1, b1: (text(), bytes());
    a2, b2: (bytes(), -1..1i32, text());
    a3, b3: (0..2u8, text(), proptest::option::of(text()), bytes());
    a4, b4: (proptest::option::of(bytes()), (text(), any::<bool>()));
    a5, b5: proptest::option::of((text(), 0..2u16));
}

proptest! {
    #[test]
    fn any_bytes_are_a_key_or_an_error(bytes in proptest::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..24)) {
        type Deep = (String, Option<Vec<u8>>, bool, (u16, [u8; 2]));
        let mut rest = &bytes[..];
        if let Ok(key) = Deep::decode(&mut rest) {
            // One key has one encoding, so that equal keys are equal bytes.
            prop_assert_eq!(parted(&key), &bytes[..bytes.len() - rest.len()]);
        }
    }
}

// ---- values -------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq, pmem::Persist)]
#[repr(C)]
struct Account {
    balance: i64,
    opened: u32,
    branch: u32,
}

fn returns<V: ValueCode<Put = V, Owned = V> + PartialEq + Debug>(value: &V) {
    let mut buffer = Vec::new();
    let bytes = V::bytes(value, &mut buffer).unwrap();
    assert_eq!(&V::owned(V::decode(bytes).unwrap()), value);
}

fn refuses<V: ValueCode>(bytes: &[u8]) -> bool {
    V::decode(bytes).is_err()
}

#[test]
fn values_come_back() {
    returns(&7u8);
    returns(&-7i128);
    returns(&0.5f64);
    returns(&());
    returns(&true);
    returns(&[1u8, 2, 3]);
    returns(&b"any\0bytes\xff".to_vec());
    returns(&"text ÿ".to_owned());
    returns(&Some(5u16));
    returns(&None::<Vec<u8>>);
    returns(&Some(Some(Vec::new())).filter(|inner: &Option<Vec<u8>>| inner.is_some()));
    assert!(refuses::<u32>(&[1, 2, 3]));
    assert!(refuses::<bool>(&[2]));
    assert!(refuses::<Option<u8>>(&[0, 1]));
    assert!(refuses::<String>(&[0xff]));
    assert!(refuses::<Plain<Account>>(&[0; 15]));
}

// ---- tables -------------------------------------------------------------------------------------------------------

#[test]
fn a_table_is_a_typed_view_of_the_store() {
    let (_dir, store) = store();
    let accounts: Table<u64, Plain<Account>> = store.table("accounts").unwrap();
    let names: Table<str, u64> = store.table("accounts2").unwrap();
    let account = |balance| Account { balance, opened: 2026, branch: 1 };
    let total = store.transact(|tx| {
        for n in [5, 300, 70_000] {
            assert!(!accounts.put(tx, &n, &account(n as i64))?);
            names.put(tx, &format!("number {n}"), &n)?;
        }
        assert!(accounts.put(tx, &5, &account(6))?, "it had a value, of this very transaction");
        accounts.scan(tx).map(|entry| Ok(entry?.1.balance)).sum::<kv::Result<i64>>()
    });
    assert_eq!(total.unwrap(), 70_306);
    let snapshot = store.snapshot().unwrap();
    let keys: Vec<u64> = accounts.scan(&snapshot).map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, [5, 300, 70_000]);
    let keys: Vec<u64> = accounts.scan(&snapshot).reverse().map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, [70_000, 300, 5]);
    let of = |range: std::ops::RangeInclusive<u64>| accounts.range(&snapshot, range).count();
    assert_eq!((of(0..=4), of(5..=300), of(6..=u64::MAX)), (0, 2, 2));
    assert_eq!(accounts.range(&snapshot, ..300).count(), 1);
    assert_eq!(accounts.range(&snapshot, 300..).count(), 2);
    assert_eq!(accounts.range(&snapshot, ..).count(), 3);
    assert_eq!(names.prefix(&snapshot, "number 3").count(), 1);
    assert_eq!(names.prefix(&snapshot, "").count(), 3);
    assert_eq!(names.range(&snapshot, "number 3".."number 6").count(), 2);
    // The bytes are where the documentation says.
    assert_eq!(snapshot.get(b"accounts2\0number 300").unwrap(), Some(&300u64.to_le_bytes()[..]));
    assert_eq!(accounts.raw_key(&300), b"accounts\0\0\0\0\0\0\0\x01\x2c");
    assert_eq!(snapshot.scan(Keys::all()).count(), 6 + 2, "six entries, and the types of two tables");
    drop(snapshot);
    let deleted = store.transact(|tx| accounts.delete_range(tx, ..));
    assert_eq!(deleted.unwrap(), 3, "of this table, and no other");
    assert_eq!(names.on(&store).get("number 5").unwrap(), Some(5));
    assert!(names.on(&store).delete("number 5").unwrap());
    assert!(!names.on(&store).delete("number 5").unwrap());
    assert_eq!(names.on(&store).get("number 5").unwrap(), None);
}

#[test]
fn bytes_and_text_are_read_where_they_are() {
    let (_dir, store) = store();
    let notes: Table<(u32, String), str> = store.table("notes").unwrap();
    notes.on(&store).put(&(1, "b".into()), "second").unwrap();
    notes.on(&store).put(&(1, "a\0".into()), "first").unwrap();
    notes.on(&store).put(&(2, String::new()), "third").unwrap();
    let tx = store.begin(Isolation::Serializable).unwrap();
    let second: &str = notes.get(&tx, &(1, "b".into())).unwrap().unwrap();
    let found: Vec<((u32, String), &str)> = notes.prefix(&tx, &(1,)).map(Result::unwrap).collect();
    assert_eq!(found, [((1, "a\0".into()), "first"), ((1, "b".into()), second)]);
    assert_eq!(notes.on(&store).view(&(2, String::new()), |note| note.map(str::len)).unwrap(), Some(5));
    let set: Table<(&str, u8), ()> = store.table("set").unwrap();
    let name = "borrowed".to_owned();
    assert!(!set.on(&store).put(&(&name, 1), &()).unwrap());
    assert_eq!(set.scan(&store.snapshot().unwrap()).next().unwrap().unwrap(), ((name, 1), ()));
}

#[test]
fn entries_expire() {
    let (_dir, store) = store();
    let sessions: Table<u32, str> = store.table("sessions").unwrap();
    sessions.on(&store).put_until(&1, "gone", 1).unwrap();
    sessions.on(&store).put_until(&2, "there", u64::MAX).unwrap();
    assert_eq!(sessions.on(&store).get(&1).unwrap(), None);
    assert_eq!(sessions.scan(&store.snapshot().unwrap()).count(), 1);
    assert_eq!(store.snapshot().unwrap().expires(&sessions.raw_key(&2)).unwrap(), Some(u64::MAX));
}

#[test]
fn what_does_not_fit_is_told() {
    let (_dir, store) = store();
    for name in ["", "a\0b", &"n".repeat(256)] {
        assert!(matches!(store.table::<u8, u8>(name), Err(Error::TableName { .. })), "{name:?}");
    }
    assert_eq!(store.table::<u8, u8>(&"n".repeat(255)).unwrap().name().len(), 255);
    // As by a program from before types were stored.
    let written = Table::<u32, u32>::new("t").unwrap();
    store.put(written.raw_key(&7), 1u32.to_le_bytes()).unwrap();
    let wrong_value = store.table::<u32, u64>("t").unwrap();
    let error = wrong_value.on(&store).get(&7).unwrap_err();
    assert!(error.to_string().contains("\"t\", key \"\\x00\\x00\\x00\\x07\": the value has 4 bytes, not 8"), "{error}");
    let tx = store.begin(Isolation::Serializable).unwrap();
    assert!(matches!(wrong_value.get(&tx, &7), Err(Error::Type { .. })));
    for (short, error) in [(true, "the key is too long"), (false, "the key is too short")] {
        let found = match short {
            true => store.table::<u16, u32>("t").unwrap().scan(&tx).map(|entry| entry.map(|_| ())).next(),
            false => store.table::<u64, u32>("t").unwrap().scan(&tx).map(|entry| entry.map(|_| ())).next(),
        };
        let found = found.unwrap().unwrap_err().to_string();
        assert!(found.contains(error), "{found}");
    }
    assert!(tx.commit().is_ok(), "to be told that types do not fit dooms nothing");
}

fn is_other<T>(result: kv::Result<T>) -> bool {
    matches!(result, Err(Error::TypeMismatch { .. }))
}

#[test]
fn a_table_has_the_types_that_it_was_made_with() {
    let (dir, store) = store();
    let ages = store.table::<str, u32>("ages").unwrap();
    assert!(!ages.on(&store).put("Ada", &36).unwrap());
    store.close().unwrap();

    let store = Store::open(dir.path().join("store")).unwrap();
    let error = store.table::<str, u64>("ages").unwrap_err();
    assert!(error.to_string().starts_with("table \"ages\" holds text -> u32, not text -> u64; "), "{error}");
    assert_eq!(error.kind(), tx::ErrorKind::Misuse);
    assert_eq!(store.table::<String, u32>("ages").unwrap().on(&store).get(&"Ada".into()).unwrap(), Some(36));

    // A handle of no store is told at its first use, whatever that is; and changes nothing.
    let other = || Table::<str, u64>::new("ages").unwrap();
    assert!(is_other(other().on(&store).get("Ada")));
    assert!(is_other(other().on(&store).view("Ada", |_| ())));
    assert!(is_other(other().on(&store).put("Ada", &1)));
    assert!(is_other(other().on(&store).put_until("Ada", &1, u64::MAX)));
    assert!(is_other(other().on(&store).delete("Ada")));
    let mut tx = store.begin(Isolation::Serializable).unwrap();
    assert!(is_other(other().get(&tx, "Ada")));
    assert!(is_other(other().put(&mut tx, "Ada", &1)));
    assert!(is_other(other().put_until(&mut tx, "Ada", &1, u64::MAX)));
    assert!(is_other(other().delete(&mut tx, "Ada")));
    assert!(is_other(other().delete_range(&mut tx, ..)));
    let mut all = other().scan(&tx).take(9).map(is_other).collect::<Vec<_>>();
    all.extend(other().prefix(&tx, "A").map(is_other));
    assert_eq!(all, [true, true], "told once, and ended");
    tx.commit().unwrap();
    assert_eq!(ages.on(&store).get("Ada").unwrap(), Some(36));

    // One handle, two stores.
    let (_dir, second) = self::store();
    second.table::<str, u64>("ages").unwrap().on(&second).put("Ada", &1).unwrap();
    assert!(is_other(ages.on(&second).get("Ada")));
    assert_eq!(ages.on(&store).get("Ada").unwrap(), Some(36));
}

#[test]
fn types_are_stored_with_the_first_entry_and_no_sooner() {
    let (_dir, store) = store();
    let none: [(String, String); 0] = [];
    let table = store.table::<u32, Plain<Account>>("accounts").unwrap();
    let account = Account { balance: 1, opened: 2, branch: 3 };
    table.on(&store).get(&1).unwrap();
    table.on(&store).delete(&1).unwrap();
    let mut aborted = store.begin(Isolation::Serializable).unwrap();
    table.put(&mut aborted, &1, &account).unwrap();
    assert!(table.get(&aborted, &1).unwrap().is_some(), "with the types that it has itself stored");
    drop(aborted);
    assert_eq!(store.tables().unwrap(), none);
    let other = store.table::<u32, u32>("accounts").unwrap();

    let drains = || store.pool().stats().drains;
    let before = drains();
    table.on(&store).put(&1, &account).unwrap();
    let first = drains() - before;
    table.on(&store).put(&2, &account).unwrap();
    assert_eq!((first, drains() - before), (1, 2), "one barrier each");
    let named = format!("u32 -> Account {:016x}", <Account as pmem::Persist>::LAYOUT.hash);
    assert_eq!(store.tables().unwrap(), [("accounts".to_owned(), named)]);
    assert!(is_other(other.on(&store).put(&1, &1)), "it was there before the types were");

    store.table::<(u8, Option<String>), ()>("accounts, by name").unwrap().on(&store).put(&(1, None), &()).unwrap();
    assert_eq!(store.tables().unwrap()[1].1, "(u8, Option<text>) -> ()");
}

#[test]
fn a_handle_looks_again_when_types_were_removed_or_written() {
    let (_dir, store) = store();
    let warm = store.table::<u64, u64>("t").unwrap();
    for n in 0..3 {
        warm.on(&store).put(&n, &n).unwrap();
    }
    store.transact(|tx| tx.delete_range(Keys::all())).unwrap();
    assert_eq!(store.tables().unwrap().len(), 0);
    warm.on(&store).put(&9, &9).unwrap();
    assert_eq!(store.tables().unwrap().len(), 1, "stored again, with the first entry");
    store.transact(|tx| tx.delete_range(Keys::all())).unwrap();
    store.table::<str, str>("t").unwrap().on(&store).put("k", "v").unwrap();
    assert!(is_other(warm.on(&store).get(&9)));
    assert!(is_other(warm.on(&store).put(&9, &9)));
    for written in ["u64 -> u64", "text -> text"] {
        store.put(b"\0types\0t", written).unwrap();
        assert_eq!(is_other(warm.on(&store).get(&9)), written != "u64 -> u64", "written by hand");
    }
}

#[test]
fn a_table_is_dropped_with_its_types_and_no_other() {
    let (_dir, store) = store();
    let table = store.table::<u32, u32>("t").unwrap();
    let (shorter, longer) = (store.table::<u32, u32>("").is_err(), store.table::<u32, u32>("tt").unwrap());
    assert!(shorter);
    for n in 0..600 {
        table.on(&store).put(&n, &n).unwrap();
    }
    longer.on(&store).put(&1, &1).unwrap();
    assert_eq!(store.drop_table("t").unwrap(), 600);
    assert_eq!(store.drop_table("t").unwrap(), 0);
    assert_eq!(store.tables().unwrap(), [("tt".to_owned(), "u32 -> u32".to_owned())]);
    assert_eq!(longer.on(&store).get(&1).unwrap(), Some(1));
    store.table::<str, str>("t").unwrap().on(&store).put("k", "v").unwrap();
    assert!(is_other(table.on(&store).put(&1, &1)));
}

/// Types go last: what is left of a table has them.
#[test]
fn a_table_whose_removal_was_cut_short_is_still_one() {
    let (dir, store) = store();
    let table = store.table::<u32, u32>("t").unwrap();
    for n in 0..600 {
        table.on(&store).put(&n, &n).unwrap();
    }
    let (at, copy) = (store.pool().path().to_owned(), dir.path().join("copy"));
    let to = copy.clone();
    kv::at_next_commit(move || {
        kv::at_next_commit(move || {
            std::fs::copy(at, to).unwrap();
        });
    });
    assert_eq!(store.drop_table("t").unwrap(), 600);
    let left = Store::open(&copy).unwrap();
    assert_eq!(left.tables().unwrap(), [("t".to_owned(), "u32 -> u32".to_owned())]);
    assert_eq!(table.scan(&left.snapshot().unwrap()).count(), 600 - 256);
    assert_eq!(left.drop_table("t").unwrap(), 600 - 256);
    assert_eq!((left.tables().unwrap().len(), left.scan(Keys::all()).unwrap().count()), (0, 0));
}

#[test]
fn what_was_written_before_types_were_stored_is_read_and_named_with_the_next_put() {
    let (_dir, store) = store();
    let table = Table::<u32, u32>::new("t").unwrap();
    store.put(table.raw_key(&7), 1u32.to_le_bytes()).unwrap();
    assert_eq!(table.on(&store).get(&7).unwrap(), Some(1));
    assert_eq!(table.scan(&store.snapshot().unwrap()).count(), 1);
    let wrong = store.table::<u32, u64>("t").unwrap();
    assert!(matches!(wrong.on(&store).put(&8, &2), Err(Error::Type { .. })), "what is there is of another type");
    let wrong = store.table::<str, u32>("t").unwrap();
    assert!(wrong.on(&store).put("8", &2).is_ok(), "any bytes are text; then it is text");
    store.delete(wrong.raw_key("8")).unwrap();
    store.delete(b"\0types\0t").unwrap();
    table.on(&store).put(&8, &2).unwrap();
    assert!(is_other(store.table::<u32, u64>("t")));
}

#[test]
fn conflicts_are_those_of_the_store() {
    let (_dir, store) = store();
    let counters: Table<str, u64> = store.table("counters").unwrap();
    counters.on(&store).put("n", &0).unwrap();
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                for _ in 0..300 {
                    let counted = store.transact(|tx| {
                        let n = counters.get(tx, "n")?.unwrap_or_default();
                        counters.put(tx, "n", &(n + 1))
                    });
                    assert!(counted.unwrap());
                }
            });
        }
    });
    assert_eq!(counters.on(&store).get("n").unwrap(), Some(900));
}

#[cfg(feature = "serde")]
#[test]
fn json_values() {
    use std::collections::BTreeMap;
    let (_dir, store) = store();
    let table = store.table::<u8, kv::Json<BTreeMap<String, Vec<u32>>>>("json").unwrap();
    let value: BTreeMap<_, _> = [("a".to_owned(), vec![1, 2]), ("b".to_owned(), vec![])].into();
    table.on(&store).put(&1, &value).unwrap();
    assert_eq!(table.on(&store).get(&1).unwrap(), Some(value));
    let other = store.table::<u8, kv::Json<Vec<u32>>>("json").unwrap(); // JSON is one type: serde says what fits
    assert!(other.on(&store).get(&1).unwrap_err().to_string().contains("invalid type: map"));
    let unfit = store.table::<u8, kv::Json<BTreeMap<(u8, u8), u8>>>("json").unwrap();
    assert!(matches!(unfit.on(&store).put(&2, &[((1, 1), 1)].into()), Err(Error::Type { .. })));
}
