//! `Persist`: what it admits, what it refuses at compile time, and what its hash tells apart.

use std::marker::PhantomData;

use pmem::{Persist, bytes_of, bytes_of_mut, from_bytes, view, view_mut, zeroed};

/// Defines a struct called `Record` in a module of its own, so that only what differs differs.
macro_rules! record {
    ($module:ident: $name:ident { $($field:ident: $ty:ty),* }) => {
        mod $module {
            #[derive(Clone, Copy, Debug, PartialEq, pmem::Persist)]
            #[repr(C)]
            pub struct $name { $(pub $field: $ty),* }
        }
    };
}

record!(base: Record { key: u64, count: u32, flags: u32 });
record!(same: Record { key: u64, count: u32, flags: u32 });
record!(field_renamed: Record { key: u64, total: u32, flags: u32 });
record!(type_changed: Record { key: u64, count: i32, flags: u32 });
record!(reordered: Record { key: u64, flags: u32, count: u32 });
record!(renamed: Entry { key: u64, count: u32, flags: u32 });
record!(extended: Record { key: u64, count: u32, flags: u32, more: u64 });
record!(letter_moved: Record { keyc: u64, ount: u32, flags: u32 });

#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[repr(C)]
struct Node<T, const N: usize> {
    keys: [u64; N],
    values: [T; N],
}

#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[repr(transparent)]
struct Id(u64);

#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[repr(C)]
struct Empty;

#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[repr(C, packed)]
struct Packed {
    small: u8,
    large: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[repr(C, align(64))]
struct Line {
    words: [u64; 8],
}

/// A type that names itself, as a list node does through a typed offset.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Recursive {
    next: Link<Recursive>,
}

struct Link<T>(u64, PhantomData<fn() -> T>);

impl<T> Clone for Link<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Link<T> {}

// SAFETY: one `u64` and a marker without bytes.
unsafe impl<T: 'static> Persist for Link<T> {
    const LAYOUT: pmem::Layout = u64::LAYOUT;
}

#[test]
fn unsound_types_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
    cases.pass("tests/compile_pass/*.rs");
}

#[test]
fn layout_has_size_and_alignment_of_the_type() {
    assert_eq!((base::Record::LAYOUT.size, base::Record::LAYOUT.align), (16, 8));
    assert_eq!((Node::<[u8; 3], 8>::LAYOUT.size, Node::<[u8; 3], 8>::LAYOUT.align), (88, 8));
    assert_eq!((Packed::LAYOUT.size, Packed::LAYOUT.align), (9, 1));
    assert_eq!((Line::LAYOUT.size, Line::LAYOUT.align), (64, 64));
    assert_eq!((Empty::LAYOUT.size, <()>::LAYOUT.size), (0, 0));
    assert_eq!(<[[u16; 3]; 5]>::LAYOUT.size, 30);
    assert_eq!(<[[u16; 3]; 5]>::LAYOUT.align, 2);
    assert_eq!(PhantomData::<str>::LAYOUT.size, 0);
    assert_eq!(Recursive::LAYOUT.size, size_of_val(&Recursive { next: Link(7, PhantomData) }.next.0));
    assert_eq!(u128::LAYOUT.size, 16);
}

#[test]
fn hash_names_what_the_layout_is() {
    let hash = base::Record::LAYOUT.hash;
    assert_eq!(hash, same::Record::LAYOUT.hash, "the module is no part of the layout");
    assert_ne!(hash, field_renamed::Record::LAYOUT.hash);
    assert_ne!(hash, type_changed::Record::LAYOUT.hash);
    assert_ne!(hash, reordered::Record::LAYOUT.hash);
    assert_ne!(hash, renamed::Entry::LAYOUT.hash);
    assert_ne!(hash, extended::Record::LAYOUT.hash);
    assert_ne!(hash, letter_moved::Record::LAYOUT.hash);
}

#[test]
fn hash_tells_instances_of_generics_apart() {
    let hash = Node::<u64, 4>::LAYOUT.hash;
    assert_ne!(hash, Node::<u64, 5>::LAYOUT.hash);
    assert_ne!(hash, Node::<i64, 4>::LAYOUT.hash);
    assert_ne!(<[u8; 16]>::LAYOUT.hash, u128::LAYOUT.hash);
    assert_ne!(<[[u8; 2]; 3]>::LAYOUT.hash, <[[u8; 3]; 2]>::LAYOUT.hash);
    assert_ne!(Id::LAYOUT.hash, u64::LAYOUT.hash);
}

/// Pools on media carry these hashes: a change here makes every existing pool another layout.
#[test]
fn hash_is_part_of_the_format() {
    assert_eq!(u64::LAYOUT.hash, 0xd433_9203_3763_395c);
    assert_eq!(<[u8; 4]>::LAYOUT.hash, 0xb15b_ab25_4518_f72a);
    assert_eq!(base::Record::LAYOUT.hash, 0x60ce_fa06_b4a1_3a7d);
}

#[test]
fn bytes_round_trip() {
    let record = base::Record { key: 0x0807_0605_0403_0201, count: 0x0c0b_0a09, flags: 0x100f_0e0d };
    let bytes = bytes_of(&record);
    assert!(bytes.iter().copied().eq(1..=16));
    assert_eq!(from_bytes(bytes), Some(record));

    let mut copy = zeroed::<base::Record>();
    assert_eq!(copy, base::Record { key: 0, count: 0, flags: 0 });
    bytes_of_mut(&mut copy).copy_from_slice(bytes);
    assert_eq!(copy, record);
}

#[test]
fn size_and_alignment_are_checked() {
    let mut words = [1_u64, 2, 3];
    let bytes = bytes_of_mut(&mut words);
    assert_eq!(view::<u64>(&bytes[8..16]), Some(&2));
    assert_eq!(view::<u64>(&bytes[8..15]), None, "too short");
    assert_eq!(view::<u64>(&bytes[8..17]), None, "too long");
    assert_eq!(view::<u64>(&bytes[7..15]), None, "not aligned");
    assert_eq!(view_mut::<u64>(&mut bytes[7..15]), None, "not aligned");
    assert_eq!(view_mut::<u64>(&mut bytes[..4]), None, "too short");
    assert_eq!(from_bytes::<u64>(&bytes[1..9]), Some(2 << 56), "a copy may come from any address");
    assert_eq!(from_bytes::<u64>(&bytes[..7]), None);
    assert_eq!(view::<()>(&bytes[..0]), Some(&()));

    *view_mut::<u64>(&mut bytes[16..]).unwrap() = 9;
    assert_eq!(words, [1, 2, 9]);
}

#[test]
fn every_bit_pattern_is_a_value() {
    for byte in [0x00, 0x55, 0xff] {
        let bytes = [byte; 16];
        let record = from_bytes::<base::Record>(&bytes).unwrap();
        assert_eq!(bytes_of(&record), bytes);
        let float = from_bytes::<f64>(&bytes[..8]).unwrap();
        assert_eq!(bytes_of(&float), &bytes[..8]);
    }
}
