//! Streams that are cut, or changed on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fabric::{Connection, Event, Memory, Reason, Rights, Window, tcp};

use crate::proxy::Proxy;
use crate::tcp::options;

const TIMEOUT: Duration = Duration::from_secs(20);
/// What each end says before the first frame.
const GREETING: usize = 64;

/// Two ends, of which the first one's bytes behind the greeting go through `change`, with their offsets.
fn through(
    change: impl Fn(usize, &mut Vec<u8>) + Sync,
    window: &Arc<Memory>,
    body: impl FnOnce(Connection, Connection),
) {
    let mut listener = tcp::Listener::bind("localhost:0", options(), Some(window.clone())).unwrap();
    let proxy = Proxy::to(listener.address().unwrap());
    let passed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let there = |bytes: &mut Vec<u8>| {
                let at = passed.fetch_add(bytes.len(), Ordering::Relaxed);
                if at >= GREETING {
                    change(at - GREETING, bytes);
                }
            };
            proxy.forward(&there, &|_| {});
        });
        let near = scope.spawn(|| tcp::connect(&format!("localhost:{}", proxy.port()), &options(), None).unwrap());
        let far = listener.accept(TIMEOUT).unwrap().unwrap();
        far.access.set(Rights::Write);
        body(near.join().unwrap(), far);
    });
}

fn next(connection: &mut Connection) -> Event {
    connection.receiver.poll(TIMEOUT).unwrap().expect("nothing came")
}

/// A header with any bit turned is nothing that is acted on.
#[test]
fn a_changed_header_ends_the_connection() {
    for bit in (0..24 * 8).step_by(5) {
        let window = Arc::new(Memory::new(4096));
        let turn = |at: usize, bytes: &mut Vec<u8>| {
            if at == 0 {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        };
        through(turn, &window, |mut near, mut far| {
            near.sender.write_imm(0, b"apples", 7).unwrap();
            near.sender.flush().unwrap();
            assert!(matches!(next(&mut far), Event::Closed(Reason::Malformed { .. })), "bit {bit}");
            let told = next(&mut near);
            assert!(matches!(&told, Event::Closed(Reason::Lost { what }) if what.contains("checksum")), "{told:?}");
        });
        let mut bytes = [0; 6];
        window.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 6]);
    }
}

/// A stream that ends inside a frame, or between two without a goodbye, is a loss; what came before it counts.
#[test]
fn a_cut_stream_is_a_loss() {
    for kept in [0, 10, 24, 27, 30, 40] {
        let window = Arc::new(Memory::new(4096));
        let cut = |at: usize, bytes: &mut Vec<u8>| bytes.truncate(kept.max(at) - at);
        through(cut, &window, |mut near, mut far| {
            near.sender.write_imm(0, b"apples", 7).unwrap();
            near.sender.close();
            drop(near);
            let mut told = next(&mut far);
            if kept >= 30 {
                assert_eq!(told, Event::Written { imm: 7 });
                told = next(&mut far);
            }
            let inside = ![0, 30].contains(&kept);
            let Event::Closed(Reason::Lost { what }) = &told else { panic!("{told:?}") };
            assert_eq!(what.contains("inside a frame"), inside, "{kept}: {what}");
        });
    }
}
