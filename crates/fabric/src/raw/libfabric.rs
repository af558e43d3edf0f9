//! libfabric, through `libfabric/shim.c`: one endpoint, used by one thread at a time.

mod calls;

use std::ffi::{CStr, CString, c_int};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use calls::*;

use super::address::Address;
use super::window::Window;
use crate::READS_MAX;

/// Operations that may be under way each way, and receives that are posted.
pub(crate) const SLOTS: u32 = 64;
const ADDRESS_MAX: usize = 256;
const EAGAIN: c_int = -11;
const ENODATA: c_int = -61;

/// What libfabric says, and of what.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) what: &'static str,
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl Failure {
    fn of(what: &'static str, code: c_int) -> Self {
        Self { what, code, text: text(code) }
    }

    /// There is no such provider, or none with such endpoints.
    pub(crate) const fn is_no_provider(&self) -> bool {
        self.code == ENODATA
    }
}

fn text(code: c_int) -> String {
    // SAFETY: takes any number.
    let text = unsafe { cf_error(code) };
    // SAFETY: a string literal of the library's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn check(what: &'static str, result: c_int) -> Result<(), Failure> {
    if result == 0 { Ok(()) } else { Err(Failure::of(what, result)) }
}

/// `Ok(false)`: not now.
fn posted(what: &'static str, result: c_int) -> Result<bool, Failure> {
    if result == EAGAIN { Ok(false) } else { check(what, result).map(|()| true) }
}

/// Registered memory, as the peer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteAddress {
    pub(crate) address: u64,
    pub(crate) key: u64,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Completion {
    /// An operation of this end is done.
    Sent,
    /// A read is done, with these bytes.
    Read(u32, Vec<u8>),
    /// The peer sent this, to be looked at and received into again.
    Message(Incoming),
    /// The peer wrote, with an immediate; that used up a receive if there is one.
    Told(u32, Option<Incoming>),
    /// The connection failed.
    Failed(String),
}

/// A buffer with what came, out of the device's hands until [`Device::receive`].
#[derive(Debug)]
pub(crate) struct Incoming {
    slot: u32,
    len: u32,
}

/// An endpoint, and the memory that is registered with it.
pub(crate) struct Device {
    cf: NonNull<Cf>,
    slot_len: usize,
    /// Outgoing slots that no operation uses.
    free: Vec<u32>,
    reads: [Option<u32>; READS_MAX],
    word_under_way: bool,
    /// Writes that are not done.
    writes: u32,
    /// Not to be freed before they are unregistered.
    regions: Vec<(NonNull<CfRegion>, Arc<dyn Window>)>,
    attributes: CfAttributes,
}

// SAFETY: libfabric's objects belong to no thread, and `&mut self` or a lock around it keeps others out.
unsafe impl Send for Device {}

impl Device {
    /// Finds the provider, with endpoints that connect (`msg`) or not; `dest`: where to connect to.
    pub(crate) fn find(provider: &str, msg: bool, node: Option<&str>, dest: Option<&[u8]>) -> Result<Self, Failure> {
        let c_string = |text: &str| CString::new(text).map_err(|_| Failure::of("a name with a zero byte", -22));
        let provider = c_string(provider)?;
        let node = node.map(c_string).transpose()?;
        let node = node.as_ref().map_or(ptr::null(), |node| node.as_ptr());
        let (dest, dest_len) = dest.map_or((ptr::null(), 0), |dest| (dest.as_ptr(), dest.len()));
        let mut cf = ptr::null_mut();
        // SAFETY: strings and bytes live while this runs; it copies what it keeps.
        let found = unsafe { cf_new(provider.as_ptr(), msg.into(), node, dest, dest_len, &raw mut cf) };
        check("finding the provider", found)?;
        let cf = NonNull::new(cf).ok_or_else(|| Failure::of("finding the provider", -12))?;
        Ok(Self {
            cf,
            slot_len: 0,
            free: Vec::new(),
            reads: [None; READS_MAX],
            word_under_way: false,
            writes: 0,
            regions: Vec::new(),
            attributes: CfAttributes::default(),
        })
    }

    // ---- connecting ----------------------------------------------------------------------------------------

    pub(crate) fn listen(&mut self) -> Result<(), Failure> {
        // SAFETY: `cf` is alive, as in all that follows.
        check("listening", unsafe { cf_listen(self.cf.as_ptr()) })
    }

    pub(crate) fn await_request(&mut self, token: &[u8], wait: Duration) -> Result<(), Failure> {
        // SAFETY: the token lives while this runs.
        let found = unsafe { cf_await_request(self.cf.as_ptr(), token.as_ptr(), token.len(), millis(wait)) };
        check("waiting for the peer's endpoint", found)
    }

    /// Opens it, with buffers of that length. Once.
    pub(crate) fn open(&mut self, slot_len: usize, keys: [u64; 2]) -> Result<(), Failure> {
        assert_eq!(self.slot_len, 0, "it is open");
        // SAFETY: two keys, as it wants.
        check("opening an endpoint", unsafe { cf_endpoint(self.cf.as_ptr(), SLOTS, slot_len, keys.as_ptr()) })?;
        self.slot_len = slot_len;
        self.free = (0..SLOTS).collect();
        // SAFETY: it is open, and writes the struct.
        unsafe { cf_attributes(self.cf.as_ptr(), &raw mut self.attributes) };
        Ok(())
    }

    pub(crate) fn name(&mut self) -> Result<Vec<u8>, Failure> {
        let mut name = vec![0; ADDRESS_MAX];
        let mut len = name.len();
        // SAFETY: it writes no more than `len` bytes, and says how many. It listens or is open: all callers have seen to that.
        check("asking for the own address", unsafe { cf_name(self.cf.as_ptr(), name.as_mut_ptr(), &raw mut len) })?;
        name.truncate(len);
        Ok(name)
    }

    pub(crate) fn accept(&mut self, wait: Duration) -> Result<(), Failure> {
        self.assert_open();
        // SAFETY: it is open.
        check("accepting the peer's endpoint", unsafe { cf_accept(self.cf.as_ptr(), millis(wait)) })
    }

    pub(crate) fn connect(&mut self, token: &[u8], wait: Duration) -> Result<(), Failure> {
        self.assert_open();
        // SAFETY: it is open, and the token lives while this runs.
        let connected = unsafe { cf_connect(self.cf.as_ptr(), token.as_ptr(), token.len(), millis(wait)) };
        check("connecting the endpoint", connected)
    }

    /// The peer, of endpoints that do not connect.
    pub(crate) fn insert(&mut self, name: &[u8]) -> Result<(), Failure> {
        self.assert_open();
        // Providers read as many bytes as their addresses have: no fewer than there can be.
        let mut padded = name.to_vec();
        padded.resize(name.len().max(ADDRESS_MAX), 0);
        // SAFETY: it is open, and copies the address.
        check("taking the peer's address", unsafe { cf_insert(self.cf.as_ptr(), padded.as_ptr()) })
    }

    fn assert_open(&self) {
        assert!(self.slot_len > 0, "it is not open");
    }

    /// Whatever the provider says of the order in which operations take effect: there is none.
    pub(crate) fn forget_order(&mut self) {
        (self.attributes.ordered, self.attributes.messages_ordered) = (0, 0);
    }

    // ---- sending -------------------------------------------------------------------------------------------

    /// Whether a message may be sent now so that it takes effect after all that was begun before.
    pub(crate) fn may_send(&self) -> bool {
        let in_order = self.attributes.ordered != 0 || self.attributes.messages_ordered != 0 && self.writes == 0;
        !self.free.is_empty() && (in_order || self.is_idle())
    }

    /// The same of a write or read.
    pub(crate) fn may_write(&self) -> bool {
        !self.free.is_empty() && (self.attributes.ordered != 0 || self.is_idle())
    }

    /// Whether all that was sent and written is done.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == SLOTS as usize
    }

    /// Begins what `post` does with a slot that holds these bytes. `Ok(false)`: not now.
    fn begin(
        &mut self,
        what: &'static str,
        parts: [&[u8]; 2],
        post: impl FnOnce(*mut Cf, u32, usize) -> c_int,
    ) -> Result<bool, Failure> {
        let len = parts[0].len() + parts[1].len();
        assert!(len <= self.slot_len, "longer than a slot");
        let Some(&slot) = self.free.last() else { return Ok(false) };
        // SAFETY: it is open, since a slot is free; no operation uses the slot, and it is as long as asserted.
        let buffer = unsafe { std::slice::from_raw_parts_mut(cf_outgoing(self.cf.as_ptr(), slot), len) };
        let (first, second) = buffer.split_at_mut(parts[0].len());
        first.copy_from_slice(parts[0]);
        second.copy_from_slice(parts[1]);
        let posted = posted(what, post(self.cf.as_ptr(), slot, len))?;
        if posted {
            self.free.pop();
        }
        Ok(posted)
    }

    /// Sends a message. `Ok(false)`: not now.
    pub(crate) fn send(&mut self, parts: [&[u8]; 2]) -> Result<bool, Failure> {
        // SAFETY: a slot of an open endpoint, as `begin` gives it.
        self.begin("sending", parts, |cf, slot, len| unsafe { cf_send(cf, slot, len) })
    }

    /// Writes into the peer's memory. `Ok(false)`: not now.
    pub(crate) fn write(&mut self, bytes: &[u8], to: RemoteAddress, imm: Option<u32>) -> Result<bool, Failure> {
        // Where each operation waits for the one before, that must be done at the peer.
        let delivered = (self.attributes.ordered == 0).into();
        let written = self.begin("writing", [bytes, &[]], |cf, slot, len| {
            let tell = imm.is_some().into();
            // SAFETY: a slot of an open endpoint, as `begin` gives it. Where it writes to, the peer checks.
            unsafe { cf_write(cf, slot, len, to.address, to.key, tell, imm.unwrap_or(0), delivered) }
        })?;
        self.writes += u32::from(written);
        Ok(written)
    }

    /// Reads the peer's memory: which read it is. `None`: not now.
    pub(crate) fn read(&mut self, len: u32, from: RemoteAddress, local_key: u64) -> Result<Option<u32>, Failure> {
        self.assert_open();
        let Some(read) = self.reads.iter().position(Option::is_none) else { return Ok(None) };
        let index = read as u32;
        // SAFETY: it is open; nothing uses that read's memory, which is the shim's.
        let begun = unsafe { cf_read(self.cf.as_ptr(), index, len as usize, from.address, from.key, local_key) };
        let begun = posted("reading", begun);
        if matches!(begun, Ok(true)) {
            self.reads[read] = Some(len);
        } else {
            // SAFETY: no operation uses it.
            unsafe { cf_end_read(self.cf.as_ptr(), index) };
        }
        begun.map(|begun| begun.then_some(index))
    }

    /// Where the peer writes this end's word.
    pub(crate) fn word_address(&mut self) -> Result<RemoteAddress, Failure> {
        self.assert_open();
        let mut at = RemoteAddress { address: 0, key: 0 };
        // SAFETY: it is open, and writes two numbers.
        let told = unsafe { cf_word_address(self.cf.as_ptr(), &raw mut at.address, &raw mut at.key) };
        check("naming the word", told).map(|()| at)
    }

    /// What the peer wrote there last.
    pub(crate) fn word(&self) -> u64 {
        self.assert_open();
        // SAFETY: it is open.
        unsafe { cf_word(self.cf.as_ptr()) }
    }

    /// Writes the peer's. `Ok(false)`: not now.
    pub(crate) fn write_word(&mut self, value: u64, to: RemoteAddress) -> Result<bool, Failure> {
        self.assert_open();
        if self.word_under_way {
            return Ok(false);
        }
        // SAFETY: it is open, and no operation uses the own copy of the word.
        let written = unsafe { cf_write_word(self.cf.as_ptr(), value, to.address, to.key) };
        self.word_under_way = posted("returning credit", written)?;
        Ok(self.word_under_way)
    }

    /// Whether that is not done yet.
    pub(crate) const fn is_word_under_way(&self) -> bool {
        self.word_under_way
    }

    // ---- receiving -----------------------------------------------------------------------------------------

    /// What happened since: no more than some, in order.
    pub(crate) fn poll(&mut self, done: &mut Vec<Completion>) {
        self.assert_open();
        let mut found = [CfCompletion::default(); 16];
        // SAFETY: it is open, and writes no more than it has room for.
        let len = unsafe { cf_poll(self.cf.as_ptr(), found.as_mut_ptr(), found.len() as c_int) };
        for completion in &found[..usize::try_from(len).unwrap_or(0)] {
            let CfCompletion { kind, has_slot, slot, len, imm, error } = *completion;
            done.push(match kind {
                1 if slot == SLOTS => {
                    self.word_under_way = false;
                    continue;
                }
                1 | 6 => {
                    self.free.push(slot);
                    self.writes -= u32::from(kind == 6);
                    Completion::Sent
                }
                2 => self.end_read(slot),
                // `receive` gives it back: until then the device does not touch it.
                3 => Completion::Message(Incoming { slot, len: len.min(self.slot_len as u32) }),
                4 => Completion::Told(imm, (has_slot != 0).then_some(Incoming { slot, len: 0 })),
                _ => Completion::Failed(text(error)),
            });
        }
    }

    fn end_read(&mut self, read: u32) -> Completion {
        let len = self.reads.get_mut(read as usize).and_then(Option::take).unwrap_or(0) as usize;
        // SAFETY: the read is done, and its memory has `len` bytes until `cf_end_read`.
        let bytes = unsafe { std::slice::from_raw_parts(cf_read_bytes(self.cf.as_ptr(), read), len) }.to_vec();
        // SAFETY: no operation uses it.
        unsafe { cf_end_read(self.cf.as_ptr(), read) };
        Completion::Read(read, bytes)
    }

    /// What a message holds.
    pub(crate) fn incoming(&self, message: &Incoming) -> &[u8] {
        // SAFETY: the slot is out of the device's hands while its `Incoming` exists, and has at least so many bytes.
        unsafe { std::slice::from_raw_parts(cf_incoming(self.cf.as_ptr(), message.slot), message.len as usize) }
    }

    /// Receives into that buffer again.
    pub(crate) fn receive(&mut self, message: Incoming) -> Result<(), Failure> {
        // SAFETY: nothing uses the buffer: its `Incoming` is gone.
        check("receiving", unsafe { cf_receive(self.cf.as_ptr(), message.slot) })
    }

    /// Whether the peer's endpoint has gone.
    pub(crate) fn is_shut(&mut self) -> bool {
        // SAFETY: as above.
        unsafe { cf_is_shut(self.cf.as_ptr()) != 0 }
    }

    /// What becomes readable when something may have happened, if the provider has such a thing.
    pub(crate) fn wait_fd(&self) -> Option<OwnedFd> {
        if self.attributes.wait_fd < 0 {
            return None;
        }
        // SAFETY: the device has it open, and closes it when it is dropped.
        let fd = unsafe { BorrowedFd::borrow_raw(self.attributes.wait_fd) };
        fd.try_clone_to_owned().ok()
    }

    /// Whether it may be waited for: not if something has happened already.
    pub(crate) fn may_wait(&mut self) -> bool {
        self.assert_open();
        // SAFETY: it is open.
        unsafe { cf_try_wait(self.cf.as_ptr()) == 0 }
    }

    // ---- memory --------------------------------------------------------------------------------------------

    /// Lets the peer read the window's memory, or write it too.
    pub(crate) fn register(
        &mut self,
        window: Arc<dyn Window>,
        window_at: Address,
        write: bool,
        key: u64,
    ) -> Result<RemoteAddress, Failure> {
        self.assert_open();
        let mut region = ptr::null_mut();
        let mut at = RemoteAddress { address: 0, key: 0 };
        let (first, len) = (window_at.first().as_ptr().cast(), window.len() as usize);
        // SAFETY: the caller that made the address answers for its memory as long as the window exists, and that is held until it is unregistered.
        let registered = unsafe {
            let (address, key_out) = (&raw mut at.address, &raw mut at.key);
            cf_register(self.cf.as_ptr(), first, len, write.into(), key, &raw mut region, address, key_out)
        };
        check("registering the window", registered)?;
        let region = NonNull::new(region).ok_or_else(|| Failure::of("registering the window", -12))?;
        self.regions.push((region, window));
        Ok(at)
    }

    pub(crate) fn has_regions(&self) -> bool {
        !self.regions.is_empty()
    }

    /// From when this returns, the peer reaches no memory of this end any more.
    pub(crate) fn revoke(&mut self) {
        // SAFETY: as above; closing twice does nothing.
        unsafe { cf_close_endpoint(self.cf.as_ptr()) };
        for (region, window) in self.regions.drain(..) {
            // SAFETY: from `cf_register`, and taken out of the list.
            unsafe { cf_unregister(region.as_ptr()) };
            drop(window);
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.revoke();
        // SAFETY: it is no longer used.
        unsafe { cf_free(self.cf.as_ptr()) };
    }
}

fn millis(wait: Duration) -> c_int {
    c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX)
}
