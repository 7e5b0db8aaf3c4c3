//! The command line of `bench load`.

use super::mix::Mix;
use anyhow::{Context, Result, ensure};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

/// Arguments of `bench load`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The servers: http://HOST:PORT or https://HOST:PORT, with a path if that is the only one;
    /// several split the clients among them
    #[arg(value_name = "URL", required = true, value_parser = Target::parse)]
    targets: Vec<Target>,
    /// Clients, each with one connection at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) connections: u32,
    /// Requests over each connection, then a new one; 0 for any number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) requests: u64,
    /// Ask for each answer over a connection of its own, and say so in the request
    #[arg(long, conflicts_with = "requests")]
    pub(super) close: bool,
    /// Open loop: this many requests a second of all clients together, whether or not answers come
    #[arg(long, value_name = "N")]
    pub(super) rate: Option<f64>,
    /// Spread the requests of an open loop evenly, rather than at random moments (Poisson)
    #[arg(long, requires = "rate")]
    pub(super) constant: bool,
    /// Seconds measured
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub(super) secs: f64,
    /// Measure this number of requests from the first on, instead of seconds
    #[arg(long, value_name = "N", conflicts_with_all = ["secs", "warm_up_secs"], value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) total: Option<u64>,
    /// Seconds of warm-up, in which connections are opened one after the other and only errors are
    /// counted
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub(super) warm_up_secs: f64,
    /// The time limit of an answer, after which it counts as an error
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub(super) timeout_ms: u64,
    /// A file that lists the requested paths, one a line: `WEIGHT PATH`
    #[arg(long, value_name = "FILE")]
    urls: Option<PathBuf>,
    /// The folder with the expected files; answers are compared byte for byte. Without --urls, all
    /// of them are requested
    #[arg(long, value_name = "DIR")]
    expect: Option<PathBuf>,
    /// Lines of --urls have START and LENGTH too: the body is cut from the bytes of this file, as
    /// from a ring
    #[arg(long, value_name = "FILE", requires = "urls", hide = true)]
    pattern: Option<PathBuf>,
    /// Request the files of --expect by Zipf's law with this exponent, in the order of their names
    #[arg(long, value_name = "EXPONENT", requires = "expect", conflicts_with = "urls")]
    zipf: Option<f64>,
    /// Further clients, which ask for --stalled-path once and read nothing of the answer
    #[arg(long, value_name = "N", default_value_t = 0, requires = "stalled_path", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(super) stalled: u32,
    /// The path that the stalled clients ask for
    #[arg(long, value_name = "PATH", requires = "stalled")]
    pub(super) stalled_path: Option<String>,
    /// A field of every request, as `NAME: VALUE`
    #[arg(long, value_name = "FIELD", value_parser = field)]
    pub(super) header: Option<String>,
    /// The servers are proxies: send them absolute URLs of this origin
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) origin: Option<String>,
    /// Threads of the generator
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) workers: u16,
    /// Run on these cores only
    #[arg(long, value_name = "CORE,...", value_delimiter = ',')]
    pub(super) cores: Vec<usize>,
    /// Connect from this many addresses 127.1.x.y in turn if the server is on the loopback network,
    /// so that ports do not run out; 0 for one
    #[arg(long, value_name = "N", default_value_t = 254, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub(super) sources: u32,
    /// Print one line of JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Print on standard output when the measurement begins and ends
    #[arg(long, hide = true)]
    pub(super) marks: bool,
}

fn field(text: &str) -> Result<String, String> {
    let is_good = text.split_once(": ").is_some_and(|(name, _)| !name.is_empty()) && !text.contains(['\r', '\n']);
    if is_good { Ok(text.to_owned()) } else { Err("write NAME: VALUE, as in `authorization: Bearer x`".to_owned()) }
}

const EXAMPLES: &str = "\
Examples:
  bench load http://127.0.0.1:8080/index.html             64 clients, each as fast as it gets answers
  bench load http://127.0.0.1:8080 --expect site --zipf 1 all files of a folder, every body compared
  bench load http://127.0.0.1:8080 --rate 5000            5,000 a second at random moments; a late answer is a slow one";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) tls: bool,
    /// As in the header `Host`.
    pub(super) host: String,
    pub(super) path: String,
}

impl Target {
    fn parse(text: &str) -> Result<Target, String> {
        let advice = "write http://HOST:PORT, as in http://127.0.0.1:8080";
        let (tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(advice.to_owned()),
        };
        let (host, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !plain(host) || !plain(path) {
            return Err(advice.to_owned());
        }
        Ok(Target { tls, host: host.to_owned(), path: path.to_owned() })
    }

    /// Its address; the default port is 80 or 443.
    pub(super) fn address(&self) -> Result<SocketAddr> {
        let has_port = self.host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host =
            if has_port { self.host.clone() } else { format!("{}:{}", self.host, if self.tls { 443 } else { 80 }) };
        let mut addresses = host.to_socket_addrs().with_context(|| format!("there is no host {}", self.host))?;
        addresses.next().with_context(|| format!("{} has no address", self.host))
    }
}

impl Args {
    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The requests, with their weights.
    pub(super) fn mix(&self) -> Result<Mix> {
        let path = self.targets.first().map_or("", |target| target.path.as_str());
        if let Some(urls) = &self.urls {
            let text = std::fs::read_to_string(urls).with_context(|| format!("cannot read {}", urls.display()))?;
            let read = |file: &PathBuf| std::fs::read(file).with_context(|| format!("cannot read {}", file.display()));
            let pattern: Option<Arc<[u8]>> = self.pattern.as_ref().map(read).transpose()?.map(Arc::from);
            return Mix::of_list(&text, self.expect.as_deref(), pattern.as_ref())
                .with_context(|| format!("cannot use {}", urls.display()));
        }
        match &self.expect {
            Some(folder) if path.is_empty() => Mix::of_folder(folder, self.zipf),
            Some(folder) => Mix::of_list(&format!("1 {path}"), Some(folder), None),
            None => Ok(Mix::of_path(if path.is_empty() { "/" } else { path })),
        }
    }

    /// Refuses values that make no sense.
    pub(super) fn check(&self) -> Result<()> {
        let (secs, warm_up_secs) = (self.secs, self.warm_up_secs);
        ensure!(secs > 0.0 && secs <= 86_400.0, "--secs {secs} makes no sense: pass a number above 0 and up to 86400");
        ensure!(
            (0.0..=3_600.0).contains(&warm_up_secs),
            "--warm-up-secs {warm_up_secs} makes no sense: pass a number from 0 to 3600"
        );
        if let Some(rate) = self.rate {
            ensure!(rate > 0.0 && rate <= 1e8, "--rate {rate} makes no sense: pass a number above 0");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn targets() {
        let target = |host: &str, path: &str| Ok(Target { tls: false, host: host.to_owned(), path: path.to_owned() });
        assert_eq!(Target::parse("http://localhost:80"), target("localhost:80", ""));
        assert_eq!(Target::parse("http://[::1]:8080/a/b?c"), target("[::1]:8080", "/a/b?c"));
        for bad in ["localhost:80", "http://", "http:///x", "http://a b", "ftp://a"] {
            assert!(Target::parse(bad).is_err_and(|error| error.contains("http://127.0.0.1:8080")), "{bad}");
        }
        let address = Target::parse("http://127.0.0.1").expect("a target").address().expect("an address");
        assert_eq!(address.port(), 80);
        let encrypted = Target::parse("https://127.0.0.1").expect("a target");
        assert!(encrypted.tls && encrypted.address().is_ok_and(|address| address.port() == 443));
    }
}
