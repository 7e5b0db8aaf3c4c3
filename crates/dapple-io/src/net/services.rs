//! The hosts and ports of a service, by its name in the DNS (SRV records, RFC 2782).

use std::io;

/// A host and a port at which a service is offered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ServiceTarget {
    /// Use those with the lowest number, and others only if none of them can be reached.
    pub priority: u16,
    /// Among those with one priority, those with more weight should be used more.
    pub weight: u16,
    /// The host's full name, without the final dot: add one if a search list might be applied to
    /// it.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// The hosts and ports of a service: the DNS records at a name such as `_sign._tcp.example.com`
/// (SRV records, RFC 2782), the lowest priority number first. Empty if the answer says that the
/// service is not offered there.
///
/// The name is used without the domains of the search list, and answers are not cached: each call
/// asks. Needs the feature `dns`.
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
/// Safe: dropped before it resolves, it starts no more queries.
///
/// # Errors
///
/// - `NotFound`: there is no such name, or no service at it.
/// - `InvalidInput`: this is not a name. `TimedOut`: no name server answered.
/// - `Unsupported`: the feature `dns` is off.
pub async fn services(name: &str) -> io::Result<Vec<ServiceTarget>> {
    #[cfg(feature = "dns")]
    return super::dns::Resolver::current()?.services(name).await;
    #[cfg(not(feature = "dns"))]
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("cannot look up `{name}`: services need the feature `dns`")))
}
