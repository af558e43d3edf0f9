//! The derive works in a crate without unsafe code. One program that compiles also makes the driver build instead of
//! check, and only a build evaluates the constants of generic structs at their use.

#![forbid(unsafe_code)]
#![deny(warnings)]

use std::marker::PhantomData;

use pmem::Persist;

/// A generic struct with its own bounds and defaults.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub struct Tagged<T: Default, const N: usize>
where
    T: PartialEq,
{
    values: [T; N],
    owner: PhantomData<T>,
}

/// A newtype.
#[derive(Clone, Copy, Persist)]
#[repr(transparent)]
pub struct Id(u64);

fn main() {
    let tagged = Tagged::<u32, 4> { values: [1, 2, 3, 4], owner: PhantomData };
    assert_eq!(pmem::bytes_of(&tagged).len(), 16);
    assert_eq!(pmem::from_bytes::<Id>(&[1, 0, 0, 0, 0, 0, 0, 0]).map(|id| id.0), Some(1));
}
