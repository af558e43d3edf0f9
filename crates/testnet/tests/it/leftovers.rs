//! What is left when a network goes, and when its process is killed.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use testnet::Net;

/// In the environment: this process is to make a network and wait to be killed.
const LEAVE: &str = "CAIRN_TESTNET_LEAVE";
/// Before the names of its host and its process.
const SAYS: &str = "left: ";

fn namespace_is_there(name: &str) -> bool {
    std::path::Path::new("/run/netns").join(name).exists()
}

/// Killed, it may have a moment to go.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains("(sleep)") && !stat.contains(") Z")
}

fn wait_until_gone(pid: &str) {
    let mut looks = 0;
    while runs(pid) {
        looks += 1;
        assert!(looks < 6000, "process {pid} still runs");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Not a test of its own: the process that is killed.
#[test]
fn worker() {
    if std::env::var_os(LEAVE).is_none() {
        return;
    }
    let net = Net::new(2).unwrap();
    let process = net.host(1).spawn(Command::new("sleep").arg("1000")).unwrap();
    println!("\n{SAYS}{} {}", net.host(1).name(), process.id());
    loop {
        std::thread::park();
    }
}

#[test]
fn what_a_killed_process_has_left_is_swept() {
    let Some(_available) = Net::or_say_why(1) else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["leftovers::worker", "--exact", "--nocapture", "--test-threads", "1"]).env(LEAVE, "1");
    let mut worker = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let said = lines.find_map(|line| line.strip_prefix(SAYS).map(str::to_owned)).expect("the worker has ended");
    let (host, process) = said.split_once(' ').unwrap();
    drop(Net::new(1).unwrap());
    assert!(namespace_is_there(host) && runs(process), "what is the living's is left alone");
    worker.kill().unwrap();
    worker.wait().unwrap();
    drop(Net::new(1).unwrap());
    assert!(!namespace_is_there(host));
    assert!(!namespace_is_there(&host.replace("-h1", "-switch")));
    wait_until_gone(process);
}

#[test]
fn nothing_is_left_of_a_network_that_is_dropped() {
    let Some(net) = Net::or_say_why(2) else { return };
    let names = [net.host(0).name().to_owned(), net.host(1).name().to_owned()];
    // A child of a child: no handle kills it.
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped());
    let mut process = net.host(0).spawn(&mut command).unwrap();
    let mut grandchild = String::new();
    BufReader::new(process.child().stdout.take().unwrap()).read_line(&mut grandchild).unwrap();
    assert!(names.iter().all(|name| namespace_is_there(name)));
    drop(net);
    assert!(!names.iter().any(|name| namespace_is_there(name)));
    wait_until_gone(grandchild.trim());
    assert!(!process.wait().unwrap().success());
}
