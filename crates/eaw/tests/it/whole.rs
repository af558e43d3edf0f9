//! Pages that go to a file in one piece, without a log.

use std::path::{Path, PathBuf};
use std::process::Command;

use eaw::array::Array;
use pmem::DomainChoice;

use super::{create, members, options, read};

/// XFS on a loop device, while this lives.
struct Xfs {
    dir: tempfile::TempDir,
}

impl Xfs {
    fn mount() -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = dir.path().join("image");
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(512 << 20).map_err(|error| error.to_string())?;
        let mounted = dir.path().join("mounted");
        std::fs::create_dir(&mounted).map_err(|error| error.to_string())?;
        run("mkfs.xfs", &["-q", "-m", "reflink=1"], &[&image])?;
        run("mount", &["-o", "loop"], &[&image, &mounted])?;
        Ok(Self { dir })
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        // Lazily: what a failed test still has open does not keep it.
        if let Err(error) = run("umount", &["-l"], &[&self.path()]) {
            eprintln!("{error}");
        }
    }
}

fn run(program: &str, flags: &[&str], paths: &[&Path]) -> Result<(), String> {
    let output =
        Command::new(program).args(flags).args(paths).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {said}")) }
}

fn on_file(dir: &Path) -> (Array, eaw::array::Options) {
    let options = options().whole_writes(true).pool(pmem::Options::new().domain(DomainChoice::File));
    (create(dir, &options), options)
}

/// Whether the write went without a log: then it has no number.
fn is_whole(array: &Array, at: u64, bytes: &[u8]) -> bool {
    let (before, stats) = (array.status().last, array.stats());
    array.atomic_write(&array.file("pages").expect("works"), at, bytes).expect("works");
    assert_eq!(read(array, at, bytes.len()), bytes);
    let syncs = (array.stats() - stats).syncs;
    let whole = array.status().last == before;
    assert!(!whole || syncs == 1, "{syncs} syncs");
    whole
}

#[test]
fn a_page_is_written_whole_where_the_file_takes_it_so() {
    let xfs = match Xfs::mount() {
        Ok(xfs) => xfs,
        Err(why) => return eprintln!("not run: no XFS on a loop device here: {why}"),
    };
    let probe = pmem::Options::new().size(1 << 20).domain(DomainChoice::File).create(xfs.path().join("probe")).unwrap();
    let mut area = probe.add_region("page", 8192).unwrap().into_area().unwrap();
    if !area.write_whole(0, &[3; 4096]).unwrap() {
        return eprintln!("not run: this kernel has no atomic writes on XFS");
    }
    assert_eq!(area.bytes(0, 4096).unwrap(), [3; 4096]);
    assert!(!area.write_whole(512, &[4; 4096]).unwrap() && !area.write_whole(0, &[4; 3000]).unwrap());
    assert_eq!(area.bytes(0, 4097).unwrap(), [&[3; 4096][..], &[0]].concat());

    let (array, options) = on_file(&xfs.path());
    for (at, len, whole) in [
        (0, 4096, true),
        (16384, 16384, true),
        (65536, 65536, true), // a stripe
        (0, 65536 * 2, false),
        (100, 4096, false),
        (8192, 1000, false),
    ] {
        assert_eq!(is_whole(&array, at, &vec![len as u8 ^ 0x5a; len]), whole, "{len} bytes at {at}");
    }
    // What is in a log that is needed goes to the log again.
    assert!(!is_whole(&array, 0, &[9; 4096]));
    array.checkpoint().unwrap();
    assert!(is_whole(&array, 0, &[10; 4096]));
    assert!(is_whole(&array, 12288, &[11; 4096]));
    array.abandon();
    let array = options.open(&members(&xfs.path())).unwrap();
    assert!(array.recovered().lost.is_empty());
    assert_eq!(read(&array, 0, 4096), [10; 4096]);
    assert_eq!(read(&array, 12288, 4096), [11; 4096]);
    // Stores through the mapping and writes past it, in turn and by several threads, show what came last.
    let (array, pages) = (&array, &array.file("pages").unwrap());
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            scope.spawn(move || {
                for n in 0..60_u8 {
                    let at = 131072 * (thread + 1) + u64::from(n % 3) * 4096;
                    let (len, from) = if n % 4 == 3 { (100, at + 50) } else { (4096, at) };
                    array.atomic_write(pages, from, &vec![n + 1; len]).unwrap();
                    assert_eq!(read(array, from, len), vec![n + 1; len]);
                }
            });
        }
    });
}

/// Elsewhere nothing is different.
#[test]
fn where_the_file_does_not_all_is_logged() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (array, _) = on_file(dir.path());
    if is_whole(&array, 0, &[1; 4096]) {
        eprintln!("{} takes pages whole", dir.path().display());
    }
    let dir = tempfile::tempdir().unwrap();
    let memory = options().whole_writes(true);
    let array = create(dir.path(), &memory);
    assert!(!is_whole(&array, 0, &[1; 4096]));
}
