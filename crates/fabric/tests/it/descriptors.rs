//! A listener whose process has no descriptors left lets no peer in, and goes on.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use fabric::{Options, tcp};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A client waits for as long as it takes.
fn options() -> Options {
    Options { greeting_timeout: Duration::from_secs(100), ..crate::tcp::options() }
}

const CHILD: &str = "CAIRN_FEW_DESCRIPTORS";

/// In a process of its own, which alone has so few. It tells its address, and then what became of each call.
#[test]
fn a_listener_without_descriptors_goes_on_when_there_are_some() {
    if std::env::var_os(CHILD).is_some() {
        return few();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "descriptors::a_listener_without_descriptors_goes_on_when_there_are_some", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = said.find_map(|line| line.split_once("listens at ").map(|(_, at)| at.to_owned())).unwrap();
    let connected = std::thread::scope(|scope| {
        let client = scope.spawn(|| tcp::connect(&address, &options(), None).map(drop));
        // It waits to be accepted, and cannot be.
        assert_eq!(said.next().unwrap(), "without: none");
        child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        assert_eq!(said.next().unwrap(), "with: one");
        client.join().unwrap()
    });
    connected.unwrap();
    assert!(child.wait().unwrap().success());
}

fn few() {
    let mut listener = tcp::Listener::bind("127.0.0.1:0", options(), None).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
    let mut all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).take(100).collect();
    assert!(all.len() < 64);
    println!("listens at {}", listener.address().unwrap());
    // Until a peer waits to be accepted: a pause at least each time.
    let accepted = (0..5).find_map(|_| listener.accept(Duration::from_millis(100)).expect("no error"));
    println!("without: {}", if accepted.is_none() { "none" } else { "one" });
    std::io::stdin().lines().next().unwrap().unwrap();
    all.clear();
    let accepted = (0..200).find_map(|_| listener.accept(Duration::from_millis(100)).expect("no error"));
    println!("with: {}", if accepted.is_none() { "none" } else { "one" });
}
