//! `dapple mount` and `dapple umount`: the files of `dapple files`, as a directory.

mod known;

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use dapple::signal::{SIGHUP, SIGINT, SIGTERM, signal};
use dapple::task::race;
use dapple::time::sleep;
use dapple::tls::rustls::pki_types::CertificateDer;
use dapple::tls::rustls::pki_types::pem::PemObject;
use dapple::tls::{CertificateFiles, Certificates, Pin, TlsConnector};
use dapple_files::{MountError, MountOptions, Mounted, mount};
use tracing::{error, info};

use self::known::Known;
use crate::config::number;

/// Mount the files of a server that runs `dapple files`, until they are unmounted or this program is ended
///
/// The kernel keeps what it read for as long as the server grants it (a lease), so most calls on the same files ask no server. A server
/// is known by its certificate: the first mount stores it, and another certificate is refused later.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The server: https://HOST:PORT
    #[arg(value_name = "URL")]
    url: String,

    /// An empty directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The token that the server printed at its start; better given in the environment, as DAPPLE_MOUNT_TOKEN, since other users of
    /// this machine see command lines
    #[arg(long, value_name = "TOKEN", conflicts_with = "user")]
    token: Option<String>,

    /// A user of the server; the password is in DAPPLE_MOUNT_PASSWORD, or the first line of --password-file
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// A file with the password as its first line
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,

    /// Log in with this certificate (PEM, with those of its signers if the server does not have them); SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// The key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Trust the certificates of this file (PEM) and those that they sign, in place of the one that is stored for the server
    #[arg(long, value_name = "FILE")]
    ca_cert: Option<PathBuf>,

    /// Trust the authorities that browsers trust, in place of the one certificate that is stored for the server
    #[arg(long, conflicts_with = "ca_cert")]
    public_ca: bool,

    /// Expect the server's certificate to have this SHA-256, and store it
    #[arg(long, value_name = "HEX", conflicts_with_all = ["ca_cert", "public_ca"])]
    fingerprint: Option<String>,

    /// Let http:// name another machine: everyone on the way there can then read the token and the files, and change them
    #[arg(long)]
    plain: bool,

    /// How long a call waits for a server that cannot be reached, in seconds; then programs get an error
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = number::<u64>(1..=86_400))]
    patience_s: u64,

    /// Show the owners that the server has, and let the administrator change them; otherwise all files are those of the user that
    /// mounts them
    #[arg(long)]
    server_owners: bool,

    /// Let other users of this machine use the files; /etc/fuse.conf must allow that
    #[arg(long)]
    allow_other: bool,
}

/// Unmount what `dapple mount` mounted
#[derive(Debug, clap::Args)]
pub(crate) struct UmountArgs {
    /// The directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// The reason why nothing was mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CommandError {
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(
        "the certificate of {server} is not the one stored in {file:?}: another machine may be in between. If the server has a new one, remove its \
         line there, or give --fingerprint"
    )]
    OtherCertificate { server: String, file: PathBuf },
    #[error(
        "{0} is not encrypted, so everyone on the way there could read the token and the files: write https:// (as `dapple files` serves \
         unless it has --plain), or give --plain if the way there is safe"
    )]
    Clear(String),
    #[error("{0:?} is no SHA-256; write 64 hexadecimal digits, with or without colons")]
    Fingerprint(String),
    #[error("cannot read {0:?}: {1}")]
    File(PathBuf, #[source] io::Error),
    #[error("there is no certificate in {0:?}, which must be a PEM file: {1}")]
    CaCert(PathBuf, String),
    #[error("the known servers in {0:?}: {1}")]
    Known(PathBuf, #[source] io::Error),
    #[error("no password: set DAPPLE_MOUNT_PASSWORD, or give --password-file FILE")]
    NoPassword,
    #[error("no login: give --token TOKEN (or DAPPLE_MOUNT_TOKEN), --user NAME, or --cert FILE and --key FILE")]
    NoLogin,
    #[error("a certificate needs https://")]
    CertificateInClear,
    #[error(transparent)]
    Certificate(#[from] dapple::tls::CertificateError),
    #[error("cannot make connections: {0}")]
    Tls(#[from] dapple::tls::Error),
    #[error("the runtime could not start: {0}")]
    Runtime(#[source] io::Error),
    #[error("cannot unmount {0:?}: {1}")]
    Unmount(PathBuf, String),
}

impl CommandError {
    /// Whether the command line makes no sense.
    pub(crate) fn is_misuse(&self) -> bool {
        matches!(
            self,
            CommandError::Fingerprint(_)
                | CommandError::Clear(_)
                | CommandError::CaCert(..)
                | CommandError::NoPassword
                | CommandError::NoLogin
                | CommandError::CertificateInClear
                | CommandError::Mount(MountError::Url(_))
        )
    }
}

/// Mounts, and waits for the end.
///
/// # Errors
///
/// See [`CommandError`].
pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    let runtime = dapple::builder().build().map_err(CommandError::Runtime)?;
    runtime.block_on(async {
        let mut signals = [SIGTERM, SIGINT].map(signal);
        let renew = signal(SIGHUP);
        let mounted = begin(args).await?;
        let mut stdout = io::stdout().lock();
        let (url, dir) = (&args.url, args.dir.display());
        // A closed stdout must not end the mount.
        let _ = writeln!(stdout, "dapple: {url} is mounted at {dir}").and_then(|()| stdout.flush());
        drop(stdout);
        let [Ok(term), Ok(int)] = &mut signals else { return Ok(()) };
        let over = async {
            while !mounted.is_over() {
                sleep(LOOK_EVERY).await;
            }
        };
        let renews = async {
            let Ok(mut renew) = renew else { return std::future::pending().await };
            loop {
                renew.recv().await;
                match args.renew(&mounted).await {
                    Ok(()) => info!("read the certificates again"),
                    Err(error) => error!("the certificates stay unchanged: {error}"),
                }
            }
        };
        race(race(over, renews), race(term.recv(), int.recv())).await;
        end(mounted, args).await
    })
}

async fn end(mounted: Mounted, args: &Args) -> Result<(), CommandError> {
    let ended = dapple::blocking::spawn_blocking(move || mounted.unmount()).await;
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(CommandError::Unmount(args.dir.clone(), error.to_string())),
        Err(error) => Err(CommandError::Runtime(io::Error::other(error))),
    }
}

async fn begin(args: &Args) -> Result<Mounted, CommandError> {
    let server = args.url.trim_end_matches('/').to_owned();
    if !args.plain && is_clear(&server) {
        return Err(CommandError::Clear(server));
    }
    let known = Known::open().map_err(|(path, error)| CommandError::Known(path, error))?;
    let stored = known.fingerprint(&server).map_err(|(path, error)| CommandError::Known(path, error))?;
    let (tls, pin) = args.trust(stored.as_deref())?;
    let tls = args.showing(tls).await?;
    let (token, login) = args.login()?;
    let options = MountOptions {
        url: server.clone(),
        token,
        login,
        tls,
        patience: Duration::from_secs(args.patience_s),
        server_owners: args.server_owners,
        allow_other: args.allow_other,
    };
    let mounted = match mount(options, &args.dir).await {
        Err(MountError::Unreachable(_, error)) if pin.is_some() && is_other_certificate(&error) => {
            return Err(CommandError::OtherCertificate { server, file: known.path().to_owned() });
        }
        mounted => mounted?,
    };
    if let Some(fingerprint) = pin.and_then(|pin| pin.fingerprint())
        && stored.as_deref() != Some(&fingerprint)
    {
        known.store(&server, &fingerprint).map_err(|(path, error)| CommandError::Known(path, error))?;
        eprintln!("dapple: {server} is known from now on by its certificate, with the SHA-256 {fingerprint}");
    }
    Ok(mounted)
}

/// Whether what is sent to a server can be read on the way: no encryption, and another machine.
fn is_clear(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|host: IpAddr| host.is_loopback());
    url.scheme_str() == Some("http") && !is_here
}

/// Whether a handshake failed because the certificate is another one.
fn is_other_certificate(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        if error.to_string().contains("ApplicationVerificationFailure") {
            return true;
        }
        at = error.source();
    }
    false
}

impl Args {
    /// The certificates to trust, and the pin if it is one.
    fn trust(&self, stored: Option<&str>) -> Result<(Option<TlsConnector>, Option<Pin>), CommandError> {
        if !self.url.starts_with("https://") || self.public_ca {
            return Ok((None, None));
        }
        if let Some(file) = &self.ca_cert {
            let failed = |error: dapple::tls::rustls::pki_types::pem::Error| {
                CommandError::CaCert(file.clone(), error.to_string())
            };
            let certificates = CertificateDer::pem_file_iter(file).map_err(failed)?;
            let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(failed)?;
            if certificates.is_empty() {
                return Err(CommandError::CaCert(file.clone(), "it has none".to_owned()));
            }
            return Ok((Some(TlsConnector::with_roots(certificates)?), None));
        }
        let pin = match self.fingerprint.as_deref().or(stored) {
            Some(text) => Pin::of(text).ok_or_else(|| CommandError::Fingerprint(text.to_owned()))?,
            None => Pin::first_use(),
        };
        Ok((Some(TlsConnector::pinned(&pin)?), Some(pin)))
    }

    /// Shows the certificate that is given.
    async fn showing(&self, tls: Option<TlsConnector>) -> Result<Option<TlsConnector>, CommandError> {
        let Some((chain, key)) = self.cert.clone().zip(self.key.clone()) else { return Ok(tls) };
        if !self.url.starts_with("https://") {
            return Err(CommandError::CertificateInClear);
        }
        let certificates = Certificates::load(vec![CertificateFiles { chain, key }]).await?;
        let tls = tls.map_or_else(TlsConnector::new, Ok)?;
        Ok(Some(tls.showing(&certificates)))
    }

    /// Makes new connections with the certificates that the files have now.
    async fn renew(&self, mounted: &Mounted) -> Result<(), CommandError> {
        let server = self.url.trim_end_matches('/');
        let stored = Known::open().and_then(|known| known.fingerprint(server));
        let stored = stored.map_err(|(path, error)| CommandError::Known(path, error))?;
        let tls = self.showing(self.trust(stored.as_deref())?.0).await?;
        Ok(mounted.set_tls(tls.as_ref())?)
    }

    #[allow(clippy::type_complexity)]
    fn login(&self) -> Result<(Option<String>, Option<(String, String)>), CommandError> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        if let Some(user) = &self.user {
            let password = match &self.password_file {
                Some(file) => {
                    let text =
                        std::fs::read_to_string(file).map_err(|error| CommandError::File(file.clone(), error))?;
                    text.lines().next().map(str::to_owned)
                }
                None => variable("DAPPLE_MOUNT_PASSWORD"),
            };
            let password = password.filter(|password| !password.is_empty()).ok_or(CommandError::NoPassword)?;
            return Ok((None, Some((user.clone(), password))));
        }
        let token = self.token.clone().or_else(|| variable("DAPPLE_MOUNT_TOKEN"));
        match token {
            None if self.cert.is_none() => Err(CommandError::NoLogin),
            token => Ok((token, None)),
        }
    }
}

/// Unmounts a directory.
///
/// # Errors
///
/// It is not mounted, or a program uses it.
pub(crate) fn umount(args: &UmountArgs) -> Result<(), CommandError> {
    let failed = |text: String| CommandError::Unmount(args.dir.clone(), text);
    let ran = Command::new("fusermount3").arg("-u").arg("--").arg(&args.dir).output();
    let ran = ran.map_err(|error| failed(format!("fusermount3: {error}; it is in the package fuse3")))?;
    match ran.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&ran.stderr).trim().to_owned())),
    }
}

/// How often the program looks whether its files were unmounted.
const LOOK_EVERY: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  DAPPLE_MOUNT_TOKEN=... dapple mount https://files.example:8443 ~/files
  dapple mount https://files.example:8443 ~/files --user ann --password-file ~/.files-password
  dapple mount https://files.example:8443 ~/files --cert ann.pem --key ann.key
  dapple umount ~/files

Ctrl-C or SIGTERM unmounts. SIGHUP reads the certificates again. DAPPLE_LOG=debug says more on stderr.";
