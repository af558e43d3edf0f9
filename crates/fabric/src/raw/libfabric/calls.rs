//! What `libfabric/shim.h` declares; what each does, and wants, is said there.

use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub(super) struct Cf {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(super) struct CfRegion {
    _opaque: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CfAttributes {
    pub(super) ordered: u8,
    pub(super) messages_ordered: u8,
    pub(super) wait_fd: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CfCompletion {
    pub(super) kind: u8,
    pub(super) has_slot: u8,
    pub(super) slot: u32,
    pub(super) len: u32,
    pub(super) imm: u32,
    pub(super) error: c_int,
}

unsafe extern "C" {
    pub(super) fn cf_new(
        provider: *const c_char,
        msg: c_int,
        node: *const c_char,
        dest: *const u8,
        dest_len: usize,
        out: *mut *mut Cf,
    ) -> c_int;
    pub(super) fn cf_free(cf: *mut Cf);
    pub(super) fn cf_listen(cf: *mut Cf) -> c_int;
    pub(super) fn cf_await_request(cf: *mut Cf, token: *const u8, token_len: usize, wait_ms: c_int) -> c_int;
    pub(super) fn cf_endpoint(cf: *mut Cf, slots: u32, slot_len: usize, keys: *const u64) -> c_int;
    pub(super) fn cf_name(cf: *mut Cf, name: *mut u8, len: *mut usize) -> c_int;
    pub(super) fn cf_accept(cf: *mut Cf, wait_ms: c_int) -> c_int;
    pub(super) fn cf_connect(cf: *mut Cf, token: *const u8, token_len: usize, wait_ms: c_int) -> c_int;
    pub(super) fn cf_insert(cf: *mut Cf, name: *const u8) -> c_int;
    pub(super) fn cf_attributes(cf: *const Cf, out: *mut CfAttributes);
    pub(super) fn cf_outgoing(cf: *mut Cf, slot: u32) -> *mut u8;
    pub(super) fn cf_incoming(cf: *mut Cf, slot: u32) -> *const u8;
    pub(super) fn cf_word(cf: *const Cf) -> u64;
    pub(super) fn cf_word_address(cf: *mut Cf, address: *mut u64, key: *mut u64) -> c_int;
    pub(super) fn cf_write_word(cf: *mut Cf, value: u64, address: u64, key: u64) -> c_int;
    pub(super) fn cf_send(cf: *mut Cf, slot: u32, len: usize) -> c_int;
    pub(super) fn cf_write(
        cf: *mut Cf,
        slot: u32,
        len: usize,
        address: u64,
        key: u64,
        tell: c_int,
        imm: u32,
        delivered: c_int,
    ) -> c_int;
    pub(super) fn cf_read(cf: *mut Cf, read: u32, len: usize, address: u64, key: u64, local_key: u64) -> c_int;
    pub(super) fn cf_read_bytes(cf: *const Cf, read: u32) -> *const u8;
    pub(super) fn cf_end_read(cf: *mut Cf, read: u32);
    pub(super) fn cf_receive(cf: *mut Cf, slot: u32) -> c_int;
    pub(super) fn cf_poll(cf: *mut Cf, out: *mut CfCompletion, max: c_int) -> c_int;
    pub(super) fn cf_is_shut(cf: *mut Cf) -> c_int;
    pub(super) fn cf_try_wait(cf: *mut Cf) -> c_int;
    pub(super) fn cf_register(
        cf: *mut Cf,
        memory: *mut c_void,
        len: usize,
        write: c_int,
        wanted_key: u64,
        out: *mut *mut CfRegion,
        address: *mut u64,
        key: *mut u64,
    ) -> c_int;
    pub(super) fn cf_unregister(region: *mut CfRegion);
    pub(super) fn cf_close_endpoint(cf: *mut Cf);
    pub(super) fn cf_error(error: c_int) -> *const c_char;
}
