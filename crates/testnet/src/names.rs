//! Names of namespaces: `cairn-PID-START-NET-PART`. The process and when it started tell which process has made one, and whether it still lives.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::Result;
use crate::ip::ip;

/// Where `ip` keeps them.
pub(crate) const PLACE: &str = "/run/netns";

/// The start of the names of a new network of this process.
pub(crate) fn fresh() -> String {
    static NETS: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let net = NETS.fetch_add(1, Ordering::Relaxed);
    format!("cairn-{pid}-{}-{net}", started(pid).unwrap_or(0))
}

/// Removes what processes that are dead have left, and kills what they have left running in it.
pub(crate) fn sweep() {
    let Ok(entries) = fs::read_dir(PLACE) else { return };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    for name in names.filter(|name| is_abandoned(name)) {
        // Another test may be sweeping too: what is gone is gone.
        drop(remove(&name));
    }
}

/// Kills all that runs in it, and removes it.
pub(crate) fn remove(name: &str) -> Result<()> {
    for pid in ip(&["netns", "pids", name])?.lines().filter_map(|line| line.trim().parse().ok()) {
        // A thread of this process that is inside keeps the namespace, and leaves it soon.
        if let Some(pid) = Pid::from_raw(pid).filter(|pid| *pid != rustix::process::getpid()) {
            kill_process(pid, Signal::KILL).unwrap_or(()); // it may have ended
        }
    }
    ip(&["netns", "del", name]).map(drop)
}

fn is_abandoned(name: &str) -> bool {
    let mut parts = name.split('-');
    let (Some("cairn"), Some(pid), Some(start)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let (Ok(pid), Ok(start)) = (pid.parse::<u32>(), start.parse::<u64>()) else { return false };
    started(pid) != Some(start)
}

/// When a process started, in ticks of the kernel's; none if there is none, or only its remains.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may contain anything, parentheses too: what follows the last one is plain.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    // State is field 3, the start field 22.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_living_are_theirs() {
        let (one, other) = (fresh(), fresh());
        assert_ne!(one, other);
        assert!(!is_abandoned(&one) && !is_abandoned(&format!("{other}-h0")));
    }

    #[test]
    fn names_of_the_dead_are_abandoned_even_if_their_number_lives_again() {
        let own = std::process::id();
        assert!(is_abandoned(&format!("cairn-{own}-1-0-h0")));
        assert!(is_abandoned("cairn-4194305-1-0-h0"), "no process has so high a number");
    }

    #[test]
    fn other_names_are_left_alone() {
        for name in ["", "cairn", "cairn-x-1-0", "cairn-1", "docker-1-1-0", "cairn-1-x"] {
            assert!(!is_abandoned(name), "{name}");
        }
    }
}
