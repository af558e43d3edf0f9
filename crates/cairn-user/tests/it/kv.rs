//! A shop: typed tables, an index of its own, keys that expire.

use std::error::Error;
use std::time::Duration;

use cairn::kv::{Plain, Store, Table};
use cairn::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[repr(C)]
struct Order {
    price: u64,
    count: u64,
}

struct Shop {
    store: Store,
    orders: Table<u64, Plain<Order>>,
    /// Customer and number of the order: looked up by the customer alone.
    by_customer: Table<(String, u64), ()>,
    sessions: Table<str, str>,
}

impl Shop {
    fn open(path: &std::path::Path) -> Result<Self, Box<dyn Error>> {
        let store = Store::open(path)?;
        let (orders, by_customer, sessions) =
            (store.table("orders")?, store.table("orders by customer")?, store.table("sessions")?);
        Ok(Self { store, orders, by_customer, sessions })
    }

    /// Both tables change, or neither.
    fn order(&self, number: u64, customer: &str, order: Order) -> cairn::kv::Result<()> {
        self.store.transact(|tx| {
            self.orders.put(tx, &number, &order)?;
            self.by_customer.put(tx, &(customer.to_owned(), number), &())?;
            Ok(())
        })
    }

    fn total(&self, customer: &str) -> Result<u64, Box<dyn Error>> {
        let view = self.store.snapshot()?;
        let mut total = 0;
        for entry in self.by_customer.prefix(&view, &(customer,)) {
            let ((_, number), ()) = entry?;
            let order = self.orders.get(&view, &number)?.ok_or("an order in the index alone")?;
            total += order.price * order.count;
        }
        Ok(total)
    }
}

#[test]
fn a_shop_with_an_index_and_sessions_that_end() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("shop.cairn");
    let shop = Shop::open(&path)?;
    shop.order(1, "Ada", Order { price: 3, count: 5 })?;
    shop.order(2, "Alan", Order { price: 100, count: 1 })?;
    shop.order(3, "Ada", Order { price: 7, count: 2 })?;
    assert_eq!(shop.total("Ada")?, 29);
    shop.sessions.on(&shop.store).put_for("over", "Ada", Duration::ZERO)?;
    shop.sessions.on(&shop.store).put_for("new", "Ada", Duration::from_secs(3600))?;
    drop(shop); // closes it

    let shop = Shop::open(&path)?;
    assert_eq!((shop.total("Ada")?, shop.total("Alan")?, shop.total("Nobody")?), (29, 100, 0));
    assert_eq!(shop.sessions.on(&shop.store).get("over")?, None);
    assert_eq!(shop.sessions.on(&shop.store).get("new")?.as_deref(), Some("Ada"));
    // Names from a..b of an index with text in front.
    let view = shop.store.snapshot()?;
    assert_eq!(shop.by_customer.range(&view, ("Ada", 2)..("Alan", 9)).count(), 2);
    Ok(())
}

/// The caller's own errors come back as they are.
#[test]
fn a_refusal_is_the_callers_own() -> Result<(), Box<dyn Error>> {
    #[derive(Debug)]
    enum Refusal {
        NotEnough(u64),
        Store(cairn::kv::Error),
    }
    impl From<cairn::kv::Error> for Refusal {
        fn from(error: cairn::kv::Error) -> Self {
            Self::Store(error)
        }
    }
    let dir = tempfile::tempdir()?;
    let store = cairn::Store::open(dir.path().join("shop.cairn"))?;
    let stock: Table<str, u64> = store.table("stock")?;
    stock.on(&store).put("apples", &17)?;
    let take = |count| {
        store.transact_at(Serializable, |tx| {
            let left = stock.get(tx, "apples")?.unwrap_or(0);
            let rest = left.checked_sub(count).ok_or(Refusal::NotEnough(left))?;
            stock.put(tx, "apples", &rest)?;
            Ok::<_, Refusal>(rest)
        })
    };
    assert_eq!(take(7).map_err(|refusal| format!("{refusal:?}"))?, 10);
    match take(11) {
        Err(Refusal::NotEnough(10)) => Ok(()),
        Err(Refusal::Store(error)) => Err(error.into()),
        other => panic!("{other:?}"),
    }
}
