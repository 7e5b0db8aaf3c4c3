//! The command line of `dapple serve`.

use std::path::PathBuf;

/// Serve a directory over HTTP/1.1, on every core.
///
/// Every connection has a color of its own, so that different connections are served in parallel while each is served
/// as if it were alone. Accepting runs on the default color; the page cache is ten shards with a color each.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory to serve; `index.html` answers for a directory
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Where to listen; 0.0.0.0 or [::] as the host is every address of this machine
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "port", value_parser = host_and_port)]
    addr: Option<(String, u16)>,

    /// The port to listen on, on 127.0.0.1 only; 0 takes any free one
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,

    /// Number of workers [default: as many cores as this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// Memory for cached pages, in MiB; a file larger than a twentieth of it is streamed from the disk
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(0..=1 << 24))]
    pub(crate) cache_mb: u64,

    /// The most connections at a time; at the limit new ones are answered with 503
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: u32,

    /// Put everything on the default color: the same program without parallelism, to compare
    #[arg(long)]
    pub(crate) serial: bool,

    /// Follow symbolic links that lead out of DIR
    #[arg(long)]
    pub(crate) follow: bool,

    /// Show the list of a directory that has no index.html
    #[arg(long)]
    pub(crate) list: bool,

    /// Serve files whose names begin with a dot, such as .git and .env; .well-known is served anyway
    #[arg(long)]
    pub(crate) hidden: bool,

    /// Send everything as it is: neither compress text, nor send a.js.br, a.js.zst or a.js.gz in place of a.js
    #[arg(long)]
    pub(crate) no_compress: bool,

    /// Do not answer at /-/status, where the server shows its numbers
    #[arg(long)]
    pub(crate) no_status: bool,
}

impl Args {
    /// Host and port to listen on.
    pub(crate) fn host_and_port(&self) -> (&str, u16) {
        match &self.addr {
            Some((host, port)) => (host, *port),
            None => ("127.0.0.1", self.port),
        }
    }
}

/// Splits `HOST:PORT`, where an IPv6 address as the host stands in brackets.
fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let advice = "write HOST:PORT, for example 127.0.0.1:8080, 0.0.0.0:80 or [::1]:8080";
    let (host, port) = text.rsplit_once(':').ok_or(advice)?;
    let port = port.parse().map_err(|_| format!("{port:?} is not a port (0 to 65535); {advice}"))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if host.is_empty() || (bare.is_none() && host.contains(':')) {
        return Err(advice.to_owned());
    }
    Ok((bare.unwrap_or(host).to_owned(), port))
}

const EXAMPLES: &str = "\
Examples:
  dapple serve site                        on http://127.0.0.1:8080, for this machine only
  dapple serve site --addr 0.0.0.0:8000    for every machine that can reach this one
  dapple serve site --port 0               on any free port; the line that is printed says which
  dapple serve site --serial               without parallelism, to see what colors buy

SIGTERM or Ctrl-C ends it: no new connections, what is in flight is finished within 9 seconds; a second one ends
it at once. DAPPLE_LOG (error, warn, info, debug) sets how much it says on stderr; warn when left out.";

#[cfg(test)]
mod tests {
    use super::host_and_port;

    #[test]
    fn addresses() {
        assert_eq!(host_and_port("localhost:80"), Ok(("localhost".to_owned(), 80)));
        assert_eq!(host_and_port("[::1]:8080"), Ok(("::1".to_owned(), 8080)));
        for bad in ["", "80", ":80", "host", "host:", "host:99999", "::1:80", "host:-1"] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
