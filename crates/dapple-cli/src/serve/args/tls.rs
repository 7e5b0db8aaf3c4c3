//! The options for TLS.

use std::net::IpAddr;
use std::path::PathBuf;

use dapple::tls::CertificateFiles;

use super::listen::ListenArgs;
use crate::config::host_and_port;
use crate::serve::ServeError;
use crate::server::{CertificateSource, Wanted};

/// HTTPS on all addresses instead of HTTP.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Encryption")]
pub(crate) struct TlsArgs {
    /// A certificate and its chain, in PEM format; with several, each client gets the one for its
    /// host name
    #[arg(long, value_name = "FILE")]
    tls_cert: Vec<PathBuf>,

    /// The key of the certificate, in PEM format; as many as there are certificates, in the same
    /// order
    #[arg(long, value_name = "FILE")]
    tls_key: Vec<PathBuf>,

    /// Encrypt with a self-signed certificate made for this process, for trying things out
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    tls_self_signed: bool,

    /// Also listen at this address for plain HTTP, and redirect all its clients to the encrypted
    /// address
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    http_redirect: Option<(String, u16)>,

    /// A preview: also speak HTTP/3, over UDP on the same addresses and ports, and announce it in
    /// replies (Alt-Svc)
    #[arg(long)]
    pub(crate) http3: bool,
}

impl TlsArgs {
    /// The source of certificates; `None` without TLS.
    ///
    /// # Errors
    ///
    /// Certificates and keys do not come in pairs, a redirect has no target, or HTTP/3 is not
    /// supported.
    pub(crate) fn source(&self, listen: &ListenArgs) -> Result<Option<CertificateSource>, ServeError> {
        if self.tls_cert.len() != self.tls_key.len() {
            return Err(ServeError::TlsPairs(self.tls_cert.len(), self.tls_key.len()));
        }
        self.check_http3(cfg!(feature = "http3"))?;
        if self.tls_self_signed {
            return Ok(Some(CertificateSource::SelfSigned(names(listen))));
        }
        let pairs = self.tls_cert.iter().cloned().zip(self.tls_key.iter().cloned());
        let files: Vec<CertificateFiles> = pairs.map(|(chain, key)| CertificateFiles { chain, key }).collect();
        if files.is_empty() && self.http_redirect.is_some() {
            return Err(ServeError::RedirectNowhere);
        }
        if files.is_empty() && self.http3 {
            return Err(ServeError::Http3Plain);
        }
        Ok((!files.is_empty()).then_some(CertificateSource::Files(files)))
    }

    /// Checks that HTTP/3 is built in if it is asked for.
    fn check_http3(&self, is_built_in: bool) -> Result<(), ServeError> {
        if self.http3 && !is_built_in { Err(ServeError::Http3Missing) } else { Ok(()) }
    }

    /// The address to redirect from.
    pub(crate) fn redirect(&self) -> Option<Wanted> {
        let (host, port) = self.http_redirect.clone()?;
        Some(Wanted { host, port, reuse_port: false, redirects: true, option: "--http-redirect HOST:PORT" })
    }
}

/// The names for trying a server on this machine.
fn names(listen: &ListenArgs) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    for wanted in listen.wanted() {
        let is_any = wanted.host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
        if !is_any && !names.contains(&wanted.host) {
            names.push(wanted.host);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::TlsArgs;

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        tls: TlsArgs,
    }

    #[test]
    fn a_program_without_http3_says_how_to_build_it() {
        let tls = |options: &[&str]| Options::parse_from([&["dapple"], options].concat()).tls;
        let refused = tls(&["--http3"]).check_http3(false).expect_err("HTTP/3 is not built in");
        assert!(refused.to_string().contains("--features http3"), "{refused}");
        assert!(tls(&["--http3"]).check_http3(true).is_ok() && tls(&[]).check_http3(false).is_ok());
    }
}
