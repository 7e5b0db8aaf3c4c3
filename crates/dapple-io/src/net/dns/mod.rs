//! Names, looked up by hickory on Dapple's own sockets, timers and tasks, with a cache.
//!
//! | part | does |
//! |---|---|
//! | `search` | one name: the hosts file, then the names of the search list, each for both kinds of addresses at once |
//! | `cache` | known answers, and the waiters for queries under way |
//! | `system` | `/etc/resolv.conf` and `/etc/hosts`, read in the blocking pool |
//! | `provider` | hickory's interface to a runtime |
//!
//! hickory's own cache is off: it has no counters, ignores the lifetime of aliases, and does not
//! use the runtime's clock.

mod cache;
mod failure;
mod provider;
mod search;
mod services;
mod system;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dapple_sync::sync::limit::{Limit, Permit};
use hickory_resolver::config as hickory;

use super::connect::ipv6_first;
use super::host::Host;
use super::lookup::Lookup;
use crate::blocking;
use crate::driver::{Shared, current};
use crate::lock::Mutex;
use crate::time::{self, Instant};
use cache::Cache;
pub use provider::Provider;
pub(super) use search::Search;
use system::{Settings, Stamps};

/// Looks names up, and keeps the answers for their lifetime.
///
/// A cheap handle: clones share one cache. Every runtime has one for everything that takes names;
/// it reads `/etc/resolv.conf` and `/etc/hosts` at its first use, and again within a second after a
/// change. Make one of your own to choose the name servers or the limits.
///
/// The hosts file goes first. If a name has fewer dots than `ndots`, the resolver first tries it
/// with the domains of the search list; other names it first tries as they are. It asks for IPv4
/// and IPv6 at the same time, two servers at a time, by UDP, and by TCP if the answer does not fit.
/// Equal queries share one answer. Answers are kept for the shortest of their lifetimes, including
/// the answer that there is no such name (RFC 2308).
///
/// It does not use other sources of `/etc/nsswitch.conf`, such as mDNS or LDAP. For these, switch
/// the feature `dns` off.
///
/// ```
/// use dapple_io::net::{Resolver, ResolverConfig};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// let mut config = ResolverConfig::default();
/// config.name_servers = vec!["127.0.0.1:53".parse().unwrap()];
/// let resolver = Resolver::new(config);
/// let loopback = runtime.block_on(resolver.resolve("localhost"))?;
/// assert!(!loopback.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

/// The settings of a [`Resolver`] and its cache.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResolverConfig {
    /// The name servers, with ports. Empty (the default): those of `resolv_conf`; if there are
    /// none, the one on this machine. Each address may have only one server.
    pub name_servers: Vec<SocketAddr>,
    /// Domains that are tried with short names. `None` (the default): those of `resolv_conf`.
    pub search: Option<Vec<String>>,
    /// If a name has at least this many dots, it is first tried as it is; at most 15. `None` (the
    /// default): the value of `resolv_conf`, or else 1.
    pub ndots: Option<usize>,
    /// The time limit for each attempt at a name. `None` (the default): the value of `resolv_conf`,
    /// or else 5 s.
    pub timeout: Option<Duration>,
    /// The number of attempts, 1 to 5. `None` (the default): the value of `resolv_conf`, or else 2.
    pub attempts: Option<usize>,
    /// The file with the settings that are missing here. Default: `/etc/resolv.conf`.
    pub resolv_conf: Option<PathBuf>,
    /// The file of names with fixed addresses. Default: `/etc/hosts`.
    pub hosts: Option<PathBuf>,
    /// The most answers kept, some 200 bytes each; 0 keeps none. Default: 4096.
    pub cache_entries_max: usize,
    /// The longest time for which an answer is kept. Default: a day.
    pub ttl_max: Duration,
    /// The longest time for which the answer that there is no such name is kept. Default: an hour.
    pub negative_ttl_max: Duration,
    /// The most concurrent queries; more wait for their turn. Each needs one descriptor or a few.
    /// Default: 128.
    pub queries_max: usize,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        ResolverConfig {
            name_servers: Vec::new(),
            search: None,
            ndots: None,
            timeout: None,
            attempts: None,
            resolv_conf: Some("/etc/resolv.conf".into()),
            hosts: Some("/etc/hosts".into()),
            cache_entries_max: 4096,
            ttl_max: Duration::from_secs(24 * 3600),
            negative_ttl_max: Duration::from_secs(3600),
            queries_max: 128,
        }
    }
}

/// The counters of a [`Resolver`]. A look-up asks for both kinds of addresses, so it counts twice
/// in all counters but the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResolverStats {
    /// Names looked up.
    pub lookups: u64,
    /// Answers from the cache.
    pub cache_hits: u64,
    /// Of these, answers that there is no such name or address.
    pub cache_negative_hits: u64,
    /// Answers of queries that another task had begun.
    pub shared: u64,
    /// Queries to servers.
    pub asked: u64,
    /// Datagrams sent to servers, repetitions included.
    pub udp_queries: u64,
    /// Connections to servers, for answers that do not fit into a datagram.
    pub tcp_connections: u64,
    /// Queries without an answer: no server answered, or none knew.
    pub failures: u64,
    /// Answers kept now, including expired ones.
    pub cache_entries: u64,
    /// How often the system's files were read.
    pub reloads: u64,
}

struct Inner {
    config: ResolverConfig,
    cache: Mutex<Cache>,
    /// The most queries at a time.
    limit: Limit,
    counters: Arc<Counters>,
    loaded: Mutex<LoadState>,
}

#[derive(Default)]
struct LoadState {
    loaded: Option<Arc<Loaded>>,
    /// The time of the last check of the files.
    checked: Option<Instant>,
}

/// The settings as read, and the client that uses them.
struct Loaded {
    settings: Settings,
    /// The name servers, for error messages.
    servers: String,
    resolver: hickory_resolver::Resolver<Provider>,
    /// The runtime of hickory's background tasks.
    runtime: Weak<Shared>,
}

#[derive(Default)]
struct Counters {
    lookups: AtomicU64,
    cache_hits: AtomicU64,
    cache_negative_hits: AtomicU64,
    shared: AtomicU64,
    asked: AtomicU64,
    udp_queries: AtomicU64,
    tcp_connections: AtomicU64,
    failures: AtomicU64,
    reloads: AtomicU64,
}

impl Counters {
    fn count(counter: &AtomicU64) {
        // Relaxed: a number that nothing depends on.
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Resolver {
    /// Waits until one more query may begin. Cancel safe: dropped, it leaves the line.
    async fn permit(&self) -> Permit {
        // Callers wait in the line. Each look-up has a task or a thread of its own, so those bound
        // the line.
        self.0.limit.acquire().await.expect("the line has no bound, and nothing closes the limit")
    }

    /// A resolver with an empty cache. It reads and asks nothing before its first use.
    pub fn new(config: ResolverConfig) -> Resolver {
        Resolver(Arc::new(Inner {
            cache: Mutex::new(Cache::new(config.cache_entries_max)),
            limit: Limit::new(config.queries_max.max(1)),
            counters: Arc::default(),
            loaded: Mutex::default(),
            config,
        }))
    }

    /// The resolver of the current runtime.
    ///
    /// # Errors
    ///
    /// There is no runtime here.
    pub fn current() -> io::Result<Resolver> {
        let shared = current::shared()?;
        let mut resolver = shared.resolver.lock();
        Ok(resolver.get_or_insert_with(|| Resolver::new(ResolverConfig::default())).clone())
    }

    /// Makes this the resolver of the current runtime: from now on everything that takes names uses
    /// it.
    ///
    /// # Errors
    ///
    /// There is no runtime here.
    pub fn install(&self) -> io::Result<()> {
        let before = current::shared()?.resolver.lock().replace(self.clone());
        drop(before);
        Ok(())
    }

    /// All addresses of a host, at least one, those of IPv6 first.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it resolves, it starts no more queries. Queries in progress continue,
    /// for the cache.
    ///
    /// # Errors
    ///
    /// As [`resolve`](super::resolve).
    pub async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        match Host::parse(host, 0)? {
            Host::Addresses(addrs) => Ok(ipv6_first(addrs)),
            Host::Name(name) => Lookup::start(name, Some(self.clone()))?.all().await,
        }
    }

    /// Forgets all answers.
    pub fn clear_cache(&self) {
        self.0.cache.lock().clear();
    }

    /// The counters so far.
    pub fn stats(&self) -> ResolverStats {
        let counters = &self.0.counters;
        // Relaxed: numbers that nothing depends on.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ResolverStats {
            lookups: read(&counters.lookups),
            cache_hits: read(&counters.cache_hits),
            cache_negative_hits: read(&counters.cache_negative_hits),
            shared: read(&counters.shared),
            asked: read(&counters.asked),
            udp_queries: read(&counters.udp_queries),
            tcp_connections: read(&counters.tcp_connections),
            failures: read(&counters.failures),
            cache_entries: self.0.cache.lock().len() as u64,
            reloads: read(&counters.reloads),
        }
    }

    /// Begins to look a name up.
    pub(super) fn search(&self, name: &str) -> Search {
        Counters::count(&self.0.counters.lookups);
        Search::new(self.clone(), name)
    }

    /// The settings of the files, read again if they have changed.
    async fn loaded(&self) -> io::Result<Arc<Loaded>> {
        let runtime = Arc::downgrade(&current::shared()?);
        let known = {
            let mut state = self.0.loaded.lock();
            let known = state.loaded.clone().filter(|loaded| loaded.runtime.ptr_eq(&runtime));
            let is_fresh = state.checked.is_some_and(|checked| checked.elapsed() < CHECK_EVERY);
            match known {
                Some(loaded) if is_fresh => return Ok(loaded),
                known => {
                    // Other tasks use the old settings meanwhile.
                    state.checked = Some(Instant::now());
                    known
                }
            }
        };
        let config = self.0.config.clone();
        let stamps = known.as_ref().map(|known| known.settings.stamps);
        let read = blocking::run(move || match stamps {
            Some(stamps) if stamps == Stamps::take(&config) => Ok(None),
            _ => Settings::read(&config).map(Some),
        });
        let read = match &known {
            // If the pool has no thread for this, the old settings stay in use.
            Some(known) => match time::timeout(CHECK_LIMIT, read).await {
                Ok(read) => read,
                Err(_) => return Ok(known.clone()),
            },
            None => read.await,
        };
        let settings = match (read, known) {
            (Ok(None), Some(known)) => return Ok(known),
            (Ok(None), None) => unreachable!("without stamps the files are read"),
            (Ok(Some(settings)), _) => settings,
            (Err(error), Some(known)) => {
                tracing::warn!(%error, "the settings for looking names up cannot be read again; the old ones stay");
                return Ok(known);
            }
            (Err(error), None) => return Err(error),
        };
        let loaded = Arc::new(Loaded::new(settings, runtime, &self.0.counters)?);
        Counters::count(&self.0.counters.reloads);
        let before = self.0.loaded.lock().loaded.replace(loaded.clone());
        drop(before);
        Ok(loaded)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("config", &self.0.config).field("stats", &self.stats()).finish()
    }
}

impl Loaded {
    fn new(settings: Settings, runtime: Weak<Shared>, counters: &Arc<Counters>) -> io::Result<Loaded> {
        let servers = settings.servers.iter().map(|server| {
            let with_port = |mut connection: hickory::ConnectionConfig| {
                connection.port = server.port();
                connection
            };
            let mut ways = vec![with_port(hickory::ConnectionConfig::tcp())];
            if !settings.tcp_only {
                ways.insert(0, with_port(hickory::ConnectionConfig::udp()));
            }
            let mut config = hickory::NameServerConfig::udp_and_tcp(server.ip());
            config.connections = ways;
            config
        });
        let config = hickory::ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        let mut builder = hickory_resolver::Resolver::builder_with_config(config, Provider(counters.clone()));
        let options = builder.options_mut();
        options.timeout = settings.timeout;
        // hickory counts retries.
        options.attempts = settings.attempts - 1;
        options.edns0 = settings.edns;
        options.cache_size = 0;
        options.use_hosts_file = hickory::ResolveHosts::Never;
        if settings.rotate {
            options.server_ordering_strategy = hickory::ServerOrderingStrategy::RoundRobin;
        }
        let resolver = builder.build().map_err(io::Error::other)?;
        let servers = settings.servers.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
        Ok(Loaded { settings, servers, resolver, runtime })
    }

    /// The time limit of a query, however hickory divides it.
    fn question_limit(&self) -> Duration {
        let attempts = u32::try_from(self.settings.attempts).unwrap_or(u32::MAX);
        self.settings.timeout.saturating_mul(attempts).saturating_add(Duration::from_secs(1))
    }
}

/// The interval between two checks of the files.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The time for which a look-up waits for a check.
const CHECK_LIMIT: Duration = Duration::from_millis(100);
