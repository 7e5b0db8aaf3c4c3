//! The look-up of one name, with addresses in one or two batches.

#[cfg(not(feature = "dns"))]
use std::future::Future;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
#[cfg(not(feature = "dns"))]
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dapple_sched::environment::HashSet;

#[cfg(feature = "dns")]
use super::dns::{Resolver, Search};
use crate::environment;

/// See the module's text.
pub(super) struct Lookup {
    source: Source,
    is_over: bool,
}

enum Source {
    /// An environment, which returns all addresses at once.
    Environment { asking: environment::Lookup, error: Option<io::Error> },
    /// The system's resolver, which returns all addresses at once.
    #[cfg(not(feature = "dns"))]
    System { asking: Asking, error: Option<io::Error> },
    #[cfg(feature = "dns")]
    Dns(Box<Search>),
}

#[cfg(not(feature = "dns"))]
type Asking = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;
#[cfg(not(feature = "dns"))]
type Resolver = std::convert::Infallible;

impl Lookup {
    /// Begins to look a name up, with this resolver or the runtime's.
    ///
    /// # Errors
    ///
    /// There is no runtime here.
    #[cfg(feature = "dns")]
    pub(super) fn start(name: &str, resolver: Option<Resolver>) -> io::Result<Self> {
        if let Some(lookup) = Lookup::in_environment(name) {
            return Ok(lookup);
        }
        let resolver = match resolver {
            Some(resolver) => resolver,
            None => Resolver::current()?,
        };
        Ok(Lookup { source: Source::Dns(Box::new(resolver.search(name))), is_over: false })
    }

    /// Begins to look a name up with the system's resolver.
    ///
    /// # Errors
    ///
    /// None: without a runtime, awaiting it returns the error.
    #[cfg(not(feature = "dns"))]
    pub(super) fn start(name: &str, _resolver: Option<Resolver>) -> io::Result<Self> {
        if let Some(lookup) = Lookup::in_environment(name) {
            return Ok(lookup);
        }
        let name = name.to_owned();
        let asking = crate::blocking::run(move || {
            let addrs = std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), 0));
            Ok(addrs?.map(|addr| addr.ip()).collect())
        });
        Ok(Lookup { source: Source::System { asking: Box::pin(asking), error: None }, is_over: false })
    }

    /// If the runtime has one, it replaces every resolver.
    fn in_environment(name: &str) -> Option<Self> {
        let asking = environment::current()?.look_up(name);
        Some(Lookup { source: Source::Environment { asking, error: None }, is_over: false })
    }

    /// The next addresses, or `None` when there are no more.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<IpAddr>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let more = match &mut self.source {
            Source::Environment { asking, error } => {
                let answer = ready!(asking.as_mut().poll(cx));
                self.is_over = true;
                answer.map_err(|kept| *error = Some(kept)).ok()
            }
            #[cfg(not(feature = "dns"))]
            Source::System { asking, error } => {
                let answer = ready!(asking.as_mut().poll(cx));
                self.is_over = true;
                answer.map_err(|kept| *error = Some(kept)).ok()
            }
            #[cfg(feature = "dns")]
            Source::Dns(search) => ready!(search.poll_more(cx)),
        };
        self.is_over |= more.is_none();
        Poll::Ready(more)
    }

    /// Whether no more addresses will come.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether addresses of IPv6 may still come.
    pub(super) fn awaits_ipv6(&self) -> bool {
        match &self.source {
            Source::Environment { .. } => false,
            #[cfg(not(feature = "dns"))]
            Source::System { .. } => false,
            #[cfg(feature = "dns")]
            Source::Dns(search) => !self.is_over && search.awaits_ipv6(),
        }
    }

    /// The reason why there were no addresses.
    pub(super) fn error(&mut self) -> io::Error {
        match &mut self.source {
            Source::Environment { error, .. } => error.take().unwrap_or_else(super::address::no_address),
            #[cfg(not(feature = "dns"))]
            Source::System { error, .. } => error.take().unwrap_or_else(super::address::no_address),
            #[cfg(feature = "dns")]
            Source::Dns(search) => search.error(),
        }
    }

    /// All addresses, those of IPv6 first.
    pub(super) async fn all(mut self) -> io::Result<Vec<IpAddr>> {
        let mut all = Vec::new();
        while let Some(more) = poll_fn(|cx| self.poll_more(cx)).await {
            all.extend(more);
        }
        if all.is_empty() {
            return Err(self.error());
        }
        all.sort_by_key(IpAddr::is_ipv4);
        let mut seen = HashSet::default();
        all.retain(|ip| seen.insert(*ip));
        Ok(all)
    }
}
