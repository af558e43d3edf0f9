//! What a replica says of itself, without taking anything over.

use std::time::{Duration, Instant};

use fabric::{Connection, Event, Rights};

use super::message::{FromReplica, Reply, Request, State, ToReplica, decode, encode};
use super::replica::ReplicaStatus;
use super::wire::{OLDEST, Versions};
use crate::error::{Error, Result};

/// How the replica at `address` (host and port) is doing; none if it is of no log yet. The log's leader is not disturbed.
///
/// # Errors
/// Those of the network; [`Error::Replica`] if it does not answer within `timeout`, or does not understand.
#[expect(clippy::disallowed_methods, reason = "time-outs are in real time")]
pub fn look(address: &str, trust: &fabric::Options, timeout: Duration) -> Result<Option<ReplicaStatus>> {
    let failed = |why: String| Error::Replica { replica: address.to_owned(), why };
    let Connection { mut sender, mut receiver, access, peer } = fabric::connect(address, trust, None)?;
    access.set(Rights::None);
    let speaks = Versions::default();
    let call = speaks.first_call();
    sender.send(&encode(&ToReplica { call, request: Request::Look { oldest: speaks.oldest } }))?;
    sender.flush()?;
    let asked = Instant::now();
    while let Some(left) = timeout.checked_sub(asked.elapsed()) {
        match receiver.poll(left)? {
            Some(Event::Message(bytes)) => {
                let (newest, State { formed }) = match decode::<FromReplica>(&bytes, speaks.newest) {
                    Some(FromReplica::Answer { call: answered, reply }) if answered == call => match reply {
                        Reply::State(state) => (OLDEST, state),
                        Reply::Speaks { newest, state, .. } => (newest, state),
                        Reply::Failed { why } => return Err(failed(why)),
                        _ => return Err(failed("it sent what makes no sense".into())),
                    },
                    _ => return Err(failed("it sent what makes no sense".into())),
                };
                sender.close();
                return Ok(formed.as_ref().map(|formed| ReplicaStatus::of(formed, newest)));
            }
            Some(Event::Closed(reason)) => return Err(fabric::Error::Closed { peer, reason }.into()),
            _ => {}
        }
    }
    Err(failed(format!("it did not answer in {timeout:?}")))
}
