//! An address book: a B+tree by name, and one by city that can never disagree with it.
//!
//! `cargo run -p cairn --example address_book [FILE]`

use std::error::Error;
use std::ops::ControlFlow::Continue;
use std::path::PathBuf;

use cairn::heap::{Heap, Options};
use cairn::pmem::{PPtr, Persist};
use cairn::structures::{BTree, BTreeOptions, BTreeRoot, Map};
use cairn::tx::{self, Engine, Isolation::Serializable, Keys, Typed};

/// The root object.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Roots {
    people: PPtr<BTreeRoot>,
    by_city: PPtr<BTreeRoot>,
}

struct Book {
    heap: Heap,
    /// From a name to its city.
    people: BTree,
    /// Keys are a city, a zero byte and a name; values are empty.
    by_city: BTree,
}

fn entry(city: &[u8], name: &[u8]) -> Vec<u8> {
    [city, b"\0", name].concat()
}

impl Book {
    fn create(heap: Heap) -> tx::Result<Self> {
        let (people, by_city) = heap.transact(Serializable, |tx| -> tx::Result<_> {
            let people = BTree::create(tx, &BTreeOptions::new().key_max(64))?;
            let by_city = BTree::create(tx, &BTreeOptions::new().key_max(128))?;
            let roots = tx.alloc(&Roots { people: people.root(), by_city: by_city.root() })?;
            tx.set_root(roots)?;
            Ok((people, by_city))
        })?;
        Ok(Self { heap, people, by_city })
    }

    fn open(heap: Heap) -> tx::Result<Self> {
        let (people, by_city) = heap.transact(Serializable, |tx| -> tx::Result<_> {
            let roots = *tx.read(tx.root::<Roots>()?)?;
            Ok((BTree::open(tx, roots.people)?, BTree::open(tx, roots.by_city)?))
        })?;
        Ok(Self { heap, people, by_city })
    }

    /// A person comes, or moves: both trees change, or neither.
    fn set(&self, name: &str, city: &str) -> tx::Result<()> {
        self.heap.transact(Serializable, |tx| {
            if let Some(before) = self.people.get(tx, name.as_bytes())?.map(<[u8]>::to_vec) {
                self.by_city.delete(tx, &entry(&before, name.as_bytes()))?;
            }
            self.people.put(tx, name.as_bytes(), city.as_bytes())?;
            self.by_city.put(tx, &entry(city.as_bytes(), name.as_bytes()), b"")?;
            Ok(())
        })
    }

    fn in_city(&self, city: &str) -> tx::Result<Vec<String>> {
        self.heap.transact(Serializable, |tx| {
            let (prefix, mut names) = (entry(city.as_bytes(), b""), Vec::new());
            self.by_city.scan(tx, &Keys::prefix(&prefix), &mut |key, _| {
                names.push(String::from_utf8_lossy(&key[prefix.len()..]).into_owned());
                Continue(())
            })?;
            Ok(names)
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or(std::env::temp_dir().join("address-book.cairn"), PathBuf::from);
    let options = Options::new().bytes(1 << 20);
    let book = if path.exists() {
        Book::open(Heap::open(&path, &options)?)?
    } else {
        Book::create(Heap::create(&path, &options)?)?
    };
    for (name, city) in [("Ada", "London"), ("Grace", "New York"), ("Alan", "London"), ("Edsger", "Rotterdam")] {
        book.set(name, city)?;
    }
    println!("London: {}", book.in_city("London")?.join(", "));
    book.set("Grace", "London")?;
    println!("Grace moves to London: {}", book.in_city("London")?.join(", "));
    println!("New York: {:?}", book.in_city("New York")?);

    let report = book.heap.transact(Serializable, |tx| -> tx::Result<_> {
        Ok((book.people.verify(tx)?.entries, book.by_city.verify(tx)?.entries))
    })?;
    println!("both trees are sound, with {} and {} entries", report.0, report.1);
    Ok(book.heap.close()?)
}
