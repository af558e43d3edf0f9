//! Readers at every machine, while the one that they read from is paused, killed, taken out and taken in, or cut off from the others: no read is stale.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use rustix::process::Signal;
use testnet::Net;

use super::{CLIENTS, Chains, inside};
use crate::eventually;
use crate::witness::Connection;

const REGISTERS: usize = 3;
const MACHINES: usize = 3;
/// A machine that takes longer is asked no more, but another one.
const ANSWERS: Duration = Duration::from_secs(3);

/// Registers that count up, each by a client of its own. A read of one begins when it has at least its floor: what was acknowledged, or shown to a reader, before.
struct Registers {
    addresses: Vec<String>,
    asked: [AtomicU64; REGISTERS],
    floor: [AtomicU64; REGISTERS],
    /// Reads that each machine has answered.
    answered: [AtomicU64; MACHINES],
    stop: AtomicBool,
    net: Option<Arc<Net>>,
}

/// Also when an assertion fails.
struct Stops<'r>(&'r Registers);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, SeqCst);
    }
}

impl Registers {
    fn new(chains: &Chains) -> Self {
        let addresses = (1..=MACHINES).map(|machine| chains.address(machine)).collect();
        Self {
            addresses,
            asked: [const { AtomicU64::new(0) }; REGISTERS],
            floor: [const { AtomicU64::new(0) }; REGISTERS],
            answered: [const { AtomicU64::new(0) }; MACHINES],
            stop: AtomicBool::new(false),
            net: chains.net.clone(),
        }
    }

    /// None: it does not answer.
    fn ask(&self, connection: &mut Option<Connection>, machine: usize, line: &str) -> Option<String> {
        let address = &self.addresses[machine - 1];
        let connect = || Connection::within(address, ANSWERS);
        let mut open = match connection.take() {
            Some(open) => open,
            None => inside(self.net.as_deref(), CLIENTS, connect).ok()?,
        };
        let reply = open.ask(line).ok()?;
        *connection = Some(open);
        Some(reply)
    }

    /// Clients at work, and readers of each machine, while `disturb` does what it does.
    fn beside(&self, disturb: impl FnOnce()) {
        std::thread::scope(|threads| {
            let _stops = Stops(self);
            (0..REGISTERS).for_each(|register| drop(threads.spawn(move || self.count_up(register))));
            (1..=MACHINES).for_each(|machine| drop(threads.spawn(move || self.read(machine))));
            disturb();
        });
    }

    fn stops(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// Until it is acknowledged, at whichever machine does that.
    fn count_up(&self, register: usize) {
        let (mut machine, mut connection) = (1, None);
        for n in 1.. {
            self.asked[register].store(n, SeqCst);
            let line = format!("ONCE {} {n} INCRBY r{register} 1", register + 1);
            loop {
                if self.stops() {
                    return;
                }
                match self.ask(&mut connection, machine, &line) {
                    Some(reply) if reply.starts_with(':') => {
                        assert_eq!(reply, format!(":{n}"), "{line}");
                        break;
                    }
                    Some(reply) => assert!(is_refused(&reply), "{line}: {reply}"),
                    None => {}
                }
                // A machine that is paused or gone, or does not lead.
                (machine, connection) = (machine % MACHINES + 1, None);
                std::thread::sleep(Duration::from_millis(5));
            }
            self.floor[register].fetch_max(n, SeqCst);
        }
    }

    /// Reads from one machine, whatever it is.
    fn read(&self, machine: usize) {
        let mut connection = None;
        while !self.stops() {
            for register in 0..REGISTERS {
                let least = self.floor[register].load(SeqCst);
                match self.ask(&mut connection, machine, &format!("GET r{register}")) {
                    Some(reply) => self.check(machine, register, least, &reply),
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        }
    }

    /// The reply to a read that was asked when it had to be this at least.
    #[track_caller]
    fn check(&self, machine: usize, register: usize, least: u64, reply: &str) {
        if is_refused(reply) {
            return;
        }
        let seen = if reply == "nil" { 0 } else { reply.parse().unwrap_or_else(|_| panic!("{reply}")) };
        assert!(seen >= least, "machine {machine}: r{register} was {least} before the read, which found {seen}");
        let most = self.asked[register].load(SeqCst);
        assert!(seen <= most, "machine {machine}: r{register} is {seen}, and {most} was asked for");
        self.floor[register].fetch_max(seen, SeqCst);
        self.answered[machine - 1].fetch_add(1, SeqCst);
    }

    fn await_answers(&self, machine: usize) {
        let before = self.answered[machine - 1].load(SeqCst);
        eventually("a machine answers reads", || self.answered[machine - 1].load(SeqCst) > before + 20);
    }

    fn await_changes(&self) {
        let floors = || self.floor.iter().map(|floor| floor.load(SeqCst)).collect::<Vec<_>>();
        let before = floors();
        eventually("all registers count up", || floors().iter().zip(&before).all(|(now, before)| *now > before + 3));
    }
}

fn is_refused(reply: &str) -> bool {
    ["-MOVED", "-TRYAGAIN", "-UNKNOWN"].iter().any(|code| reply.starts_with(code))
}

/// Head and tail.
fn ends(chains: &Chains) -> (usize, usize) {
    let members = chains.members();
    (members[0], *members.last().unwrap())
}

/// A machine sleeps for longer than its lease, and others go on without it. It wakes with requests in its sockets that were asked meanwhile.
fn pause(chains: &Chains, registers: &Registers, machine: usize) {
    let mut asked: Vec<Connection> = (0..REGISTERS).map(|_| chains.connect(machine).unwrap()).collect();
    for connection in &mut asked {
        assert_eq!(connection.ask("PING").unwrap(), "+PONG");
    }
    let process = chains.running[machine - 1].as_ref().unwrap();
    process.signal(Signal::STOP);
    eventually("it is out", || !chains.members().contains(&machine));
    registers.await_changes();
    let floors: Vec<u64> = registers.floor.iter().map(|floor| floor.load(SeqCst)).collect();
    for (register, connection) in asked.iter_mut().enumerate() {
        connection.send(&format!("GET r{register}")).unwrap();
    }
    process.signal(Signal::CONT);
    for (register, connection) in asked.iter_mut().enumerate() {
        registers.check(machine, register, floors[register], &connection.reply().unwrap());
    }
    chains.await_well();
}

#[test]
fn no_read_is_stale() {
    let mut chains = Chains::started();
    let registers = Registers::new(&chains);
    registers.beside(|| {
        let (head, tail) = ends(&chains);
        registers.await_answers(head);
        registers.await_answers(tail);
        pause(&chains, &registers, tail);

        let (_, tail) = ends(&chains);
        chains.kill(tail);
        registers.await_changes();
        let (_, next) = ends(&chains);
        assert_ne!(next, tail);
        registers.await_answers(next);
        chains.start(tail, "");
        chains.await_well();
        registers.await_answers(tail);

        for words in ["remove", "join"] {
            let changed = chains.chain(&format!("{words} {tail}"));
            assert_eq!(changed.code, 0, "{changed:?}");
            registers.await_changes();
            registers.await_answers(ends(&chains).1);
        }
        let (head, _) = ends(&chains);
        pause(&chains, &registers, head);
        let (head, tail) = ends(&chains);
        registers.await_answers(head);
        registers.await_answers(tail);
    });
    agree(&chains, &registers);
}

/// What is there at the end, at both.
fn agree(chains: &Chains, registers: &Registers) {
    let (head, tail) = ends(chains);
    for machine in [head, tail] {
        for register in 0..REGISTERS {
            let found = chains.ask_until(&[machine], &format!("GET r{register}"));
            registers.check(machine, register, registers.floor[register].load(SeqCst), &found);
        }
    }
}

/// Clients reach the machine that is cut off, and others go on without it: it has to know by itself that it answers no more.
#[test]
fn no_read_is_stale_of_a_machine_that_is_cut_off() {
    let Some(net) = Net::or_say_why(CLIENTS + 1) else { return };
    let net = Arc::new(net);
    let chains = Chains::started_with(Some(net.clone()));
    let registers = Registers::new(&chains);
    registers.beside(|| {
        for (is_tail, from_members) in [(true, true), (true, false), (false, true), (false, false)] {
            let (head, tail) = ends(&chains);
            registers.await_answers(head);
            registers.await_answers(tail);
            let victim = if is_tail { tail } else { head };
            println!("machine {victim}, {is_tail}, {from_members}");
            net.cut(victim, 0).unwrap();
            if from_members {
                (1..=MACHINES).filter(|other| *other != victim).for_each(|other| net.cut(victim, other).unwrap());
            }
            eventually("it is out", || !chains.members().contains(&victim));
            registers.await_changes();
            let said = chains.ask(victim, "GET r0").unwrap();
            assert!(is_refused(&said), "{said}");
            net.heal().unwrap();
            chains.await_well();
        }
    });
    agree(&chains, &registers);
}

/// Which machine answers what, and where it sends clients otherwise.
#[test]
fn each_machine_says_where_to_ask() {
    let chains = Chains::started();
    assert_eq!(chains.ask_until(&[3], "GET apples"), "nil", "nothing was ever written");
    let moved = |machine: usize, why: &str| format!("-MOVED 0 {} machine {machine} {why}", chains.address(machine));
    let leads = moved(1, "leads; nothing has changed here, ask there");
    for machine in [2, 3] {
        eventually("it says who leads", || chains.ask(machine, "SET apples 17").unwrap() == leads);
    }
    assert_eq!(chains.ask_until(&[1], "SET apples 17"), "+OK");
    let reads = moved(3, "answers reads; nothing was read here, ask there");
    eventually("it says who reads", || chains.ask(2, "GET apples").unwrap() == reads);
    for machine in [1, 3] {
        assert_eq!(chains.ask_until(&[machine], "GET apples"), "17");
    }
    // A machine that the scheduler leaves alone for longer than its lease answers no reads for a moment.
    eventually("the status says who answers reads", || {
        let said = chains.chain("status").out.contains("reads    are answered by machine 1 and machine 3\n");
        let status: serde_json::Value = serde_json::from_str(&chains.chain("status --json").out).unwrap_or_default();
        let answers = status["members"].as_array().into_iter().flatten().map(|one| &one["answers_reads"]);
        said && status["tail"] == 3 && answers.eq([true, false, true].iter())
    });
    let info = |machine: usize| {
        let connection = redis::Client::open(format!("redis://{}/", chains.address(machine))).unwrap();
        redis::cmd("INFO").query::<String>(&mut connection.get_connection().unwrap()).unwrap()
    };
    for (machine, role, answers) in [(1, "head", 1), (2, "replica", 0), (3, "tail", 1)] {
        eventually("INFO says so, too", || {
            let said = info(machine);
            said.contains(&format!("role:{role}\r\n"))
                && said.contains(&format!("answers_reads:{answers}\r\n"))
                && said.contains("tail:3\r\n")
        });
    }
    let info = info(3);
    let counted = info.lines().find_map(|line| line.strip_prefix("reads_at_tail:")?.parse::<u64>().ok());
    assert!(counted.is_some_and(|counted| counted >= 2), "{info}");
}
