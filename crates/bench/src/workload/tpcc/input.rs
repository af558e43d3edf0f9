//! What terminals ask for (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1), made up before any clock runs.

use super::rows::LINES_MAX;
use super::{DISTRICTS, Mix, Scale};
use crate::workload::Random;

/// One transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus { warehouse: u32, district: u32, customer: Who },
    Delivery { warehouse: u32, carrier: u32, date: u64 },
    StockLevel { warehouse: u32, district: u32, threshold: i32 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NewOrder {
    pub(super) warehouse: u32,
    pub(super) district: u32,
    pub(super) customer: u32,
    pub(super) date: u64,
    pub(super) count: usize,
    pub(super) lines: [Wanted; LINES_MAX],
}

impl NewOrder {
    pub(super) fn lines(&self) -> &[Wanted] {
        &self.lines[..self.count]
    }
}

/// A line of an order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    pub(super) item: u32,
    pub(super) supply: u16,
    pub(super) quantity: u16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Payment {
    pub(super) warehouse: u32,
    pub(super) district: u32,
    pub(super) customer_warehouse: u32,
    pub(super) customer_district: u32,
    pub(super) customer: Who,
    pub(super) amount: i64,
    pub(super) date: u64,
}

/// A customer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Id(u32),
    /// The number of a last name, which several may have.
    Named(u32),
}

/// A number from `low` to `high`.
pub(super) fn between(random: &mut Random, low: u64, high: u64) -> u64 {
    low + random.below(high - low + 1)
}

/// A number from `low` to `high`, some more often than others (clause 2.1.6). `C` is a constant of the run.
pub(super) fn nu_rand(random: &mut Random, a: u64, c: u64, low: u64, high: u64) -> u64 {
    (((random.below(a + 1) | between(random, low, high)) + c) % (high - low + 1)) + low
}

/// The constants `C` of clause 2.1.6.1, and `A` for as many customers and items as there are: 255, 1023 and 8191 for those of the standard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skew {
    names: u64,
    customers: u64,
    items: u64,
    c: u64,
    c_names: u64,
}

/// `C` for last names while tables are filled; that of the run differs from it by 65 to 119, but not 96 or 112.
pub(super) const C_LOAD: u64 = 23;
const C_RUN: u64 = C_LOAD + 100;

impl Skew {
    pub(super) fn new(scale: Scale, c_names: u64) -> Self {
        let a = |of: u64, by: u64| (of / by).max(1).next_power_of_two() - 1;
        let (names, customers) = (a(scale.names().into(), 4), a(scale.customers.into(), 3));
        Self { names, customers, items: a(scale.items.into(), 13), c: 259, c_names }
    }

    pub(super) fn name(&self, random: &mut Random, scale: Scale) -> u32 {
        nu_rand(random, self.names, self.c_names, 0, u64::from(scale.names()) - 1) as u32
    }

    fn customer(&self, random: &mut Random, scale: Scale) -> u32 {
        nu_rand(random, self.customers, self.c, 1, scale.customers.into()) as u32
    }

    fn item(&self, random: &mut Random, scale: Scale) -> u32 {
        nu_rand(random, self.items, self.c, 1, scale.items.into()) as u32
    }
}

/// A user at a terminal, for one warehouse.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    scale: Scale,
    mix: Mix,
    home: u32,
    random: Random,
    skew: Skew,
    date: u64,
}

impl Terminal {
    /// Number `terminal`, from 0 on: its home is the warehouse of that number, if there are so many.
    pub(crate) fn new(scale: Scale, mix: Mix, terminal: usize, seed: u64) -> Self {
        let home = 1 + terminal as u32 % scale.warehouses;
        let random = Random::new(seed ^ (terminal as u64 + 1) << 32);
        Self { scale, mix, home, random, skew: Skew::new(scale, C_RUN), date: 1 }
    }

    /// The next transaction (clause 5.2.3: at least 43 % Payment, 4 % of the three others each).
    pub(crate) fn input(&mut self) -> Input {
        self.date += 1;
        let card = match self.mix {
            Mix::Standard => self.random.below(100),
            Mix::NewOrder => 99,
            Mix::Payment => 0,
        };
        match card {
            ..43 => Input::Payment(self.payment()),
            43..47 => Input::OrderStatus { warehouse: self.home, district: self.district(), customer: self.who() },
            47..51 => {
                let carrier = between(&mut self.random, 1, 10) as u32;
                Input::Delivery { warehouse: self.home, carrier, date: self.date }
            }
            51..55 => {
                let threshold = between(&mut self.random, 10, 20) as i32;
                Input::StockLevel { warehouse: self.home, district: self.district(), threshold }
            }
            _ => Input::NewOrder(self.new_order()),
        }
    }

    fn district(&mut self) -> u32 {
        between(&mut self.random, 1, DISTRICTS.into()) as u32
    }

    /// By name in 60 of 100 cases (clause 2.5.1.2).
    fn who(&mut self) -> Who {
        if self.random.below(100) < 60 {
            Who::Named(self.skew.name(&mut self.random, self.scale))
        } else {
            Who::Id(self.skew.customer(&mut self.random, self.scale))
        }
    }

    /// Some warehouse, not the own one if there is another.
    fn elsewhere(&mut self) -> u32 {
        if self.scale.warehouses == 1 {
            return self.home;
        }
        let other = between(&mut self.random, 1, u64::from(self.scale.warehouses) - 1) as u32;
        if other < self.home { other } else { other + 1 }
    }

    /// Of 100 lines one comes from elsewhere; of 100 orders one ends with an item that does not exist (clauses 2.4.1.4, 2.4.1.5).
    fn new_order(&mut self) -> NewOrder {
        let count = between(&mut self.random, 5, LINES_MAX as u64) as usize;
        let wrong = self.random.below(100) == 0;
        let mut lines = [Wanted::default(); LINES_MAX];
        for (at, line) in lines[..count].iter_mut().enumerate() {
            let last = at + 1 == count;
            let item = self.skew.item(&mut self.random, self.scale);
            let supply = if self.random.below(100) == 0 { self.elsewhere() } else { self.home };
            let quantity = between(&mut self.random, 1, 10) as u16;
            *line = Wanted { item: if last && wrong { UNUSED } else { item }, supply: supply as u16, quantity };
        }
        let district = self.district();
        let customer = self.skew.customer(&mut self.random, self.scale);
        NewOrder { warehouse: self.home, district, customer, date: self.date, count, lines }
    }

    /// In 15 of 100 cases the customer comes from elsewhere (clause 2.5.1.2).
    fn payment(&mut self) -> Payment {
        let (warehouse, district) = (self.home, self.district());
        let (customer_warehouse, customer_district) =
            if self.random.below(100) < 85 { (warehouse, district) } else { (self.elsewhere(), self.district()) };
        let customer = self.who();
        let amount = between(&mut self.random, 100, 500_000) as i64;
        Payment { warehouse, district, customer_warehouse, customer_district, customer, amount, date: self.date }
    }
}

/// The number of no item.
const UNUSED: u32 = u32::MAX;

/// The parts of which last names are made (clause 4.3.2.3).
const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];

/// The last name of that number, up to 999.
pub(super) fn last_name(number: u32) -> [u8; 16] {
    let mut name = [0; 16];
    let parts = [number / 100, number / 10, number].map(|digit| SYLLABLES[digit as usize % 10]);
    for (to, from) in name.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_those_of_the_standard() {
        let skew = Skew::new(Scale::default(), C_RUN);
        assert_eq!((skew.names, skew.customers, skew.items), (255, 1023, 8191));
        assert!((65..=119).contains(&(C_RUN - C_LOAD)) && ![96, 112].contains(&(C_RUN - C_LOAD)));
        assert_eq!(&last_name(371), b"PRICALLYOUGHT\0\0\0");
        assert_eq!(&last_name(0), b"BARBARBAR\0\0\0\0\0\0\0");
    }

    /// Shares of clauses 5.2.3, 2.4.1 and 2.5.1, of so many inputs that a percent is a percent.
    #[test]
    fn inputs_are_mixed_as_the_standard_says() {
        const INPUTS: usize = 40_000;
        let scale = Scale { warehouses: 4, ..Scale::default() };
        let mut terminal = Terminal::new(scale, Mix::Standard, 2, 7);
        let (mut kinds, mut wrong, mut lines, mut from_elsewhere) = ([0; 5], 0, 0, 0);
        let (mut remote, mut named) = (0, 0);
        for _ in 0..INPUTS {
            match terminal.input() {
                Input::NewOrder(order) => {
                    kinds[0] += 1;
                    assert!((5..=15).contains(&order.count) && order.warehouse == 3);
                    wrong += usize::from(order.lines().last().unwrap().item == UNUSED);
                    let known = order.lines().iter().filter(|line| line.item != UNUSED);
                    assert!(known.clone().all(|line| (1..=scale.items).contains(&line.item)));
                    assert!(order.lines().iter().all(|line| (1..=4).contains(&line.supply)));
                    lines += order.count;
                    from_elsewhere += order.lines().iter().filter(|line| line.supply != 3).count();
                }
                Input::Payment(payment) => {
                    kinds[1] += 1;
                    remote += usize::from(payment.customer_warehouse != 3);
                    named += usize::from(matches!(payment.customer, Who::Named(..1000)));
                }
                Input::OrderStatus { .. } => kinds[2] += 1,
                Input::Delivery { .. } => kinds[3] += 1,
                Input::StockLevel { .. } => kinds[4] += 1,
            }
        }
        let percent = |part: usize, of: usize| part as f64 / of as f64 * 100.0;
        for (kind, wanted) in kinds.into_iter().zip([45.0, 43.0, 4.0, 4.0, 4.0]) {
            assert!((percent(kind, INPUTS) - wanted).abs() < 1.0, "{kinds:?}");
        }
        assert!((percent(wrong, kinds[0]) - 1.0).abs() < 0.5, "{wrong}");
        assert!((percent(from_elsewhere, lines) - 1.0).abs() < 0.3, "{from_elsewhere}");
        assert!((percent(remote, kinds[1]) - 15.0).abs() < 1.5, "{remote}");
        assert!((percent(named, kinds[1]) - 60.0).abs() < 2.0, "{named}");
    }
}
