//! What the numbers were measured on.

use std::fs;
use std::path::Path;
use std::thread::available_parallelism;

/// Processor, cores, caches and kernel in one line; `unknown` for what the system does not tell.
#[must_use]
pub fn describe() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| cpu_model(&text)).unwrap_or("unknown".into());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or("unknown".into());
    let cores = available_parallelism().map_or(0, usize::from);
    format!(
        "{cpu}, {cores} cores,{} Linux {}",
        caches().map_or(String::new(), |sizes| format!(" caches {sizes},")),
        kernel.trim()
    )
}

/// The sizes of the first core's caches for data, the smallest first, such as `48K/1024K/32768K`.
fn caches() -> Option<String> {
    let cache = |index: usize, what: &str| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}")).ok()
    };
    let all = (0..8).filter(|index| cache(*index, "type").is_some_and(|kind| kind.trim() != "Instruction"));
    let sizes: Vec<String> = all.filter_map(|index| Some(cache(index, "size")?.trim().to_owned())).collect();
    (!sizes.is_empty()).then(|| sizes.join("/"))
}

/// The file system that `dir` is in, by its name, or by its number if that is none of the usual.
#[must_use]
pub fn medium(dir: &Path) -> Option<String> {
    let kind = rustix::fs::statfs(dir).ok()?.f_type as u64 & 0xffff_ffff;
    let known = NAMES.iter().find(|(number, _)| *number == kind).map(|(_, name)| (*name).to_owned());
    Some(known.unwrap_or_else(|| format!("file system {kind:#x}")))
}

/// As statfs(2) has them.
const NAMES: [(u64, &str); 9] = [
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0x794c_7630, "overlayfs"),
    (0x6969, "nfs"),
];

/// False if nothing on this file system outlives a loss of power.
#[must_use]
pub fn lasts(medium: &str) -> bool {
    !matches!(medium, "tmpfs" | "ramfs")
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name") || line.starts_with("CPU part"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_is_found() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast One\n"), Some("Fast One".into()));
        assert_eq!(cpu_model("CPU part\t: 0xd0c\n"), Some("0xd0c".into()));
        assert_eq!(cpu_model(""), None);
        assert!(describe().contains("cores"));
    }

    #[test]
    fn memory_is_told_from_a_disk() {
        if Path::new("/dev/shm").is_dir() {
            assert_eq!(medium(Path::new("/dev/shm")).as_deref(), Some("tmpfs"));
        }
        assert_eq!((lasts("tmpfs"), lasts("ext4")), (false, true));
        assert_eq!(medium(Path::new("/nonexistent")), None);
    }
}
