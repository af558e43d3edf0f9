//! Each command that has keys, at its worst, leaves the thread that serves its connection; or is known to be brief whatever it meets.

use std::collections::BTreeSet;

use pmem::DomainChoice;

use crate::support::{Client, Reply, Running};

/// Elements of each collection, and bytes of each string.
const MANY: usize = 30_000;
const BYTES: usize = 1 << 20;

/// A line for each command: what comes before it, if anything, and the request. In a request `{n}` stands for so many different names, `{n:3}` for so many threes of numbers and a name, `{bytes}` for a long string.
const HEAVY: &str = "\
GET str
GETEX str
GETRANGE str 0 -1
SUBSTR str 0 -1
MGET none str
SET t {bytes}
SETEX t 100 {bytes}
PSETEX t 100000 {bytes}
DEL t; SETNX t {bytes}
GETSET t {bytes}
MSET t {bytes}
DEL t; MSETNX t {bytes}
APPEND t {bytes}
SETRANGE t 10 {bytes}
COPY str t REPLACE; GETDEL t
BITCOUNT str
BITPOS zeros 1
BITOP OR t str zeros
BITFIELD small {60000:get}
BITFIELD_RO small {60000:get}
LCS one other LEN
COPY str t REPLACE
COPY sorted t REPLACE
DUMP str
DUMP list
DUMP sorted
RESTORE t 0 {dump} REPLACE
PFADD sketch {60000}
PFCOUNT {100:sketch}
DEL t; PFMERGE t {100:sketch}
DEL {9000}
UNLINK {9000}
EXISTS {9000}
TOUCH {9000}
SORT list ALPHA
SORT list BY nosort STORE t
SORT_RO list ALPHA
MEMORY USAGE list SAMPLES 0
LRANGE list 0 -1
COPY list t REPLACE; LTRIM t 0 14999
COPY list t REPLACE; LREM t 0 m29999
COPY list t REPLACE; LINSERT t BEFORE m15000 x
LPOS list none
COPY list t REPLACE; LPOP t 20000
COPY list t REPLACE; RPOP t 20000
COPY list t REPLACE; LMPOP 1 t LEFT COUNT 20000
COPY list t REPLACE; BLMPOP 0 1 t LEFT COUNT 20000
DEL t; LPUSH t {5000}
DEL t; RPUSH t {5000}
LPUSHX t {5000}
RPUSHX t {5000}
DEL t; SADD t {5000}
SREM t {5000}
SMEMBERS set
SMISMEMBER set {9000}
SUNION set same
SINTER set same
SDIFF set same
SINTERCARD 2 set same
SUNIONSTORE t set same
SINTERSTORE t set same
SDIFFSTORE t set none
COPY set t REPLACE; SPOP t 20000
SRANDMEMBER set -100000
SSCAN set 0 COUNT 30000
DEL t; HSET t {5000:2}
HMSET t {5000:2}
HDEL t {5000:2}
HGETALL hash
HKEYS hash
HVALS hash
HMGET hash {9000}
HRANDFIELD hash -100000
HSCAN hash 0 COUNT 30000
DEL t; ZADD t {5000:2}
ZREM t {9000:2}
ZMSCORE sorted {9000}
ZRANGE sorted 0 -1
ZREVRANGE sorted 0 -1
ZRANGEBYSCORE sorted -inf +inf
ZREVRANGEBYSCORE sorted +inf -inf
ZRANGEBYLEX equal - +
ZREVRANGEBYLEX equal + -
ZLEXCOUNT equal - +
ZCOUNT sorted -inf +inf
ZRANK sorted m29999
ZREVRANK sorted m0
ZRANGESTORE t sorted 0 -1
ZUNION 2 sorted set
ZINTER 2 sorted set
ZDIFF 2 sorted set
ZINTERCARD 2 sorted set
ZUNIONSTORE t 2 sorted set
ZINTERSTORE t 2 sorted set
ZDIFFSTORE t 2 sorted none
COPY sorted t REPLACE; ZREMRANGEBYRANK t 0 14999
COPY sorted t REPLACE; ZREMRANGEBYSCORE t 0 14999
COPY equal t REPLACE; ZREMRANGEBYLEX t - [m2
COPY sorted t REPLACE; ZPOPMIN t 20000
COPY sorted t REPLACE; ZPOPMAX t 20000
COPY sorted t REPLACE; ZMPOP 1 t MIN COUNT 20000
COPY sorted t REPLACE; BZMPOP 0 1 t MIN COUNT 20000
ZRANDMEMBER sorted -100000
ZSCAN sorted 0 COUNT 30000
DEL t; GEOADD t {3000:3}
GEOHASH places {9000}
GEOPOS places {9000}
GEOSEARCH places FROMLONLAT 0 0 BYRADIUS 20000 KM
GEOSEARCHSTORE t places FROMLONLAT 0 0 BYRADIUS 20000 KM
GEORADIUS places 0 0 20000 KM
GEORADIUS_RO places 0 0 20000 KM
GEORADIUSBYMEMBER places m0 20000 KM
GEORADIUSBYMEMBER_RO places m0 20000 KM
XRANGE stream - +
XREVRANGE stream + -
XREAD STREAMS stream 0
XREADGROUP GROUP group one STREAMS stream >
XPENDING stream group - + 20000
XCLAIM stream group two 0 {ids}
XAUTOCLAIM stream group two 0 0 COUNT 20000
XINFO STREAM stream FULL COUNT 0
XACK stream group {ids}
XDEL stream {ids}
COPY stream t REPLACE; XTRIM t MAXLEN 1
COPY stream t REPLACE; XADD t MAXLEN 1 * a b
DEL t; XADD t * a {bytes}
EVAL for_i=1,10000_do_redis.call('GET','small')end 0
EVAL_RO for_i=1,10000_do_redis.call('GET','small')end 0
EVALSHA {sha} 0
EVALSHA_RO {sha} 0
FCALL busy 0
FCALL_RO busy 0
MULTI; LRANGE list 0 -1; EXEC
MSET {12000:2}
DBSIZE
KEYS *
SCAN 0 COUNT 30000
FLUSHDB
";

/// What these do is bounded by a constant, whatever is there; or they wait for others and then take one element. A field, member or element is read whole.
const BRIEF: &str = "\
blmove blpop brpop brpoplpush bzpopmax bzpopmin decr decrby expire expireat expiretime geodist getbit hexists hget hincrby hincrbyfloat hlen hsetnx hstrlen incr incrby
incrbyfloat lindex llen lmove lset move object persist pexpire pexpireat pexpiretime pttl rename renamenx rpoplpush scard setbit sismember smove strlen ttl type watch xgroup xlen xsetid zcard
zincrby zscore";

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(text) => String::from_utf8(text).unwrap(),
        other => panic!("no text: {other:?}"),
    }
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("m{n}"))
}

struct Filled {
    client: Client,
    dump: Vec<u8>,
    ids: Vec<String>,
    sha: String,
}

impl Filled {
    /// So many elements each time.
    fn add(client: &mut Client, command: &str, key: &str, each: impl Fn(usize) -> Vec<String>) {
        for from in (0..MANY).step_by(1000) {
            let mut words = vec![command.to_owned(), key.to_owned()];
            words.extend((from..from + 1000).flat_map(&each));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert!(matches!(client.ask(&words), Reply::Int(_)), "{command}");
        }
    }

    fn begin(mut client: Client) -> Self {
        let name = |n: usize| format!("m{n}");
        for (command, key) in [("RPUSH", "list"), ("SADD", "set"), ("SADD", "same")] {
            Self::add(&mut client, command, key, |n| vec![name(n)]);
        }
        Self::add(&mut client, "HSET", "hash", |n| vec![name(n), n.to_string()]);
        Self::add(&mut client, "ZADD", "sorted", |n| vec![n.to_string(), name(n)]);
        Self::add(&mut client, "ZADD", "equal", |n| vec!["0".to_owned(), name(n)]);
        Self::add(&mut client, "GEOADD", "places", |n| vec![(n % 180).to_string(), (n % 80).to_string(), name(n)]);
        let mut ids = Vec::new();
        for n in 1..=MANY {
            client.send(format!("XADD stream {n}-0 f v\r\n").as_bytes());
            if n % 1000 == 0 {
                (0..1000).for_each(|_| drop(client.reply()));
            }
            ids.push(format!("{n}-0"));
        }
        client.say("XGROUP CREATE stream group 0");
        let short = "abcdefgh".repeat(150);
        for (key, value) in [
            ("str", "a".repeat(BYTES)),
            ("zeros", "\0".repeat(BYTES)),
            ("small", "12345678".to_owned()),
            ("one", short.clone()),
            ("other", short),
        ] {
            assert_eq!(client.ask(&["SET", key, &value]), Reply::ok());
        }
        names(100).for_each(|name| drop(client.ask(&["PFADD", &format!("sketch{name}"), "a"])));
        let body = "for _ = 1, 10000 do redis.call('GET', 'small') end";
        let sha = text(client.ask(&["SCRIPT", "LOAD", body]));
        let library = format!(
            "#!lua name=l\nredis.register_function{{function_name='busy',callback=function() {body} end,flags={{'no-writes'}}}}"
        );
        assert_eq!(text(client.ask(&["FUNCTION", "LOAD", &library])), "l");
        let Reply::Bulk(dump) = client.say("DUMP str") else { panic!("no dump") };
        Self { client, dump, ids, sha }
    }

    /// The words of a request.
    fn words(&self, line: &str) -> Vec<Vec<u8>> {
        let mut words: Vec<Vec<u8>> = Vec::new();
        for word in line.split(' ') {
            let count = |kind: &str| word.strip_prefix('{')?.strip_suffix(kind)?.parse::<usize>().ok();
            if let Some(count) = count("}") {
                words.extend(names(count).map(String::into_bytes));
            } else if let Some(count) = count(":2}") {
                words.extend((0..count).flat_map(|n| [n.to_string().into_bytes(), format!("m{n}").into_bytes()]));
            } else if let Some(count) = count(":3}") {
                let three = |n: usize| [(n % 180).to_string(), (n % 80).to_string(), format!("m{n}")];
                words.extend((0..count).flat_map(three).map(String::into_bytes));
            } else if let Some(count) = count(":sketch}") {
                words.extend(names(count).map(|name| format!("sketch{name}").into_bytes()));
            } else if let Some(count) = count(":get}") {
                words.extend((0..count / 3).flat_map(|_| ["GET", "u8", "0"]).map(|word| word.as_bytes().to_vec()));
            } else {
                match word {
                    "{bytes}" => words.push(vec![b'b'; BYTES]),
                    "{dump}" => words.push(self.dump.clone()),
                    "{sha}" => words.push(self.sha.clone().into_bytes()),
                    "{ids}" => words.extend(self.ids.iter().take(6000).map(|id| id.clone().into_bytes())),
                    other if other.contains("redis.call") => words.push(other.replace('_', " ").into_bytes()),
                    other => words.push(other.as_bytes().to_vec()),
                }
            }
        }
        words
    }

    fn ask(&mut self, line: &str) -> Reply {
        let mut bytes = Vec::new();
        let words = self.words(line);
        bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(&word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.client.send(&bytes);
        let reply = self.client.reply();
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
        reply
    }
}

#[test]
fn what_takes_long_leaves_the_thread_that_serves() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut filled, mut other) = (Filled::begin(running.client()), running.client());
    let mut asked = BTreeSet::new();
    let mut stayed = Vec::new();
    for line in HEAVY.lines() {
        let requests: Vec<&str> = line.split("; ").collect();
        let (last, first) = requests.split_last().unwrap();
        first.iter().for_each(|line| drop(filled.ask(line)));
        let before = other.runs_apart();
        filled.ask(last);
        if other.runs_apart() == before {
            stayed.push(line);
        }
        asked.insert(last.split(' ').next().unwrap().to_ascii_lowercase());
    }
    assert!(stayed.is_empty(), "not run on another thread: {stayed:#?}");
    // Each other command that has keys is known to be brief.
    let Reply::Array(all) = filled.client.say("COMMAND") else { panic!("no commands") };
    let brief: BTreeSet<&str> = BRIEF.split_ascii_whitespace().collect();
    for command in all {
        let Reply::Array(fields) = command else { panic!("no command") };
        let (name, specifications) = (text(fields[0].clone()), &fields[8]);
        let is_of_a_channel = name.starts_with('s') && (name.contains("subscribe") || name == "spublish");
        let has_keys = *specifications != Reply::Array(Vec::new()) && !is_of_a_channel;
        let known = asked.contains(&name) || brief.contains(&*name);
        assert!(!has_keys || known, "{name} has keys: write down its worst case, or that it is brief");
    }
}
