//! Two ends find each other's endpoints.
//!
//! ```text
//! who listens                                   who connects
//!     provider, kind, token, address      ->
//!                                         <-    (datagrams:) address
//!     (connected: the endpoint's request, with the token)
//!     where the word is                  <->    where the word is
//!     (the word is written)
//!     ready                              <->    ready
//! ```

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::control::{Control, Heard};
use super::link::Link;
use super::state::{Met, SLOT_LEN};
use super::{Endpoint, Provider, ends};
use crate::raw::libfabric::{Completion, Device, Failure, RemoteAddress};
use crate::tcp::greeting::Greeted;
use crate::wire::Refusal;
use crate::{Connection, Error, Options, Reason, Result, Window, auth, clock};

const TOKEN: usize = 16;
const READY: &[u8] = b"ready";
/// Of Debian's version: an endpoint must not go while another of the same process knows it; and its long writes are system calls of the writer, which no end
/// can forbid.
const SHM: &str = "shm";

/// The end that listens.
pub(super) fn accept(
    greeted: Greeted,
    options: &Options,
    provider: &Provider,
    window: Option<Arc<dyn Window>>,
) -> Result<Connection> {
    let mut control = Control::new(greeted);
    let met = meet_client(&mut control, options, provider);
    if let Err(error) = &met {
        control.say(&Refusal::frame(&Reason::Lost { what: error.to_string() }));
    }
    finish(met?, control, options, provider, window)
}

/// The end that connects.
pub(super) fn connect(
    greeted: Greeted,
    options: &Options,
    provider: &Provider,
    window: Option<Arc<dyn Window>>,
) -> Result<Connection> {
    let mut control = Control::new(greeted);
    let met = meet_server(&mut control, options, provider)?;
    finish(met, control, options, provider, window)
}

fn meet_client(control: &mut Control, options: &Options, provider: &Provider) -> Result<Device> {
    let failed = |failure: Failure| provider.failed(failure);
    let timeout = options.greeting_timeout;
    let (mut device, connected) = provider.find(control.local().as_deref())?;
    let token = auth::nonce()?[..TOKEN].to_vec();
    if connected {
        device.listen().map_err(failed)?;
    } else {
        device.open(SLOT_LEN, keys()?).map_err(failed)?;
    }
    let address = device.name().map_err(failed)?;
    control.say_message(&offer(&provider.name, connected, process()?, &token, &address));
    if connected {
        device.await_request(&token, timeout).map_err(failed)?;
        device.open(SLOT_LEN, keys()?).map_err(failed)?;
        device.accept(timeout).map_err(failed)?;
    } else {
        let theirs = control.await_message(clock::after(timeout))?;
        device.insert(&theirs).map_err(failed)?;
    }
    Ok(device)
}

fn meet_server(control: &mut Control, options: &Options, provider: &Provider) -> Result<Device> {
    let failed = |failure: Failure| provider.failed(failure);
    let timeout = options.greeting_timeout;
    let offered = control.await_message(clock::after(timeout))?;
    let unfit = |what: String| Error::Unreachable { peer: control.peer.clone(), what };
    let offered = read_offer(&offered).ok_or_else(|| unfit("it offers what is no endpoint".into()))?;
    let Offer { name, connected, process: theirs, token, address } = offered;
    if name == SHM && theirs == process()? {
        return Err(unfit("libfabric's provider shm does not connect a process with itself".into()));
    }
    let wanted = match provider.endpoint {
        Endpoint::Any => connected,
        Endpoint::Connected => true,
        Endpoint::Datagram => false,
    };
    if name != provider.name || wanted != connected {
        let kind = if connected { "connected" } else { "datagram" };
        return Err(unfit(format!("it has {kind} endpoints of libfabric's provider {name}")));
    }
    if connected {
        let mut device = Device::find(name, true, None, Some(address)).map_err(failed)?;
        device.open(SLOT_LEN, keys()?).map_err(failed)?;
        device.connect(token, timeout).map_err(failed)?;
        Ok(device)
    } else {
        let mut device = Device::find(name, false, provider.node.as_deref(), None).map_err(failed)?;
        device.open(SLOT_LEN, keys()?).map_err(failed)?;
        device.insert(address).map_err(failed)?;
        control.say_message(&device.name().map_err(failed)?);
        Ok(device)
    }
}

/// Each end tells where its word is.
fn finish(
    mut device: Device,
    mut control: Control,
    options: &Options,
    provider: &Provider,
    window: Option<Arc<dyn Window>>,
) -> Result<Connection> {
    let own = device.word_address().map_err(|failure| provider.failed(failure))?;
    control.say_message(&[own.address.to_le_bytes(), own.key.to_le_bytes()].concat());
    let theirs = control.await_message(clock::after(options.greeting_timeout.max(Duration::from_secs(1))))?;
    let Some(theirs) = read_address(&theirs) else {
        return Err(Error::Unreachable { peer: control.peer, what: "it has no word to write to".into() });
    };
    let early = try_out(&mut device, &mut control, theirs, options).map_err(|failure| provider.failed(failure))??;
    if provider.wait_for_each {
        device.forget_order();
    }
    let met = Met { device, control, word: theirs, early, may_register: provider.name != SHM };
    let link = Link::new(met, window, options, keys()?[0])?;
    Ok(ends::connection(link, options))
}

/// Writes the peer's word, and lets the peer write. Some providers connect only now, and take both ends for that. What arrived meanwhile: the peer may be done first.
fn try_out(
    device: &mut Device,
    control: &mut Control,
    word: RemoteAddress,
    options: &Options,
) -> std::result::Result<Result<Vec<Completion>>, Failure> {
    let deadline = clock::after(options.greeting_timeout);
    let (mut begun, mut said, mut heard) = (false, false, false);
    let mut done = Vec::new();
    while !(said && heard) {
        begun = begun || device.write_word(0, word)?;
        device.poll(&mut done);
        if let Some(Completion::Failed(text)) = done.pop_if(|last| matches!(last, Completion::Failed(_))) {
            return Err(Failure { what: "reaching the peer", code: 0, text });
        }
        if begun && !said && !device.is_word_under_way() {
            control.say_message(READY);
            said = true;
        }
        let what = match control.hear() {
            Heard::Message(message) if message == READY => {
                heard = true;
                continue;
            }
            Heard::Nothing if deadline.is_none_or(|deadline| !clock::until(deadline).is_zero()) => continue,
            Heard::Nothing => "its endpoint is not reached in time".into(),
            Heard::Word(reason) => reason.to_string(),
            Heard::Message(_) | Heard::Gone => "it went away while the endpoints met".into(),
        };
        return Ok(Err(Error::Unreachable { peer: control.peer.clone(), what }));
    }
    Ok(Ok(done))
}

/// What no other process has.
fn process() -> Result<u64> {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    let random = keys()?[0];
    Ok(*PROCESS.get_or_init(|| random))
}

/// Random ones.
fn keys() -> Result<[u64; 2]> {
    let random = auth::nonce()?;
    let number = |at: usize| random[at..at + 8].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    Ok([number(0), number(8)])
}

/// An endpoint to meet.
struct Offer<'a> {
    name: &'a str,
    connected: bool,
    process: u64,
    token: &'a [u8],
    address: &'a [u8],
}

fn offer(name: &str, connected: bool, process: u64, token: &[u8], address: &[u8]) -> Vec<u8> {
    let mut bytes = vec![u8::from(connected), name.len() as u8];
    bytes.extend(name.as_bytes());
    bytes.extend(process.to_le_bytes());
    bytes.extend(token);
    bytes.extend(address);
    bytes
}

fn read_offer(bytes: &[u8]) -> Option<Offer<'_>> {
    let [connected @ (0 | 1), name_len, rest @ ..] = bytes else { return None };
    let (name, rest) = rest.split_at_checked(usize::from(*name_len))?;
    let (process, rest) = rest.split_first_chunk()?;
    let (token, address) = rest.split_at_checked(TOKEN)?;
    let name = std::str::from_utf8(name).ok()?;
    Some(Offer { name, connected: *connected == 1, process: u64::from_le_bytes(*process), token, address })
}

fn read_address(bytes: &[u8]) -> Option<RemoteAddress> {
    let address = bytes.first_chunk()?;
    let key = bytes.get(8..)?;
    Some(RemoteAddress { address: u64::from_le_bytes(*address), key: u64::from_le_bytes(key.try_into().ok()?) })
}
