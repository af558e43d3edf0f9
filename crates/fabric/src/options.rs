//! How an end connects, and whom it trusts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::{Error, Result, Rights, Transport};

/// For [`tcp`](crate::tcp) and other backends between processes. The same for the end that connects and the end that listens.
#[derive(Clone, Debug)]
pub struct Options {
    /// By which backend, where none is called by its name.
    pub transport: Transport,
    /// What both ends know and no others. It proves who connects; it does not protect what is sent afterwards.
    pub secret: Option<Secret>,
    /// Certificates of both ends; everything is encrypted and authentic.
    pub tls: Option<Tls>,
    /// Without secret and certificates: every client that reaches the address is trusted. Otherwise both missing is an error.
    pub anyone: bool,
    /// What the peer may do from the beginning.
    pub rights: Rights,
    /// How long a poll looks again and again before it sleeps. It costs a processor, and saves what waking up takes.
    pub spin: Duration,
    /// A peer that takes less than a MiB within this time is given up.
    pub send_timeout: Duration,
    /// A peer that has not proved within this time who it is, is given up; and how long connecting may take.
    pub greeting_timeout: Duration,
    /// Peers that have not proved yet who they are, at one listener. One more, and the oldest of the address that has the most of them is given up.
    pub half_open_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            transport: Transport::Tcp,
            secret: None,
            tls: None,
            anyone: false,
            rights: Rights::None,
            spin: Duration::ZERO,
            send_timeout: Duration::from_secs(5),
            greeting_timeout: Duration::from_secs(5),
            half_open_max: 64,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        if self.secret.is_none() && self.tls.is_none() && !self.anyone { Err(Error::NoTrust) } else { Ok(()) }
    }
}

/// A secret that two ends share.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Fewest bytes: what can be guessed is no secret, since an eavesdropper may try guesses on what was sent.
    pub const LEN_MIN: usize = 16;

    /// Of random bytes, such as `head -c 32 /dev/urandom` gives.
    ///
    /// # Errors
    /// Fewer than [`LEN_MIN`](Self::LEN_MIN).
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < Self::LEN_MIN {
            return Err(Error::WeakSecret { len: bytes.len(), min: Self::LEN_MIN });
        }
        Ok(Self(bytes.into()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// This end's certificate, and who signs those of its peers. TLS 1.3 alone; both ends show theirs.
#[derive(Clone)]
pub struct Tls {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl Tls {
    /// From PEM: the own certificate and those up to the root, its private key, and the roots that peers' certificates must lead to.
    ///
    /// The end that connects checks that the peer's certificate names the host it connected to.
    ///
    /// # Errors
    /// Something is missing, or does not fit together.
    pub fn from_pem(chain: &[u8], key: &[u8], roots: &[u8]) -> Result<Self> {
        let wrong = |what: String| Error::Tls { what };
        let chain = certificates(chain, "the own chain")?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(format!("the private key: {error}")))?;
        let mut trusted = RootCertStore::empty();
        for root in certificates(roots, "the roots")? {
            trusted.add(root).map_err(|error| wrong(format!("a root: {error}")))?;
        }
        let trusted = Arc::new(trusted);
        let provider = Arc::new(rustls::crypto::ring::default_provider());

        let verifier = WebPkiClientVerifier::builder_with_provider(trusted.clone(), provider.clone()).build();
        let verifier = verifier.map_err(|error| wrong(format!("the roots: {error}")))?;
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map(|builder| builder.with_client_cert_verifier(verifier))
            .and_then(|builder| builder.with_single_cert(chain.clone(), key.clone_key()));
        let mut server = server.map_err(|error| wrong(format!("the own chain and key: {error}")))?;
        // No client resumes, and a ticket would be one more thing to send.
        server.send_tls13_tickets = 0;

        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map(|builder| builder.with_root_certificates(trusted))
            .and_then(|builder| builder.with_client_auth_cert(chain, key));
        let client = client.map_err(|error| wrong(format!("the own chain and key: {error}")))?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}

fn certificates(pem: &[u8], whose: &str) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |what: String| Error::Tls { what };
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| wrong(format!("{whose}: {error}")))?;
    if all.is_empty() { Err(wrong(format!("{whose}: no certificate in it"))) } else { Ok(all) }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}
