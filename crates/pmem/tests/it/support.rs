//! What several test modules share: folders for pools, memory that plays a medium, children that are this test binary.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pmem::sim::{Medium, Site};
use pmem::{DomainChoice, Options};
use tempfile::TempDir;

const PAGE: u64 = 4096;

/// A directory in memory if there is one: pools in it are emulated.
pub fn memory() -> TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap()
}

/// A directory on the disk that the build is on.
pub fn disk() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Options of an emulated pool, wherever it is.
pub fn emulated(size: u64) -> Options {
    Options::new().size(size).domain(DomainChoice::Emulated)
}

/// Options of a synced pool, wherever it is.
pub fn synced(size: u64) -> Options {
    Options::new().size(size).domain(DomainChoice::File)
}

/// The error, and its message holds all of these parts.
#[track_caller]
pub fn fails<T>(result: pmem::Result<T>, parts: &[&str]) -> pmem::Error {
    let Err(error) = result else { panic!("expected an error saying {parts:?}") };
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    error
}

/// Numbers that one seed reproduces (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.word() % n
    }
}

/// Memory as a medium: everything stored stays; counts what is asked of it.
pub struct Ram {
    base: NonNull<u8>,
    capacity: u64,
    len: AtomicU64,
    /// Bytes of all accesses.
    accessed: AtomicU64,
    /// A page that cannot be read until it is replaced, or none.
    lost: AtomicU64,
}

const NONE: u64 = u64::MAX;

// SAFETY: memory of the whole process; this type touches it in `peek` and `poke` only, which tests call while no pool is open.
unsafe impl Send for Ram {}
// SAFETY: as above.
unsafe impl Sync for Ram {}

impl Ram {
    /// `capacity` zero bytes, of which the file has none yet.
    pub fn new(capacity: u64) -> Arc<Self> {
        let words: Box<[[u64; 512]]> = vec![[0; 512]; (capacity / PAGE) as usize + 1].into_boxed_slice();
        let start = Box::leak(words).as_mut_ptr().cast::<u8>();
        // Aligned by leaking one page too much: tests are short.
        let aligned = start.wrapping_add(start.align_offset(PAGE as usize));
        let base = NonNull::new(aligned).unwrap();
        let (len, accessed) = Default::default();
        Arc::new(Self { base, capacity, len, accessed, lost: NONE.into() })
    }

    /// As [`new`](Self::new), of addresses only: memory comes with the first store to a page. Never given back.
    pub fn sparse(capacity: u64) -> Arc<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new memory at an address of the kernel's choice.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), capacity as usize, protection, MapFlags::PRIVATE | MapFlags::NORESERVE)
        };
        let base = NonNull::new(base.unwrap().cast()).unwrap();
        let (len, accessed) = Default::default();
        Arc::new(Self { base, capacity, len, accessed, lost: NONE.into() })
    }

    /// What is stored at `at`. No pool is open.
    pub fn peek(&self, at: u64, len: usize) -> Vec<u8> {
        assert!(at + len as u64 <= self.capacity);
        // SAFETY: inside the allocation; no pool is open.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at as usize), len) }.to_vec()
    }

    /// Stores behind the pool's back. No pool is open.
    pub fn poke(&self, at: u64, bytes: &[u8]) {
        assert!(at + bytes.len() as u64 <= self.capacity);
        // SAFETY: inside the allocation; no pool is open.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at as usize), bytes.len()) }
            .copy_from_slice(bytes);
    }

    /// Changes one bit. No pool is open.
    pub fn flip(&self, at: u64, bit: u32) {
        let byte = self.peek(at, 1)[0];
        self.poke(at, &[byte ^ 1 << bit]);
    }

    /// From here on the page at `at` cannot be read, nor stored to.
    pub fn lose(&self, at: u64) {
        self.poke(at, &[0xee; PAGE as usize]);
        self.lost.store(at, Relaxed);
    }

    /// All bytes. No pool is open.
    pub fn image(&self) -> Vec<u8> {
        self.peek(0, self.len() as usize)
    }

    /// The whole medium becomes `image`.
    pub fn restore(&self, image: &[u8]) {
        self.poke(0, image);
        self.len.store(image.len() as u64, Relaxed);
    }

    /// Bytes of all checked accesses so far.
    pub fn accessed(&self) -> u64 {
        self.accessed.load(Relaxed)
    }
}

// SAFETY: `base` never changes and is aligned to a page; `capacity` bytes from there are initialised and leaked, and borrowed
// by the one open pool alone.
unsafe impl Medium for Ram {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    fn set_len(&self, len: u64, _site: Site) -> io::Result<()> {
        if len > self.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.len.store(len, Relaxed);
        Ok(())
    }

    fn access(&self, offset: u64, len: u64, _write: bool) -> io::Result<()> {
        self.accessed.fetch_add(len, Relaxed);
        let lost = self.lost.load(Relaxed);
        if lost != NONE && offset < lost + PAGE && lost < offset + len {
            return Err(io::Error::other("a lost page"));
        }
        Ok(())
    }

    fn replace(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.lost.load(Relaxed) == offset && len == PAGE {
            self.lost.store(NONE, Relaxed);
            self.poke(offset, &[0; PAGE as usize]);
        }
        Ok(())
    }

    fn flush(&self, _offset: u64, _len: u64, _site: Site) {}

    fn drain(&self, _site: Site) -> io::Result<()> {
        Ok(())
    }
}

const ROLE: &str = "PMEM_TEST_ROLE";
const DIR: &str = "PMEM_TEST_DIR";

/// This test binary as another process: runs the test called `entry` alone, in which [`role`] then answers.
pub fn child(entry: &str, role: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", entry, "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(DIR, dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// What this process is to do, if it is a child.
pub fn role() -> Option<(String, std::path::PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(DIR)?.into()))
}

/// Waits until the child says `word` on a line of its own.
pub fn await_word(child: &mut Child, word: &str) {
    use io::BufRead;
    let out = io::BufReader::new(child.stdout.as_mut().unwrap());
    let found = out.lines().map_while(Result::ok).any(|line| line.trim_end().ends_with(word));
    assert!(found, "the child ended without saying {word:?}");
}

/// Runs the child to its end and returns what it printed.
#[track_caller]
pub fn succeed(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

/// What the child printed, which runs with a tmpfs of 20 MiB mounted on `dir` that no other process sees. None if none may be mounted here: only root may.
#[track_caller]
pub fn in_20_mib(mut command: Command, dir: &Path) -> Option<String> {
    use std::os::unix::process::CommandExt;
    let dir = std::ffi::CString::new(dir.to_str().unwrap()).unwrap();
    let mount_small = move || {
        let refused = |result: i32| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        let null = std::ptr::null();
        // SAFETY: system calls with strings that end in zero, in a process of one thread that is about to become another.
        unsafe {
            refused(libc::unshare(libc::CLONE_NEWNS))?;
            refused(libc::mount(null, c"/".as_ptr(), null, libc::MS_REC | libc::MS_PRIVATE, null.cast()))?;
            refused(libc::mount(c"t".as_ptr(), dir.as_ptr(), c"tmpfs".as_ptr(), 0, c"size=20m".as_ptr().cast()))
        }
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(mount_small) };
    match command.output() {
        Err(error) => {
            println!("skipped: cannot mount a small file system here: {error}");
            None
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
            Some(text)
        }
    }
}
