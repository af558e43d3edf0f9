//! Ends in two processes: this one listens and has the window, the other connects and plays a script. What cannot be done within one: kill a peer, and the provider
//! shm of libfabric.

use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use fabric::{Connection, Event, MESSAGE_MAX, Memory, Reason, Rights, Violation, Window, tcp};

use crate::tcp::options;

const TIMEOUT: Duration = Duration::from_secs(20);
const SCRIPT: &str = "CAIRN_FABRIC_TEST_SCRIPT";
const LEN: usize = 256 << 10;

#[derive(Clone, Copy)]
enum Backend {
    Tcp,
    #[cfg(feature = "libfabric")]
    Libfabric(&'static str),
}

#[cfg(not(feature = "libfabric"))]
const BACKENDS: [(&str, Backend); 1] = [("tcp", Backend::Tcp)];
#[cfg(feature = "libfabric")]
const BACKENDS: [(&str, Backend); 3] =
    [("tcp", Backend::Tcp), ("libfabric-tcp", Backend::Libfabric("tcp")), ("libfabric-shm", Backend::Libfabric("shm"))];

/// The other process. Does nothing unless it was started by a test of this module.
#[test]
fn peer() {
    let Ok(script) = std::env::var(SCRIPT) else { return };
    let [backend, script, address] = script.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let connection = match BACKENDS.iter().find(|(name, _)| *name == backend).unwrap().1 {
        Backend::Tcp => tcp::connect(address, &options(), None),
        #[cfg(feature = "libfabric")]
        Backend::Libfabric(name) => {
            fabric::libfabric::connect(address, &options(), &fabric::libfabric::Provider::new(name), None)
        }
    };
    let mut connection = connection.unwrap();
    match script {
        "work" => work(&mut connection),
        "hammer" => hammer(&mut connection),
        "trespass" => trespass(&mut connection),
        other => panic!("no script {other}"),
    }
}

/// A process that plays a script, and this end of the connection to it.
struct Peer {
    process: Child,
    connection: Connection,
    window: Arc<Memory>,
}

fn start((name, backend): (&str, Backend), script: &str) -> Peer {
    let window = Arc::new(Memory::new(LEN));
    let run = |address: String| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::peer", "--nocapture"])
            .env(SCRIPT, format!("{name} {script} {address}"))
            .spawn()
            .unwrap()
    };
    let (process, connection) = match backend {
        Backend::Tcp => {
            let mut listener = tcp::Listener::bind("127.0.0.1:0", options(), Some(window.clone())).unwrap();
            (run(listener.address().unwrap().to_string()), listener.accept(TIMEOUT))
        }
        #[cfg(feature = "libfabric")]
        Backend::Libfabric(name) => {
            use fabric::libfabric::{Listener, Provider};
            let window = Some(window.clone() as Arc<dyn Window>);
            let mut listener = Listener::bind("127.0.0.1:0", options(), Provider::new(name), window).unwrap();
            (run(listener.address().unwrap().to_string()), listener.accept(TIMEOUT))
        }
    };
    Peer { process, connection: connection.unwrap().expect("it does not connect"), window }
}

fn next(connection: &mut Connection) -> Event {
    connection.receiver.poll(TIMEOUT).unwrap().expect("nothing comes")
}

fn send(connection: &mut Connection, message: &[u8]) {
    connection.sender.send(message).unwrap();
    connection.sender.flush().unwrap();
}

fn got(window: &Memory, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    window.read(offset, &mut bytes).unwrap();
    bytes
}

fn pattern(seed: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed as usize * 31 + at * 7 + at / 251) as u8).collect()
}

/// Where and how much a round of `work` writes.
fn part(round: u32) -> (u64, usize) {
    (u64::from(round % 3) * 80_000, 1 + (round as usize * 7919) % 70_000)
}

fn work(connection: &mut Connection) {
    assert_eq!(next(connection), Event::Message(b"go".to_vec()));
    for round in 0..300 {
        let (offset, len) = part(round);
        connection.sender.write(offset, &pattern(round, len)).unwrap();
        connection.sender.read(offset, len as u32, round).unwrap();
        connection.sender.write_imm(250_000, &round.to_le_bytes(), round).unwrap();
        send(connection, &pattern(round, if round % 50 == 0 { MESSAGE_MAX } else { round as usize }));
        // The answer, and the other's word that it saw all.
        let mut events = [next(connection), next(connection)];
        events.sort_by_key(|event| matches!(event, Event::Message(_)));
        assert!(events[0] == Event::Read { tag: round, bytes: pattern(round, len) }, "round {round}");
        assert_eq!(events[1], Event::Message(round.to_le_bytes().to_vec()));
    }
    connection.sender.close();
}

/// Write, tell, read and messages of all lengths.
#[test]
fn two_processes_work_together() {
    for backend in BACKENDS {
        let Peer { mut process, mut connection, window } = start(backend, "work");
        connection.access.set(Rights::Write);
        send(&mut connection, b"go");
        for round in 0..300 {
            let (offset, len) = part(round);
            assert_eq!(next(&mut connection), Event::Written { imm: round }, "{}", backend.0);
            assert!(got(&window, offset, len) == pattern(round, len), "{} round {round}", backend.0);
            assert_eq!(got(&window, 250_000, 4), round.to_le_bytes());
            let message = pattern(round, if round % 50 == 0 { MESSAGE_MAX } else { round as usize });
            assert!(next(&mut connection) == Event::Message(message), "{} round {round}", backend.0);
            send(&mut connection, &round.to_le_bytes());
        }
        assert_eq!(next(&mut connection), Event::Closed(Reason::Peer));
        assert!(process.wait().unwrap().success(), "{}", backend.0);
    }
}

/// Writes for ever; ends well if it is told that it may not any more.
fn hammer(connection: &mut Connection) {
    for imm in 0_u32.. {
        let bytes = [imm as u8; 64];
        let done = connection.sender.write_imm(u64::from(imm) % 64 * 64, &bytes, imm);
        if done.and_then(|()| connection.sender.flush()).is_err() {
            break;
        }
    }
    loop {
        if let Event::Closed(reason) = next(connection) {
            assert!(matches!(reason, Reason::Violated(_) | Reason::Revoked), "{reason}");
            return;
        }
    }
}

/// Its end is noticed, what it wrote last may be there in part and is not told, and another may take its place.
#[test]
fn a_killed_peer_is_a_lost_one() {
    for backend in [BACKENDS.as_slice(), &BACKENDS].concat() {
        let Peer { mut process, mut connection, window } = start(backend, "hammer");
        connection.access.set(Rights::Write);
        let mut told = 0;
        let reason = loop {
            match next(&mut connection) {
                Event::Written { imm } => {
                    assert_eq!(imm, told, "{}", backend.0);
                    // A device is writing already what comes next.
                    let byte = got(&window, u64::from(imm) % 64 * 64, 1)[0];
                    assert!(byte.wrapping_sub(imm as u8).is_multiple_of(64), "{}: {byte} for {imm}", backend.0);
                    told += 1;
                    if told == 1000 {
                        process.kill().unwrap();
                    }
                }
                Event::Closed(reason) => break reason,
                other => panic!("{other:?}"),
            }
        };
        assert!(matches!(reason, Reason::Lost { .. }), "{}: {reason}", backend.0);
        assert!(told >= 1000);
        assert!(connection.sender.send(b"are you there?").and_then(|()| connection.sender.flush()).is_err());
        process.wait().unwrap();
        // The provider shm leaves behind what a killed process had.
        let left = format!("{}:", process.id());
        for file in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if file.file_name().to_string_lossy().starts_with(&left) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

/// A peer whose access is taken away while it writes changes nothing any more, and is told.
#[test]
fn access_is_taken_from_another_process() {
    for backend in BACKENDS {
        for round in 0..3 {
            let Peer { mut process, mut connection, window } = start(backend, "hammer");
            connection.access.set(Rights::Write);
            for imm in 0..100 + 50 * round {
                assert_eq!(next(&mut connection), Event::Written { imm });
            }
            connection.access.set(Rights::None);
            let then = got(&window, 0, LEN);
            while !matches!(next(&mut connection), Event::Closed(_)) {}
            assert!(process.wait().unwrap().success(), "{}: it is not told", backend.0);
            assert!(got(&window, 0, LEN) == then, "{}: it was written to", backend.0);
        }
    }
}

fn trespass(connection: &mut Connection) {
    let _ = connection.sender.write(LEN as u64 - 1, b"xx").and_then(|()| connection.sender.flush());
    let beyond = Violation::Bounds { offset: LEN as u64 - 1, len: 2, window: LEN as u64 };
    assert_eq!(next(connection), Event::Closed(Reason::Violated(beyond)));
}

#[test]
fn another_process_is_told_that_it_may_not() {
    for backend in BACKENDS {
        let Peer { mut process, mut connection, .. } = start(backend, "trespass");
        connection.access.set(Rights::Write);
        assert!(matches!(next(&mut connection), Event::Closed(Reason::PeerViolated(_))));
        assert!(process.wait().unwrap().success(), "{}", backend.0);
    }
}
