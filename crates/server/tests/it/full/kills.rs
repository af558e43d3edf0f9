//! Several clients fill a server's store with values of any length up to 1 MiB, and empty it; the server is killed in the midst of either. What was acknowledged is
//! there, and can be taken out.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::SeqCst;

use super::{Random, is_full, memory, serve};
use crate::support::{Client, Reply, request};
use crate::witness::Served;

/// In the environment: how long the file may become, and where it is. Then this process is the server.
const PLACE: &str = "CAIRN_SERVER_FULL";
const CLIENTS: u64 = 3;

/// Not a test of its own: the process that the other starts and kills.
#[test]
fn worker() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let (bytes, path) = place.split_once(' ').unwrap();
    let (server, _client) = serve(Path::new(path), bytes.parse().unwrap());
    eprintln!("cairn: redis at {}", server.redis()[0]);
    eprintln!("cairn: serving");
    loop {
        std::thread::park();
    }
}

fn start(path: &Path, bytes: u64) -> Served {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["full::kills::worker", "--exact", "--nocapture", "--test-threads", "1"]);
    Served::start(command.env(PLACE, format!("{bytes} {}", path.display())).stdout(Stdio::null()))
}

/// Kills the server when there have been so many answers.
struct Killer<'s> {
    left: AtomicI64,
    server: Mutex<&'s mut Child>,
}

impl Killer<'_> {
    fn count(&self) {
        if self.left.fetch_sub(1, SeqCst) == 1 {
            self.server.lock().unwrap().kill().unwrap();
        }
    }
}

/// What one client was told: how long its values are, each as it may be.
#[derive(Default)]
struct Model(BTreeMap<String, Vec<Option<usize>>>);

impl Model {
    /// Sends requests of which each sets or deletes keys; returns how many were refused, or none if the server is gone.
    fn ask(
        &mut self,
        client: &mut Client,
        requests: &[(Vec<String>, Option<usize>)],
        killer: &Killer<'_>,
    ) -> Option<u64> {
        for (keys, len) in requests {
            // In doubt until there is an answer.
            keys.iter().for_each(|key| self.0.entry(key.clone()).or_insert_with(|| vec![None]).push(*len));
        }
        let bytes: Vec<u8> = requests.iter().flat_map(|(keys, len)| bytes_of(keys, *len)).collect();
        // It may be killed meanwhile.
        if std::io::Write::write_all(client.0.get_mut(), &bytes).is_err() {
            return None;
        }
        let mut refused = 0;
        for (keys, len) in requests {
            let reply = client.try_reply()?;
            let full = is_full(&reply);
            assert!(full || !matches!(reply, Reply::Error(_)), "{reply:?}");
            assert!(!full || len.is_some(), "{} keys cannot be deleted: {reply:?}", keys.len());
            for key in keys {
                let may = self.0.get_mut(key).unwrap();
                // Replies come in the order of the requests: what this one found, and what it leaves.
                let now = if full { may[0] } else { *len };
                may.splice(..2, [now]);
            }
            refused += u64::from(full);
            killer.count();
        }
        Some(refused)
    }

    fn keys(&self) -> Vec<String> {
        self.0.iter().filter(|(_, may)| may.iter().any(Option::is_some)).map(|(key, _)| key.clone()).collect()
    }

    /// Holds what the server has against it; from then on nothing is in doubt.
    fn check(&mut self, client: &mut Client, when: &str) {
        for (key, may) in &mut self.0 {
            let found = match client.ask(&["GET", key]) {
                Reply::Bulk(value) => {
                    assert!(value.iter().all(|byte| *byte == letter(key)), "{when}: {key} has another's value");
                    Some(value.len())
                }
                Reply::Null => None,
                other => panic!("{when}: {key}: {other:?}"),
            };
            assert!(may.contains(&found), "{when}: {key} is {found:?}, not one of {may:?}");
            *may = vec![found];
        }
    }
}

fn letter(key: &str) -> u8 {
    b'a' + key.bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % 26
}

fn bytes_of(keys: &[String], len: Option<usize>) -> Vec<u8> {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    match len {
        Some(len) => request(&["SET", keys[0], &char::from(letter(keys[0])).to_string().repeat(len)]),
        None => request(&[&["DEL"], &keys[..]].concat()),
    }
}

/// Until nothing more goes in, or the server is gone.
fn fill(model: &mut Model, client: &mut Client, random: &mut Random, me: u64, killer: &Killer<'_>) {
    // Shorter ones once they are refused, and after a while anyway: what overwrites a longer one makes room.
    for longest in (1..=20).rev() {
        for _ in 0..40 {
            let requests: Vec<_> = (0..1 + random.below(12))
                .map(|_| {
                    let low = 1 << random.below(longest);
                    (vec![format!("client{me}:{}", random.below(600))], Some((low + random.below(low)) as usize))
                })
                .collect();
            match model.ask(client, &requests, killer) {
                Some(0) => {}
                Some(_) => break,
                None => return,
            }
        }
    }
}

/// Until nothing is left, or the server is gone.
fn empty(model: &mut Model, client: &mut Client, random: &mut Random, killer: &Killer<'_>) {
    let mut keys = model.keys();
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at as u64 + 1) as usize);
    }
    let most = 1 << random.below(8);
    let mut keys = keys.into_iter().peekable();
    while keys.peek().is_some() {
        let requests: Vec<_> = (0..1 + random.below(4))
            .map(|_| (keys.by_ref().take(1 + random.below(most) as usize).collect::<Vec<_>>(), None))
            .filter(|(keys, _)| !keys.is_empty())
            .collect();
        if model.ask(client, &requests, killer).is_none() {
            return;
        }
    }
}

/// All clients at once; the server is killed when they have had so many answers. Returns whether it was.
fn together(served: &mut Served, models: &mut [Model], seed: u64, answers: i64, fills: bool) -> bool {
    let address = served.address.parse().unwrap();
    let killer = Killer { left: answers.into(), server: Mutex::new(&mut served.child) };
    std::thread::scope(|threads| {
        for (me, model) in models.iter_mut().enumerate() {
            let killer = &killer;
            threads.spawn(move || {
                let mut random = Random(seed ^ ((me as u64 + 1) << 32));
                let mut client = Client::to(address);
                match fills {
                    true => fill(model, &mut client, &mut random, me as u64, killer),
                    false => empty(model, &mut client, &mut random, killer),
                }
            });
        }
    });
    killer.left.load(SeqCst) <= 0
}

fn check(served: &Served, models: &mut [Model], when: &str) {
    let mut client = Client::to(served.address.parse().unwrap());
    models.iter_mut().for_each(|model| model.check(&mut client, when));
}

fn filled_emptied_and_killed(seed: u64, bytes: u64) {
    let mut random = Random(seed);
    let dir = memory();
    let path = dir.path().join("store");
    let mut served = start(&path, bytes);
    let mut models: Vec<Model> = (0..CLIENTS).map(|_| Model::default()).collect();
    let mut kills = 0;
    for round in 0..2 {
        for (fills, to_the_end) in [(true, false), (true, true), (false, false), (false, true)] {
            let when = format!("seed {seed}, round {round}, {bytes} bytes, filling: {fills}");
            let answers = if to_the_end { i64::MAX } else { 1 + random.below(300) as i64 };
            let killed = together(&mut served, &mut models, random.0, answers, fills);
            kills += u64::from(killed);
            if killed || random.below(2) == 0 {
                drop(served);
                served = start(&path, bytes);
            }
            check(&served, &mut models, &when);
        }
        let left: usize = models.iter().map(|model| model.keys().len()).sum();
        assert_eq!(left, 0, "seed {seed}, round {round}: keys are left");
    }
    assert!(kills >= 2, "seed {seed}: {kills} kills");
}

#[test]
fn what_was_acknowledged_before_a_kill_is_there_and_can_be_taken_out() {
    let (seeds, largest) = super::budget();
    for seed in 0..seeds {
        let bytes = (16 << (seed % (u64::from((largest / 16).ilog2()) + 1))) << 20;
        println!("seed {seed}, {bytes} bytes");
        filled_emptied_and_killed(seed, bytes);
    }
}
