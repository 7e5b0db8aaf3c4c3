//! Certificates with their keys, chosen by the name that a client asks for.

mod clients;
mod der;
mod error;
mod pem;
mod resolver;
mod signatures;
mod verifier;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dapple_sched::environment;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

pub use clients::{ClientAuthorities, PeerCertificates};
pub use error::CertificateError;
pub(crate) use resolver::{Noting, take_seen};

use crate::provider::{has_aes, provider, ticketer};
use resolver::ByName;
use signatures::SteadyKey;

/// Two files in PEM format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The server's certificate first, then those of its signers, as certificate authorities
    /// deliver them (`fullchain.pem`).
    pub chain: PathBuf,
    /// The key of the first certificate: PKCS#8, SEC1 or PKCS#1, not encrypted. It may be the same
    /// file.
    pub key: PathBuf,
}

/// Certificates with their keys, chosen by the name that a client asks for (SNI).
///
/// A certificate with the exact name goes before one with a wildcard (`*.example.com`); the first
/// of all serves every other name. One name may have several certificates with keys of different
/// kinds: the first that the client supports is used.
#[derive(Clone, Debug)]
pub struct Certificates {
    entries: Vec<Arc<Entry>>,
    clients: Option<ClientAuthorities>,
}

/// A certificate, its key, and its facts.
#[derive(Debug)]
struct Entry {
    certified: Arc<CertifiedKey>,
    names: Vec<String>,
    expires: Option<SystemTime>,
}

impl Certificates {
    /// Reads all files on a thread of the blocking pool.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if dropped before it resolves, it has changed nothing.
    ///
    /// # Errors
    ///
    /// See [`CertificateError`]: it names the file, the problem, and the remedy.
    pub async fn load(files: Vec<CertificateFiles>) -> Result<Self, CertificateError> {
        let read = dapple_io::blocking::spawn_blocking(move || Self::load_blocking(&files));
        read.await.map_err(|error| CertificateError::Pool(io::Error::other(error)))?
    }

    /// As [`load`](Self::load), for code without a runtime. It blocks: do not use it in tasks.
    ///
    /// # Errors
    ///
    /// As `load`.
    pub fn load_blocking(files: &[CertificateFiles]) -> Result<Self, CertificateError> {
        let entries: Result<Vec<_>, _> = files.iter().map(|files| pem::load(files).map(Arc::new)).collect();
        Self::of(entries?)
    }

    /// A chain and its key in memory. `names` are read from the first certificate.
    ///
    /// # Errors
    ///
    /// The key does not belong to the certificate, or is of an unknown kind.
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, CertificateError> {
        let here = CertificateFiles { chain: "(memory)".into(), key: "(memory)".into() };
        Self::of(vec![Arc::new(Entry::new(&here, chain, key)?)])
    }

    /// A self-signed certificate for these names, for tests; it is valid for 30 days from now.
    ///
    /// All certificates for the same names have the same length, so that they may be used in a simulation. A certificate that a
    /// simulated host makes has an Ed25519 key, and is valid from 2000 to 2049.
    ///
    /// # Errors
    ///
    /// A name that a certificate cannot have.
    #[cfg(feature = "self-signed")]
    pub fn self_signed<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, CertificateError> {
        let (certificate, key) = sign(names, "made by Dapple, for tests only", 30)?;
        Self::from_der(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }

    /// A self-signed certificate for these names and its key, both in PEM format, to be kept in files: for clients that
    /// remember the certificate of their server. It is valid for `days` from now; in a simulation as with
    /// [`self_signed`](Self::self_signed).
    ///
    /// # Errors
    ///
    /// A name that a certificate cannot have.
    #[cfg(feature = "self-signed")]
    pub fn self_signed_pem<'a>(
        names: impl IntoIterator<Item = &'a str>,
        days: u32,
    ) -> Result<(String, String), CertificateError> {
        let (certificate, key) = sign(names, "made by Dapple", days)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// These certificates, followed by `others`.
    #[must_use]
    pub fn and(mut self, others: Certificates) -> Self {
        self.entries.extend(others.entries);
        self
    }

    /// Asks clients for a certificate of these authorities, in the configurations that are made from now on.
    #[must_use]
    pub fn asking_clients(mut self, authorities: ClientAuthorities) -> Self {
        self.clients = Some(authorities);
        self
    }

    /// The certificate for clients that ask for no name, or an unknown one.
    pub fn first(&self) -> &CertificateDer<'static> {
        // `of` refuses an empty list, and rustls an empty chain.
        &self.entries[0].certified.cert[0]
    }

    /// The earliest expiry, if it can be read.
    pub fn expires(&self) -> Option<SystemTime> {
        self.entries.iter().filter_map(|entry| entry.expires).min()
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().flat_map(|entry| entry.names.iter().map(String::as_str))
    }

    /// rustls's server configuration with these certificates and the protocols to negotiate (ALPN),
    /// the best first, as in [`TlsAcceptor`](crate::TlsAcceptor): for TLS over a transport other
    /// than a stream, such as QUIC. Early data is off.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn server_config<'a>(&self, alpn: impl IntoIterator<Item = &'a str>) -> crate::Result<ServerConfig> {
        self.config_of(rustls::DEFAULT_VERSIONS, alpn)
    }

    /// As [`server_config`](Self::server_config), for clients of TLS 1.3 only.
    ///
    /// # Errors
    ///
    /// As `server_config`.
    pub fn tls13_config<'a>(&self, alpn: impl IntoIterator<Item = &'a str>) -> crate::Result<ServerConfig> {
        self.config_of(&[&rustls::version::TLS13], alpn)
    }

    fn config_of<'a>(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        alpn: impl IntoIterator<Item = &'a str>,
    ) -> crate::Result<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions)?;
        let builder = match &self.clients {
            Some(authorities) => builder.with_client_cert_verifier(authorities.verifier()),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(self.resolver());
        config.alpn_protocols = alpn.into_iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        config.ticketer = ticketer()?;
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        // One is enough: a client that resumes gets another.
        config.send_tls13_tickets = 1;
        config.ignore_client_order = has_aes();
        Ok(config)
    }

    /// The first one, for a client that shows it.
    pub(crate) fn shown(&self) -> Arc<SingleCertAndKey> {
        // `of` refuses an empty list.
        Arc::new(self.entries[0].certified.clone().into())
    }

    pub(crate) fn resolver(&self) -> Arc<dyn ResolvesServerCert> {
        let mut by_name = ByName::default();
        for entry in &self.entries {
            by_name.add(entry.names.iter().map(String::as_str), &entry.certified);
        }
        Arc::new(by_name)
    }

    fn of(entries: Vec<Arc<Entry>>) -> Result<Self, CertificateError> {
        if entries.is_empty() { Err(CertificateError::Nothing) } else { Ok(Certificates { entries, clients: None }) }
    }
}

/// Makes a key, and a certificate that it signs itself.
#[cfg(feature = "self-signed")]
fn sign<'a>(
    names: impl IntoIterator<Item = &'a str>,
    maker: &str,
    days: u32,
) -> Result<(rcgen::Certificate, rcgen::KeyPair), CertificateError> {
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let made = || {
        let is_simulated = environment::is_simulated();
        let key = match is_simulated {
            true => rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?,
            false => rcgen::KeyPair::generate()?,
        };
        let mut params = rcgen::CertificateParams::new(names)?;
        params.distinguished_name.push(rcgen::DnType::CommonName, maker);
        params.serial_number = Some(serial_number());
        if is_simulated {
            // rustls compares them with the machine's clock.
            params.not_before = rcgen::date_time_ymd(2000, 1, 1);
            params.not_after = rcgen::date_time_ymd(2049, 12, 31);
        } else {
            let now = environment::system_now();
            params.not_before = (now - DAY).into();
            params.not_after = (now + days * DAY).into();
        }
        Ok((params.self_signed(&signatures::SteadyPair(&key))?, key))
    };
    made().map_err(|error: rcgen::Error| CertificateError::SelfSigned(error.to_string()))
}

/// A random one that always has 16 bytes: it is positive, and does not begin with a zero.
#[cfg(feature = "self-signed")]
fn serial_number() -> rcgen::SerialNumber {
    let mut bytes = [environment::random().to_be_bytes(), environment::random().to_be_bytes()].concat();
    bytes[0] = bytes[0] & 0x3f | 0x40;
    rcgen::SerialNumber::from(bytes)
}

impl Entry {
    /// Checks that certificate and key match. An expired certificate, or one about to expire, is
    /// used with a warning.
    fn new(
        files: &CertificateFiles,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, CertificateError> {
        let facts = chain.first().and_then(|certificate| der::facts(certificate));
        let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                CertificateError::Mismatch { chain: files.chain.clone(), key: files.key.clone() }
            }
            rustls::Error::InvalidCertificate(_) => {
                CertificateError::Malformed { path: files.chain.clone(), what: error.to_string() }
            }
            error => CertificateError::Key { path: files.key.clone(), what: error.to_string() },
        })?;
        let certified = CertifiedKey { key: Arc::new(SteadyKey(certified.key)), ..certified };
        let (names, expires) = facts.map_or((Vec::new(), None), |facts| (facts.names, facts.expires));
        let entry = Entry { certified: Arc::new(certified), names, expires };
        entry.warn(files);
        Ok(entry)
    }

    fn warn(&self, files: &CertificateFiles) {
        let chain = files.chain.display();
        let Some(expires) = self.expires else { return };
        let now = environment::system_now();
        match expires.duration_since(now) {
            Err(_) => {
                tracing::warn!("the certificate in {chain} has expired: clients will refuse it; renew it and reload");
            }
            Ok(left) if left < SOON => {
                let days = left.as_secs() / DAY.as_secs();
                tracing::warn!("the certificate in {chain} expires in {days} days; renew it and reload");
            }
            Ok(_) => {}
        }
    }
}

/// For TLS 1.2 without tickets; some 200 bytes each.
const SESSIONS_MAX: usize = 4096;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Some authorities issue certificates for six days only.
const SOON: Duration = Duration::from_secs(2 * 24 * 60 * 60);
