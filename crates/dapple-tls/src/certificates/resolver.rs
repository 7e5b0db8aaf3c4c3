//! The choice of a certificate in a handshake.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Certificates by the names that they have.
#[derive(Debug, Default)]
pub(super) struct ByName {
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// By what follows the `*.`.
    wildcards: HashMap<String, Vec<Arc<CertifiedKey>>>,
    all: Vec<Arc<CertifiedKey>>,
}

impl ByName {
    /// What is added first goes first.
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
        // A wildcard stands for one label.
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

/// Notes the name that the client asks for, on its way: unbuffered sessions of rustls do not tell.
#[derive(Debug)]
pub(crate) struct Noting(Arc<dyn ResolvesServerCert>);

thread_local! {
    /// Of the hello that this thread works off now: written within a step of a session, taken after it.
    static SEEN: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

impl Noting {
    pub(crate) fn around(resolver: Arc<dyn ResolvesServerCert>) -> Arc<dyn ResolvesServerCert> {
        Arc::new(Noting(resolver))
    }
}

impl ResolvesServerCert for Noting {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        SEEN.set(hello.server_name().map(Box::from));
        self.0.resolve(hello)
    }

    fn only_raw_public_keys(&self) -> bool {
        self.0.only_raw_public_keys()
    }
}

/// The name that a step of a session has seen since this was last called.
pub(crate) fn take_seen() -> Option<Box<str>> {
    SEEN.take()
}
