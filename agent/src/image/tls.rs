//! Encryption of connections to registries: rustls with ring. Left out by building without the feature `tls`.

use std::path::Path;

use ureq::config::ConfigBuilder;
use ureq::typestate::AgentScope;

use super::error::ImageError;

/// Where Linux distributions keep the certificates that programs trust.
#[cfg(feature = "tls")]
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// Trusts the certificates of `ca_file`, or of the system.
#[cfg(feature = "tls")]
pub(crate) fn configure(
    config: ConfigBuilder<AgentScope>,
    ca_file: Option<&Path>,
) -> Result<ConfigBuilder<AgentScope>, ImageError> {
    use std::sync::{Arc, OnceLock};
    use ureq::tls::{PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

    static PROVIDER: OnceLock<Arc<rustls::crypto::CryptoProvider>> = OnceLock::new();
    let provider = PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider()));

    let system = || {
        // SSL_CERT_FILE is what other programs look at, too
        let named = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
        named.into_iter().chain(BUNDLES.iter().map(Into::into)).find(|path| path.is_file())
    };
    let unusable =
        |path: &Path, why: &str| ImageError::Corrupt { path: path.to_owned(), why: why.to_owned() };
    let Some(path) = ca_file.map(Path::to_owned).or_else(system) else {
        let why = "this system has no certificates; install ca-certificates or set registries.<name>.caFile";
        return Err(unusable(Path::new("/etc/ssl/certs"), why));
    };
    let text = std::fs::read(&path).map_err(|e| ImageError::io("read", &path, &e))?;
    let items = parse_pem(&text).filter_map(Result::ok);
    let certificates: Vec<_> = items
        .filter_map(|item| match item {
            PemItem::Certificate(certificate) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(unusable(&path, "it holds no certificate in PEM form"));
    }
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(certificates)))
        .unversioned_rustls_crypto_provider(Arc::clone(provider))
        .build();
    Ok(config.tls_config(tls))
}

/// This build has no encryption.
#[cfg(not(feature = "tls"))]
pub(crate) fn configure(
    _config: ConfigBuilder<AgentScope>,
    _ca_file: Option<&Path>,
) -> Result<ConfigBuilder<AgentScope>, ImageError> {
    Err(ImageError::Unsupported { what: "https, which this build leaves out,".to_owned() })
}
