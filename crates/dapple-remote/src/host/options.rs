//! The command line of a stage host.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::HostLimits;
use crate::discovery::Discovery;
use crate::peer::parse_address;

/// The options of a process that hosts stages, which [`host_main`](crate::host_main) reads from the
/// command line.
///
/// ```
/// use dapple_remote::{HostCommand, HostOptions};
///
/// let command = HostOptions::parse(["--listen", "127.0.0.1:0", "--stage", "echo", "--replicas", "4"])?;
/// let HostCommand::Run(options) = command else { panic!("it is to run") };
/// assert_eq!((options.stages, options.replicas), (vec!["echo".to_owned()], 4));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostOptions {
    /// The address to listen on; with port 0 the kernel chooses one. `127.0.0.1:7000` by default.
    /// Without TLS, use trusted networks only.
    pub listen: SocketAddr,
    /// The registered stages to run; all if empty.
    pub stages: Vec<String>,
    /// The number of replicas of each; 1 by default.
    pub replicas: usize,
    /// The number of workers; one per core by default.
    pub workers: Option<usize>,
    /// Whether to take the listening socket over from the process that has it, which then ends
    /// without losing a request.
    pub take_over: bool,
    /// The directory to register in, so that others find this host.
    pub register: Option<Discovery>,
    /// The address by which others reach this host; by default the one it listens on.
    pub advertise: Option<String>,
    /// How long until etcd forgets a dead host; 10 s by default.
    pub ttl: Duration,
    /// The limits of the host.
    pub limits: HostLimits,
    /// A file with a drawing of the stages, or text if it ends in `.txt`; kept up to date.
    pub graph: Option<PathBuf>,
    /// The certificate and its key, in PEM format.
    #[cfg(feature = "tls")]
    pub tls: Option<dapple_tls::CertificateFiles>,
}

/// The command of a command line.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one of them in a process")]
pub enum HostCommand {
    /// Host stages.
    Run(HostOptions),
    /// List the stages.
    List,
    /// Print the help.
    Help,
}

impl Default for HostOptions {
    fn default() -> Self {
        HostOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 7000)),
            stages: Vec::new(),
            replicas: 1,
            workers: None,
            take_over: false,
            register: None,
            advertise: None,
            ttl: Duration::from_secs(10),
            limits: HostLimits::default(),
            graph: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl HostOptions {
    /// The options' help, one line each.
    pub fn help() -> String {
        let mut help = HELP.to_owned();
        for row in HostLimits::ROWS {
            let default = row.default_text().unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = writeln!(help, "      {} N\n                        {} [default: {default}]", row.flag(), row.help);
        }
        help
    }

    /// Parses a command line, without the program's name. An option and its value may be one word
    /// with `=` or two.
    ///
    /// # Errors
    ///
    /// The word that makes no sense, and what would.
    pub fn parse<A: Into<String>>(arguments: impl IntoIterator<Item = A>) -> Result<HostCommand, String> {
        let mut words = Words { rest: arguments.into_iter().map(Into::into).collect::<Vec<_>>().into_iter() };
        let mut options = HostOptions::default();
        let mut is_list = false;
        #[cfg(feature = "tls")]
        let mut tls = (None, None);
        while let Some((name, value)) = words.next()? {
            match name.as_str() {
                "--help" | "-h" => return Ok(HostCommand::Help),
                "--list" => is_list = value.none(&name)?,
                "--take-over" => options.take_over = value.none(&name)?,
                "--listen" => options.listen = value.parsed(&name, "an address such as 127.0.0.1:7000")?,
                "--stage" => options.stages.push(value.text(&name)?),
                "--replicas" => options.replicas = value.number(&name, 1, 10_000)? as usize,
                "--workers" => options.workers = Some(value.number(&name, 1, 1024)? as usize),
                "--register" => {
                    options.register = Some(value.text(&name)?.parse().map_err(|error| format!("{name}: {error}"))?);
                }
                "--advertise" => options.advertise = Some(value.text(&name)?),
                "--ttl-s" => options.ttl = Duration::from_secs(value.number(&name, 2, 3600)?),
                "--graph" => options.graph = Some(value.text(&name)?.into()),
                #[cfg(feature = "tls")]
                "--tls-cert" => tls.0 = Some(value.text(&name)?),
                #[cfg(feature = "tls")]
                "--tls-key" => tls.1 = Some(value.text(&name)?),
                _ => match HostLimits::ROWS.iter().find(|row| row.flag() == name) {
                    Some(row) => {
                        let text = value.text(&name)?;
                        options.limits.set(row, row.read(&text).map_err(|wrong| format!("{name}: {wrong}"))?);
                    }
                    None => return Err(format!("`{name}` is no option; --help lists them")),
                },
            }
        }
        #[cfg(feature = "tls")]
        {
            options.tls = match tls {
                (None, None) => None,
                (Some(chain), Some(key)) => Some(dapple_tls::CertificateFiles { chain: chain.into(), key: key.into() }),
                _ => return Err("--tls-cert and --tls-key go together".to_owned()),
            };
        }
        options.check()?;
        Ok(if is_list { HostCommand::List } else { HostCommand::Run(options) })
    }

    /// Checks what no single word of a command line shows.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(address) = &self.advertise {
            parse_address(address).map_err(|error| format!("--advertise: {error}"))?;
        }
        let Some(place) = &self.register else { return Ok(()) };
        if place.place().is_none() {
            return Err(format!(
                "--register: hosts register themselves in etcd only, etcd://HOST:PORT/PREFIX, and not in `{place}`"
            ));
        }
        match self.advertise.is_none() && self.listen.ip().is_unspecified() {
            true => {
                let listen = self.listen;
                Err(format!(
                    "other hosts cannot connect to {listen}; give the address by which they reach this host with \
                    --advertise HOST:PORT"
                ))
            }
            false => Ok(()),
        }
    }

    /// The address by which others reach a host that listens here.
    pub(crate) fn reached_at(&self, listening: SocketAddr) -> String {
        self.advertise.clone().unwrap_or_else(|| listening.to_string())
    }
}

/// The words of a command line, as options with or without a value.
struct Words {
    rest: std::vec::IntoIter<String>,
}

/// The value of an option: in the same word, or in the next.
struct Value<'a> {
    own: Option<String>,
    rest: &'a mut std::vec::IntoIter<String>,
}

impl Words {
    fn next(&mut self) -> Result<Option<(String, Value<'_>)>, String> {
        let Some(word) = self.rest.next() else { return Ok(None) };
        if !word.starts_with('-') {
            return Err(format!("`{word}` stands alone; --help lists what can be written"));
        }
        let (name, own) = match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        Ok(Some((name, Value { own, rest: &mut self.rest })))
    }
}

impl Value<'_> {
    fn none(self, name: &str) -> Result<bool, String> {
        match self.own {
            None => Ok(true),
            Some(value) => Err(format!("{name} takes no value, and `{value}` was given")),
        }
    }

    fn text(self, name: &str) -> Result<String, String> {
        let text = self.own.or_else(|| self.rest.next()).filter(|text| !text.is_empty());
        text.ok_or_else(|| format!("{name} needs a value"))
    }

    fn parsed<T: std::str::FromStr>(self, name: &str, what: &str) -> Result<T, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("{name} needs {what}, and `{text}` is none"))
    }

    fn number(self, name: &str, min: u64, max: u64) -> Result<u64, String> {
        let text = self.text(name)?;
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| format!("{name} needs a number from {min} to {max}, and `{text}` is none"))
    }
}

const HELP: &str = "\
      --listen ADDR     where to listen; port 0 lets the kernel choose [default: 127.0.0.1:7000]
      --stage NAME      which stage to run; again for more [default: all]
      --replicas N      how many of each [default: 1]
      --list            say which stages there are, and end
      --workers N       threads that run them [default: one per core]
      --take-over       take the socket over from the process that has it, which ends without losing a request
      --register WHERE  let others find this host: etcd://HOST:PORT[,HOST:PORT…]/PREFIX
      --advertise ADDR  under which address others reach this host [default: that of --listen]
      --ttl-s N         how long until etcd forgets a host that has died [default: 10]
      --graph FILE      keep a drawing of the stages with what waits at each (SVG; text if it ends in .txt) in this file
      --tls-cert FILE   encrypt, with this certificate (PEM); if the program was built with `tls`
      --tls-key FILE    and its key
";

#[cfg(test)]
mod tests {
    use super::{HostCommand, HostOptions};

    fn run(line: &str) -> HostOptions {
        match HostOptions::parse(line.split_whitespace()) {
            Ok(HostCommand::Run(options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_are_read_in_both_ways_of_writing() {
        let options =
            run("--listen=[::1]:9 --stage a --stage=b --replicas 3 --take-over --drain-s=0 --ttl-s 5 --graph=g.svg");
        assert_eq!(options.listen.to_string(), "[::1]:9");
        assert_eq!((options.stages, options.replicas, options.take_over), (vec!["a".into(), "b".into()], 3, true));
        assert_eq!(options.graph, Some("g.svg".into()));
        assert_eq!((options.limits.drain.as_secs(), options.ttl.as_secs()), (0, 5));
        assert!(matches!(HostOptions::parse(["--list"]), Ok(HostCommand::List)));
        assert!(matches!(HostOptions::parse(["--list", "-h"]), Ok(HostCommand::Help)));
    }

    #[test]
    fn invalid_words_are_named() {
        let cases = [
            ("--listen 80", "address"),
            ("--listen", "needs a value"),
            ("--replicas 0", "from 1 to 10000"),
            ("--workers many", "from 1 to 1024"),
            (
                "--connections-max 0",
                "--connections-max: 0 is not possible here; write a number from 1 to 4294967295, for example 1024",
            ),
            ("--drain-s x", "write seconds from 0 to 3600, for example 30"),
            ("--take-over=yes", "takes no value"),
            ("echo", "stands alone"),
            ("--nonsense", "no option"),
            ("--register a:1", "etcd only"),
            ("--register etcd://a:1", "PREFIX"),
            ("--advertise here", "no address"),
        ];
        for (line, words) in cases {
            let error = HostOptions::parse(line.split_whitespace()).expect_err(line);
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn the_unspecified_address_is_not_advertised() {
        let everywhere = ["--register", "etcd://a:1/x", "--listen", "0.0.0.0:7"];
        assert!(HostOptions::parse(everywhere).unwrap_err().contains("--advertise"));
        let options = run("--register etcd://a:1/x --listen 0.0.0.0:7 --advertise b:7");
        assert_eq!(options.reached_at("0.0.0.0:7".parse().unwrap()), "b:7");
        assert_eq!(run("").reached_at("127.0.0.1:7".parse().unwrap()), "127.0.0.1:7");
    }
}
