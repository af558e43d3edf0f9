//! Procedures whose calls are logged, most of which do something else when they are run twice.

use pmem::PPtr;
use tx::{Error, Procedure, Result, Transaction};

/// What they are called with: two objects, and a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Args {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) word: u8,
}

impl Args {
    // The pool is so small that 32 bits are enough, and a record of a call has one line.
    fn encode(self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&(self.from as u32).to_le_bytes());
        out.extend_from_slice(&(self.to as u32).to_le_bytes());
        out.push(self.word);
        true
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let number = |at: usize| Some(u64::from(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)));
        let args = || Some(Self { from: number(0)?, to: number(4)?, word: *bytes.get(8)? });
        args().ok_or(Error::Aborted { reason: "no arguments".into() })
    }
}

/// What becomes of an object's bytes by those of another one.
pub(super) fn mixed(bytes: &mut [u8], from: &[u8], word: u8) {
    let sum = from.iter().fold(word, |sum, byte| sum.wrapping_add(*byte));
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = byte.wrapping_mul(3).wrapping_add(sum).wrapping_add(n as u8);
    }
}

fn ptr(tx: &impl Transaction, at: u64) -> PPtr<u8> {
    PPtr::new(tx.root_cell().tag(), at)
}

macro_rules! procedure {
    ($(#[$what:meta])* $name:ident = $text:literal, $run:path) => {
        $(#[$what])*
        pub(super) struct $name;

        impl Procedure for $name {
            const NAME: &'static str = $text;
            type Args = Args;
            /// Where the object is that it has made.
            type Output = Option<u64>;

            fn run<X: Transaction>(tx: &mut X, args: &Args) -> Result<Option<u64>> {
                $run(tx, *args)
            }

            fn encode(args: &Args, out: &mut Vec<u8>) -> bool {
                args.encode(out)
            }

            fn replay<X: Transaction>(tx: &mut X, args: &[u8]) -> Result<()> {
                $run(tx, Args::decode(args)?).map(drop)
            }
        }
    };
}

procedure! {
    /// Mixes one object into another.
    Mix = "mix", mix
}
procedure! {
    /// Fills one with the word: what was there before may come back.
    Fill = "fill", fill
}
procedure! {
    /// Makes an object of the same size, of what another one holds.
    Spawn = "spawn", spawn
}
procedure! {
    /// ... and frees that.
    Replace = "replace", replace
}

fn mix<X: Transaction>(tx: &mut X, args: Args) -> Result<Option<u64>> {
    let from = tx.rest(ptr(tx, args.from))?.to_vec();
    let to = ptr(tx, args.to);
    let len = tx.room(to)?;
    mixed(tx.bytes_mut(to, len)?, &from, args.word);
    Ok(None)
}

fn fill<X: Transaction>(tx: &mut X, args: Args) -> Result<Option<u64>> {
    let to = ptr(tx, args.to);
    let len = tx.room(to)?;
    tx.bytes_mut(to, len)?.fill(args.word);
    Ok(None)
}

fn spawn<X: Transaction>(tx: &mut X, args: Args) -> Result<Option<u64>> {
    let from = tx.rest(ptr(tx, args.from))?.to_vec();
    let made = tx.alloc_bytes(from.len() as u64, 8)?;
    let len = tx.room(made)?;
    mixed(tx.bytes_mut(made, len)?, &from, args.word);
    Ok(Some(made.offset()))
}

fn replace<X: Transaction>(tx: &mut X, args: Args) -> Result<Option<u64>> {
    let made = spawn(tx, args)?;
    tx.free_bytes(ptr(tx, args.from))?;
    Ok(made)
}
