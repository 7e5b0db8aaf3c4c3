//! Names, looked up by hickory on Dapple's own sockets, timers and tasks, with a cache.
//!
//! | part | does |
//! |---|---|
//! | `search` | one name: the hosts file, then the names of the search list, each for both kinds of addresses at once |
//! | `cache` | what is known, and who waits for what is asked already |
//! | `limit` | how many queries there are at a time |
//! | `system` | `/etc/resolv.conf` and `/etc/hosts`, read in the blocking pool |
//! | `provider` | what hickory asks of a runtime |
//!
//! hickory's own cache is switched off: it has no counters, does not look at the lifetime of aliases, and its time is not ours.

mod cache;
mod failure;
mod limit;
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

use hickory_resolver::config as hickory;

use super::connect::ipv6_first;
use super::host::Host;
use super::lookup::Lookup;
use crate::blocking;
use crate::driver::{Shared, current};
use crate::lock::Mutex;
use crate::time::{self, Instant};
use cache::Cache;
use limit::Limit;
pub use provider::Provider;
pub(super) use search::Search;
use system::{Settings, Stamps};

/// Looks names up, and remembers what it was told for as long as that holds.
///
/// A cheap handle: clones share one cache. Every runtime has one that everything uses which takes names; it reads
/// `/etc/resolv.conf` and `/etc/hosts` when it is first used, and again when they have changed, which it notices within a
/// second. Make one of your own to choose the name servers or the limits.
///
/// What it does: the hosts file goes first. A name with fewer dots than `ndots` is tried with the domains of the search list first,
/// others as they are. IPv4 and IPv6 are asked at the same time, two servers at a time, by UDP, and by TCP if the answer does not
/// fit. Who asks what somebody else asks already waits for the same answer. Answers are kept as long as the shortest of their
/// lifetimes says, also that there is no such name (RFC 2308).
///
/// What it does not do: ask what else `/etc/nsswitch.conf` may name, such as mDNS or LDAP. For that, switch the feature `dns` off.
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

/// How a [`Resolver`] asks, and what it keeps.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResolverConfig {
    /// Who is asked, on which port. Empty (the default): those of `resolv_conf`; if there are none, the one on this machine. On one
    /// address there may be one server.
    pub name_servers: Vec<SocketAddr>,
    /// Domains that are tried with short names. `None` (the default): those of `resolv_conf`.
    pub search: Option<Vec<String>>,
    /// With so many dots a name is tried as it is first; at most 15. `None` (the default): what `resolv_conf` says, or else 1.
    pub ndots: Option<usize>,
    /// How long a name may take for each attempt. `None` (the default): what `resolv_conf` says, or else 5 s.
    pub timeout: Option<Duration>,
    /// How often it is tried, 1 to 5. `None` (the default): what `resolv_conf` says, or else 2.
    pub attempts: Option<usize>,
    /// Where the settings are that this does not have; `/etc/resolv.conf` if not set.
    pub resolv_conf: Option<PathBuf>,
    /// Names with fixed addresses; `/etc/hosts` if not set.
    pub hosts: Option<PathBuf>,
    /// Answers that are kept at most; 4096 if not set, some 200 bytes each. 0 keeps none.
    pub cache_entries_max: usize,
    /// How long an answer is kept at most; a day if not set.
    pub ttl_max: Duration,
    /// How long it is kept at most that there is no such name; an hour if not set.
    pub negative_ttl_max: Duration,
    /// Names that are asked for at the same time; 128 if not set. More wait for their turn. Each needs one descriptor or a few.
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

/// What a [`Resolver`] has done so far. A look-up asks for both kinds of addresses, so that it counts twice in all but the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResolverStats {
    /// Names that were to be looked up.
    pub lookups: u64,
    /// Answers from the cache.
    pub cache_hits: u64,
    /// Those of them that said no.
    pub cache_negative_hits: u64,
    /// Answers that somebody else had asked for already.
    pub shared: u64,
    /// Questions for which servers had to be asked.
    pub asked: u64,
    /// Datagrams sent to servers, repetitions included.
    pub udp_queries: u64,
    /// Connections to servers, for answers that do not fit into a datagram.
    pub tcp_connections: u64,
    /// Questions that had no answer: nobody was there, or in no state to tell.
    pub failures: u64,
    /// Answers that are kept now, expired ones among them.
    pub cache_entries: u64,
    /// How often the system's files were read.
    pub reloads: u64,
}

struct Inner {
    config: ResolverConfig,
    cache: Mutex<Cache>,
    limit: Arc<Limit>,
    counters: Arc<Counters>,
    loaded: Mutex<LoadState>,
}

#[derive(Default)]
struct LoadState {
    loaded: Option<Arc<Loaded>>,
    /// When the files were last looked at.
    checked: Option<Instant>,
}

/// What was read, and the one who asks accordingly.
struct Loaded {
    settings: Settings,
    /// For errors.
    servers: String,
    resolver: hickory_resolver::Resolver<Provider>,
    /// The runtime that hickory's background tasks are in.
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
    /// A resolver with an empty cache. Nothing is read or asked before it is used.
    pub fn new(config: ResolverConfig) -> Resolver {
        Resolver(Arc::new(Inner {
            cache: Mutex::new(Cache::new(config.cache_entries_max)),
            limit: Limit::new(config.queries_max),
            counters: Arc::default(),
            loaded: Mutex::default(),
            config,
        }))
    }

    /// The resolver of the runtime that is current here.
    ///
    /// # Errors
    ///
    /// There is no runtime here.
    pub fn current() -> io::Result<Resolver> {
        let shared = current::shared()?;
        let mut resolver = shared.resolver.lock();
        Ok(resolver.get_or_insert_with(|| Resolver::new(ResolverConfig::default())).clone())
    }

    /// Makes this the resolver of the runtime that is current here: everything that takes names uses it from now on.
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
    /// Safe: dropped before it resolves, it asks for nothing more. What is under way is finished for the cache.
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

    /// What it has done so far.
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

    /// Begins to look up what needs to be.
    pub(super) fn search(&self, name: &str) -> Search {
        Counters::count(&self.0.counters.lookups);
        Search::new(self.clone(), name)
    }

    /// What the files say, read again if they have changed.
    async fn loaded(&self) -> io::Result<Arc<Loaded>> {
        let runtime = Arc::downgrade(&current::shared()?);
        let known = {
            let mut state = self.0.loaded.lock();
            let known = state.loaded.clone().filter(|loaded| loaded.runtime.ptr_eq(&runtime));
            let is_fresh = state.checked.is_some_and(|checked| checked.elapsed() < CHECK_EVERY);
            match known {
                Some(loaded) if is_fresh => return Ok(loaded),
                known => {
                    // Others go on with what there is meanwhile.
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
            // Where the pool has no thread for this, what was read before has to do.
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
        // hickory counts repetitions.
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

    /// No question takes longer, whatever hickory makes of the settings.
    fn question_limit(&self) -> Duration {
        let attempts = u32::try_from(self.settings.attempts).unwrap_or(u32::MAX);
        self.settings.timeout.saturating_mul(attempts).saturating_add(Duration::from_secs(1))
    }
}

/// How often the files are looked at.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How long a name waits for that.
const CHECK_LIMIT: Duration = Duration::from_millis(100);
