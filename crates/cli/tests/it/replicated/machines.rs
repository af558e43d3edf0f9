//! `cairn group`: who leads, what the loss of a machine would mean, and machines that come and go while the leader serves.

use std::io::{BufRead, BufReader};

use rustix::process::Signal;

use super::cluster::Proc;
use super::groups::{Group, MACHINES, under_load};
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
    assert!(copies.iter().all(|copy| copy["wire"] == log::WIRE_VERSION), "{status}");
    let text = group.run("status").out;
    assert_eq!(text.matches(&format!(", wire version {}\n", log::WIRE_VERSION)).count(), MACHINES, "{text}");
    eventually("the leader's INFO has it", || {
        let found = |name: &str| group.info(leader, name).is_some_and(|wire| wire == log::WIRE_VERSION.to_string());
        found("cairn_wire") && found("cairn_slave0_wire") && found("cairn_slave1_wire")
    });
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

/// It has no room for what the leader has committed: it says so, and the leader and `cairn group status` show it.
#[test]
fn a_machine_that_is_full_is_shown_with_the_reason() {
    let mut group = Group::new();
    group.lease = 5;
    group.start_all();
    let all: Vec<usize> = (0..MACHINES).collect();
    let leader = group.leader(&all);
    group.await_all(leader);
    let full = (leader + 1) % MACHINES;
    assert_eq!(group.end(full), 0);
    group.start_with(full, "--max-size 9M");
    group.await_all(leader);
    eventually("all is well", || group.run("status").code == 0);

    let mut client = Connection::to(&format!("127.0.0.1:{}", group.ports[leader].0)).unwrap();
    let mut n = 0;
    while group.info(full, "cairn_trouble").is_none() {
        assert!(n < 2000, "{n} values of 10 000 bytes fit in 9 MiB: {}", group.said(full));
        for _ in 0..5 {
            let set = format!("SET k{n} {}", "x".repeat(10_000));
            // The log may be full for a while, when the replica was given up and joins.
            eventually("it is written", || client.ask(&set).unwrap() == "+OK");
            n += 1;
        }
    }
    let mut run = group.run("status --json");
    eventually("it is shown as full", || {
        run = group.run("status --json");
        machine(&run.json(), full)["state"] == "full"
    });
    assert_eq!(run.code, 1);
    let trouble = machine(&run.json(), full)["trouble"].as_str().unwrap().to_owned();
    assert!(trouble.starts_with("full: ") && trouble.contains("may not grow beyond"), "{trouble}");
    assert_eq!(machine(&run.json(), leader)["state"], "well");
    let text = group.run("status");
    assert!(text.code == 1 && text.out.contains(&format!("machine  m{full}  full: ")), "{text:?}");
    let port = format!("port={},", group.ports[full].0);
    let shown = || {
        let slave = |at: usize| Some((at, group.info(leader, &format!("slave{at}"))?));
        let (at, line) = (0..2).filter_map(slave).find(|(_, line)| line.contains(&port))?;
        Some((line, group.info(leader, &format!("cairn_slave{at}_trouble"))?))
    };
    let mut line = String::new();
    eventually("the leader shows it", || {
        let trouble;
        (line, trouble) = shown().unwrap_or_default();
        trouble.starts_with("full: ")
    });
    // It takes part until the leader has waited for it for long enough.
    assert!(line.contains("state=full,") || line.contains("state=wait_bgsave,"), "{line}");
    let to = group.run(&format!("transfer --to m{full}"));
    if to.code == 0 {
        // It was given up meanwhile, and got the store anew, which has room for it.
        assert!(group.said(full).contains("has the store anew"), "{to:?}");
        return;
    }
    assert!(to.code == 2 && (to.err.contains("cannot lead: full: ") || to.err.contains("is away")), "{to:?}");

    // There is room again: not before it has what it had no room for, or, once the log does not reach back so far any more, the store anew.
    eventually("all is removed", || client.ask("FLUSHALL").unwrap() == "+OK");
    eventually("all is well again", || {
        client.ask(&format!("SET k {}", "x".repeat(10_000))).unwrap() == "+OK"
            && group.run("status").code == 0
            && group.info(full, "cairn_trouble").is_none()
    });
}

fn machine(status: &serde_json::Value, at: usize) -> serde_json::Value {
    let name = format!("m{at}");
    status["machines"].as_array().unwrap().iter().find(|machine| machine["name"] == *name).unwrap().clone()
}

/// Under load; nothing that was acknowledged is missing.
#[test]
fn the_leadership_is_left_to_the_machine_that_is_named() {
    let mut group = Group::new();
    group.lease = 5;
    group.start_all();
    let all: Vec<usize> = (0..MACHINES).collect();
    let first = group.leader(&all);
    group.await_all(first);
    let (second, third) = ((first + 1) % MACHINES, (first + 2) % MACHINES);
    eventually("all is well", || group.run("status").code == 0);
    let same = group.run(&format!("transfer --to m{first} --json"));
    assert_eq!((same.code, &same.json()["changed"]), (0, &false.into()), "{same:?}");
    let run = group.run("transfer --to nobody");
    assert!(
        run.code == 2 && run.err.contains("no machine nobody is announced below /cairn/shop\nnext: start"),
        "{run:?}"
    );

    under_load(&mut group, |group, more| {
        // By its name, by its address; there and back.
        let address = format!("127.0.0.1:{}", group.ports[third].1);
        for (to, words) in [(second, format!("m{second}")), (third, address), (first, format!("m{first}"))] {
            let run = group.run(&format!("transfer --to {words} --json"));
            assert_eq!(run.code, 0, "{run:?}");
            assert_eq!((&run.json()["leader"], &run.json()["changed"]), (&format!("m{to}").into(), &true.into()));
            assert_eq!(group.leader(&all), to);
            more();
            group.await_all_join(to);
        }
        // As Redis does it.
        let answer = group.ask(first, &format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 10000", group.ports[second].0));
        assert_eq!(answer.unwrap(), "+OK");
        eventually("it leads", || group.leader(&all) == second);
        more();
        group.await_all_join(second);
        assert_eq!(group.ask(second, "FAILOVER").unwrap(), "+OK");
        eventually("another one leads", || group.leader(&all) != second);
    });
    assert!(group.said(first).contains(&format!("it leaves the leadership to m{second}")), "{}", group.said(first));

    // One that hangs is not left the leadership, also where nothing is written that it could lack.
    let leader = group.leader(&all);
    group.await_all(leader);
    let hangs = (leader + 1) % MACHINES;
    group.signal(hangs, Signal::STOP);
    let run = group.run(&format!("transfer --to m{hangs}"));
    // On a busy machine it may have been given up, or its announcement may have ended, before that.
    let why = ["does not answer", "takes no part", "is announced"].iter().any(|why| run.err.contains(why));
    assert!(run.code == 2 && why, "{run:?}");
    let answer = group.ask(leader, &format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 1000", group.ports[hangs].0)).unwrap();
    assert!(answer == "+OK" || answer.starts_with('-'), "{answer}");
    eventually("it is over", || group.info(leader, "master_failover_state").as_deref() == Some("no-failover"));
    assert_eq!(group.ask(leader, "SET hangs 1").unwrap(), "+OK");
    group.signal(hangs, Signal::CONT);

    // One that is away is refused, and the leader leads on; without an answer from the successor another one leads.
    let leader = group.leader(&all);
    // Else it has no quorum without the one that goes.
    group.await_all_join(leader);
    let away = (leader + 1) % MACHINES;
    group.kill(away);
    eventually("it is away", || group.info(leader, "connected_slaves").as_deref() == Some("1"));
    let run = group.run(&format!("transfer --to m{away}"));
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(group.leader(&[leader]), leader);
    assert_eq!(group.ask(leader, "SET a 1").unwrap(), "+OK");
}
