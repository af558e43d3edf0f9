//! An etcd of a test's own: on ports that were free, with data in a directory that goes with it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

pub struct Etcd {
    child: Child,
    endpoint: String,
    _dir: TempDir,
}

impl Etcd {
    /// One that answers when this returns.
    pub fn start() -> Self {
        // Another process may take a port between the look and the start.
        for _ in 0..5 {
            let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
            let [client, peer] = [0, 1].map(|at| format!("http://{}", taken[at].local_addr().unwrap()));
            drop(taken);
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            // It goes when the thread of the test does. What is synced here survives nothing that the tests do.
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "etcd", "--unsafe-no-fsync", "--name", "n"]);
            command.args(["--heartbeat-interval", "50", "--election-timeout", "500", "--data-dir"]).arg(dir.path());
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args(["--initial-cluster", &format!("n={peer}")]);
            let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut etcd = Self { child: quiet.spawn().unwrap(), endpoint: client, _dir: dir };
            let wait = std::time::Duration::from_secs(5);
            if membership::Members::connect(&[&etcd.endpoint], "/cairn/look", wait).is_ok() {
                return etcd;
            }
            etcd.child.kill().unwrap();
        }
        panic!("etcd does not start; tools/setup.sh installs it");
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
