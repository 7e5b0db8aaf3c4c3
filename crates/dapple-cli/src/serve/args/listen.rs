//! Where the server listens.

use crate::config::number;
use crate::server::Wanted;

/// Where the server listens.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Listening")]
pub(crate) struct ListenArgs {
    /// Where to listen, may be given several times; 0.0.0.0 or [::] as the host is every address of this machine
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "port", value_parser = host_and_port)]
    addr: Vec<(String, u16)>,

    /// The port to listen on, on 127.0.0.1 only; 0 takes any free one [default: 8080]
    #[arg(long, value_name = "N", value_parser = number::<u16>(0..=65_535))]
    port: Option<u16>,

    /// Let other processes listen on the same port, each for a share of the connections
    #[arg(long)]
    pub(crate) reuse_port: bool,
}

impl ListenArgs {
    /// Where to listen, where that was said.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        let port = self.port.map(|port| ("127.0.0.1".to_owned(), port));
        let wanted = |(host, port)| Wanted { host, port, reuse_port: self.reuse_port, redirects: false };
        self.addr.iter().cloned().chain(port).map(wanted).collect()
    }

    /// Where to listen, where nothing was said.
    pub(crate) fn wanted_by_default(&self) -> Wanted {
        Wanted { host: "127.0.0.1".to_owned(), port: 8080, reuse_port: self.reuse_port, redirects: false }
    }
}

/// Splits `HOST:PORT`, where an IPv6 address as the host stands in brackets.
pub(crate) fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let advice = "write HOST:PORT, for example 127.0.0.1:8080, 0.0.0.0:80 or [::1]:8080";
    let (host, port) = text.rsplit_once(':').ok_or(advice)?;
    let port = port.parse().map_err(|_| format!("{port:?} is not a port (0 to 65535); {advice}"))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if host.is_empty() || (bare.is_none() && host.contains(':')) {
        return Err(advice.to_owned());
    }
    Ok((bare.unwrap_or(host).to_owned(), port))
}

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
