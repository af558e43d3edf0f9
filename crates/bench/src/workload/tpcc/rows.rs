//! The rows of the nine tables (clause 1.3) as they lie in a pool. Money is in cents, rates are in ten-thousandths, a date is whatever the terminals
//! count; 0 stands for null. What transactions change lies together at the front.

use pmem::{PPtr, Persist};

/// Lines of an order, at most.
pub(super) const LINES_MAX: usize = 15;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Address {
    pub(super) street_1: [u8; 20],
    pub(super) street_2: [u8; 20],
    pub(super) city: [u8; 20],
    pub(super) state: [u8; 2],
    pub(super) zip: [u8; 9],
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Warehouse {
    pub(super) ytd: i64,
    pub(super) tax: u32,
    pub(super) id: u32,
    pub(super) name: [u8; 10],
    pub(super) address: Address,
    pub(super) reserved: [u8; 7],
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct District {
    pub(super) ytd: i64,
    pub(super) next_order: u32,
    pub(super) tax: u32,
    pub(super) id: u32,
    pub(super) warehouse: u32,
    pub(super) name: [u8; 10],
    pub(super) address: Address,
    pub(super) reserved: [u8; 7],
}

/// What Payment and Delivery change of a customer.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Account {
    pub(super) balance: i64,
    pub(super) ytd_payment: i64,
    pub(super) payments: u32,
    pub(super) deliveries: u32,
    /// The newest row of HISTORY that is about him; that table has no key to find it by.
    pub(super) history: PPtr<History>,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Customer {
    pub(super) account: Account,
    pub(super) since: u64,
    pub(super) credit_limit: i64,
    pub(super) discount: u32,
    pub(super) id: u32,
    pub(super) district: u32,
    pub(super) warehouse: u32,
    /// `GC` or `BC`.
    pub(super) credit: [u8; 2],
    pub(super) first: [u8; 16],
    pub(super) middle: [u8; 2],
    pub(super) last: [u8; 16],
    pub(super) address: Address,
    pub(super) phone: [u8; 16],
    pub(super) data: [u8; 500],
    pub(super) reserved: u8,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct History {
    /// The one before it, of the same customer.
    pub(super) before: PPtr<Self>,
    pub(super) amount: i64,
    pub(super) date: u64,
    /// Where it was paid.
    pub(super) warehouse: u32,
    pub(super) district: u32,
    pub(super) data: [u8; 24],
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Order {
    pub(super) carrier: u32,
    pub(super) id: u32,
    pub(super) customer: u32,
    pub(super) district: u32,
    pub(super) warehouse: u32,
    pub(super) lines: u32,
    pub(super) all_local: u64,
    pub(super) entry_date: u64,
}

/// A row of ORDER-LINE, all but its delivery date: the lines of an order share a block (clause 1.4.1), in which the dates lie together before the
/// rest (clause 1.4.5).
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Line {
    pub(super) number: u32,
    pub(super) item: u32,
    pub(super) supply: u32,
    pub(super) quantity: u32,
    pub(super) amount: i64,
    pub(super) district_info: [u8; 24],
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Item {
    pub(super) price: i64,
    pub(super) id: u32,
    pub(super) image: u32,
    pub(super) name: [u8; 24],
    pub(super) data: [u8; 50],
    pub(super) reserved: [u8; 6],
}

/// What New-Order changes of a stock.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Level {
    pub(super) quantity: i32,
    pub(super) ytd: u32,
    pub(super) orders: u32,
    pub(super) remote: u32,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Stock {
    pub(super) level: Level,
    pub(super) item: u32,
    pub(super) warehouse: u32,
    pub(super) districts: [[u8; 24]; 10],
    pub(super) data: [u8; 50],
    pub(super) reserved: [u8; 6],
}

// A range of up to 32 bytes goes into the commit's record, so that a transaction that writes it again need not wait for it.
const _: () = assert!(size_of::<Account>() == 32 && size_of::<Level>() == 16 && size_of::<Line>() == 48);

/// The lines of an order: where they are, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) at: PPtr<u8>,
    pub(super) count: usize,
}

impl Lines {
    /// Bytes of a block for that many.
    pub(super) fn bytes(count: usize) -> u64 {
        (count * (size_of::<u64>() + size_of::<Line>())) as u64
    }

    /// A line's delivery date.
    pub(super) fn delivered(self, line: usize) -> PPtr<u64> {
        PPtr::new(self.at.tag(), self.at.offset() + 8 * line as u64)
    }

    /// The rest of a line.
    pub(super) fn line(self, line: usize) -> PPtr<Line> {
        let at = self.count * size_of::<u64>() + line * size_of::<Line>();
        PPtr::new(self.at.tag(), self.at.offset() + at as u64)
    }

    pub(super) fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.at.raw().to_le_bytes());
        bytes[8..].copy_from_slice(&(self.count as u64).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (at, count) = bytes.split_first_chunk::<8>()?;
        let count = u64::from_le_bytes(count.try_into().ok()?) as usize;
        (count <= LINES_MAX).then_some(Self { at: PPtr::from_raw(u64::from_le_bytes(*at)), count })
    }
}
