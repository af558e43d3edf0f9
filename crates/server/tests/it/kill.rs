//! A server of this program's own, so that it can be started without a step, is killed, and its syncs fail.

use std::path::Path;
use std::process::{Command, Stdio};

use pmem::DomainChoice;
use server::Step;

use crate::support::{Store, start, usual};
use crate::witness::{self, Served, check_strace, traced};

/// In the environment: the domain, the step that is left out, and the store. Then this process is the server.
const PLACE: &str = "CAIRN_SERVER_KILL";

/// Not a test of its own: the process that the others start and kill.
#[test]
fn worker() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let [domain, step, path] = place.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{place}") };
    let domain = if domain == "file" { DomainChoice::File } else { DomainChoice::Emulated };
    let step = Step::ALL.into_iter().find(|known| format!("{known:?}") == step);
    let engine = Store::Kv.open(path, pmem::Options::new().domain(domain));
    let config = server::Config { http: Some("127.0.0.1:0".parse().unwrap()), ..usual() };
    let server = start(step, config, engine);
    eprintln!("cairn: redis at {}", server.redis()[0]);
    eprintln!("cairn: status at http://{}/", server.http().unwrap());
    eprintln!("cairn: serving");
    loop {
        std::thread::park();
    }
}

pub fn serve(mut command: Command, step: Option<Step>, domain: &str, path: &Path) -> Served {
    let step = step.map_or_else(|| "none".to_owned(), |step| format!("{step:?}"));
    command.args(["kill::worker", "--exact", "--nocapture", "--test-threads", "1"]);
    command.env(PLACE, format!("{domain} {step} {}", path.display())).stdout(Stdio::null());
    Served::start(&mut command)
}

/// A server with all its steps.
pub fn whole(domain: &str, path: &Path) -> Served {
    serve(Command::new(std::env::current_exe().unwrap()), None, domain, path)
}

/// How many writes were acknowledged before the last of so many kills.
pub fn killed(step: Option<Step>, domain: &str, rounds: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    witness::killed(&|| serve(Command::new(&program), step, domain, &dir.path().join("store")), rounds)
}

/// See [`witness::synced`].
pub fn synced(step: Option<Step>) {
    check_strace();
    let dir = tempfile::tempdir().unwrap();
    let (path, log) = (dir.path().join("store"), dir.path().join("log"));
    let program = std::env::current_exe().unwrap();
    let start = |fails| {
        let command = if fails { traced(&program, &log) } else { Command::new(&program) };
        serve(command, step, "file", &path)
    };
    witness::synced(&start, &log, true);
}

/// With all its steps it passes what finds the lack of one. `crates/cli` does the same with the command, and longer.
#[test]
fn nothing_acknowledged_is_lost() {
    for domain in ["emulated", "file"] {
        assert!(killed(None, domain, 4) >= 4);
    }
}

#[test]
fn nothing_is_acknowledged_before_its_sync_or_after_a_failed_one() {
    synced(None);
}
