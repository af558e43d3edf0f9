//! What MemcacheDB is: memcached's protocol over a store that lasts, here over several. A thread for each connection, which asks and waits.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heap::Policy;
use pmem::Stats;

use super::Setting;
use crate::engines::{AnyStore, Contestant, Made, Room, Structure};
use crate::experiments::memcached::{Load, Test, fill, run};
use crate::kv_sides::{KvRoom, KvSide, Peer, StoreKind};
use crate::target::{Found, Store};
use crate::{Batch, Error, Result, Row, Side, Watch, machine, run_watched};

const VALUE_BYTES: usize = 1024;
/// The client's keys: `key:` and a number.
const KEY_BYTES: usize = 16;

/// By clients.
pub(super) fn measure(setting: &Setting, watch: &dyn Watch, row: &Row) -> Result<Vec<Row>> {
    let clients = setting.cases(&[1, 2, 4, 8, 16], &[1, 2]);
    let keys: u64 = if setting.quick { 2000 } else { 50_000 };
    let failed = |source| Error::Io { op: "make a temporary directory", path: setting.dir.clone(), source };
    let folder = tempfile::Builder::new().prefix("cairn-bench-").tempdir_in(&setting.dir).map_err(failed)?;
    let bytes = keys * (VALUE_BYTES + KEY_BYTES) as u64;
    let most = clients.iter().copied().max().unwrap_or(1) + 2;
    let room = Room { bytes: 2 * bytes, stored: bytes, blocks: 2 * keys, threads: most };

    let policies = [Policy::None, Policy::Eaw, Policy::Undo].map(Contestant::Heap);
    let heaps = policies.map(|who| Ok((who.name(), Made::new(who, folder.path(), room)?.map_err(Error::Parameter)?)));
    let heaps = heaps.into_iter().collect::<Result<Vec<_>>>()?;
    let mut stores: Vec<(&str, Box<dyn Stored + '_>)> = vec![("dram", Box::new(Dram::new()))];
    for (name, made) in &heaps {
        let any = made.store(Structure::HashMap, keys, KEY_BYTES)?;
        let AnyStore::HeapHash(map) = any else { return Err(Error::Parameter("no hash table".into())) };
        stores.push((name, Box::new(OnHeap { made, map })));
    }
    let room = KvRoom { pairs: keys, key_bytes: KEY_BYTES, value_bytes: VALUE_BYTES as u32, sessions: most };
    if let Ok(side) = StoreKind::Peer(Peer::BerkeleyDb).open(&folder.path().join("bdb"), room)? {
        stores.push(("bdb", Box::new(Other(side))));
    }

    watch.begin("memcachedb", (clients.len() * setting.plan.rounds()) as u64);
    std::thread::scope(|scope| {
        let mut ports = Vec::new();
        let mut servers = Vec::new();
        for (name, store) in &stores {
            let server = Server::start(scope, &**store)?;
            fill(server.port, &load(keys, 1, 0, 0))?;
            ports.push((*name, server.port, store));
            servers.push(server);
        }
        let mut rows = Vec::new();
        for clients in &clients {
            let row = Row { medium: machine::medium(&setting.dir), ..row.clone().threads(*clients) };
            let sides = ports.iter().map(|(name, port, store)| {
                let row = Row { engine: (*name).into(), ..row.clone() };
                let (mut round, port, clients) = (0, *port, *clients);
                Side::new(row, move |batch| {
                    round += 1;
                    let before = store.stats();
                    let done = run(port, Test::Half, &load(keys, clients, batch, round))?;
                    let counts = store.stats().zip(before).map(|(after, before)| after - before);
                    Ok(Batch { time: done.time, ops: Some(done.requests), counts, ..Batch::default() })
                })
            });
            rows.extend(run_watched(&setting.plan, sides.collect(), Some(0), watch)?);
        }
        Ok(rows)
    })
}

fn load(keys: u64, connections: usize, requests: u64, seed: u64) -> Load {
    Load { connections, pipeline: 1, requests, keys, value_bytes: VALUE_BYTES, threads: 1, seed }
}

/// What is served.
trait Stored: Sync {
    /// For one connection.
    fn session(&self) -> Result<Box<dyn Store + '_>>;

    fn stats(&self) -> Option<Stats> {
        None
    }
}

struct OnHeap<'a, S> {
    made: &'a Made,
    map: S,
}

impl<S: Store + Clone + Sync> Stored for OnHeap<'_, S> {
    fn session(&self) -> Result<Box<dyn Store + '_>> {
        Ok(Box::new(self.map.clone()))
    }

    fn stats(&self) -> Option<Stats> {
        Some(self.made.pool()?.stats())
    }
}

/// Another system's.
struct Other(Box<dyn KvSide>);

impl Stored for Other {
    fn session(&self) -> Result<Box<dyn Store + '_>> {
        Ok(Box::new(self.0.session()?))
    }
}

type Items = HashMap<Vec<u8>, Vec<u8>>;

/// Nothing lasts.
struct Dram([Mutex<Items>; 64]);

impl Dram {
    fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Items> {
        let at = xxhash_rust::xxh3::xxh3_64(key) as usize % self.0.len();
        self.0[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stored for Dram {
    fn session(&self) -> Result<Box<dyn Store + '_>> {
        Ok(Box::new(self))
    }
}

impl Store for &Dram {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Found> {
        let shard = self.shard(key);
        let Some(value) = shard.get(key) else { return Ok(Found::default()) };
        let len = value.len().min(out.len());
        out[..len].copy_from_slice(&value[..len]);
        Ok(Found { pairs: 1, aborts: 0 })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Found> {
        let mut shard = self.shard(key);
        match shard.get_mut(key) {
            Some(old) => value.clone_into(old),
            None => drop(shard.insert(key.to_vec(), value.to_vec())),
        }
        Ok(Found { pairs: 1, aborts: 0 })
    }

    fn read_modify_write(&mut self, key: &[u8], out: &mut [u8], value: &[u8]) -> Result<Found> {
        self.get(key, out)?;
        self.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<Found> {
        let pairs = self.shard(key).remove(key).is_some().into();
        Ok(Found { pairs, aborts: 0 })
    }

    fn scan(&mut self, _: &[u8], _: usize, _: &mut [u8]) -> Result<Found> {
        Err(Error::Parameter("a hash table has no order".into()))
    }
}

/// Listens; dropped, it takes no more connections.
struct Server {
    port: u16,
    stop: Arc<AtomicBool>,
}

impl Server {
    fn start<'scope, 'env>(scope: &'scope std::thread::Scope<'scope, 'env>, store: &'env dyn Stored) -> Result<Self> {
        let failed = |source| Error::Io { op: "listen", path: "127.0.0.1".into(), source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        scope.spawn(move || {
            for stream in listener.incoming().map_while(std::io::Result::ok) {
                if stopped.load(SeqCst) {
                    return;
                }
                // Whatever is wrong with it: the client sees that it ends.
                scope.spawn(move || drop(serve(stream, store)));
            }
        });
        Ok(Self { port, stop })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))); // so that it looks
    }
}

fn serve(mut stream: TcpStream, store: &dyn Stored) -> Result<()> {
    let failed = |source| Error::Io { op: "serve", path: "127.0.0.1".into(), source };
    stream.set_nodelay(true).map_err(failed)?;
    let mut session = store.session()?;
    let (mut input, mut out, mut value) = (Vec::new(), Vec::new(), vec![0; VALUE_BYTES]);
    let mut some = [0; 16 << 10];
    loop {
        let mut from = 0;
        while let Some((request, len)) = Request::parse(&input[from..])? {
            match request {
                Request::Get(key) => {
                    if session.get(key, &mut value)?.pairs > 0 {
                        out.extend_from_slice(&[b"VALUE ", key, b" 0 "].concat());
                        out.extend_from_slice(format!("{VALUE_BYTES}\r\n").as_bytes());
                        out.extend_from_slice(&value);
                        out.extend_from_slice(b"\r\n");
                    }
                    out.extend_from_slice(b"END\r\n");
                }
                Request::Set(key, value) => {
                    session.put(key, value)?;
                    out.extend_from_slice(b"STORED\r\n");
                }
            }
            from += len;
        }
        input.drain(..from);
        stream.write_all(&out).map_err(failed)?;
        out.clear();
        match stream.read(&mut some).map_err(failed)? {
            0 => return Ok(()),
            count => input.extend_from_slice(&some[..count]),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Request<'a> {
    Get(&'a [u8]),
    Set(&'a [u8], &'a [u8]),
}

impl<'a> Request<'a> {
    /// The first one, if it is whole, and its length.
    fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>> {
        let wrong = || Error::Wrong { who: "a client".into(), what: "neither `get` nor `set`".into() };
        let Some(line) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        let (head, rest) = (&bytes[..line], &bytes[line + 2..]);
        let mut words = head.split(|byte| *byte == b' ');
        match (words.next(), words.next()) {
            (Some(b"get"), Some(key)) => Ok(Some((Self::Get(key), line + 2))),
            (Some(b"set"), Some(key)) => {
                let len = words.nth(2).and_then(|len| std::str::from_utf8(len).ok()?.parse::<usize>().ok());
                let len = len.filter(|len| *len <= VALUE_BYTES).ok_or_else(wrong)?;
                let Some(value) = rest.get(..len + 2) else { return Ok(None) };
                Ok(Some((Self::Set(key, &value[..len]), line + 2 + len + 2)))
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed_when_they_are_whole() {
        let bytes = b"set key 0 0 3\r\nabc\r\nget key\r\n";
        for cut in 0..20 {
            assert_eq!(Request::parse(&bytes[..cut]).unwrap(), None);
        }
        assert_eq!(Request::parse(bytes).unwrap(), Some((Request::Set(b"key", b"abc"), 20)));
        assert_eq!(Request::parse(&bytes[20..]).unwrap(), Some((Request::Get(b"key"), 9)));
        assert!(Request::parse(b"set key 0 0 99999999999\r\n").is_err());
        assert!(Request::parse(b"quit\r\n").is_err());
    }
}
