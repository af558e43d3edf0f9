//! A bank on three machines.
//!
//! An etcd, and on each machine a process (here all on one):
//!
//! ```sh
//! etcd &
//! cargo run -p cairn-chain --features process --example bank_of_three -- 1 /tmp/bank-1 127.0.0.1:7501 http://127.0.0.1:2379
//! cargo run -p cairn-chain --features process --example bank_of_three -- 2 /tmp/bank-2 127.0.0.1:7502 http://127.0.0.1:2379
//! cargo run -p cairn-chain --features process --example bank_of_three -- 3 /tmp/bank-3 127.0.0.1:7503 http://127.0.0.1:2379
//! ```
//!
//! Each reads lines: `status`; `sums`, which the head answers, and the tail; at the head `transfer CLIENT REQUEST FROM TO`, whose request is a number that rises with each new one of the client, and is the same when it asks again. Kill one, and start it again.

mod accounts;

use chain::process::{Options, Process};

use accounts::{ACCOUNTS, CLIENTS, sums, transfer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, file, listen, etcd] = &arguments[..] else {
        return Err("bank MACHINE FILE LISTEN ETCD: 1 to 3, a path, host:port, http://host:port".into());
    };
    let options = Options::new(machine.parse()?, listen, &[etcd], "/cairn/bank");
    let options = options.anyone().first_members(&[1, 2, 3]);
    let process = Process::start(file, &options)?;
    println!("machine {machine} listens at {}", process.address());
    for line in std::io::stdin().lines() {
        match answer(&process, &line?) {
            Ok(said) => println!("{said}"),
            Err(error) => println!("error: {error}"),
        }
    }
    Ok(())
}

fn answer(process: &Process, line: &str) -> Result<String, Box<dyn std::error::Error>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let index = |word: &str, most: usize| match word.parse::<usize>() {
        Ok(number) if number < most => Ok(number),
        _ => Err(format!("{word} is not from 0 to {}", most - 1)),
    };
    Ok(match words[..] {
        ["status"] => {
            let status = process.node().status();
            let role = match (status.is_head(), status.is_tail()) {
                (true, _) => "head",
                (false, true) => "tail",
                (false, false) => "neither head nor tail",
            };
            let reads = if status.reads { "answers `sums`" } else { "does not answer `sums`" };
            format!("{:?}, {role}, {reads}, {:?}; the chain: {:?}", status.id, status.progress, process.view())
        }
        ["sums"] => {
            let (sum, last) = sums(process.node())?;
            format!("{sum} in all accounts, last requests {last:?}")
        }
        ["transfer", client, request, from, to] => {
            let (client, from, to) = (index(client, CLIENTS)?, index(from, ACCOUNTS)?, index(to, ACCOUNTS)?);
            match transfer(process.node(), client, request.parse()?, from, to)? {
                Some(left) => format!("{left} left in account {from}"),
                None => "an old request".into(),
            }
        }
        _ => "status, sums, or transfer CLIENT REQUEST FROM TO".into(),
    })
}
