//! What only a simulated network does.

use std::sync::Arc;
use std::time::Duration;

use super::{Faults, Network, Node};
use crate::{Connection, Error, Event, Memory, Reason, Rights, Window};

const LEN: usize = 4096;

struct Pair {
    network: Network,
    a: Node,
    b: Node,
    at_a: Connection,
    at_b: Connection,
    window: Arc<Memory>,
}

/// `a` may write into `b`'s window.
fn pair(seed: u64, faults: Faults) -> Pair {
    let network = Network::new(seed, faults);
    let (a, b) = (network.node(), network.node());
    let window = Arc::new(Memory::new(LEN));
    let (at_a, at_b) = network.connect(a, b, Some(window.clone()), None).unwrap();
    at_b.access.set(Rights::Write);
    Pair { network, a, b, at_a, at_b, window }
}

fn contents(window: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    window.read(0, &mut bytes).unwrap();
    bytes
}

fn polled(connection: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| connection.receiver.poll(Duration::ZERO).unwrap_or(None)).collect()
}

/// Steps to the end; what arrived at each.
fn run(pair: &mut Pair) -> (Vec<Event>, Vec<Event>) {
    while pair.network.step().is_some() {}
    (polled(&mut pair.at_a), polled(&mut pair.at_b))
}

fn is_lost(event: &Event) -> bool {
    matches!(event, Event::Closed(Reason::Lost { .. }))
}

/// A history with all faults, written down.
fn history(seed: u64) -> String {
    let mut pair = pair(seed, Faults { resets_per_million: 5_000, ..Faults::all() });
    let mut text = String::new();
    for round in 0..200_u32 {
        let _ = pair.at_a.sender.write_imm(u64::from(round) % 64 * 64, &[round as u8; 64], round);
        let _ = pair.at_b.sender.send(&round.to_le_bytes());
        let _ = (pair.at_a.sender.flush(), pair.at_b.sender.flush());
        match round {
            60 => pair.network.cut_one_way(pair.b, pair.a),
            80 => pair.network.heal_all(),
            150 => pair.network.crash(pair.b),
            _ => {}
        }
        let node = pair.network.step_until(Duration::from_millis(u64::from(round)));
        text +=
            &format!("{:?} {node:?} {:?} {:?}\n", pair.network.now(), polled(&mut pair.at_a), polled(&mut pair.at_b));
    }
    text + &format!("{:?}", contents(&pair.window))
}

#[test]
fn a_seed_is_a_history() {
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8));
}

#[test]
fn nothing_leaves_before_a_flush() {
    let mut pair = pair(1, Faults::none());
    pair.at_a.sender.send(b"one").unwrap();
    assert_eq!(pair.network.step(), None);
    pair.at_a.sender.flush().unwrap();
    assert_eq!(pair.network.step(), Some(pair.b));
    assert_eq!(polled(&mut pair.at_b), [Event::Message(b"one".to_vec())]);
    assert_eq!(pair.network.now(), Duration::from_micros(5));
}

#[test]
fn frames_of_a_connection_keep_their_order() {
    let faults = Faults { duplicates_per_mille: 0, resets_per_million: 0, slow_per_mille: 300, ..Faults::all() };
    let mut pair = pair(3, faults);
    for imm in 0..500 {
        pair.at_a.sender.write_imm(u64::from(imm), &[imm as u8], imm).unwrap();
    }
    pair.at_a.sender.flush().unwrap();
    let (_, at_b) = run(&mut pair);
    assert_eq!(at_b, (0..500).map(|imm| Event::Written { imm }).collect::<Vec<_>>());
}

#[test]
fn messages_arrive_twice_and_writes_do_not() {
    let mut pair = pair(4, Faults { duplicates_per_mille: 500, ..Faults::none() });
    for imm in 0..100 {
        pair.at_a.sender.write_imm(0, &[1], imm).unwrap();
        pair.at_a.sender.send(&imm.to_le_bytes()).unwrap();
    }
    pair.at_a.sender.flush().unwrap();
    let (_, at_b) = run(&mut pair);
    let written = at_b.iter().filter(|event| matches!(event, Event::Written { .. })).count();
    assert_eq!(written, 100);
    let messages = at_b.len() - written;
    assert!(messages > 120, "{messages}");
}

#[test]
fn a_partition_holds_frames_and_then_loses_the_connection() {
    let mut pair = pair(5, Faults::none());
    pair.network.cut_one_way(pair.a, pair.b);
    pair.at_a.sender.write_imm(0, &[1; 8], 1).unwrap();
    pair.at_a.sender.flush().unwrap();
    assert_eq!(pair.network.step_until(Duration::from_millis(40)), None);
    pair.network.heal(pair.a, pair.b);
    assert_eq!(pair.network.step_until(Duration::from_millis(41)), Some(pair.b));
    assert_eq!(polled(&mut pair.at_b), [Event::Written { imm: 1 }]);

    pair.network.cut_one_way(pair.a, pair.b);
    pair.at_a.sender.write_imm(0, &[2; 8], 2).unwrap();
    pair.at_a.sender.flush().unwrap();
    let (at_a, at_b) = run(&mut pair);
    assert!(is_lost(&at_a[0]) && is_lost(&at_b[0]), "{at_a:?} {at_b:?}");
    assert!(matches!(pair.at_a.sender.flush(), Err(Error::Closed { .. })));
    assert!(matches!(pair.at_a.receiver.poll(Duration::ZERO), Err(Error::Closed { .. })));
    assert!(matches!(pair.network.connect(pair.a, pair.b, None, None), Err(Error::Unreachable { .. })));
}

/// Whether some history has an old connection's write arrive after a newer connection's.
#[test]
fn an_old_connection_may_deliver_beside_a_newer_one() {
    let seen = (0..50).filter(|&seed| {
        let mut pair =
            pair(seed, Faults { stale_per_mille: 500, slow_max: Duration::from_millis(5), ..Faults::none() });
        pair.at_a.sender.write_imm(0, &[1; 8], 1).unwrap();
        pair.at_a.sender.flush().unwrap();
        pair.network.reset(pair.a, pair.b);
        let (mut a2, mut b2) = pair.network.connect(pair.a, pair.b, Some(pair.window.clone()), None).unwrap();
        b2.access.set(Rights::Write);
        a2.sender.write_imm(0, &[2; 8], 2).unwrap();
        a2.sender.flush().unwrap();
        let (_, old) = run(&mut pair);
        assert!(is_lost(old.last().unwrap()), "{old:?}");
        assert_eq!(polled(&mut b2), [Event::Written { imm: 2 }]);
        contents(&pair.window)[0] == 1
    });
    let seen = seen.count();
    assert!((1..50).contains(&seen), "{seen}");
}

/// What is left of a write of ones when the writer, or the target, stops in it: in words, and in many different ways.
#[test]
fn a_write_that_is_cut_off_arrives_in_words() {
    for target in [false, true] {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut pair = pair(seed, Faults::all());
            pair.at_a.sender.write_imm(4, &[0xff; 200], 1).unwrap();
            pair.at_a.sender.flush().unwrap();
            pair.network.crash(if target { pair.b } else { pair.a });
            let (_, at_b) = run(&mut pair);
            let bytes = contents(&pair.window);
            assert!(bytes[..4].iter().chain(&bytes[204..]).all(|&byte| byte == 0));
            for word in bytes[8..200].chunks(8) {
                assert!(word.iter().all(|byte| byte == &word[0]), "seed {seed}: half a word");
            }
            let ones = bytes.iter().filter(|&&byte| byte == 0xff).count();
            if at_b.contains(&Event::Written { imm: 1 }) {
                assert_eq!(ones, 200, "seed {seed}");
            }
            kinds.insert(ones);
        }
        assert!(kinds.len() > 20 && kinds.contains(&0), "{kinds:?}");
    }
}

#[test]
fn nothing_is_written_once_access_is_taken_away() {
    let mut torn = 0;
    for seed in 0..200 {
        let mut pair = pair(seed, Faults::all());
        for imm in 0..4 {
            pair.at_a.sender.write_imm(u64::from(imm) * 64, &[0xff; 64], imm).unwrap();
        }
        pair.at_a.sender.flush().unwrap();
        pair.network.step();
        pair.at_b.access.set(Rights::None);
        let then = contents(&pair.window);
        torn += usize::from(then[64..].iter().any(|&byte| byte != 0));
        let (_, at_b) = run(&mut pair);
        pair.network.crash(pair.b);
        assert_eq!(then, contents(&pair.window), "seed {seed}");
        assert!(matches!(at_b.last(), Some(Event::Closed(_))), "{at_b:?}");
    }
    assert!(torn > 50, "{torn}");
}

#[test]
fn a_crashed_node_says_nothing_and_comes_back() {
    let mut pair = pair(9, Faults::all());
    pair.at_a.sender.send(b"lost").unwrap();
    pair.at_a.sender.flush().unwrap();
    pair.network.crash(pair.b);
    let (at_a, at_b) = run(&mut pair);
    assert!(is_lost(&at_a[0]), "{at_a:?}");
    assert_eq!(at_b, []);
    assert!(matches!(pair.at_b.receiver.poll(Duration::ZERO), Err(Error::Closed { .. })));
    assert!(pair.network.connect(pair.a, pair.b, None, None).is_err());
    assert_eq!(Arc::strong_count(&pair.window), 1, "the network lets go of the window");
    pair.network.restart(pair.b);
    pair.network.connect(pair.a, pair.b, None, None).unwrap();
}

#[test]
fn an_end_that_is_not_polled_is_slow() {
    let mut pair = pair(2, Faults { queue_max: 100, ..Faults::none() });
    let mut sent = 0;
    let error = loop {
        pair.at_a.sender.send(&[0; 8]).unwrap();
        match pair.at_a.sender.flush() {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        pair.network.step();
    };
    assert_eq!(sent, 100);
    assert!(matches!(error, Error::Closed { reason: Reason::Slow { .. }, .. }), "{error}");
    let (at_a, at_b) = run(&mut pair);
    assert!(matches!(at_a[..], [Event::Closed(Reason::Slow { .. })]));
    assert!(at_b.len() == 101 && is_lost(&at_b[100]), "{}", at_b.len());
}

/// As many as the name says: a slow simulator shows as a slow test.
#[test]
fn many_events_are_cheap() {
    let mut events = 0;
    for seed in 0..200 {
        let mut pair = pair(seed, Faults { resets_per_million: 0, ..Faults::all() });
        for imm in 0..500 {
            pair.at_a.sender.write_imm(u64::from(imm), &[1; 64], imm).unwrap();
            pair.at_a.sender.flush().unwrap();
            if pair.network.step().is_some() {
                events += polled(&mut pair.at_b).len();
            }
        }
        let (_, at_b) = run(&mut pair);
        events += at_b.len();
    }
    assert_eq!(events, 100_000);
}
