//! Pools on block devices: loop devices, where this system lets us have them.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use pmem::{Domain, Error, Options};

use crate::support::fails;

/// A file as a block device, while this lives.
struct Loop {
    dir: tempfile::TempDir,
    device: PathBuf,
}

impl Loop {
    fn new(bytes: u64) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = dir.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(bytes)).map_err(|error| error.to_string())?;
        let said = run("losetup", &["--find", "--show"], &image)?;
        Ok(Self { device: PathBuf::from(said.trim()), dir })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = run("losetup", &["--detach"], &self.device) {
            eprintln!("{error}");
        }
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) -> Result<String, String> {
    let search = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("env").env("PATH", search).arg(program).args(arguments).arg(path).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(said(&output.stdout)) } else { Err(format!("{program}: {}", said(&output.stderr))) }
}

#[test]
fn a_pool_is_as_long_as_its_block_device() {
    let bytes = (16 << 20) + 512; // no whole number of pages
    let device = match Loop::new(bytes) {
        Ok(device) => device,
        Err(why) => return eprintln!("not run: no loop device here: {why}"),
    };
    let path = &device.device;
    let pool = Options::new().size(1 << 20).create(path).unwrap();
    assert_eq!((pool.domain(), pool.info().size), (Domain::File, 16 << 20));
    let mut area = pool.add_region("r", 8192).unwrap().into_area().unwrap();
    area.put(0, &7_u64).unwrap();
    area.persist(0, 8).unwrap();
    area.put(4096, &8_u64).unwrap(); // not synced
    assert!(matches!(Options::new().open(path), Err(Error::AlreadyOpen { .. })));
    fails(pool.add_region("too large", 16 << 20), &["no space"]);
    pool.abandon();
    drop((area, pool));
    let pool = Options::new().open(path).unwrap();
    let area = pool.region("r").unwrap().into_area().unwrap();
    assert_eq!(*area.get::<u64>(0).unwrap(), 7);
    assert!(!pool.was_clean());
    drop(area);
    pool.close().unwrap();
    let pool = Options::new().open_read_only(path).unwrap();
    assert!(pool.was_clean());
    drop(pool);
    assert_eq!(pmem::Observer::open(path).unwrap().size(), 16 << 20);
    fails(Options::new().create(path), &["holds something", "clear it first"]);
}

/// A child of a fork has what the parent closes until it begins its program, and a daemon that watches for devices locks those that were written to, for a moment.
#[test]
fn a_block_device_that_somebody_has_for_a_moment_is_waited_for() {
    let device = match Loop::new(16 << 20) {
        Ok(device) => device,
        Err(why) => return eprintln!("not run: no loop device here: {why}"),
    };
    let path = &device.device;
    let pool = Options::new().create(path).unwrap();
    let heir = Child::fork(|| ());
    pool.close().unwrap();
    Options::new().open(path).unwrap().close().unwrap();
    heir.wait();

    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let watcher = Child::fork(|| {
        // SAFETY: system calls on a name and a descriptor of its own.
        unsafe { libc::flock(libc::open(name.as_ptr(), libc::O_RDONLY), libc::LOCK_SH) };
    });
    Options::new().open(path).unwrap().close().unwrap();
    watcher.wait();
}

/// Does something, says so, and lives on for a moment.
struct Child(libc::pid_t);

impl Child {
    /// Returns when the child has done it, which makes nothing but system calls.
    fn fork(work: impl FnOnce()) -> Self {
        let (mut said, say) = std::io::pipe().unwrap();
        // SAFETY: the child makes system calls and ends.
        match unsafe { libc::fork() } {
            0 => {
                work();
                // SAFETY: as above; the byte is the child's own.
                unsafe {
                    libc::write(say.as_raw_fd(), [1_u8].as_ptr().cast(), 1);
                    libc::usleep(200_000);
                    libc::_exit(0)
                }
            }
            child => {
                assert!(child > 0);
                drop(say);
                said.read_exact(&mut [0]).unwrap();
                Self(child)
            }
        }
    }

    fn wait(self) {
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) }, self.0);
    }
}

/// What is there is not overwritten, wherever on the device it shows.
#[test]
fn a_block_device_that_holds_something_stays_as_it_is() {
    let device = match Loop::new(64 << 20) {
        Ok(device) => device,
        Err(why) => return eprintln!("not run: no loop device here: {why}"),
    };
    let image = device.dir.path().join("image");
    run("mkfs.ext4", &["-q"], &device.device).unwrap();
    let before = std::fs::read(&image).unwrap();
    fails(Options::new().create(&device.device), &["holds something"]);
    fails(Options::new().open(&device.device), &["not a pool"]);
    assert!(std::fs::read(&image).unwrap() == before);
    let mounted = device.dir.path().join("mounted");
    std::fs::create_dir(&mounted).unwrap();
    run("mount", &[device.device.to_str().unwrap()], &mounted).unwrap();
    let refused = Options::new().create(&device.device);
    run("umount", &["-l"], &mounted).unwrap();
    fails(refused, &["it is mounted"]);

    // A label at the end, as software arrays have.
    run(
        "dd",
        &["if=/dev/zero", "bs=1M", "count=64", "status=none", "conv=fsync"],
        Path::new(&format!("of={}", device.device.display())),
    )
    .unwrap();
    use std::os::unix::fs::FileExt;
    let raw = std::fs::OpenOptions::new().write(true).open(&device.device).unwrap();
    raw.write_all_at(b"label", (64 << 20) - 4096).unwrap();
    raw.sync_all().unwrap();
    drop(raw);
    fails(Options::new().create(&device.device), &["holds something"]);
}
