//! Machines that serve, and what an operator does with them.

use std::fs::{self, File};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::{Chains, run};
use crate::eventually;
use crate::replicated::cluster::{Proc, secret};
use crate::witness::Connection;

/// Lines of the guide, as they are but for the ports.
#[test]
fn the_lines_of_the_guide_do_what_it_says() {
    let mut chains = Chains::new();
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/chain.md")).unwrap();
    let lines = guide.split("```sh\n").nth(1).unwrap().split("\n```").next().unwrap();
    let etcd = chains.etcd.endpoints()[0].clone();
    fs::remove_file(chains.path("secret")).unwrap();
    let mut machines = 0;
    for line in lines.lines() {
        let mut here = line.replace("http://127.0.0.1:2379", &etcd);
        for (at, (listen, clients)) in chains.ports.iter().enumerate() {
            here = here.replace(&format!(":750{}", at + 1), &format!(":{listen}"));
            here = here.replace(&format!("760{}", at + 1), &clients.to_string());
        }
        let (here, wanted) = here.split_once(" # ").map_or((&*here, ""), |(line, wanted)| (line, wanted));
        let here = here.trim();
        match here.strip_prefix("cairn ") {
            Some(words) if words.starts_with("chain serve") => {
                let child = chains.command(words).stderr(File::create(chains.path("said")).unwrap()).spawn().unwrap();
                chains.running[machines] = Some(Proc(child));
                machines += 1;
                if machines == 3 {
                    chains.await_well();
                }
            }
            // Tests of their own.
            Some("chain demo") => {}
            Some(words) => {
                let run = chains.run(words);
                assert_eq!(run.code, 0, "{line}: {run:?}");
                assert!(run.out.contains(wanted.trim()), "{line}: {run:?}");
            }
            None if here == "etcd &" => {}
            None => {
                let mut shell = Command::new("sh");
                let output = run(shell.args(["-c", here]).current_dir(chains.dir.path()).output().unwrap());
                assert_eq!(output.code, 0, "{line}: {output:?}");
                assert_eq!(output.out.trim(), wanted.trim(), "{line}");
            }
        }
    }
    assert_eq!(machines, 3, "the guide starts three machines");
    assert!(guide.contains("cairn chain demo"));
}

#[test]
fn each_machine_is_killed_and_comes_back() {
    let mut chains = Chains::started();
    assert_eq!(chains.ask(1, "INCRBY account:3 100").unwrap(), ":100");
    let moved = format!("-MOVED 0 {} machine 1 leads; nothing has changed here, ask there", chains.address(1));
    // It looks now and then who is where.
    eventually("it says who leads", || chains.ask(2, "DEL account:3").unwrap() == moved);
    let (mut number, mut left) = (0, 100);
    for round in 0..3 {
        let order = chains.members();
        let killed = order[round];
        chains.kill(killed);
        let others: Vec<usize> = (1..=3).filter(|machine| *machine != killed).collect();
        (number, left) = (number + 1, left - 7);
        let line = format!("ONCE 7 {number} TRANSFER account:3 account:4 7");
        assert_eq!(chains.ask_until(&others, &line), format!(":{left}"), "{order:?} without {killed}");
        assert_eq!(chains.ask_until(&others, &line), format!(":{left}"), "asked again");
        let status = chains.chain("status");
        assert_eq!(status.code, 1, "a member is missing: {status:?}");
        chains.start(killed, "");
        chains.await_well();
        assert_eq!(*chains.members().last().unwrap(), killed, "it joins behind the tail");
    }
    (1..=3).for_each(|machine| chains.kill(machine));
    (1..=3).for_each(|machine| chains.start(machine, ""));
    assert_eq!(chains.ask_until(&[1, 2, 3], "MGET account:3 account:4"), "*2");
    assert_eq!(chains.ask_until(&[1, 2, 3], "GET account:3"), left.to_string());
    assert_eq!(
        chains.ask_until(&[1, 2, 3], &format!("ONCE 7 {number} DEL account:3")),
        format!(":{left}"),
        "the reply is kept"
    );
    chains.await_well();
    // A machine that is told to end is not waited for.
    let head = chains.members()[0];
    chains.end(head);
    let others: Vec<usize> = (1..=3).filter(|machine| *machine != head).collect();
    assert_eq!(chains.ask_until(&others, "GET account:4"), (100 - left).to_string());
    assert!(chains.said(head).contains("cairn: stopped; the others go on"), "{}", chains.said(head));
}

/// Values of any length come and go, so that places are used again, by heads that were replicas before.
#[test]
fn values_of_all_lengths_outlive_each_head() {
    const KEYS: usize = 24;
    let mut chains = Chains::started();
    let mut kept: Vec<Option<String>> = vec![None; KEYS];
    let check = |chains: &Chains, kept: &[Option<String>], when: &str| {
        for (key, value) in kept.iter().enumerate() {
            let found = chains.ask_until(&[1, 2, 3], &format!("GET k{key}"));
            assert_eq!(found, value.as_deref().unwrap_or("nil"), "{when}: k{key}");
        }
    };
    let mut mixed = 1_u64;
    for round in 0..4 {
        for at in 0..250 {
            mixed = mixed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let (key, len) = ((mixed >> 33) as usize % KEYS, (mixed >> 45) as usize % 900);
            kept[key] = (len >= 150).then(|| format!("{round}.{at}.{}", "v".repeat(len)));
            let line = match &kept[key] {
                Some(value) => format!("SET k{key} {value}"),
                None => format!("DEL k{key}"),
            };
            let said = chains.ask_until(&[1, 2, 3], &line);
            assert!(said == "+OK" || said.starts_with(':'), "{line}: {said}");
        }
        check(&chains, &kept, "before the head goes");
        let head = chains.members()[0];
        chains.kill(head);
        check(&chains, &kept, "by the next head");
        chains.start(head, "");
        chains.await_well();
    }
    // Each by what is on its medium alone.
    for _ in 0..2 {
        let head = chains.members()[0];
        chains.end(head);
        check(&chains, &kept, "at the end");
    }
}

#[test]
fn machines_are_taken_in_and_out() {
    let mut chains = Chains::started();
    chains.ask_until(&[1], "SET kept 17");
    chains.start(4, "");
    eventually("it says what to do", || chains.said(4).contains("`cairn chain join 4` takes it in"));
    let status = chains.chain("status");
    for line in [
        "head     machine 1 at ",
        "member   machine 2 at ",
        "tail     machine 3 at ",
        "waits    machine 4 at ",
        "loss     of machine 1: nothing acknowledged is lost; machine 2 leads when its lease has ended, and 1 more may be lost",
    ] {
        assert!(status.out.contains(line), "{line}: {status:?}");
    }

    let joined = chains.chain("join 4 --instead-of 1");
    assert_eq!(
        (joined.code, joined.out.trim()),
        (0, "machine 4 is a member, and has everything; members are 2, 3, 4, head first"),
        "{joined:?}"
    );
    assert_eq!(chains.ask_until(&[2], "GET kept"), "17");
    eventually("it says that it is out", || chains.said(1).contains("was taken out of the chain"));
    let status = chains.chain("status");
    assert!(
        status.code == 0 && status.out.contains("removed  machine 1: `cairn chain join 1` takes it in again"),
        "{status:?}"
    );
    // A chain that is full gets longer.
    let longer = chains.chain("join 1 --json");
    assert_eq!(longer.code, 0, "{longer:?}");
    let longer = longer.json();
    assert_eq!(
        (longer["members"].to_string(), &longer["failures_wanted"]),
        ("[2,3,4,1]".to_owned(), &3.into()),
        "{longer}"
    );
    assert!(chains.chain("join 1").out.contains("was a member before"));

    for (machine, members) in [(3, "2, 4, 1"), (1, "2, 4"), (2, "4")] {
        let out = chains.chain(&format!("remove {machine}"));
        assert_eq!(
            (out.code, out.out.trim()),
            (0, &*format!("machine {machine} is out; members are {members}, head first")),
            "{out:?}"
        );
        assert_eq!(chains.ask_until(&[4, 2], "GET kept"), "17");
    }
    assert!(chains.chain("remove 2").out.contains("was out before"));
    let last = chains.chain("remove 4");
    assert_eq!((last.code, last.failure().0), (2, "machine 4 is the only member"));
    // What was taken out stays out, also when it starts again.
    chains.kill(2);
    chains.start(2, "");
    eventually("it waits", || chains.said(2).matches("was taken out of the chain").count() >= 2);
    assert_eq!(chains.members(), [4]);
    assert_eq!(chains.chain("join 2").code, 0);
    assert_eq!(chains.members(), [4, 2]);
}

/// Also when an assertion fails.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn members_come_and_go_under_load() {
    let mut chains = Chains::started();
    chains.start(4, "");
    eventually("it waits", || chains.said(4).contains("is no member, and waits"));
    let (chains, stop, done) = (&chains, AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for client in 1..=3 {
            let (stop, done) = (&stop, &done);
            threads.spawn(move || {
                for number in 1.. {
                    if stop.load(SeqCst) {
                        return;
                    }
                    let line = format!("ONCE {client} {number} INCRBY sum 1");
                    let reply = chains.ask_until(&[1, 2, 3, 4], &line);
                    assert!(reply.starts_with(':'), "{line}: {reply}");
                    assert_eq!(chains.ask_until(&[1, 2, 3, 4], &line), reply, "{line}");
                    done.fetch_add(1, SeqCst);
                }
            });
        }
        let _stops = Stops(&stop);
        // Each leads, and goes while it does.
        for (comes, goes) in [(4, 1), (1, 2), (2, 3), (3, 4)] {
            let changed = chains.chain(&format!("join {comes} --instead-of {goes}"));
            assert_eq!(changed.code, 0, "{changed:?}");
        }
        for machine in [1, 2] {
            for words in ["remove", "join"] {
                let changed = chains.chain(&format!("{words} {machine}"));
                assert_eq!(changed.code, 0, "{changed:?}");
            }
        }
    });
    assert_eq!(chains.ask_until(&[1, 2, 3, 4], "GET sum"), done.load(SeqCst).to_string());
    assert_eq!(chains.members(), [3, 1, 2]);
}

#[test]
fn a_request_that_cannot_be_is_told() {
    let mut chains = Chains::started();
    let words = chains.words();
    let etcd = chains.etcd.endpoints()[0].clone();
    let unknown = "machine 9 is neither a member nor announced";
    assert_eq!(chains.refused(&format!("chain remove 9 {words}")), unknown);
    assert_eq!(chains.refused(&format!("chain join 9 {words}")), unknown);
    assert!(chains.refused(&format!("chain join 2 --instead-of 9 {words}")).starts_with("machine 9 is no member"));
    let own = chains.path("secret");
    let none = format!("chain status --etcd {etcd} --prefix /cairn/none --secret-file {}", own.display());
    assert_eq!(chains.refused(&none), "there is no chain below /cairn/none");
    secret(&chains.path("other"), 0o600);
    fs::write(chains.path("other"), [9; 32]).unwrap();
    let wrong = format!("--etcd {etcd} --prefix /cairn/bank --secret-file {}", chains.path("other").display());
    for line in ["chain remove 2", "chain join 2"] {
        let said = chains.refused(&format!("{line} {wrong}"));
        let is_told = said.starts_with("no member answers (1: ") && said.contains("is not taken for a peer");
        assert!(is_told, "{line}: {said}");
    }
    assert_eq!(chains.members(), [1, 2, 3]);
    // Announced are an address where no machine is, and one where another machine is.
    let announce = |machine: &str, address: &str| {
        let key = format!("/cairn/bank/nodes/copies/{machine}");
        chains.etcd.ctl(&["put", &key, &format!(r#"{{"name":"{machine}","address":"{address}"}}"#)]);
    };
    announce("7", "127.0.0.1:1");
    let dead = chains.refused(&format!("chain join 7 {words}"));
    assert!(dead.starts_with("machine 7 at 127.0.0.1:1 does not answer: "), "{dead}");
    let first = format!("127.0.0.1:{}", chains.ports[0].0);
    announce("8", &first);
    let said = chains.refused(&format!("chain join 8 {words}"));
    assert!(said.contains("where machine 8 of /cairn/bank is announced, machine 1 of /cairn/bank answers"), "{said}");
    // The only one that serves is not taken out; the leases of the others may have ended meanwhile.
    chains.kill(2);
    chains.kill(3);
    let needed = chains.refused(&format!("chain remove 1 {words}"));
    assert!(needed.contains("no other member serves") || needed == "machine 1 is the only member", "{needed}");
}

#[test]
fn a_machine_that_cannot_serve_is_told() {
    let mut chains = Chains::started();
    let (etcd, own) = (chains.etcd.endpoints()[0].clone(), chains.path("secret"));
    let serve = |words: &str| {
        format!(
            "chain serve new --listen 127.0.0.1:0 --clients 127.0.0.1:0 --size 1M --queue 1M --secret-file {} --etcd {etcd} {words}",
            own.display()
        )
    };
    let sixth = serve("--machine 6 --prefix /cairn/bank");
    for (line, what) in [
        (serve("--machine 1 --prefix /cairn/twice --first-members 1,1"), "names no member, or one twice"),
        (serve("--machine 1 --prefix /cairn/none"), "there is no chain below /cairn/none"),
        (format!("{sixth} --announce-clients 0.0.0.0:1"), "is no address where clients reach"),
        (sixth.replace("--listen 127.0.0.1:0", "--listen 0.0.0.0:0"), "is no address where other machines reach"),
        (sixth.replace("--clients 127.0.0.1:0", "--clients 0.0.0.0:0"), "no password is asked for"),
        (sixth.replace("--size 1M", "--size 1K"), "too small"),
        (sixth.replace("--listen 127.0.0.1:0", &format!("--listen 127.0.0.1:{}", chains.ports[0].0)), "in use"),
        (sixth.replace("--clients 127.0.0.1:0", &format!("--clients {}", chains.address(1))), "in use"),
    ] {
        let said = chains.refused(&line);
        assert!(said.contains(what), "{line}: {said}");
    }
    // A file that another process has; one of another machine, and one of another chain.
    let other = chains.line(5, "").replace("bank-5", "bank-1").replace("--machine 5", "--machine 1");
    assert!(chains.refused(&other).contains("bank-1"), "it is in use");
    chains.end(3);
    let of_three = chains.line(5, "").replace("bank-5", "bank-3");
    assert!(chains.refused(&of_three).contains("it is the copy of machine 3, and this is machine 5"));
    let foreign = chains.line(3, "--first-members 3").replace("/cairn/bank", "/cairn/foreign");
    assert!(chains.refused(&foreign).contains("is not this machine's file of the chain below /cairn/foreign"));
    // It goes on in its own.
    chains.start(3, "");
    chains.await_well();
}

/// A path that is wrong, or a second process of a machine, costs nothing; a file that is lost is made anew when it is said.
#[test]
fn a_member_makes_a_new_file_when_it_is_told_to() {
    let mut chains = Chains::started();
    assert_eq!(chains.ask_until(&[1], "SET a 1"), "+OK");
    let second = |more: &str| chains.line(5, more).replace("--machine 5", "--machine 1");
    let (wrong, new) = (second(""), second("--new-file"));
    let said = chains.refused(&wrong);
    assert!(said.starts_with("there is no file bank-5, and machine 1 is a member that has had one"), "{said}");
    let said = chains.refused(&new);
    assert!(said.starts_with("machine 1 runs already, at 127.0.0.1:"), "{said}");
    assert_eq!((chains.members(), chains.ask_until(&[1], "GET a")), (vec![1, 2, 3], "1".to_owned()));
    chains.kill(3);
    fs::remove_file(chains.path("bank-3")).unwrap();
    chains.start(3, "--new-file");
    chains.await_well();
    assert_eq!(chains.ask_until(&[1, 2, 3], "GET a"), "1");
}

/// One that takes less than the others would stop them.
#[test]
fn a_chain_has_files_of_one_size() {
    let mut chains = Chains::new();
    chains.start(1, "--first-members 1,2 --f 2");
    eventually("it leads", || chains.said(1).contains("cairn: leads"));
    // As if it had been made at the same time as the first one.
    let id = chain::ReplicaId { machine: 2, incarnation: 0 };
    let sizes = chain::Sizes { capacity: 2 << 20, queue: 1 << 20 };
    chain::Medium::create(chains.path("bank-2"), id, true, sizes).unwrap();
    chains.etcd.ctl(&["put", "/cairn/bank/nodes/registers/files-2", r#"{"files":1,"pool":null}"#]);
    let other = chains.refused(&chains.line(2, ""));
    assert!(other.starts_with("machine 2 has a heap of 2097152 bytes"), "{other}");
    fs::remove_file(chains.path("bank-2")).unwrap();
    for machine in [2, 3] {
        chains.start(machine, "--size 2M");
    }
    chains.await_well();
    assert_eq!(chains.ask_until(&[1], "SET a 1"), "+OK");
    let len = |machine| fs::metadata(chains.path(&format!("bank-{machine}"))).unwrap().len();
    assert!(len(1) == len(2) && len(1) == len(3), "they have taken the chain's sizes");
}

/// Leases end while etcd is away, all at once; that is no reason to take out a machine that is there.
#[test]
fn an_etcd_that_is_away_costs_no_member() {
    let mut chains = Chains::new();
    (1..=3).for_each(|machine| chains.start(machine, "--first-members 1,2,3 --ttl 3"));
    chains.await_well();
    assert_eq!(chains.ask_until(&[1], "SET a 1"), "+OK");
    chains.etcd.pause(0);
    eventually("the lease ends", || chains.ask(1, "SET a 2").unwrap().starts_with("-TRYAGAIN machine 1 leads"));
    chains.etcd.resume(0);
    assert_eq!(chains.ask_until(&[1, 2, 3], "SET a 3"), "+OK");
    chains.await_well();
    let status = chains.chain("status --json").json();
    assert_eq!((&status["view"], chains.members()), (&1.into(), vec![1, 2, 3]), "{status}");
}

#[test]
fn clients_with_bad_manners_are_answered() {
    let mut chains = Chains::new();
    fs::write(chains.path("password"), "tree\n").unwrap();
    chains.start(1, "--first-members 1 --password-file password");
    chains.await_well();
    let connect = || Connection::to(&chains.address(1)).unwrap();
    let mut client = connect();
    assert!(client.ask("GET a").unwrap().starts_with("-NOAUTH"));
    assert!(client.ask("AUTH wood").unwrap().starts_with("-WRONGPASS"));
    assert_eq!(client.ask("AUTH tree").unwrap(), "+OK");
    assert_eq!(client.ask("GET a").unwrap(), "nil");
    for (line, said) in [
        ("FROB", "-ERR unknown command 'FROB'"),
        ("GET", "-ERR wrong number of arguments"),
        ("SET a word", "+OK"),
        ("INCRBY a 1", "-ERR value is not an integer"),
        ("TRANSFER a b 1", "-ERR value is not an integer"),
        ("TRANSFER b c 1", "-INSUFFICIENT there is 0, and 1 was to go"),
        ("ONCE 5 40 INCRBY n 1", ":1"),
        ("ONCE 5 24 INCRBY n 1", "-STALE request 24 of client 5 is older than 40"),
        ("ONCE 5 25 INCRBY n 1", ":2"),
        ("FORGET 5", ":2"),
        ("INFO", "# Chain"),
        ("PING", "+PONG"),
    ] {
        let mut client = connect();
        client.ask("AUTH tree").unwrap();
        let found = client.ask(line).unwrap();
        assert!(found.starts_with(said), "{line}: {found}");
    }
    // Bytes that are no requests end the connection alone.
    for bytes in ["*2147483648\r\n", "*2\r\n$9223372036854775807\r\n", "*1\r\n$-5\r\n", "*1\r\nx\r\n", "\"open\r\n"] {
        let mut client = connect();
        let said = client.ask(bytes).unwrap();
        assert!(said.starts_with("-ERR Protocol error"), "{bytes:?}: {said}");
        assert!(client.reply().is_err(), "{bytes:?}");
    }
    assert_eq!(client.ask("PING").unwrap(), "+PONG");
    chains.end(1);
}
