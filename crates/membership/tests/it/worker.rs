//! A member in a process of its own, which can be killed and stopped.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use membership::Members;
use rustix::process::Signal;

use crate::etcd::{Etcd, signal};
use crate::member;

/// In the environment: the name, the time to live, and etcd's endpoints. Then this process is the member.
const ROLE: &str = "CAIRN_MEMBER";
/// Before each line of the member.
const SAYS: &str = "member: ";

/// Not a test of its own: the process that the others start.
#[test]
fn worker() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let (name, ttl) = (words[0], Duration::from_millis(words[1].parse().unwrap()));
    let members = Members::connect(&words[2..], "/cairn/test", Duration::from_secs(10)).unwrap();
    let announcement = members.announce(&member(name), ttl).unwrap();
    println!("\n{SAYS}announced");
    let leadership = members.campaign(&member(name), ttl, Duration::MAX).unwrap();
    println!("\n{SAYS}elected {}", leadership.term());
    for line in std::io::stdin().lines() {
        let held = leadership.is_held();
        match line.unwrap().as_str() {
            "look" => println!("\n{SAYS}held {held}"),
            other => panic!("{other}"),
        }
    }
    drop(announcement);
}

pub struct Worker {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub fn start(etcd: &Etcd, name: &str, ttl: Duration) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(std::env::current_exe().unwrap());
        command.args(["worker::worker", "--exact", "--nocapture", "--test-threads", "1"]);
        command.env(ROLE, format!("{name} {} {}", ttl.as_millis(), etcd.endpoints().join(" ")));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut worker = Self { child, stdin, lines: BufReader::new(stdout).lines() };
        assert_eq!(worker.hear(), "announced");
        worker
    }

    /// Its term, when it is elected.
    pub fn elected(&mut self) -> u64 {
        self.hear().strip_prefix("elected ").unwrap().parse().unwrap()
    }

    /// Has it look whether it still leads. It does so when it runs.
    pub fn ask(&mut self) {
        writeln!(self.stdin, "look").unwrap();
    }

    /// What it saw.
    pub fn held(&mut self) -> bool {
        self.hear().strip_prefix("held ").unwrap().parse().unwrap()
    }

    pub fn signal(&self, what: Signal) {
        signal(&self.child, what);
    }

    fn hear(&mut self) -> String {
        loop {
            let line = self.lines.next().expect("the member has ended").unwrap();
            if let Some(said) = line.strip_prefix(SAYS) {
                return said.to_owned();
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
