//! TLS, by rustls.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::config::Tls;

/// What answers with those certificates. An error says which file, and what is wrong.
pub(crate) fn acceptor(files: &Tls) -> Result<TlsAcceptor, String> {
    let read = |path: &std::path::Path| -> Result<Vec<CertificateDer<'static>>, String> {
        let said = |error| format!("{}: {error}; it must hold certificates in PEM", path.display());
        let all = CertificateDer::pem_file_iter(path).map_err(said)?.collect::<Result<Vec<_>, _>>().map_err(said)?;
        if all.is_empty() { Err(format!("{}: no certificate in it", path.display())) } else { Ok(all) }
    };
    let chain = read(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("{}: {error}; it must hold a private key in PEM", files.key.display()))?;
    let builder = ServerConfig::builder();
    let builder = match &files.clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in read(path)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| format!("{}: {error}", path.display()))?)
        }
    };
    let config = builder.with_single_cert(chain, key);
    Ok(TlsAcceptor::from(Arc::new(config.map_err(|error| format!("{}: {error}", files.certificate.display()))?)))
}
