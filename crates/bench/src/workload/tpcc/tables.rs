//! Where rows are found. Tables that are only looked up by key are in either structure; what has an order is in B+trees, of which each district has its own
//! (clause 1.4.4). All lead to rows that have blocks of their own, so that a transaction changes fields.
//!
//! | table or index | structure | key | leads to |
//! |---|---|---|---|
//! | WAREHOUSE, DISTRICT, CUSTOMER, ITEM, STOCK | hash map or B+tree | primary key | row |
//! | customers by name | B+tree | last and first name, number | row |
//! | ORDER | B+tree | number | row |
//! | orders by customer | B+tree | customer, number | row |
//! | NEW-ORDER | B+tree | number | itself |
//! | ORDER-LINE | B+tree | number of the order | its rows, in one block |
//! | HISTORY | list, from its customer | | |

use std::ops::ControlFlow;

use pmem::{PPtr, Persist};
use structures::{BTree, BTreeOptions, BTreeRoot, HashMap, HashMapOptions, Map};
use tx::{Engine, Error, Keys, Transaction, Typed};

use super::input::{Who, last_name};
use super::rows::{Customer, District, Item, Lines, Order, Stock, Warehouse};
use super::{DISTRICTS, Scale};
use crate::target::ISOLATION;

/// The tables of a pool.
pub(crate) struct Tables<M> {
    pub(super) scale: Scale,
    warehouses: M,
    districts: M,
    customers: M,
    items: M,
    stocks: M,
    parts: Vec<Part>,
}

/// A structure that a table with a key is in.
pub(crate) trait Keyed: Map + Send + Sync {
    /// An empty one, for so many rows.
    fn make<X: Transaction>(tx: &mut X, rows: u64) -> tx::Result<Self>;

    /// The one that is there.
    #[cfg(test)]
    fn at<X: Transaction>(tx: &X, ptr: PPtr<u8>) -> tx::Result<Self>;

    /// Where it is.
    fn ptr(&self) -> PPtr<u8>;
}

impl Keyed for HashMap {
    fn make<X: Transaction>(tx: &mut X, rows: u64) -> tx::Result<Self> {
        Self::create(tx, &HashMapOptions::new().capacity(rows))
    }

    #[cfg(test)]
    fn at<X: Transaction>(tx: &X, ptr: PPtr<u8>) -> tx::Result<Self> {
        Self::open(tx, ptr.cast())
    }

    fn ptr(&self) -> PPtr<u8> {
        self.root().cast()
    }
}

impl Keyed for BTree {
    fn make<X: Transaction>(tx: &mut X, _rows: u64) -> tx::Result<Self> {
        Self::create(tx, &BTreeOptions::new().key_max(8))
    }

    #[cfg(test)]
    fn at<X: Transaction>(tx: &X, ptr: PPtr<u8>) -> tx::Result<Self> {
        Self::open(tx, ptr.cast())
    }

    fn ptr(&self) -> PPtr<u8> {
        self.root().cast()
    }
}

/// What a district has of its own.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) by_name: BTree,
    pub(super) orders: BTree,
    pub(super) by_customer: BTree,
    pub(super) new_orders: BTree,
    pub(super) lines: BTree,
}

/// The pool's root.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Root {
    warehouses: u32,
    customers: u32,
    items: u32,
    reserved: u32,
    maps: [PPtr<u8>; 5],
    part: PPtr<PartRoot>,
}

/// The trees of a district, and the next district.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct PartRoot {
    trees: [PPtr<BTreeRoot>; 5],
    next: PPtr<Self>,
}

impl<M: Keyed> Tables<M> {
    /// Makes empty tables: the root of the engine's pool.
    pub(super) fn create<E: Engine>(engine: &E, scale: Scale) -> tx::Result<Self> {
        let Scale { warehouses, customers, items } = scale;
        let (all, districts) = (u64::from(warehouses), u64::from(warehouses * DISTRICTS));
        let sizes = [all, districts, districts * u64::from(customers), items.into(), all * u64::from(items)];
        let mut parts = Vec::new();
        let mut next = PPtr::NULL;
        for _ in 0..districts {
            let (part, root) = engine.transact(ISOLATION, |tx| Part::create(tx, next))?;
            parts.insert(0, part);
            next = root;
        }
        let mut maps = Vec::new();
        for pairs in sizes {
            maps.push(engine.transact(ISOLATION, |tx| M::make(tx, pairs))?);
        }
        let maps: [M; 5] = maps.try_into().map_err(|_| missing("table"))?;
        engine.transact(ISOLATION, |tx| -> tx::Result<()> {
            let maps = maps.each_ref().map(M::ptr);
            let root = tx.alloc(&Root { warehouses, customers, items, reserved: 0, maps, part: next })?;
            tx.set_root(root)
        })?;
        Ok(Self::of(scale, maps, parts))
    }

    /// Those that are the pool's root.
    #[cfg(test)]
    pub(super) fn open<E: Engine>(engine: &E) -> tx::Result<Self> {
        engine.transact(ISOLATION, |tx| {
            let root = *tx.read(tx.root::<Root>()?)?;
            let scale = Scale { warehouses: root.warehouses, customers: root.customers, items: root.items };
            let mut maps = Vec::new();
            for map in root.maps {
                maps.push(M::at(tx, map)?);
            }
            let (mut parts, mut next) = (Vec::new(), root.part);
            while !next.is_null() {
                let part = *tx.read(next)?;
                let mut trees = Vec::new();
                for tree in part.trees {
                    trees.push(BTree::open(tx, tree)?);
                }
                parts.push(Part::of(trees.try_into().map_err(|_| missing("index"))?));
                next = part.next;
            }
            Ok(Self::of(scale, maps.try_into().map_err(|_| missing("table"))?, parts))
        })
    }

    fn of(scale: Scale, maps: [M; 5], parts: Vec<Part>) -> Self {
        let [warehouses, districts, customers, items, stocks] = maps;
        Self { scale, warehouses, districts, customers, items, stocks, parts }
    }

    pub(super) fn part(&self, warehouse: u32, district: u32) -> tx::Result<&Part> {
        let at = (warehouse.wrapping_sub(1) as usize * DISTRICTS as usize) + district.wrapping_sub(1) as usize;
        self.parts.get(at).ok_or_else(|| missing("district"))
    }

    // ---- rows -------------------------------------------------------------------------------------------------------

    pub(super) fn warehouse<X: Transaction>(&self, tx: &X, id: u32) -> tx::Result<PPtr<Warehouse>> {
        row(self.warehouses.get(tx, &id.to_be_bytes())?, "warehouse")
    }

    pub(super) fn district<X: Transaction>(&self, tx: &X, (w, d): (u32, u32)) -> tx::Result<PPtr<District>> {
        row(self.districts.get(tx, &key(w, d))?, "district")
    }

    pub(super) fn customer<X: Transaction>(&self, tx: &X, (w, d): (u32, u32), id: u32) -> tx::Result<PPtr<Customer>> {
        row(self.customers.get(tx, &key(w, d << 24 | id))?, "customer")
    }

    pub(super) fn item<X: Transaction>(&self, tx: &X, id: u32) -> tx::Result<Option<PPtr<Item>>> {
        self.items.get(tx, &id.to_be_bytes())?.map(|found| row(Some(found), "item")).transpose()
    }

    pub(super) fn stock<X: Transaction>(&self, tx: &X, warehouse: u32, item: u32) -> tx::Result<PPtr<Stock>> {
        row(self.stocks.get(tx, &key(warehouse, item))?, "stock")
    }

    /// By number; or the middle one, by first name, of those with a last name (clause 2.5.2.2).
    pub(super) fn who<X: Transaction>(&self, tx: &X, (w, d): (u32, u32), who: Who) -> tx::Result<PPtr<Customer>> {
        let name = match who {
            Who::Id(id) => return self.customer(tx, (w, d), id),
            Who::Named(number) => last_name(number),
        };
        let mut found = Vec::new();
        self.part(w, d)?.by_name.scan(tx, &Keys::prefix(&name), &mut |_, value| {
            found.push(row(Some(value), "customer"));
            ControlFlow::Continue(())
        })?;
        let middle = found.len().div_ceil(2).wrapping_sub(1);
        found.into_iter().nth(middle).ok_or_else(|| missing("customer of that name"))?
    }

    // ---- filling ----------------------------------------------------------------------------------------------------

    pub(super) fn add_warehouse<X: Transaction>(&self, tx: &mut X, new: &Warehouse) -> tx::Result<()> {
        let at = tx.alloc(new)?;
        self.warehouses.put(tx, &new.id.to_be_bytes(), &value(at)).map(drop)
    }

    pub(super) fn add_district<X: Transaction>(&self, tx: &mut X, new: &District) -> tx::Result<()> {
        let at = tx.alloc(new)?;
        self.districts.put(tx, &key(new.warehouse, new.id), &value(at)).map(drop)
    }

    pub(super) fn add_customer<X: Transaction>(&self, tx: &mut X, new: &Customer) -> tx::Result<()> {
        let at = tx.alloc(new)?;
        self.customers.put(tx, &key(new.warehouse, new.district << 24 | new.id), &value(at))?;
        let mut name = [0; 36];
        name[..16].copy_from_slice(&new.last);
        name[16..32].copy_from_slice(&new.first);
        name[32..].copy_from_slice(&new.id.to_be_bytes());
        self.part(new.warehouse, new.district)?.by_name.put(tx, &name, &value(at)).map(drop)
    }

    pub(super) fn add_item<X: Transaction>(&self, tx: &mut X, new: &Item) -> tx::Result<()> {
        let at = tx.alloc(new)?;
        self.items.put(tx, &new.id.to_be_bytes(), &value(at)).map(drop)
    }

    pub(super) fn add_stock<X: Transaction>(&self, tx: &mut X, new: &Stock) -> tx::Result<()> {
        let at = tx.alloc(new)?;
        self.stocks.put(tx, &key(new.warehouse, new.item), &value(at)).map(drop)
    }
}

impl Part {
    /// Leaves are small where records come or go anywhere but at the end: all slots behind such a record are moved.
    fn create<X: Transaction>(tx: &mut X, next: PPtr<PartRoot>) -> tx::Result<(Self, PPtr<PartRoot>)> {
        let options = |key: u32, leaf| BTreeOptions::new().key_max(key).node_bytes(leaf, 4096);
        let trees = [
            BTree::create(tx, &options(36, 4096))?,
            BTree::create(tx, &options(4, 4096))?,
            BTree::create(tx, &options(8, 1024))?,
            BTree::create(tx, &options(4, 512))?,
            BTree::create(tx, &options(4, 4096))?,
        ];
        let root = tx.alloc(&PartRoot { trees: trees.each_ref().map(BTree::root), next })?;
        Ok((Self::of(trees), root))
    }

    fn of([by_name, orders, by_customer, new_orders, lines]: [BTree; 5]) -> Self {
        Self { by_name, orders, by_customer, new_orders, lines }
    }

    pub(super) fn order<X: Transaction>(&self, tx: &X, id: u32) -> tx::Result<PPtr<Order>> {
        row(self.orders.get(tx, &id.to_be_bytes())?, "order")
    }

    pub(super) fn lines<X: Transaction>(&self, tx: &X, order: u32) -> tx::Result<Lines> {
        let found = self.lines.get(tx, &order.to_be_bytes())?;
        found.and_then(Lines::decode).ok_or_else(|| missing("lines of an order"))
    }

    /// The customer's newest order.
    pub(super) fn last_order<X: Transaction>(&self, tx: &X, customer: u32) -> tx::Result<PPtr<Order>> {
        let mut last = None;
        self.by_customer.scan(tx, &Keys::prefix(&customer.to_be_bytes()).reverse(), &mut |_, value| {
            last = Some(row(Some(value), "order"));
            ControlFlow::Break(())
        })?;
        last.ok_or_else(|| missing("order of a customer"))?
    }

    /// The oldest order that is not delivered.
    pub(super) fn oldest<X: Transaction>(&self, tx: &X) -> tx::Result<Option<u32>> {
        let mut oldest = None;
        self.new_orders.scan(tx, &Keys::all(), &mut |key, _| {
            oldest = number(key);
            ControlFlow::Break(())
        })?;
        Ok(oldest)
    }
}

/// The number that a key is.
pub(super) fn number(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.try_into().ok()?))
}

/// A key of two numbers.
pub(super) fn key(first: u32, second: u32) -> [u8; 8] {
    (u64::from(first) << 32 | u64::from(second)).to_be_bytes()
}

/// What leads to a row.
pub(super) fn value<T>(at: PPtr<T>) -> [u8; 8] {
    at.raw().to_le_bytes()
}

pub(super) fn row<T>(value: Option<&[u8]>, what: &'static str) -> tx::Result<PPtr<T>> {
    let raw = value.and_then(|value| value.try_into().ok()).map(u64::from_le_bytes);
    raw.map(PPtr::from_raw).ok_or_else(|| missing(what))
}

#[cold]
fn missing(what: &'static str) -> Error {
    Error::Damaged { what: "TPC-C", offset: 0, why: format!("there is no such {what}") }
}
