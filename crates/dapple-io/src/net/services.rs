//! Where a service is offered, by its name in the DNS (SRV records, RFC 2782).

use std::io;

/// A host and a port at which a service is offered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ServiceTarget {
    /// Those with the least are to be used, and others only where none of them can be reached.
    pub priority: u16,
    /// Of those with one priority, who has more is to be used more.
    pub weight: u16,
    /// The host's full name, without the dot at its end: put one there where a search list could be applied to it.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Where a service is offered: what the DNS has at a name such as `_sign._tcp.example.com` (SRV records, RFC 2782), those of the least
/// priority number first. Empty where the answer is that it decidedly is not offered there.
///
/// The name is taken as it is, without the domains of the search list, and answers are not kept: each call asks. It takes the feature `dns`.
///
/// ```
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// let error = runtime.block_on(dapple_io::net::services("no name")).expect_err("there are no spaces in names");
/// # assert!(!error.to_string().is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Cancel safety
///
/// Safe: dropped before it resolves, it asks for nothing more.
///
/// # Errors
///
/// - `NotFound`: there is no such name, or no service at it.
/// - `InvalidInput`: this is no name. `TimedOut`: no name server answered.
/// - `Unsupported`: the feature `dns` is off.
pub async fn services(name: &str) -> io::Result<Vec<ServiceTarget>> {
    #[cfg(feature = "dns")]
    return super::dns::Resolver::current()?.services(name).await;
    #[cfg(not(feature = "dns"))]
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("cannot look up `{name}`: services need the feature `dns`")))
}
