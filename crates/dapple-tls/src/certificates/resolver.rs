//! The choice of a certificate in a handshake.

use std::cell::RefCell;
use std::sync::Arc;

use dapple_sched::environment::HashMap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Certificates by the names that they have.
#[derive(Debug, Default)]
pub(super) struct ByName {
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// By the part after `*.`.
    wildcards: HashMap<String, Vec<Arc<CertifiedKey>>>,
    all: Vec<Arc<CertifiedKey>>,
}

impl ByName {
    /// Certificates added first go first.
    pub(super) fn add<'a>(&mut self, names: impl Iterator<Item = &'a str>, certified: &Arc<CertifiedKey>) {
        for name in names {
            let list = match name.strip_prefix("*.") {
                Some(rest) => self.wildcards.entry(rest.to_owned()),
                None => self.exact.entry(name.to_owned()),
            };
            list.or_default().push(certified.clone());
        }
        self.all.push(certified.clone());
    }

    fn named(&self, name: &str) -> Option<&[Arc<CertifiedKey>]> {
        let name = name.to_ascii_lowercase();
        // A wildcard matches one label.
        let by_wildcard = || name.split_once('.').and_then(|(_label, rest)| self.wildcards.get(rest));
        self.exact.get(&name).or_else(by_wildcard).map(Vec::as_slice)
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.named(name)).unwrap_or(&self.all);
        let is_understood =
            |certified: &&Arc<CertifiedKey>| certified.key.choose_scheme(hello.signature_schemes()).is_some();
        named.iter().find(is_understood).or(named.first()).cloned()
    }
}

/// Records the name that the client asks for, because unbuffered sessions of rustls do not report
/// it.
#[derive(Debug)]
pub(crate) struct Noting(Arc<dyn ResolvesServerCert>);

thread_local! {
    /// The name in the hello that this thread processes: written within a step of a session, taken
    /// after it.
    static SEEN: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

impl Noting {
    pub(crate) fn around(resolver: Arc<dyn ResolvesServerCert>) -> Arc<dyn ResolvesServerCert> {
        Arc::new(Noting(resolver))
    }
}

impl ResolvesServerCert for Noting {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(Box::from);
        let found = self.0.resolve(hello);
        // After the resolver, which is user code: if it panics, no step takes the name, and the
        // next handshake would get it.
        SEEN.set(name);
        found
    }

    fn only_raw_public_keys(&self) -> bool {
        self.0.only_raw_public_keys()
    }
}

/// Takes the name seen by a step of a session.
pub(crate) fn take_seen() -> Option<Box<str>> {
    SEEN.take()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rustls::server::UnbufferedServerConnection;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

    use super::*;

    #[derive(Debug)]
    struct Panics;

    impl ResolvesServerCert for Panics {
        fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            panic!("as the test says")
        }
    }

    #[test]
    fn a_resolver_that_panics_leaves_no_name_to_the_next_handshake() {
        let provider = crate::provider::provider();
        let client = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let client = client.unwrap().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let mut client = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let server = server.with_no_client_auth().with_cert_resolver(Noting::around(Arc::new(Panics)));
        let mut server = UnbufferedServerConnection::new(Arc::new(server)).unwrap();
        let step = catch_unwind(AssertUnwindSafe(|| drop(server.process_tls_records(&mut hello))));
        assert!(step.is_err());
        assert_eq!(take_seen(), None);
    }
}
