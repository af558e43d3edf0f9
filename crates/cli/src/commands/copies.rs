//! Where the replicas of a log are, who is trusted, who leads.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use ::log::fabric::{Options as Trusted, Secret, Tls};
use ::log::{Log, Options, Recovered, Replicas};
use membership::{Access, Leadership, Member, Members};

use crate::args::{Copies, Etcd, EtcdAccess, Known, Trust};
use crate::failure::Failure;
use crate::output::note;

/// Longest secret, key or list of certificates that is read.
const FILE_MAX: u64 = 1 << 20;

// ---- trust ----------------------------------------------------------------------------------------------------------

/// How the ends reach each other, and what they know each other by.
pub fn trust(args: &Trust) -> Result<Trusted, Failure> {
    let mut trusted = known(&args.known)?;
    trusted.transport = args.fabric.clone();
    trusted.greeting_timeout = Duration::from_millis(args.connect_within);
    Ok(trusted)
}

/// What they know each other by alone.
pub fn known(args: &Known) -> Result<Trusted, Failure> {
    let mut trusted = Trusted::default();
    if let Some(path) = &args.secret_file {
        let secret = Secret::new(&private(path)?);
        trusted.secret = Some(secret.map_err(|error| of_file(path, &error))?);
    }
    match (&args.cert, &args.key, &args.ca) {
        (Some(cert), Some(key), Some(ca)) => {
            let tls = Tls::from_pem(&read(cert)?, &private(key)?, &read(ca)?);
            trusted.tls = Some(tls.map_err(|error| {
                let of_key = error.to_string().contains("private key");
                of_file(if of_key { key } else { cert }, &error)
            })?);
        }
        (None, None, None) => {}
        _ => return Err(Failure::new("TLS needs --cert, --key and --ca", "give all three, or none")),
    }
    if trusted.secret.is_none() && trusted.tls.is_none() {
        let next = "give --secret-file, or --cert, --key and --ca, or all of them; (umask 077; head -c 32 /dev/urandom > secret) makes a secret";
        return Err(Failure::new("nothing says how leader and replicas know each other", next));
    }
    Ok(trusted)
}

fn of_file(path: &Path, error: &::log::fabric::Error) -> Failure {
    let message = error.to_string();
    let (what, next) = message.rsplit_once("; ").unwrap_or((&message, "see what is in it"));
    Failure::new(format!("{}: {what}", path.display()), next)
}

/// A file that only its owner may read.
fn private(path: &Path) -> Result<Vec<u8>, Failure> {
    let mode = fs::metadata(path).map_err(|error| Failure::file("read", path, &error))?.permissions().mode();
    if mode & 0o077 != 0 {
        let file = path.display();
        let what = format!("{file}: others than its owner may read or write it (mode {:03o})", mode & 0o777);
        return Err(Failure::new(
            what,
            format!("chmod 600 {file}; take another secret if they may have read this one"),
        ));
    }
    read(path)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::file("read", path, &error);
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(Failure::new(format!("{}: longer than {FILE_MAX} bytes", path.display()), "name another file"));
    }
    Ok(bytes)
}

// ---- etcd -----------------------------------------------------------------------------------------------------------

/// Where etcd is, and how it lets this program in.
pub fn access(etcd: &[String], args: &EtcdAccess) -> Result<Access, Failure> {
    let mut access = Access::new(etcd);
    match &args.etcd_ca {
        Some(roots) => access = access.roots(pem(read(roots)?, roots, "certificate", "--etcd-ca")?),
        None => {
            if let Some(endpoint) = etcd.iter().find(|endpoint| endpoint.starts_with("https:")) {
                let what = format!("{endpoint} cannot be spoken to without the roots of etcd's certificates");
                return Err(Failure::new(what, "give them with --etcd-ca"));
            }
        }
    }
    match (&args.etcd_cert, &args.etcd_key) {
        (Some(cert), Some(key)) => {
            let chain = pem(read(cert)?, cert, "certificate", "--etcd-cert")?;
            access = access.certificate(chain, pem(private(key)?, key, "private key", "--etcd-key")?);
        }
        (None, None) => {}
        _ => return Err(Failure::new("a certificate for etcd needs --etcd-cert and --etcd-key", "give both, or none")),
    }
    // A variable of the environment that is empty names no user.
    let user = args.etcd_user.as_ref().filter(|user| !user.is_empty());
    match (user, &args.etcd_password_file) {
        (Some(user), Some(file)) => {
            let text = String::from_utf8(private(file)?).ok();
            let password = text.as_deref().and_then(|text| text.lines().next()).filter(|line| !line.is_empty());
            let none = || Failure::new(format!("{}: its first line is no password", file.display()), "write it there");
            access = access.user(user, password.ok_or_else(none)?);
        }
        (None, None) => {}
        _ => {
            return Err(Failure::new(
                "a user of etcd needs --etcd-user and --etcd-password-file",
                "give both, or none",
            ));
        }
    }
    Ok(access)
}

/// What is in a file, if that can be what it is given as.
fn pem(bytes: Vec<u8>, path: &Path, what: &str, option: &str) -> Result<Vec<u8>, Failure> {
    let text = String::from_utf8_lossy(&bytes);
    let file = path.display();
    if what == "private key" && text.contains("ENCRYPTED") {
        let next = format!("`openssl pkey -in {file}` writes it as it is to be given with {option}");
        return Err(Failure::new(
            format!("{file}: the private key is encrypted, and nobody is asked for its password"),
            next,
        ));
    }
    let label = format!("{}-----", what.to_uppercase());
    if !text.lines().any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&label)) {
        return Err(Failure::new(
            format!("{file}: there is no {what} in PEM in it"),
            format!("give one with {option}"),
        ));
    }
    Ok(bytes)
}

/// The members of the log, if there is an etcd.
pub fn members(args: &Etcd) -> Result<Option<Members>, Failure> {
    let (true, Some(prefix)) = (args.is_given(), &args.prefix) else { return Ok(None) };
    let timeout = (args.ttl() / 3).max(Duration::from_secs(1));
    Members::connect(access(&args.etcd, &args.access)?, prefix, timeout)
        .map(Some)
        .map_err(|error| Failure::membership(&error))
}

/// Where the replicas are: those that are named, and those that are announced.
pub fn addresses(copies: &Copies, members: Option<&Members>) -> Result<Vec<String>, Failure> {
    let announced = members.map(Members::copies).transpose().map_err(|error| Failure::membership(&error))?;
    let mut all = copies.replica.clone();
    for member in announced.into_iter().flatten() {
        if !all.contains(&member.address) {
            all.push(member.address);
        }
    }
    if all.is_empty() {
        let what = match &copies.etcd.prefix {
            Some(prefix) => format!("no replica is announced below {prefix}"),
            None => "no replica is named".to_owned(),
        };
        return Err(Failure::new(what, "name replicas with --replica; `cairn help log-replica` says how to serve one"));
    }
    Ok(all)
}

/// The candidate: this process, on this machine.
fn candidate(args: &Etcd) -> Member {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = args.name.clone().unwrap_or_else(|| format!("{host}-{}", std::process::id()));
    Member::new(name, host)
}

/// A number for this leader: the term, so that people recognise it, and a random number that no other leader has.
#[expect(clippy::disallowed_methods, reason = "two leaders must never have one number")]
pub fn owner(term: u64) -> Result<u64, Failure> {
    let random = getrandom::u32().map_err(|error| {
        Failure::new(format!("the system gives no random number: {error}"), "see whether /dev/urandom is there")
    })?;
    Ok(term << 32 | u64::from(random))
}

// ---- lead -----------------------------------------------------------------------------------------------------------

/// A log on several machines that this process leads.
pub struct Leader {
    pub log: Log,
    pub found: Recovered,
    /// For messages: where the log is.
    pub place: PathBuf,
    /// Where replicas are that were asked.
    pub addresses: Vec<String>,
    leadership: Option<Leadership>,
}

/// Where a log is, for messages.
fn place(path: Option<&Path>, addresses: &[String]) -> PathBuf {
    path.map_or_else(|| addresses.join(", ").into(), Path::to_owned)
}

fn replicas(path: Option<&Path>, copies: &Copies, addresses: &[String]) -> Result<Replicas, Failure> {
    let named = Replicas::new().trust(trust(&copies.trust)?).timeout(Duration::from_millis(copies.give_up_after));
    let named = addresses.iter().fold(named, |named, address| named.at(address));
    Ok(path.into_iter().fold(named, Replicas::local))
}

/// Makes a log with these replicas.
pub fn create(
    path: Option<&Path>,
    copies: &Copies,
    quorum: Option<u32>,
    options: &Options,
) -> Result<(Log, PathBuf, usize), Failure> {
    let addresses = addresses(copies, members(&copies.etcd)?.as_ref())?;
    let mut named = replicas(path, copies, &addresses)?;
    if let Some(quorum) = quorum {
        named = named.write_quorum(quorum);
    }
    let place = place(path, &addresses);
    let log = options.create_replicated(&named).map_err(|error| Failure::log(&place, &error))?;
    Ok((log, place, addresses.len() + usize::from(path.is_some())))
}

/// Takes a log over: at once, or when this process is elected.
pub fn lead(path: Option<&Path>, copies: &Copies, options: &Options) -> Result<Leader, Failure> {
    lead_with(path, copies, options, |named| named)
}

/// The same, with more said of the replicas.
pub fn lead_with(
    path: Option<&Path>,
    copies: &Copies,
    options: &Options,
    say: impl FnOnce(Replicas) -> Replicas,
) -> Result<Leader, Failure> {
    if let Some(path) = path.filter(|path| !path.exists()) {
        return Err(Failure::new(
            format!("{}: no such file", path.display()),
            "check the path, or leave it out: this machine then has no replica",
        ));
    }
    trust(&copies.trust)?; // before this waits for a leader to go
    let members = members(&copies.etcd)?;
    let wait = copies.wait.map_or(Duration::MAX, Duration::from_secs);
    let elected = |members: &Members| members.campaign(&candidate(&copies.etcd), copies.etcd.ttl(), wait);
    let leadership = members.as_ref().map(elected).transpose().map_err(|error| Failure::membership(&error))?;
    let addresses = addresses(copies, members.as_ref())?;
    let place = place(path, &addresses);
    let mut named = say(replicas(path, copies, &addresses)?);
    if let Some(leadership) = &leadership {
        let term = leadership.term();
        named = named.elected(owner(term)?, term);
    }
    let opened = match leadership.as_ref().map_or(Ok(()), Leadership::check) {
        Ok(()) => options.open_replicated(&named).map_err(|error| Failure::log(&place, &error)),
        Err(error) => Err(Failure::membership(&error)),
    };
    match opened {
        Ok((log, found)) => Ok(Leader { log, found, place, addresses, leadership }),
        Err(failure) => {
            resign(leadership);
            Err(failure)
        }
    }
}

/// So that another can be elected at once. An end that came before is said with what failed by it, if anything did.
fn resign(leadership: Option<Leadership>) {
    match leadership.map(Leadership::resign) {
        None | Some(Ok(()) | Err(membership::Error::Lost { .. })) => {}
        Some(Err(error)) => note!("note: {error}"),
    }
}

impl Leader {
    /// An error once nothing more may be acknowledged.
    pub fn check(&self) -> Result<(), Failure> {
        self.in_office()?;
        self.log.check_leading().map_err(|error| self.failure(&error))
    }

    /// An error once the lease is lost: what was elected is over, whatever the replicas know.
    pub fn in_office(&self) -> Result<(), Failure> {
        let held = self.leadership.as_ref().map_or(Ok(()), Leadership::check);
        held.map_err(|error| Failure::membership(&error))
    }

    /// What an error of the log means: that the lease was lost, if it was.
    pub fn failure(&self, error: &::log::Error) -> Failure {
        match error {
            ::log::Error::Fenced { .. } => self.in_office().err().unwrap_or_else(|| Failure::log(&self.place, error)),
            _ => Failure::log(&self.place, error),
        }
    }

    /// What shuts the log as soon as the lease is lost: to be run in a thread of its own, which ends then, or when `is_over` says so.
    pub fn watch<'a>(&'a self, is_over: &'a AtomicBool) -> impl FnOnce() + Send + 'a {
        let (log, tenure) = (&self.log, self.leadership.as_ref().map(Leadership::tenure));
        move || {
            let Some(tenure) = tenure else { return };
            while !is_over.load(Acquire) {
                if tenure.lost_within(Duration::from_millis(20)).is_some() {
                    return log.fence();
                }
            }
        }
    }

    /// Closes the log, and lets another lead it.
    pub fn close(self) -> Result<(), Failure> {
        let closed = self.log.close().map_err(|error| Failure::log(&self.place, &error));
        resign(self.leadership);
        closed
    }

    /// Lets another lead the log, which stays as it is.
    pub fn leave(self) {
        drop(self.log);
        resign(self.leadership);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaders_of_one_term_have_their_own_numbers() {
        let (one, other) = (owner(7).unwrap(), owner(7).unwrap());
        assert!(one != other && one >> 32 == 7 && other >> 32 == 7);
        assert_eq!(owner(7 << 32 | 7).unwrap() >> 32, 7);
    }
}
