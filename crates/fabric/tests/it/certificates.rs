//! Certificates, made by openssl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use fabric::{Options, Tls};

/// One root signed for `localhost` and another end; another root signed for a stranger.
pub(crate) struct Certificates {
    pub(crate) root: Vec<u8>,
    pub(crate) ours: (Vec<u8>, Vec<u8>),
    pub(crate) strangers_root: Vec<u8>,
    pub(crate) strangers: (Vec<u8>, Vec<u8>),
}

pub(crate) fn certificates() -> &'static Certificates {
    static MADE: OnceLock<Certificates> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let roots = ["root", "other"].map(|name| make(dir.path(), name, None));
        let ours = make(dir.path(), "ours", Some(&roots[0]));
        let strangers = make(dir.path(), "stranger", Some(&roots[1]));
        let read = |(certificate, key): &(PathBuf, PathBuf)| (fs::read(certificate).unwrap(), fs::read(key).unwrap());
        Certificates {
            root: read(&roots[0]).0,
            ours: read(&ours),
            strangers_root: read(&roots[1]).0,
            strangers: read(&strangers),
        }
    })
}

/// Of an end that has a certificate of the root and knows the tests' secret.
pub(crate) fn options() -> Options {
    let Certificates { root, ours, .. } = certificates();
    Options { tls: Some(Tls::from_pem(&ours.0, &ours.1, root).unwrap()), ..crate::tcp::options() }
}

fn make(dir: &Path, name: &str, root: Option<&(PathBuf, PathBuf)>) -> (PathBuf, PathBuf) {
    let (certificate, key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
    let mut openssl = Command::new("openssl");
    openssl.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(' '));
    openssl.args(["-subj", &format!("/CN={name}")]);
    if let Some((root, root_key)) = root {
        openssl.arg("-CA").arg(root).arg("-CAkey").arg(root_key);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=DNS:localhost"]);
    }
    let output = openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (certificate, key)
}
