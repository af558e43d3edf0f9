//! `cairn group`: who leads, what the loss of a machine would mean, and machines that come and go while the leader serves.

use std::io::{BufRead, BufReader};

use rustix::process::Signal;

use super::cluster::Proc;
use super::groups::{Group, MACHINES};
use crate::eventually;
use crate::witness::Connection;

#[test]
fn a_machine_whose_disk_was_emptied_comes_back() {
    let mut group = Group::new();
    let none = group.run("status --wait 0");
    assert_eq!(none.code, 2, "{none:?}");
    assert!(
        none.err.contains("no machine is announced below /cairn/shop\nnext: see whether `cairn serve`"),
        "{none:?}"
    );
    group.start(0);
    eventually("one is announced", || group.run("status --wait 0").err.contains("announced are m0\nnext: start the"));
    group.start(1);
    group.start(2);
    let all: Vec<usize> = (0..MACHINES).collect();
    let leader = group.leader(&all);
    group.await_all(leader);
    let (away, other) = ((leader + 1) % MACHINES, (leader + 2) % MACHINES);
    let address = format!("127.0.0.1:{}", group.ports[away].1);
    eventually("all is well", || group.run("status").code == 0);
    let well = group.run("status");
    assert!(well.out.starts_with(&format!("leader   m{leader} at 127.0.0.1:{}", group.ports[leader].1)), "{well:?}");
    assert!(well.out.contains(&format!("machine  m{away}  if it went now: writes go on\n")), "{well:?}");

    // More than the log holds; then its disk is lost.
    let mut client = Connection::to(&format!("127.0.0.1:{}", group.ports[leader].0)).unwrap();
    for n in 0..500 {
        assert_eq!(client.ask(&format!("SET k{n} {}", "x".repeat(1000))).unwrap(), "+OK");
    }
    group.kill(away);
    for file in [format!("store{away}"), format!("log{away}")] {
        std::fs::remove_file(group.cluster.path(&file)).unwrap();
    }
    group.start(away);
    let said = || std::fs::read_to_string(group.cluster.path(&format!("out{away}"))).unwrap();
    eventually("it says what to do", || said().contains(&format!("`cairn group join {address}`")));
    let machine = |status: &serde_json::Value, at: usize| {
        let name = format!("m{at}");
        status["machines"].as_array().unwrap().iter().find(|machine| machine["name"] == *name).unwrap().clone()
    };
    let (mut status, mut lost) = (serde_json::Value::Null, Vec::new());
    eventually("it is shown", || {
        let run = group.run("status --json");
        assert_eq!(run.code, 1, "{run:?}");
        status = run.json();
        let copies = status["copies"].as_array().unwrap();
        lost = copies.iter().filter(|c| c["live"] == false).map(|c| c["id"].as_str().unwrap().to_owned()).collect();
        lost.len() == 1 && machine(&status, away)["why"].as_str().is_some_and(|why| why.contains("group join"))
    });
    assert_eq!(machine(&status, away)["writes"], "unchanged");
    for at in [leader, other] {
        assert_eq!(machine(&status, at)["writes"], "stop", "{status}");
    }

    // What cannot be is refused, and nothing is changed by it.
    for (words, wanted) in [
        ("remove 1", lost[0].as_str()),
        (&*format!("remove {}", machine(&status, leader)["copy"].as_str().unwrap()), "that of the leader"),
        (&*format!("join 127.0.0.1:{}", group.ports[leader].1), "is the leader"),
        (
            "join 127.0.0.1:1",
            "no machine is announced at 127.0.0.1:1 below /cairn/shop\nnext: start `cairn serve` there",
        ),
    ] {
        let run = group.run(words);
        assert!(run.code == 2 && run.err.contains(wanted), "{words}: {run:?}");
    }

    let removed = group.run(&format!("remove {} --json", lost[0]));
    assert_eq!((removed.code, removed.json()["copies"].as_array().unwrap().len()), (0, 2), "{removed:?}");
    let joined = group.run(&format!("join {address} --json"));
    assert_eq!((joined.code, joined.json()["copies"].as_array().unwrap().len()), (0, 3), "{joined:?}");
    assert_eq!(joined.json()["changed"], true);
    eventually("all is well again", || group.run("status").code == 0);
    let again = group.run(&format!("join {address} --json"));
    assert_eq!((again.code, &again.json()["changed"]), (0, &false.into()), "{again:?}");
    eventually("it has the store", || said().contains("has the store anew"));
    group.await_all(leader);

    // One that hangs: the leader has what it wants of the other, and does not give it up.
    group.signal(other, Signal::STOP);
    eventually("it is shown as away", || {
        let run = group.run("status");
        run.code == 1 && run.out.contains("the leader has not given it up, but no machine announces it")
    });
    let hung = group.run("status");
    let stop = format!("machine  m{away}  if it went now: no writes until it is back");
    assert!(hung.out.contains(&stop) && !hung.out.contains("none go on"), "{hung:?}");
    group.signal(away, Signal::STOP);
    eventually("it is told that no writes go on", || group.run("status").out.contains("writes   none go on"));
    [away, other].iter().for_each(|at| group.signal(*at, Signal::CONT));
    eventually("all is well with them again", || group.run("status").code == 0);

    // It counts: writes go on without another one, and it can do without the leader.
    group.kill(other);
    assert_eq!(client.ask("SET with two").unwrap(), "+OK");
    group.start(other);
    group.await_all(leader);
    group.kill(leader);
    let next = group.leader(&[away, other]);
    assert_eq!(group.ask(next, "GET with").unwrap(), "two");
    assert_eq!(group.ask(next, "GET k0").unwrap().len(), 1000);
    assert_eq!(group.ask(next, "SET more 1").unwrap(), "+OK");
}

/// Two of three disks are lost, the second before the first one's machine has joined.
#[test]
fn one_machine_that_has_everything_is_enough() {
    let mut group = Group::new();
    group.start_all();
    let all: Vec<usize> = (0..MACHINES).collect();
    let leader = group.leader(&all);
    group.await_all(leader);
    let (first, second) = ((leader + 1) % MACHINES, (leader + 2) % MACHINES);
    assert_eq!(group.ask(leader, "SET a 1").unwrap(), "+OK");
    let lose = |group: &mut Group, at: usize| {
        group.kill(at);
        for file in [format!("store{at}"), format!("log{at}")] {
            std::fs::remove_file(group.cluster.path(&file)).unwrap();
        }
    };
    let status = group.run("status --json").json();
    let copies = status["copies"].as_array().unwrap();
    let lost = copies.iter().find(|copy| copy["machine"] == format!("m{first}")).unwrap()["id"].as_str().unwrap();
    lose(&mut group, first);
    assert_eq!(group.run(&format!("remove {lost}")).code, 0);
    lose(&mut group, second);
    group.kill(leader);

    let address = format!("127.0.0.1:{}", group.ports[second].1);
    let replica = format!("log-replica log{second} --listen {address} --secret-file secret");
    let mut replica = group.cluster.command(&replica).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(replica.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), address);
    let promote = format!("log promote log{leader} --replica {address} --secret-file secret");
    let named = group.cluster.command(&promote).output().unwrap();
    let named = String::from_utf8(named.stderr).unwrap();
    let lost = named.split_once("not read: ").unwrap_or_else(|| panic!("{named}")).1.split_once(';').unwrap().0;
    let promoted = group.cluster.command(&format!("{promote} --lost {lost}")).output().unwrap();
    Proc(replica).kill();
    assert!(promoted.status.success(), "{promoted:?}");
    group.start_all();
    let leads = group.leader(&all);
    assert_eq!(group.ask(leads, "GET a").unwrap(), "1");
    assert_eq!(group.ask(leads, "SET a 2").unwrap(), "+OK");
    let joined = format!("join 127.0.0.1:{}", group.ports[first].1);
    eventually("the other one joins", || group.run(&joined).code == 0);
    eventually("all is well", || group.run("status").code == 0);
}
