//! What C names of an array.

/// An open array.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
pub struct cairn_array {
    opaque: [u8; 0],
}

/// A transaction of an array.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
pub struct cairn_array_tx {
    opaque: [u8; 0],
}
