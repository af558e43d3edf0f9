//! An etcd that lets in only whom it knows: TLS with certificates on both sides, users and rights.

use std::fs::read;
use std::path::Path;
use std::time::Duration;

use membership::{Access, Error, Members};
use testnet::Certificate;

use crate::etcd::{Etcd, How};
use crate::{LIMIT, LONG, eventually, member};

const WAIT: Duration = Duration::from_secs(10);
/// For what must fail.
const SHORT_WAIT: Duration = Duration::from_secs(4);

/// Has it let in users alone, of whom `cairn` (`secret`) may read and write below /cairn/.
pub fn ask_for_users(etcd: &Etcd) {
    for line in [
        "user add root:top",
        "user grant-role root root",
        "role add cairn",
        "role grant-permission cairn readwrite /cairn/ --prefix=true",
        "user add cairn:secret",
        "user grant-role cairn cairn",
        "auth enable",
    ] {
        etcd.ctl(&line.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn certificates_are_asked_for_and_looked_at_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let [root, other] = ["root", "other"].map(|name| Certificate::root(dir.path(), name).unwrap());
    let own = root.sign(dir.path(), "etcd", "IP:127.0.0.1").unwrap();
    let client = root.sign(dir.path(), "client", "DNS:client").unwrap();
    let strangers = other.sign(dir.path(), "stranger", "DNS:client").unwrap();
    let etcd = Etcd::start_with(1, How { options: Vec::new(), tls: Some((own, root.clone())) });
    let pem = |file: &Path| read(file).unwrap();
    let with = |endpoint: &str, root: &Certificate| Access::new(&[endpoint]).roots(pem(&root.chain));
    let at = |root: &Certificate| with(&etcd.endpoints()[0], root);
    let shows = |access: Access, shown: &Certificate| access.certificate(pem(&shown.chain), pem(&shown.key));

    let members = Members::connect(shows(at(&root), &client), "/cairn/test", WAIT).unwrap();
    let leadership = members.campaign(&member("a"), LONG, LIMIT).unwrap();
    assert!(leadership.is_held() && members.leader().unwrap().is_some());

    let elsewhere = etcd.endpoints()[0].replace("127.0.0.1", "localhost");
    for (access, what, why) in [
        (shows(at(&other), &client), "of another root", "certificate"),
        (shows(with(&elsewhere, &root), &client), "of another name", "certificate"),
        (at(&root), "without one", ""),
        (shows(at(&root), &strangers), "with a stranger's", ""),
    ] {
        let error = Members::connect(access, "/cairn/test", SHORT_WAIT).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }) && error.to_string().contains(why), "{what}: {error}");
    }
    let mixed = Access::new(&[&etcd.endpoints()[0]])
        .roots(pem(&root.chain))
        .certificate(pem(&client.chain), pem(&strangers.key));
    let error = Members::connect(mixed, "/cairn/test", WAIT).unwrap_err();
    assert!(matches!(error, Error::Unusable { .. }), "a key that is another's: {error}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_sent() {
    let http = Access::new(&["http://127.0.0.1:1"]);
    let https = Access::new(&["https://127.0.0.1:1"]);
    let (cert, key) = (
        "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----",
        "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----",
    );
    for access in [
        https.clone(),
        http.clone().roots(cert),
        http.certificate(cert, key),
        https.clone().roots("x"),
        https.clone().roots(cert).certificate("x", key),
        https.roots(cert).certificate(cert, cert),
    ] {
        let error = Members::connect(&access, "/p", WAIT).unwrap_err();
        assert!(matches!(error, Error::Argument { .. }), "{access:?}: {error}");
    }
}

#[test]
fn a_user_may_what_it_has_rights_for() {
    let mut etcd = Etcd::start_with(1, How { options: vec!["--auth-token-ttl".into(), "1".into()], tls: None });
    let user = |name: &str, password: &str| Access::new(&etcd.endpoints()).user(name, password);
    let refused = |access: Access, prefix: &str, why: &str| {
        let error = Members::connect(access, prefix, WAIT).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }) && error.to_string().contains(why), "{error}");
    };
    refused(user("cairn", "secret"), "/cairn/test", "authentication is not enabled");
    ask_for_users(&etcd);
    refused(user("cairn", "wrong"), "/cairn/test", "invalid user ID or password");
    refused(user("cairn", "secret"), "/other", "permission denied");
    refused(Access::new(&etcd.endpoints()), "/cairn/test", "user name is empty");

    let members = Members::connect(user("cairn", "secret"), "/cairn/test", WAIT).unwrap();
    let announced = members.announce(&member("a"), LONG).unwrap();
    let leadership = members.campaign(&member("a"), LONG, LIMIT).unwrap();
    // A token that was not used for so long has ended.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(members.copies().unwrap(), [member("a")]);
    // And all have when the member that gave them does.
    etcd.kill(0);
    etcd.restart(0);
    eventually("it is answered again", || members.leader().is_ok_and(|leader| leader.is_some()));
    assert!(leadership.is_held());
    announced.check().unwrap();
    // Leases are renewed all the while.
    let next = members.announce(&member("b"), Duration::from_secs(2)).unwrap();
    std::thread::sleep(Duration::from_secs(4));
    eventually("both are announced", || members.copies().unwrap() == [member("a"), member("b")]);
    drop(next);
}
