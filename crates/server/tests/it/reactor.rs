//! Connections whose requests come together have one transaction, and are strangers to each other nevertheless.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use pmem::DomainChoice;
use server::{Config, Server, Step};

use crate::support::{AtCommit, Client, Reply, Store, WAIT_LIMIT, request, scarce, start, told, until, usual};

/// What the transactions of a server have done, in order.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// This key was set or removed.
    Key(String),
    Commit,
}

/// A server with one thread, which stands still while it sets the key `hold`, so that a test knows what comes together.
struct Holding {
    server: Option<Server>,
    holder: Client,
    entered: Receiver<()>,
    release: Sender<()>,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Looked into where a transaction is about to be committed, and how often there was something.
    watched: Arc<Mutex<Vec<TcpStream>>>,
    early: Arc<AtomicUsize>,
    _dir: tempfile::TempDir,
}

impl Holding {
    /// There is no room for the key `full`, and a request that sets `bug` panics.
    fn start(step: Option<Step>, store: Store) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = pmem::Options::new().domain(DomainChoice::Emulated);
        let engine = store.open(dir.path().join("store"), pool);
        let engine = scarce(engine, Box::new(|key, _, _| key.ends_with(b"full")));
        let ((enter, entered), (release, released)) = (channel(), channel::<()>());
        let (seen, watched, early) =
            (Arc::<Mutex<Vec<Seen>>>::default(), Arc::default(), Arc::<AtomicUsize>::default());
        let (noted, held) = (seen.clone(), Mutex::new((enter, released)));
        let before = Box::new(move |key: &[u8]| {
            noted.lock().unwrap().push(Seen::Key(String::from_utf8_lossy(&key[1..]).into_owned()));
            assert!(!key.ends_with(b"bug"), "a bug that this test has planted");
            if key.ends_with(b"hold") {
                let (enter, released) = &*held.lock().unwrap();
                enter.send(()).unwrap();
                released.recv_timeout(WAIT_LIMIT).unwrap();
            }
        });
        let (noted, sockets, found) = (seen.clone(), Arc::<Mutex<Vec<TcpStream>>>::clone(&watched), early.clone());
        let at_commit: AtCommit = Box::new(move || {
            for socket in &*sockets.lock().unwrap() {
                found.fetch_add(usize::from(socket.peek(&mut [0]).is_ok()), SeqCst);
            }
            noted.lock().unwrap().push(Seen::Commit);
        });
        let engine = told(crate::support::watched(engine, before), at_commit);
        let server = start(step, Config { threads: 1, ..usual() }, engine);
        let holder = Client::to(server.redis()[0]);
        Self { server: Some(server), holder, entered, release, seen, watched, early, _dir: dir }
    }

    /// One that is served already.
    fn client(&self) -> Client {
        let mut client = Client::to(self.server.as_ref().unwrap().redis()[0]);
        assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned()));
        client
    }

    fn clients<const N: usize>(&self) -> [Client; N] {
        std::array::from_fn(|_| self.client())
    }

    /// The thread stands still meanwhile; what it did before is forgotten. It finds all that is sent: a kernel that has
    /// much to do delivers later than `write` returns.
    fn while_held(&mut self, send: impl FnOnce()) {
        self.holder.send(&request(&["SET", "hold", "1"]));
        self.entered.recv_timeout(WAIT_LIMIT).unwrap();
        send();
        let port = self.server.as_ref().unwrap().redis()[0].port();
        until("all that was sent is acknowledged", || unacknowledged(port) == 0);
        self.seen.lock().unwrap().clear();
        self.release.send(()).unwrap();
        assert_eq!(self.holder.reply(), Reply::ok());
    }

    /// The keys of each transaction that was about to be committed; of one that failed, with those of the next.
    fn transactions(&self) -> Vec<Vec<String>> {
        let mut all = vec![Vec::new()];
        for seen in &*self.seen.lock().unwrap() {
            match seen {
                Seen::Key(key) => all.last_mut().unwrap().push(key.clone()),
                Seen::Commit => all.push(Vec::new()),
            }
        }
        all.retain(|keys| !keys.is_empty());
        all
    }

    fn end(mut self) {
        drop(self.holder);
        let server = self.server.take().unwrap();
        server.stop();
        server.join().unwrap();
    }
}

/// Bytes on their way to this port, as Linux' table of TCP sockets has them. A segment is acknowledged behind the event
/// that epoll sees.
fn unacknowledged(port: u16) -> u64 {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let to = format!(":{port:04X}");
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|columns| columns[2].ends_with(&to) && !columns[5].starts_with("04"))
        .map(|columns| u64::from_str_radix(columns[4].split_once(':').unwrap().0, 16).unwrap())
        .sum()
}

fn set(key: &str) -> Vec<u8> {
    request(&["SET", key, "1"])
}

#[test]
fn those_who_come_together_have_one_transaction() {
    for store in Store::ALL {
        let mut holding = Holding::start(None, store);
        let mut clients = holding.clients::<8>();
        holding.while_held(|| {
            for (at, client) in clients.iter_mut().enumerate() {
                client.send(&[set(&format!("a{at}")), set(&format!("b{at}"))].concat());
            }
        });
        clients.iter_mut().for_each(|client| assert_eq!([client.reply(), client.reply()], [Reply::ok(), Reply::ok()]));
        let keys: Vec<String> = (0..8).flat_map(|at| [format!("a{at}"), format!("b{at}")]).collect();
        assert_eq!(holding.transactions(), [keys], "{store:?}");
        // As much as one transaction is to have at most, and a client that has much has one to itself.
        let large: Vec<u8> = (0..40).flat_map(|at| set(&format!("c{at}"))).collect();
        holding.while_held(|| {
            clients[0].send(&large);
            for client in &mut clients[1..] {
                client.send(&set("d").repeat(20));
            }
        });
        (0..40).for_each(|_| assert_eq!(clients[0].reply(), Reply::ok()));
        clients[1..].iter_mut().for_each(|client| (0..20).for_each(|_| assert_eq!(client.reply(), Reply::ok())));
        let sizes: Vec<usize> = holding.transactions().iter().map(Vec::len).collect();
        assert_eq!(sizes, [40, 80, 60], "{store:?}");
        holding.end();
    }
}

/// No client hears anything of a transaction that several have part in before it is committed.
pub fn answered_behind_the_commit(step: Option<Step>) {
    let mut holding = Holding::start(step, Store::Kv);
    let mut clients = holding.clients::<4>();
    for client in &clients {
        client.0.get_ref().set_nonblocking(true).unwrap();
        holding.watched.lock().unwrap().push(client.0.get_ref().try_clone().unwrap());
    }
    holding.while_held(|| {
        for (at, client) in clients.iter_mut().enumerate() {
            client.send(&[set(&format!("k{at}")), request(&["INCR", "n"])].concat());
        }
    });
    // Nothing looks into the sockets any more.
    let last = Seen::Key("k3".to_owned());
    until("all are committed", || {
        let seen = holding.seen.lock().unwrap();
        seen.iter().position(|seen| *seen == last).is_some_and(|at| seen[at..].contains(&Seen::Commit))
    });
    clients.iter().for_each(|client| client.0.get_ref().set_nonblocking(false).unwrap());
    let said: Vec<[Reply; 2]> = clients.iter_mut().map(|client| [client.reply(), client.reply()]).collect();
    assert_eq!(holding.early.load(SeqCst), 0, "it was answered before its transaction was committed");
    for (at, said) in said.into_iter().enumerate() {
        assert_eq!(said, [Reply::ok(), Reply::Int(at as i64 + 1)]);
    }
    assert_eq!(holding.transactions().len(), 1);
    holding.end();
}

#[test]
fn nobody_is_answered_before_the_commit() {
    answered_behind_the_commit(None);
}

#[test]
fn what_fails_fails_alone() {
    for store in Store::ALL {
        let mut holding = Holding::start(None, store);
        let mut clients = holding.clients::<9>();
        assert_eq!(clients[0].say("SET text a"), Reply::ok());
        let long = "k".repeat(70_000);
        let asked = [
            set("a"),
            request(&["INCR", "text"]),
            [set("b"), set("bug"), set("c")].concat(),
            set(&long),
            request(&["NONSENSE"]),
            [set("d"), b"*x\r\n".to_vec()].concat(),
            [set("e"), set("full")].concat(),
            request(&["RPUSH", "text", "x"]),
            set("f"),
        ];
        holding.while_held(|| clients.iter_mut().zip(&asked).for_each(|(client, asked)| client.send(asked)));
        let ok = "+OK";
        let expected: [&[&str]; 9] = [
            &[ok],
            &["ERR value is not an integer"],
            &[ok, "ERR internal error", ok],
            &["ERR the key is longer than"],
            &["ERR unknown command"],
            &[ok, "ERR Protocol error"],
            &[ok, "MISCONF"],
            &["WRONGTYPE"],
            &[ok],
        ];
        for (client, expected) in clients.iter_mut().zip(expected) {
            for expected in expected {
                let said = client.reply();
                let fits = if *expected == ok { said == Reply::ok() } else { said.error().starts_with(expected) };
                assert!(fits, "{store:?}: {said:?} for {expected}");
            }
        }
        assert!(clients[5].has_ended());
        let mut other = holding.client();
        assert_eq!(other.say("EXISTS a b c d e f"), Reply::Int(6), "{store:?}");
        assert_eq!(other.say("EXISTS bug full"), Reply::Int(0), "{store:?}");
        drop((clients, other));
        holding.end();
    }
}

#[test]
fn who_does_not_take_his_replies_keeps_nobody_waiting() {
    let mut holding = Holding::start(None, Store::Kv);
    let [mut one, mut many, mut other] = holding.clients();
    let value = "v".repeat(6 << 20);
    assert_eq!(other.ask(&["SET", "large", &value]), Reply::ok());
    holding.while_held(|| {
        one.send(&request(&["GET", "large"]));
        many.send(&[request(&["GET", "large"]).repeat(6), set("behind")].concat());
        other.send(&request(&["GET", "hold"]));
    });
    assert_eq!(other.reply(), Reply::text("1"));
    (1..=20).for_each(|n| assert_eq!(other.say("INCR n"), Reply::Int(n)));
    assert_eq!(other.say("EXISTS behind"), Reply::Int(0), "its turn comes when the replies before it are taken");
    assert_eq!(one.reply(), Reply::text(&value));
    (0..6).for_each(|_| assert_eq!(many.reply(), Reply::text(&value)));
    assert_eq!(many.reply(), Reply::ok());
    // Both have their transaction slots again.
    holding.while_held(|| {
        one.send(&set("x"));
        many.send(&set("y"));
    });
    assert_eq!([one.reply(), many.reply()], [Reply::ok(), Reply::ok()]);
    assert_eq!(holding.transactions(), [["x", "y"]]);
    drop((one, many, other));
    holding.end();
}

#[test]
fn who_is_killed_or_gone_takes_nobody_along() {
    for store in Store::ALL {
        let mut holding = Holding::start(None, store);
        let [mut victim, gone, mut half, mut killer, mut other] = holding.clients();
        let Reply::Int(id) = victim.say("CLIENT ID") else { panic!("no id") };
        let mut leaving = Some(gone);
        holding.while_held(|| {
            victim.send(&[set("victim"), request(&["GET", "victim"])].concat());
            leaving.as_mut().unwrap().send(&set("gone"));
            leaving = None;
            half.send(&set("half"));
            half.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
            killer.send(&request(&["CLIENT", "KILL", "ID", &id.to_string()]));
            other.send(&set("other"));
        });
        assert_eq!([killer.reply(), other.reply(), half.reply()], [Reply::Int(1), Reply::ok(), Reply::ok()]);
        assert!(half.has_ended());
        // What it had asked for was under way.
        assert_eq!([victim.reply(), victim.reply()], [Reply::ok(), Reply::text("1")]);
        assert!(victim.has_ended());
        assert_eq!(other.say("EXISTS victim gone half other"), Reply::Int(4), "{store:?}");
        until("only three are left", || {
            let Reply::Bulk(text) = other.say("INFO clients") else { panic!("no text") };
            String::from_utf8_lossy(&text).contains("connected_clients:3\r\n")
        });
        // Their transaction slots are others'.
        let mut new = holding.clients::<3>();
        holding.while_held(|| new.iter_mut().for_each(|client| client.send(&set("new"))));
        new.iter_mut().for_each(|client| assert_eq!(client.reply(), Reply::ok()));
        drop((killer, other, new));
        holding.end();
    }
}

#[test]
fn who_sends_much_does_not_keep_others_waiting() {
    let mut holding = Holding::start(None, Store::Kv);
    let [mut greedy, mut other] = holding.clients();
    // Less than what a socket takes while it is not read.
    let much: Vec<u8> = (0..1300).flat_map(|at| set(&format!("g{at}"))).collect();
    holding.while_held(|| {
        greedy.send(&much);
        other.send(&set("other"));
    });
    assert_eq!(other.reply(), Reply::ok());
    (0..1300).for_each(|_| assert_eq!(greedy.reply(), Reply::ok()));
    let keys: Vec<String> = holding.transactions().concat();
    let place = keys.iter().position(|key| key == "other").unwrap();
    assert!(place <= 2 * 256, "{place} requests of another one came first");
    drop((greedy, other));
    holding.end();
}

#[test]
fn any_pieces_of_any_requests_are_answered_as_if_everybody_were_alone() {
    let rounds: u64 = std::env::var("CAIRN_REACTOR_ROUNDS").map_or(3, |text| text.parse().unwrap());
    for seed in 1..=rounds {
        pieces(seed);
    }
}

/// What a client sends, and what it is to hear.
#[derive(Default)]
struct Script {
    asked: Vec<u8>,
    expected: Vec<u8>,
}

impl Script {
    fn add(&mut self, words: &[&str], expected: &[u8]) {
        self.asked.extend(request(words));
        self.expected.extend(expected);
    }
}

fn pieces(seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let holding = Holding::start(None, if seed.is_multiple_of(2) { Store::Tree } else { Store::Kv });
    let scripts: Vec<Script> = (0..6).map(|who| script(who, &mut draw)).collect();
    let clients: Vec<TcpStream> = scripts.iter().map(|_| holding.client().0.into_inner()).collect();
    let mut sent = vec![0; clients.len()];
    std::thread::scope(|threads| {
        for (at, (mut client, script)) in clients.iter().zip(&scripts).enumerate() {
            threads.spawn(move || {
                let mut said = vec![0; script.expected.len()];
                let read = client.read_exact(&mut said);
                let same = said.iter().zip(&script.expected).take_while(|(one, other)| one == other).count();
                let text = said[same.saturating_sub(40)..said.len().min(same + 80)].escape_ascii();
                assert!(same == said.len(), "seed {seed}, client {at}, byte {same}, {read:?}: {text}");
            });
        }
        while (0..clients.len()).any(|at| sent[at] < scripts[at].asked.len()) {
            let at = draw(clients.len() as u64) as usize;
            let rest = &scripts[at].asked[sent[at]..];
            let most = [1, 30, 400, 5000][draw(4) as usize];
            let piece = &rest[..rest.len().min(1 + draw(most) as usize)];
            (&clients[at]).write_all(piece).unwrap();
            sent[at] += piece.len();
        }
    });
    drop(clients);
    holding.end();
}

/// Requests on keys that no other client uses, with their replies.
fn script(who: usize, draw: &mut impl FnMut(u64) -> u64) -> Script {
    let mut script = Script::default();
    let mut values = vec![None::<String>; 4];
    let (mut count, mut waiting) = (0, 0);
    let bulk = |value: &Option<String>| {
        value.as_ref().map_or_else(|| "$-1\r\n".to_owned(), |value| format!("${}\r\n{value}\r\n", value.len()))
    };
    for _ in 0..250 {
        let at = draw(4) as usize;
        let key = format!("{who}-{at}");
        match draw(14) {
            0..=3 => {
                let len = [3, 100, 3000, 70_000][(draw(40) / 13) as usize] as usize;
                let value = char::from(b'a' + draw(26) as u8).to_string().repeat(len);
                script.add(&["SET", &key, &value], b"+OK\r\n");
                values[at] = Some(value);
            }
            4..=7 => script.add(&["GET", &key], bulk(&values[at]).as_bytes()),
            8 => {
                count += 1;
                script.add(&["INCR", &format!("{who}-n")], format!(":{count}\r\n").as_bytes());
            }
            9 => script.add(&["PING"], b"+PONG\r\n"),
            10 => {
                let had = i64::from(values[at].take().is_some());
                script.add(&["DEL", &key], format!(":{had}\r\n").as_bytes());
            }
            11 => {
                count += 1;
                let key = format!("{who}-n");
                script.add(&["WATCH", &key], b"+OK\r\n");
                script.add(&["MULTI"], b"+OK\r\n");
                script.add(&["INCR", &key], b"+QUEUED\r\n");
                script.add(&["EXEC"], format!("*1\r\n:{count}\r\n").as_bytes());
            }
            12 => script.add(&["LPOP", &key, "x", "y"], b"-ERR wrong number of arguments for 'lpop' command\r\n"),
            _ => {
                // It waits, or finds what is there.
                let list = format!("{who}-list");
                if waiting > 0 {
                    waiting -= 1;
                    let found = format!("*2\r\n${}\r\n{list}\r\n$1\r\nx\r\n", list.len());
                    script.add(&["BLPOP", &list, "0"], found.as_bytes());
                } else {
                    script.add(&["BLPOP", &list, "0.001"], b"*-1\r\n");
                    waiting += 1;
                    script.add(&["RPUSH", &list, "x"], b":1\r\n");
                }
            }
        }
    }
    script
}
