//! Where etcd is, and how it lets this program in.

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use crate::arguments::argument;
use crate::{Error, Result};

/// The addresses of etcd's members, who this program is to them, and whom it trusts.
///
/// ```
/// # fn read(_: &str) -> Vec<u8> { Vec::new() }
/// use membership::Access;
///
/// let plain = Access::new(&["http://127.0.0.1:2379"]);
/// let access = Access::new(&["https://e1:2379", "https://e2:2379", "https://e3:2379"])
///     .roots(read("etcd-ca.pem"))
///     .user("cairn", "its password");
/// assert!(!format!("{access:?}").contains("password"));
/// # drop(plain);
/// ```
#[derive(Clone)]
pub struct Access {
    pub(crate) endpoints: Vec<String>,
    roots: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    user: Option<(String, String)>,
}

impl Access {
    /// By plain connections (`http://host:port`), over a network that is trusted; or, with [`roots`](Self::roots), by TLS (`https://host:port`).
    pub fn new(endpoints: &[impl AsRef<str>]) -> Self {
        let endpoints = endpoints.iter().map(|endpoint| endpoint.as_ref().to_owned()).collect();
        Self { endpoints, roots: None, identity: None, user: None }
    }

    /// By TLS: the roots (PEM) that the certificates of etcd's members lead to. Each must name the host of its member's address.
    #[must_use]
    pub fn roots(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { roots: Some(pem.into()), ..self }
    }

    /// This program's certificate and private key (PEM), for an etcd that asks for one (`--client-cert-auth`).
    #[must_use]
    pub fn certificate(self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self { identity: Some((chain.into(), key.into())), ..self }
    }

    /// For an etcd that asks who may read and write (`etcdctl auth enable`): a user with both rights below the prefix.
    #[must_use]
    pub fn user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some((name.into(), password.into())), ..self }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.endpoints.is_empty() {
            return Err(argument("the list of etcd's endpoints", String::new(), "one address of a member at least"));
        }
        let is_of_tls = |endpoint: &String| endpoint.starts_with("https:");
        match (&self.roots, self.endpoints.iter().find(|endpoint| is_of_tls(endpoint) != self.roots.is_some())) {
            (Some(_), Some(plain)) => {
                return Err(argument("an endpoint of etcd", plain.clone(), "https://host:port, as there are roots"));
            }
            (None, Some(tls)) => {
                let must = "http://host:port, unless the roots of etcd's certificates are given";
                return Err(argument("an endpoint of etcd", tls.clone(), must));
            }
            (None, None) if self.identity.is_some() => {
                let what = "the list of roots of etcd's certificates";
                return Err(argument(what, String::new(), "given if a certificate is shown to etcd"));
            }
            _ => {}
        }
        let is_pem = |pem: &[u8], label: &str| {
            let (begin, end) = (format!("-----BEGIN {label}"), format!("-----END {label}"));
            std::str::from_utf8(pem).is_ok_and(|pem| pem.contains(&begin) && pem.contains(&end))
        };
        let bad = |what: &'static str, must: &'static str| -> Result<()> {
            Err(Error::Argument { what, found: "something else".into(), must })
        };
        if self.roots.as_deref().is_some_and(|roots| !is_pem(roots, "CERTIFICATE-----")) {
            return bad("what is given as the roots of etcd's certificates", "certificates in PEM");
        }
        let Some((chain, key)) = &self.identity else { return Ok(()) };
        if !is_pem(chain, "CERTIFICATE-----") {
            return bad("what is given as the certificate for etcd", "a certificate in PEM");
        }
        if !["PRIVATE KEY-----", "EC PRIVATE KEY-----", "RSA PRIVATE KEY-----"].iter().any(|label| is_pem(key, label)) {
            return bad("what is given as the private key for etcd", "a private key in PEM");
        }
        Ok(())
    }

    pub(crate) fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// What connections are made with.
    pub(crate) fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new().with_require_leader(true);
        if let Some(roots) = &self.roots {
            let tls = TlsOptions::new().ca_certificate(Certificate::from_pem(roots));
            options = options.with_tls(match &self.identity {
                Some((chain, key)) => tls.identity(Identity::from_pem(chain, key)),
                None => tls,
            });
        }
        match &self.user {
            // A token that has ended is not renewed by the request that finds it so: that would end with the request.
            Some((name, password)) => options.with_user(name, password),
            None => options,
        }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        f.debug_struct("Access").field("endpoints", &self.endpoints).field("user", &user).finish_non_exhaustive()
    }
}

impl<S: AsRef<str>> From<&[S]> for Access {
    fn from(endpoints: &[S]) -> Self {
        Self::new(endpoints)
    }
}

impl<S: AsRef<str>, const N: usize> From<&[S; N]> for Access {
    fn from(endpoints: &[S; N]) -> Self {
        Self::new(endpoints)
    }
}

impl<S: AsRef<str>> From<&Vec<S>> for Access {
    fn from(endpoints: &Vec<S>) -> Self {
        Self::new(endpoints)
    }
}

impl From<&Self> for Access {
    fn from(access: &Self) -> Self {
        access.clone()
    }
}
