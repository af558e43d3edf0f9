//! `SLOWLOG`: requests that took long, the last ones. Their time is that of the transaction they ran in, its barrier or sync included, and not that of sockets.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};

use parking_lot::Mutex;

use crate::client::Client;
use crate::clock::now;
use crate::request::Arguments;
use crate::secrets::Secrets;

/// Arguments of a request that are kept, and bytes of each: Redis' own numbers.
const ARGUMENTS: usize = 32;
const BYTES: usize = 128;
/// Requests that are kept, at most.
pub(crate) const LEN_MAX: u64 = 10_000;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    pub(crate) id: u64,
    /// When it had ended, in seconds of Unix time.
    pub(crate) at: u64,
    pub(crate) micros: u64,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) addr: String,
    pub(crate) name: String,
}

/// The log.
#[derive(Debug)]
pub(crate) struct SlowLog {
    /// Microseconds from which on a request is slow; none is if it is negative.
    pub(crate) threshold: AtomicI64,
    /// How many are kept.
    pub(crate) len_max: AtomicU64,
    /// The newest one first, and the id of the next.
    kept: Mutex<(VecDeque<Slow>, u64)>,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self { threshold: AtomicI64::new(10_000), len_max: AtomicU64::new(128), kept: Mutex::default() }
    }
}

impl SlowLog {
    /// Whether what took so many nanoseconds is slow.
    #[inline]
    pub(crate) fn is_slow(&self, nanos: u64) -> bool {
        let threshold = self.threshold.load(Relaxed);
        threshold >= 0 && nanos / 1000 >= threshold as u64
    }

    /// Keeps a request, without [secrets](crate::secrets).
    pub(crate) fn push(&self, nanos: u64, args: &Arguments<'_>, client: &Client) {
        let (secrets, mut arguments): (_, Vec<Vec<u8>>) = (Secrets::of(args), Vec::new());
        for (at, arg) in args.from(0).enumerate() {
            if at == ARGUMENTS - 1 && args.len() > ARGUMENTS {
                arguments.push(format!("... ({} more arguments)", args.len() - at).into_bytes());
                break;
            }
            arguments.push(match arg {
                _ if secrets.has(at) => b"(redacted)".to_vec(),
                long if long.len() > BYTES => {
                    let more = format!("... ({} more bytes)", long.len() - BYTES);
                    [&long[..BYTES], more.as_bytes()].concat()
                }
                short => short.to_vec(),
            });
        }
        let (at, micros, addr) = (now() / 1000, nanos / 1000, client.addr.clone());
        let name = client.state.lock().name.clone();
        let mut kept = self.kept.lock();
        let (all, next) = &mut *kept;
        all.push_front(Slow { id: *next, at, micros, arguments, addr, name });
        *next += 1;
        all.truncate(self.len_max.load(Relaxed) as usize);
    }

    /// So many are not kept, as others come behind them.
    pub(crate) fn pass(&self, count: u64) {
        self.kept.lock().1 += count;
    }

    /// The newest ones, as many as there are.
    pub(crate) fn newest(&self, count: usize) -> Vec<Slow> {
        self.kept.lock().0.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.lock().0.len()
    }

    pub(crate) fn reset(&self) {
        self.kept.lock().0.clear();
    }
}
