//! Processes on hosts.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use testnet::Net;

fn state(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1[..1].to_owned())
}

#[test]
fn a_process_runs_on_its_host_and_its_output_is_read() {
    let Some(net) = Net::or_say_why(2) else { return };
    for index in 0..2 {
        let mut command = Command::new("ip");
        command.args(["-o", "-4", "addr", "show", "dev", "eth0"]).stdout(Stdio::piped());
        let mut process = net.host(index).spawn(&mut command).unwrap();
        let mut line = String::new();
        BufReader::new(process.child().stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(&format!("{}/24", net.host(index).addr())), "{line}");
        assert!(process.wait().unwrap().success());
    }
}

#[test]
fn a_process_is_stopped_goes_on_and_is_killed() {
    let Some(net) = Net::or_say_why(1) else { return };
    let mut process = net.host(0).spawn(Command::new("sleep").arg("1000")).unwrap();
    for _ in 0..50 {
        process.pause().unwrap();
        assert_eq!(state(process.id()).as_deref(), Some("T"));
        process.resume().unwrap();
    }
    process.pause().unwrap();
    assert!(!process.kill().unwrap().success());
    assert_eq!(state(process.id()), None);
}

#[test]
fn one_that_has_ended_can_be_stopped_all_the_same() {
    let Some(net) = Net::or_say_why(1) else { return };
    let mut process = net.host(0).spawn(&mut Command::new("true")).unwrap();
    process.pause().unwrap();
    process.resume().unwrap();
    assert!(process.wait().unwrap().success());
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let Some(net) = Net::or_say_why(1) else { return };
    let error = net.host(0).spawn(&mut Command::new("no-such-program")).unwrap_err();
    assert!(error.to_string().contains("no-such-program"), "{error}");
}
