//! A peer that is killed, in a process of its own.

use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use fabric::{Event, Memory, Reason, Rights, Window, tcp};

use crate::tcp::options;

const TIMEOUT: Duration = Duration::from_secs(20);
const ADDRESS: &str = "CAIRN_FABRIC_TEST_ADDRESS";

/// The peer: connects and writes for ever. Does nothing unless it was started by a test of this module.
#[test]
fn peer() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let mut connection = tcp::connect(&address, &options(), None).unwrap();
    for imm in 0.. {
        connection.sender.write_imm(u64::from(imm) % 64 * 64, &[imm as u8; 64], imm).unwrap();
        connection.sender.flush().unwrap();
    }
}

fn start(address: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::peer", "--nocapture"])
        .env(ADDRESS, address)
        .spawn()
        .unwrap()
}

/// Its end is noticed, what it wrote last may be there in part and is not told, and another may take its place.
#[test]
fn a_killed_peer_is_a_lost_one() {
    let window = Arc::new(Memory::new(4096));
    let mut listener = tcp::Listener::bind("localhost:0", options(), Some(window.clone())).unwrap();
    let address = format!("localhost:{}", listener.address().unwrap().port());
    for round in 0..3 {
        let mut peer = start(&address);
        let mut connection = listener.accept(TIMEOUT).unwrap().expect("it does not connect");
        connection.access.set(Rights::Write);
        let mut told = 0;
        let reason = loop {
            match connection.receiver.poll(TIMEOUT).unwrap().expect("nothing comes") {
                Event::Written { imm } => {
                    assert_eq!(imm, told, "round {round}");
                    let mut bytes = [0; 64];
                    window.read(u64::from(imm) % 64 * 64, &mut bytes).unwrap();
                    assert_eq!(bytes, [imm as u8; 64]);
                    told += 1;
                    if told == 1000 {
                        peer.kill().unwrap();
                    }
                }
                Event::Closed(reason) => break reason,
                other => panic!("{other:?}"),
            }
        };
        assert!(matches!(reason, Reason::Lost { .. }), "{reason}");
        assert!(told >= 1000);
        assert!(connection.sender.send(b"are you there?").and_then(|()| connection.sender.flush()).is_err());
        peer.wait().unwrap();
    }
}
