//! Certificates for tests of TLS, made by openssl.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate and its private key, both in PEM; the key is readable by its owner alone.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// File of the certificate.
    pub chain: PathBuf,
    /// File of the private key.
    pub key: PathBuf,
}

impl Certificate {
    /// A root, in `NAME.pem` and `NAME.key` of that directory.
    ///
    /// # Errors
    /// openssl is not to be had, or cannot write there.
    pub fn root(dir: &Path, name: &str) -> io::Result<Self> {
        make(dir, name, &["-addext", "basicConstraints=critical,CA:TRUE"])
    }

    /// One that this root has signed, of a machine with these names, such as `DNS:localhost,IP:127.0.0.1`.
    ///
    /// # Errors
    /// As for [`root`](Self::root).
    pub fn sign(&self, dir: &Path, name: &str, machine: &str) -> io::Result<Self> {
        let (root, key) = (self.chain.to_string_lossy(), self.key.to_string_lossy());
        let names = format!("subjectAltName={machine}");
        let end = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", &names];
        make(dir, name, &[&["-CA", &*root, "-CAkey", &*key][..], &end[..]].concat())
    }
}

fn make(dir: &Path, name: &str, options: &[&str]) -> io::Result<Certificate> {
    let made = Certificate { chain: dir.join(format!("{name}.pem")), key: dir.join(format!("{name}.key")) };
    let mut openssl = Command::new("openssl");
    openssl.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(' '));
    openssl.args(["-subj", &format!("/CN={name}")]).args(options);
    let output = openssl.arg("-keyout").arg(&made.key).arg("-out").arg(&made.chain).output()?;
    if output.status.success() {
        Ok(made)
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}
