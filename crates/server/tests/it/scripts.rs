//! Scripts: what they answer is what Redis answers, and each is one transaction.

mod beside;
mod functions;
mod hostile;
mod together;
mod transactions;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use pmem::DomainChoice;

use crate::differential::Redis;
use crate::support::{Running, WAIT_LIMIT, request};

const DOMAINS: [DomainChoice; 2] = [DomainChoice::Emulated, DomainChoice::File];

/// All bytes that come back for requests, up to the answer of a `PING` behind them.
fn said(stream: &mut (impl Read + Write), requests: &[u8]) -> Vec<u8> {
    const END: &[u8] = b"$7\r\nthe-end\r\n";
    stream.write_all(requests).unwrap();
    stream.write_all(&request(&["PING", "the-end"])).unwrap();
    let (mut said, mut some) = (Vec::new(), [0; 4096]);
    while !said.ends_with(END) {
        let count = stream.read(&mut some).unwrap();
        assert!(count > 0, "the connection ended behind {}", said.escape_ascii());
        said.extend_from_slice(&some[..count]);
    }
    said.truncate(said.len() - END.len());
    said
}

/// Scripts that are written on one line each.
fn expressions() -> impl Iterator<Item = Vec<String>> {
    let lines = include_str!("scripts/same.txt").lines().filter(|line| !line.starts_with("# "));
    lines.map(|line| {
        let (script, rest) = line.split_once('\t').unwrap_or((line, "0"));
        // A line of it ends with the letters that Lua has for that, outside of strings; there they are left to Lua.
        let script = script.replace("\\N", "\n");
        ["EVAL".to_owned(), script].into_iter().chain(rest.split(' ').map(str::to_owned)).collect()
    })
}

/// Of the commands about scripts.
const COMMANDS: &[&str] = &[
    "SCRIPT FLUSH",
    "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
    "EVAL return'x' 0",
    "SCRIPT LOAD return'y'",
    "EVALSHA 3f5ce8a8a2b3d5a3d5a3d5a3d5a3d5a3d5a3d5a3 0",
    "EVALSHA 0f2d5d2bd2fdcb3e51f6c1b55e1f8d55c3a48c16 0",
    "SCRIPT LOAD return(1)",
    "SCRIPT LOAD return(1)",
    "EVALSHA 9c7ca4e9e3f2d6b0b3c8e0b1f1a2d3c4e5f60718 0",
    "EVALSHA x 0",
    "EVALSHA x",
    "EVALSHA zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz 0",
    "SCRIPT EXISTS a b",
    "SCRIPT LOAD (",
    "SCRIPT LOAD",
    "SCRIPT EXISTS",
    "SCRIPT FLUSH now",
    "SCRIPT FLUSH sync x",
    "SCRIPT FLUSH async",
    "SCRIPT KILL",
    "SCRIPT NOPE",
    "SCRIPT",
    "SCRIPT HELP",
    "EVAL return(1)",
    "EVAL",
    "EVAL_RO return(redis.call('get','k')) 1 k",
    "EVAL_RO return(redis.call('set','k','v')) 1 k",
    "EVAL_RO return(redis.pcall('set','k','v')) 1 k",
    "EVAL_RO return(redis.call('publish','k','v')) 0",
    "SELECT 2",
    "EVAL return(redis.call('set','in','two')) 0",
    "EVAL return(redis.call('select','3')) 0",
    "EXISTS in",
    "SELECT 0",
    "EXISTS in",
    "MULTI;EVAL return(redis.call('incr','n')) 0;EVAL return(redis.call('nope')) 0;EVAL return{redis.call('incr','n'),KEYS[1]} 1 k;SCRIPT EXISTS x;EXEC",
    "WATCH n",
    "EVAL return(redis.call('incr','n')) 0",
    "MULTI;EVAL return(redis.call('incr','n')) 0;EXEC",
    "GET n",
    "COMMAND GETKEYS EVAL return(1) 2 a b c",
    "COMMAND GETKEYS EVALSHA x 1 a",
    "CLIENT REPLY SKIP;EVAL return(1) 0",
    "MULTI;BLMPOP x 1 a LEFT;BZMPOP -1 1 a MIN;BLPOP a x;BRPOPLPUSH a b -2;BLMOVE a b LEFT RIGHT y;BZPOPMIN a -3;EXEC",
    "PING",
];

/// Requests, one after the other; what differs is told at the end.
fn same(domain: DomainChoice, hello: &str, all: &mut dyn Iterator<Item = Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let _redis = Redis::start(dir.path()).expect("redis-server is not installed; run `make setup`");
    let running = Running::start(domain);
    let mut ours = TcpStream::connect(running.address()).unwrap();
    let mut theirs = UnixStream::connect(dir.path().join("redis.sock")).unwrap();
    ours.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    theirs.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    said(&mut ours, &request(&["HELLO", hello]));
    said(&mut theirs, &request(&["HELLO", hello]));
    let mut differ = Vec::new();
    for requests in all {
        let (one, other) = (said(&mut ours, &requests), said(&mut theirs, &requests));
        if one != other {
            let [requests, one, other] = [&requests, &one, &other].map(|bytes| bytes.escape_ascii().to_string());
            differ.push(format!("{requests}\n  ours   {one}\n  theirs {other}"));
        }
    }
    assert!(differ.is_empty(), "{domain:?} {hello}: {} differ\n{}", differ.len(), differ.join("\n"));
}

#[test]
fn answers_are_those_of_redis() {
    for (domain, hello) in [(DomainChoice::Emulated, "2"), (DomainChoice::File, "3")] {
        let as_request = |words: Vec<String>| request(&words.iter().map(String::as_str).collect::<Vec<_>>());
        same(domain, hello, &mut expressions().map(as_request));
    }
}

/// Commands of other commands, of which there may be none, or which take something else.
fn parts() -> impl Iterator<Item = String> {
    let all = [
        "acl",
        "acl foo",
        "acl whoami x",
        "acl getuser",
        "acl setuser",
        "acl list x",
        "client",
        "client foo",
        "client id x",
        "client setname",
        "client reply",
        "client kill",
        "command foo",
        "command count x",
        "command getkeys",
        "config",
        "config foo",
        "config get",
        "config set",
        "config set timeout",
        "config resetstat x",
        "pubsub",
        "pubsub foo",
        "pubsub numpat x",
        "pubsub numsub",
        "script",
        "script foo",
        "script load",
        "script exists",
        "script flush",
        "script kill x",
        "slowlog",
        "slowlog foo",
        "slowlog len x",
        "slowlog reset x",
        "xgroup",
        "xgroup foo",
        "xgroup foo s g",
        "xgroup create s g",
        "xgroup destroy s",
        "xgroup setid s g",
        "xgroup delconsumer s g",
        "xgroup createconsumer s g c x",
        "xgroup help x",
        "xinfo",
        "xinfo foo",
        "xinfo stream",
        "xinfo groups s x",
        "xinfo consumers s",
        "XINFO FOO s",
        "Xgroup Create s",
    ];
    all.into_iter().flat_map(|line| {
        let words = line.split(' ').map(|word| format!("'{word}'")).collect::<Vec<_>>().join(",");
        [
            line.to_owned(),
            format!("MULTI;SET queued 1;{line};EXEC;EXISTS queued;DEL queued"),
            format!("EVAL return(redis.pcall({words})) 0"),
            format!("EVAL return(tostring(redis.acl_check_cmd({words}))) 0"),
            format!("COMMAND GETKEYS {line}"),
        ]
    })
}

#[test]
fn commands_of_commands_are_those_of_redis() {
    let lines: Vec<_> = parts()
        .map(|line| line.split(';').flat_map(|one| request(&one.split(' ').collect::<Vec<_>>())).collect())
        .collect();
    same(DomainChoice::Emulated, "2", &mut lines.into_iter());
}

#[test]
fn commands_are_those_of_redis() {
    for (domain, hello) in [(DomainChoice::Emulated, "3"), (DomainChoice::File, "2")] {
        let lines = COMMANDS
            .iter()
            .map(|line| line.split(';').flat_map(|one| request(&one.split(' ').collect::<Vec<_>>())).collect());
        same(domain, hello, &mut lines.into_iter());
    }
}
