//! etcds of this test's own: on ports that were free, with data in a directory that goes with them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testnet::{Certificate, Net};

use crate::eventually;

pub struct Etcd {
    dir: TempDir,
    nodes: Vec<Node>,
    /// Member `i` is on host `i`; without one, all are on this machine.
    net: Option<Arc<Net>>,
    how: How,
}

/// How members are started.
#[derive(Default)]
pub struct How {
    /// Further options.
    pub options: Vec<String>,
    /// Clients speak TLS: the members' certificate, and the root of those that clients show.
    pub tls: Option<(Certificate, Certificate)>,
}

struct Node {
    client: SocketAddrV4,
    peer: SocketAddrV4,
    child: Option<Child>,
}

impl Etcd {
    /// So many members, which have a leader when this returns.
    pub fn start(members: usize) -> Self {
        Self::start_with(members, How::default())
    }

    pub fn start_with(members: usize, mut how: How) -> Self {
        // Another process may take a port between the look and the start.
        for _ in 0..5 {
            let taken: Vec<_> = (0..2 * members).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
            let addresses =
                taken.iter().map(|listener| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port(listener))).collect();
            drop(taken);
            match Self::try_start(None, addresses, how) {
                Ok(etcd) => return etcd,
                Err(again) => how = again,
            }
        }
        panic!("etcd does not start; tools/setup.sh installs it");
    }

    /// So many, each on a host of its own.
    pub fn start_on(net: &Arc<Net>, members: usize) -> Self {
        let address = |index, port| SocketAddrV4::new(net.host(index).addr(), port);
        let addresses = (0..members).flat_map(|index| [address(index, 2379), address(index, 2380)]).collect();
        let etcd = Self::try_start(Some(net.clone()), addresses, How::default());
        etcd.unwrap_or_else(|_| panic!("etcd does not start; tools/setup.sh installs it"))
    }

    fn try_start(net: Option<Arc<Net>>, addresses: Vec<SocketAddrV4>, how: How) -> Result<Self, How> {
        let nodes = addresses.chunks(2).map(|two| Node { client: two[0], peer: two[1], child: None }).collect();
        let mut etcd = Self { dir: tempfile::tempdir().unwrap(), nodes, net, how };
        (0..etcd.nodes.len()).for_each(|index| etcd.run(index));
        if etcd.is_up() { Ok(etcd) } else { Err(std::mem::take(&mut etcd.how)) }
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| self.url(node)).collect()
    }

    fn url(&self, node: &Node) -> String {
        format!("{}://{}", if self.how.tls.is_some() { "https" } else { "http" }, node.client)
    }

    pub fn kill(&mut self, index: usize) {
        let mut child = self.nodes[index].child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops it where it is; connections stay.
    pub fn pause(&self, index: usize) {
        signal(self.nodes[index].child.as_ref().unwrap(), Signal::STOP);
    }

    pub fn resume(&self, index: usize) {
        signal(self.nodes[index].child.as_ref().unwrap(), Signal::CONT);
    }

    /// Starts one that was killed, and waits until all that run have a leader.
    pub fn restart(&mut self, index: usize) {
        self.run(index);
        assert!(self.is_up(), "etcd {index} does not start again");
    }

    /// Has it forget everything.
    pub fn wipe(&mut self, index: usize) {
        std::fs::remove_dir_all(self.dir.path().join(format!("n{index}"))).unwrap();
    }

    /// Which member leads the others.
    pub fn leader(&self) -> usize {
        let leads = |index: &usize| {
            let endpoint = &self.endpoints()[*index];
            let status = self.on(*index, || self.ask(endpoint, &["endpoint", "status", "-w", "fields"]).unwrap());
            let field =
                |name: &str| status.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned)).unwrap();
            field("\"MemberID\" : ") == field("\"Leader\" : ")
        };
        (0..self.nodes.len()).find(leads).unwrap()
    }

    /// How many log-ins have been asked for since a member was started; it speaks no TLS, and is on this machine.
    pub fn log_ins(&self, index: usize) -> u64 {
        let metrics = get(self.nodes[index].client, "/metrics").unwrap();
        let of_log_ins = |line: &&str| {
            line.starts_with("grpc_server_started_total{") && line.contains("grpc_method=\"Authenticate\"")
        };
        let line = metrics.lines().find(of_log_ins);
        line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
    }

    /// As an operator would.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.on(0, || self.ask(&self.endpoints().join(","), arguments).unwrap())
    }

    /// The same, as a user.
    pub fn ctl_as(&self, user: &str, arguments: &[&str]) -> String {
        self.ctl(&[&["--user", user], arguments].concat())
    }

    fn ask(&self, endpoints: &str, arguments: &[&str]) -> Result<String, Output> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", endpoints).args(arguments);
        if let Some((own, root)) = &self.how.tls {
            command.arg("--cacert").arg(&root.chain).arg("--cert").arg(&own.chain).arg("--key").arg(&own.key);
        }
        let output = command.output().expect("etcdctl; tools/setup.sh installs it");
        if output.status.success() { Ok(String::from_utf8(output.stdout).unwrap()) } else { Err(output) }
    }

    /// Does it where the member is.
    fn on<T: Send>(&self, index: usize, what: impl FnOnce() -> T + Send) -> T {
        match &self.net {
            Some(net) => net.host(index).inside(what).unwrap(),
            None => what(),
        }
    }

    fn run(&mut self, index: usize) {
        let url = |address: SocketAddrV4| format!("http://{address}");
        let all: Vec<String> =
            self.nodes.iter().enumerate().map(|(i, node)| format!("n{i}={}", url(node.peer))).collect();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join(format!("n{index}.log")))
            .unwrap();
        let node = &self.nodes[index];
        // It goes when the thread of the test does, however that ends; on a host it goes with that.
        let mut command = Command::new(if self.net.is_some() { "etcd" } else { "setpriv" });
        if self.net.is_none() {
            command.args(["--pdeathsig", "KILL", "etcd"]);
        }
        // What is synced here survives nothing that the tests do.
        command.args(["--unsafe-no-fsync", "--logger", "zap"]);
        command.args(["--name", &format!("n{index}"), "--heartbeat-interval", "50", "--election-timeout", "500"]);
        command.arg("--data-dir").arg(self.dir.path().join(format!("n{index}")));
        for option in ["--listen-client-urls", "--advertise-client-urls"] {
            command.args([option, &self.url(node)]);
        }
        if let Some((own, root)) = &self.how.tls {
            command.arg("--cert-file").arg(&own.chain).arg("--key-file").arg(&own.key);
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&root.chain);
        }
        command.args(&self.how.options);
        for option in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
            command.args([option, &url(node.peer)]);
        }
        command.args(["--initial-cluster", &all.join(",")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = self.on(index, || command.spawn()).expect("etcd; tools/setup.sh installs it");
        self.nodes[index].child = Some(child);
    }

    /// Whether all that run say that they have a leader; false as soon as one has ended.
    fn is_up(&mut self) -> bool {
        let mut up = false;
        eventually("an etcd answers or ends", || {
            let has_ended = |node: &mut Node| Some(node.child.as_mut()?.try_wait().unwrap().is_some());
            let ended: Vec<Option<bool>> = self.nodes.iter_mut().map(has_ended).collect();
            let health = |index: usize| self.ask(&self.url(&self.nodes[index]), &["endpoint", "health"]).is_ok();
            let answers = |index: usize| match &self.how.tls {
                Some(_) => health(index),
                None => self.on(index, || is_healthy(self.nodes[index].client)),
            };
            up = ended.iter().enumerate().all(|(index, ended)| ended.is_none_or(|ended| !ended && answers(index)));
            up || ended.contains(&Some(true))
        });
        up
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for index in 0..self.nodes.len() {
            if self.nodes[index].child.is_some() {
                self.kill(index);
            }
        }
        if std::thread::panicking() {
            for index in 0..self.nodes.len() {
                let log = std::fs::read_to_string(self.dir.path().join(format!("n{index}.log"))).unwrap_or_default();
                let lines: Vec<&str> = log.lines().filter(|line| !line.contains("\"info\"")).collect();
                eprintln!("etcd {index}: {}", lines[lines.len().saturating_sub(5)..].join("\n"));
            }
        }
    }
}

pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn is_healthy(address: SocketAddrV4) -> bool {
    get(address, "/health").is_ok_and(|answer| answer.contains(r#""health":"true""#))
}

fn get(address: SocketAddrV4, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
