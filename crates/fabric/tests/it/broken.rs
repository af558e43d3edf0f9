//! Backends that are broken on purpose: some check must find each.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fabric::{Access, Connection, Error, Event, Reason, Receiver, Result, Rights, Sender, Watch, Window};
use fabric_conformance::{CHECKS, Subject};

use crate::simulated::Simulated;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// None: the wrapping itself breaks nothing.
    None,
    /// The immediate comes before the bytes.
    ImmFirst,
    /// ... before bytes of the write before.
    ImmOvertakes,
    /// The last bytes of a long write are missing.
    TailLost,
    /// Two messages in a row are swapped.
    MessagesSwapped,
    /// A message overtakes a write that tells.
    MessageOvertakes,
    /// A message may arrive twice.
    MessageTwice,
    /// What was gathered is not flushed at the end.
    CloseForgets,
    /// A read sees what was there before the last write.
    ReadOvertakes,
    /// Answers have each other's tags.
    TagsSwapped,
    /// Reads are taken without a bound.
    ReadsUnbounded,
    /// Messages are taken that are too long.
    LongMessages,
    /// Rights are not looked at.
    RightsIgnored,
    /// Taking rights away has no effect.
    RevocationIgnored,
    /// ... has its effect a little later.
    RevocationLate,
    /// What is said when rights are taken away is lost.
    LastMessageLost,
    /// A write across the end is cut off.
    BoundsClipped,
    /// The end is not told to the receiver.
    EndHidden,
    /// It is told for ever.
    EndRepeated,
    /// The end that violated is told that the connection was lost.
    ViolationHidden,
    /// Everything is kept until the peer takes it.
    QueueUnbounded,
    /// A half that is dropped says nothing.
    DropSilent,
    /// A failing window is passed over.
    WindowFailureIgnored,
    /// A thread that waits for several is not woken.
    WaitDeaf,
    /// ... is not woken again by what came with the last event.
    WaitForgets,
}

/// Each with the check that is there for it.
const FAULTS: [(Fault, &str); 24] = [
    (Fault::ImmFirst, "bytes_come_before_the_immediate"),
    (Fault::ImmOvertakes, "bytes_come_before_the_immediate"),
    (Fault::TailLost, "long_writes"),
    (Fault::MessagesSwapped, "order"),
    (Fault::MessageOvertakes, "order"),
    (Fault::MessageTwice, "order"),
    (Fault::CloseForgets, "close"),
    (Fault::ReadOvertakes, "reads"),
    (Fault::TagsSwapped, "reads"),
    (Fault::ReadsUnbounded, "reads_are_bounded"),
    (Fault::LongMessages, "too_long"),
    (Fault::RightsIgnored, "no_rights"),
    (Fault::RevocationIgnored, "revocation"),
    (Fault::RevocationLate, "revocation"),
    (Fault::LastMessageLost, "last_message"),
    (Fault::BoundsClipped, "out_of_bounds"),
    (Fault::EndHidden, "close"),
    (Fault::EndRepeated, "close"),
    (Fault::ViolationHidden, "no_rights"),
    (Fault::QueueUnbounded, "slow_reader"),
    (Fault::DropSilent, "dropped_halves"),
    (Fault::WindowFailureIgnored, "failing_window"),
    (Fault::WaitDeaf, "several_at_once"),
    (Fault::WaitForgets, "several_at_once"),
];

struct Broken {
    inner: Simulated,
    fault: Fault,
}

impl Subject for Broken {
    fn connect(&self, windows: [Option<Arc<dyn Window>>; 2]) -> Result<[Connection; 2]> {
        let lens = windows.each_ref().map(|window| window.as_ref().map_or(0, |window| window.len()));
        let windows = windows.map(|window| {
            window.map(|inner| match self.fault {
                Fault::WindowFailureIgnored => Arc::new(Forgiving(inner)) as Arc<dyn Window>,
                _ => inner,
            })
        });
        let [a, b] = self.inner.connect(windows)?;
        Ok([self.wrap(a, lens[1]), self.wrap(b, lens[0])])
    }

    fn move_on(&self) {
        self.inner.move_on();
        if self.fault != Fault::None {
            // Others may look in between.
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    fn timeout(&self) -> Duration {
        if self.fault == Fault::None { Duration::from_secs(20) } else { Duration::from_millis(400) }
    }
}

impl Broken {
    fn wrap(&self, connection: Connection, peer_len: u64) -> Connection {
        let Connection { sender, receiver, peer, access } = connection;
        let fault = self.fault;
        let access = match fault {
            Fault::RightsIgnored | Fault::RevocationIgnored | Fault::RevocationLate => {
                access.set(Rights::Write);
                let handle = Access::new(Rights::None);
                if fault == Fault::RevocationLate {
                    take_away_late(&handle, access);
                }
                handle
            }
            _ => access,
        };
        let sender = Sending {
            inner: Some(sender),
            fault,
            peer_len,
            held: None,
            held_write: None,
            behind: Vec::new(),
            unflushed: Vec::new(),
            reads: 0,
        };
        let receiver = Receiving { inner: Some(receiver), fault, again: VecDeque::new(), end: None, given: false };
        Connection { sender: Box::new(sender), receiver: Box::new(receiver), peer, access }
    }
}

/// What is taken away from the handle is taken from what is real a little later.
fn take_away_late(handle: &Access, real: Access) {
    let handle = handle.clone();
    #[expect(clippy::disallowed_methods, reason = "it ends soon after the check")]
    std::thread::spawn(move || {
        let look = |rights| {
            (0..20_000).any(|_| {
                handle.get() == rights || {
                    std::thread::sleep(Duration::from_micros(100));
                    false
                }
            })
        };
        if look(Rights::Write) && look(Rights::None) {
            std::thread::sleep(Duration::from_millis(5));
            real.set(Rights::None);
        }
    });
}

struct Forgiving(Arc<dyn Window>);

impl Window for Forgiving {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        let _ = self.0.write(offset, bytes);
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let _ = self.0.read(offset, into);
        Ok(())
    }
}

struct Sending {
    inner: Option<Box<dyn Sender>>,
    fault: Fault,
    peer_len: u64,
    /// A message, or a write that tells, that the next message overtakes.
    held: Option<Vec<u8>>,
    held_write: Option<(u64, Vec<u8>, u32)>,
    /// A write that the next operations overtake.
    behind: Vec<(u64, Vec<u8>)>,
    /// Handed over since the last flush, by a sender that forgets that.
    unflushed: Vec<Operation>,
    reads: usize,
}

type Operation = Box<dyn FnOnce(&mut dyn Sender) -> Result<()> + Send>;

impl Sending {
    /// Keeps it until a flush, if that is the fault.
    fn keeps(&mut self, operation: impl FnOnce(&mut dyn Sender) -> Result<()> + Send + 'static) -> bool {
        let keeps = self.fault == Fault::CloseForgets;
        if keeps {
            self.unflushed.push(Box::new(operation));
        }
        keeps
    }

    fn inner(&mut self) -> &mut dyn Sender {
        self.inner.as_mut().unwrap().as_mut()
    }

    /// Without an error for a queue that is full, if that is the fault.
    fn unbounded(&self, result: Result<()>) -> Result<()> {
        match result {
            Err(Error::Closed { reason: Reason::Slow { .. }, .. }) if self.fault == Fault::QueueUnbounded => Ok(()),
            other => other,
        }
    }

    fn behind_message(&mut self) -> Result<()> {
        let Some((offset, bytes, imm)) = self.held_write.take() else { return Ok(()) };
        self.inner().write_imm(offset, &bytes, imm)
    }

    fn catch_up(&mut self) -> Result<()> {
        for (offset, bytes) in std::mem::take(&mut self.behind) {
            self.inner().write(offset, &bytes)?;
        }
        Ok(())
    }
}

impl Sender for Sending {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        match self.fault {
            Fault::ReadOvertakes | Fault::ImmOvertakes => {
                self.catch_up()?;
                self.behind.push((offset, bytes.to_vec()));
                Ok(())
            }
            Fault::BoundsClipped if offset < self.peer_len => {
                let fits = bytes.len().min((self.peer_len - offset) as usize);
                self.inner().write(offset, &bytes[..fits])
            }
            Fault::TailLost if bytes.len() > 10_000 => self.inner().write(offset, &bytes[..bytes.len() - 1]),
            _ => self.inner().write(offset, bytes),
        }
    }

    fn write_imm(&mut self, offset: u64, bytes: &[u8], imm: u32) -> Result<()> {
        let copy = bytes.to_vec();
        if self.keeps(move |inner| inner.write_imm(offset, &copy, imm)) {
            return Ok(());
        }
        match self.fault {
            Fault::ImmFirst => {
                self.inner().write_imm(offset, &[], imm)?;
                self.inner().write(offset, bytes)
            }
            Fault::TailLost if bytes.len() > 10_000 => self.inner().write_imm(offset, &bytes[..bytes.len() - 1], imm),
            Fault::MessageOvertakes => {
                self.behind_message()?;
                self.held_write = Some((offset, bytes.to_vec(), imm));
                Ok(())
            }
            Fault::ReadOvertakes => {
                self.catch_up()?;
                self.inner().write_imm(offset, bytes, imm)
            }
            _ => self.inner().write_imm(offset, bytes, imm),
        }
    }

    fn read(&mut self, offset: u64, len: u32, tag: u32) -> Result<()> {
        let tag = if self.fault == Fault::TagsSwapped { tag ^ 1 } else { tag };
        match self.inner().read(offset, len, tag) {
            Err(Error::TooManyReads { .. }) if self.fault == Fault::ReadsUnbounded && self.reads < 1000 => {
                self.reads += 1;
                Ok(())
            }
            other => other,
        }
    }

    fn send(&mut self, message: &[u8]) -> Result<()> {
        let copy = message.to_vec();
        if message.len() <= fabric::MESSAGE_MAX && self.keeps(move |inner| inner.send(&copy)) {
            return Ok(());
        }
        match (self.fault, self.held.take()) {
            (Fault::MessagesSwapped, Some(held)) => {
                self.inner().send(message)?;
                self.inner().send(&held)
            }
            (Fault::MessagesSwapped, None) => {
                self.held = Some(message.to_vec());
                Ok(())
            }
            (Fault::MessageOvertakes, _) => {
                self.inner().send(message)?;
                self.behind_message()
            }
            (Fault::QueueUnbounded, _) => {
                let sent = self.inner().send(message);
                self.unbounded(sent)
            }
            (Fault::LongMessages, _) => self.inner().send(&message[..message.len().min(fabric::MESSAGE_MAX)]),
            _ => self.inner().send(message),
        }
    }

    fn flush(&mut self) -> Result<()> {
        if let Some(held) = self.held.take() {
            self.inner().send(&held)?;
        }
        self.behind_message()?;
        for operation in std::mem::take(&mut self.unflushed) {
            operation(self.inner())?;
        }
        let flushed = self.inner().flush();
        self.unbounded(flushed)?;
        self.catch_up()?;
        let flushed = self.inner().flush();
        self.unbounded(flushed)
    }

    fn close(&mut self) {
        if self.fault != Fault::CloseForgets {
            let _ = self.flush();
        }
        self.inner().close();
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.fault == Fault::DropSilent {
            std::mem::forget(self.inner.take());
        }
    }
}

struct Receiving {
    inner: Option<Box<dyn Receiver>>,
    fault: Fault,
    again: VecDeque<Event>,
    end: Option<Event>,
    /// It gave an event when it was polled last.
    given: bool,
}

impl Receiver for Receiving {
    fn poll(&mut self, wait: Duration) -> Result<Option<Event>> {
        if let Some(event) = self.again.pop_front().or_else(|| self.end.clone()) {
            return Ok(Some(event));
        }
        let mut event = self.inner.as_mut().unwrap().poll(wait)?;
        self.given = event.is_some();
        match (&mut event, self.fault) {
            (Some(Event::Message(bytes)), Fault::MessageTwice) if bytes.len() == 4 && bytes[0] % 16 == 3 => {
                self.again.push_back(Event::Message(bytes.clone()));
            }
            (Some(Event::Message(bytes)), Fault::LastMessageLost) if bytes == b"no more" => return Ok(None),
            (Some(Event::Closed(_)), Fault::EndHidden) => return Ok(None),
            (Some(Event::Closed(_)), Fault::EndRepeated) => self.end.clone_from(&event),
            (Some(Event::Closed(reason @ Reason::Violated(_))), Fault::ViolationHidden) => {
                *reason = Reason::Lost { what: "somehow".into() };
            }
            _ => {}
        }
        Ok(event)
    }

    fn watch<'a>(&'a mut self, watch: &mut Watch<'a>) {
        let overlooks = self.fault == Fault::WaitDeaf || self.fault == Fault::WaitForgets && self.given;
        if !overlooks {
            self.inner.as_mut().unwrap().watch(watch);
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if self.fault == Fault::DropSilent {
            std::mem::forget(self.inner.take());
        }
    }
}

/// Whether the check finds something.
fn finds(check: &str, fault: Fault) -> bool {
    let check = CHECKS.iter().find(|(name, _)| *name == check).unwrap().1;
    let broken = Broken { inner: Simulated::new(), fault };
    catch_unwind(AssertUnwindSafe(|| check(&broken))).is_err()
}

#[test]
fn wrapping_breaks_nothing() {
    for (name, _) in CHECKS {
        assert!(!finds(name, Fault::None), "{name}");
    }
}

#[test]
fn each_fault_is_found() {
    for (fault, check) in FAULTS {
        assert!(finds(check, fault), "{check} does not notice {fault:?}");
    }
}
