//! The system's settings for names: `/etc/resolv.conf` and `/etc/hosts`.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use hickory_resolver::Hosts;
use hickory_resolver::proto::rr::Name;

use super::ResolverConfig;

/// The settings of a resolver, from its configuration and from the files named there.
pub(super) struct Settings {
    pub(super) servers: Vec<SocketAddr>,
    pub(super) search: Vec<Name>,
    pub(super) ndots: usize,
    pub(super) timeout: Duration,
    pub(super) attempts: usize,
    pub(super) edns: bool,
    pub(super) tcp_only: bool,
    pub(super) rotate: bool,
    pub(super) hosts: Hosts,
    /// The stamps of the files when they were read.
    pub(super) stamps: Stamps,
}

/// Tells whether the files are still those that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamps([Option<Stamp>; 2]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    len: u64,
}

impl Stamps {
    /// Reads the stamps of the files. Blocks.
    pub(super) fn take(config: &ResolverConfig) -> Stamps {
        let stamp = |path: &Option<std::path::PathBuf>| {
            let about = fs::metadata(path.as_deref()?).ok()?;
            let modified = (about.mtime(), about.mtime_nsec());
            Some(Stamp { device: about.dev(), inode: about.ino(), modified, len: about.len() })
        };
        Stamps([stamp(&config.resolv_conf), stamp(&config.hosts)])
    }
}

impl Settings {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    ///
    /// A file exists but cannot be read, or a search domain of the configuration is not a name.
    pub(super) fn read(config: &ResolverConfig) -> io::Result<Settings> {
        // Before the read, so that a file that changes meanwhile is read again.
        let stamps = Stamps::take(config);
        let file = match &config.resolv_conf {
            Some(path) => resolv_conf(path)?,
            None => resolv_conf::Config::new(),
        };
        let mut servers = config.name_servers.clone();
        if servers.is_empty() {
            servers.extend(file.nameservers.iter().map(|ip| SocketAddr::from((IpAddr::from(ip), DNS_PORT))));
        }
        if servers.is_empty() {
            // As resolv.conf(5) says.
            servers.push((Ipv4Addr::LOCALHOST, DNS_PORT).into());
        }
        let search = match &config.search {
            Some(domains) => domains.iter().map(|domain| domain_name(domain)).collect::<io::Result<_>>()?,
            // Invalid names in the file are skipped.
            None => file.get_last_search_or_domain().filter_map(|domain| domain_name(domain).ok()).collect(),
        };
        Ok(Settings {
            servers,
            search,
            ndots: config.ndots.unwrap_or(file.ndots as usize).min(NDOTS_MAX),
            timeout: config.timeout.unwrap_or(Duration::from_secs(u64::from(file.timeout.clamp(1, 30)))),
            attempts: config.attempts.unwrap_or(file.attempts as usize).clamp(1, ATTEMPTS_MAX),
            edns: true,
            tcp_only: file.use_vc,
            rotate: file.rotate,
            hosts: hosts(config.hosts.as_deref())?,
            stamps,
        })
    }
}

fn domain_name(domain: &str) -> io::Result<Name> {
    let name = Name::from_utf8(domain).map(|mut name| {
        name.set_fqdn(true);
        name
    });
    name.map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("the search domain `{domain}` is no name: {error}"))
    })
}

/// A missing file gives no settings.
fn resolv_conf(path: &Path) -> io::Result<resolv_conf::Config> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(resolv_conf::Config::new()),
        Err(error) => Err(unreadable(path, &error)),
        Ok(text) => {
            let (config, errors) = resolv_conf::Config::parse_with_errors(&text);
            for error in errors {
                tracing::warn!(path = %path.display(), %error, "a line is not understood and passed by");
            }
            Ok(config)
        }
    }
}

fn hosts(path: Option<&Path>) -> io::Result<Hosts> {
    let mut hosts = Hosts::default();
    let Some(path) = path else { return Ok(hosts) };
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(hosts),
        Err(error) => Err(unreadable(path, &error)),
        Ok(text) => {
            hosts.read_hosts_conf(String::from_utf8_lossy(&text).as_bytes())?;
            Ok(hosts)
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
}

const DNS_PORT: u16 = 53;
/// As in the C library.
const NDOTS_MAX: usize = 15;
const ATTEMPTS_MAX: usize = 5;
