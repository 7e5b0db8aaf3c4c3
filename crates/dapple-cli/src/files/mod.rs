//! `dapple files`: a directory of files, over WebDAV.

mod args;
mod audit;
mod error;
mod memory;
mod numbers;
mod passwd;
mod state;
mod status;

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dapple::blocking::spawn_blocking;
use dapple::serve::{Serve, ServeHandle, serve};
use dapple::signal::{SIGHUP, SIGINT, SIGTERM, Signal, signal};
use dapple::task::race;
use dapple::tls::rustls::ServerConfig;
use dapple::tls::{CertificateFiles, Certificates, ClientAuthorities, TlsAcceptor};
use dapple::{Color, Handle};
use dapple_files::{Files, Leases, Logins, May, Rules, Tree, Users};
use dapple_serve::command_line::limits;
use dapple_serve::host::{MemoryLimit, MemoryState, Wanted, listen};
use tracing::{error, info, warn};

use self::args::Action;
pub(crate) use self::args::Args;
pub(crate) use self::error::FilesError;
use self::numbers::FilesNumbers;
use self::state::State;
use crate::config::Loaded;
use crate::observe::log::Log;
use crate::observe::told::begin_metrics;
use crate::server::DRAIN;

/// The parts of a service that a signal lets it read again.
#[derive(Clone)]
struct Sources {
    certificate: Option<CertificateFiles>,
    /// Whether clients of TLS 1.2 are served.
    is_tls12: bool,
    clients: Option<std::path::PathBuf>,
    users: Option<std::path::PathBuf>,
    rules: Option<std::path::PathBuf>,
    is_read_only: bool,
}

/// Serves until a signal says to stop; or checks whether it could, or sets a password.
///
/// # Errors
///
/// See [`FilesError`].
pub(crate) fn run(args: &Args, loaded: &Loaded) -> Result<(), FilesError> {
    match &args.action {
        Some(Action::Passwd { file, name }) => return passwd::passwd(file, name),
        Some(Action::Check { dir }) => {
            let runtime = dapple::builder().workers(1).build().map_err(FilesError::Runtime)?;
            return runtime.block_on(look(dir));
        }
        None => {}
    }
    // Clients choose permissions, and their own mask has been applied.
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut builder = dapple::builder();
    if let Some(workers) = args.workers {
        builder = builder.workers(usize::from(workers));
    }
    let runtime = builder.build().map_err(FilesError::Runtime)?;
    runtime.block_on(async { if args.check { check(args, loaded).await } else { start(args).await } })
}

/// Checks everything that the options name, and prints the settings in use. Does not listen.
async fn check(args: &Args, loaded: &Loaded) -> Result<(), FilesError> {
    open(args).await?;
    for wanted in args.wanted() {
        wanted.addrs()?;
    }
    if let Some(path) = &args.audit_log {
        crate::observe::log::check(path).map_err(|error| FilesError::AuditLog(path.clone(), error))?;
    }
    let sources = args.sources(None)?;
    sources.users()?;
    sources.rules()?;
    sources.authorities().await?;
    if let Some(files) = &sources.certificate {
        Certificates::load(vec![files.clone()]).await?;
    }
    // With a closed stdout, the exit code still tells the result.
    let _ = io::stdout().lock().write_all(loaded.show().as_bytes());
    Ok(())
}

/// Says what a directory offers.
async fn look(dir: &Path) -> Result<(), FilesError> {
    let tree = open_dir(dir, Duration::from_secs(1)).await?;
    let failed = |error| FilesError::Dir(dir.to_owned(), error);
    let (offers, space) = (tree.offers().await.map_err(failed)?, tree.space().await.map_err(failed)?);
    let line = |has: bool, yes: &str, no: &str| {
        format!("{} {}\n", if has { "yes" } else { "no " }, if has { yes } else { no })
    };
    let text = [
        "yes no path leads out of it (openat2)\n".to_owned(),
        line(offers.writing, "this user can write there", "this user cannot write there: serve it with --read-only"),
        line(
            offers.unnamed_files,
            "an upload has no name until it is whole (O_TMPFILE)",
            "unnamed files (O_TMPFILE): uploads have a hidden name until they are whole",
        ),
        line(
            offers.extended_attributes,
            "extended attributes: properties of WebDAV's clients are kept",
            "extended attributes: properties of WebDAV's clients are refused",
        ),
        line(
            offers.foreign_changes,
            "mounts hear at once of changes that other programs make (fanotify)",
            "fanotify: mounts see changes that other programs make when leases end",
        ),
        format!("    {} MB and {} files can still be written\n", space.available >> 20, space.files_free),
    ];
    // With a closed stdout, the exit code still tells the result.
    let _ = io::stdout().lock().write_all(text.concat().as_bytes());
    Ok(())
}

async fn start(args: &Args) -> Result<(), FilesError> {
    // Before anything is announced: a signal at once must not kill the process.
    let renew = signal(SIGHUP).map_err(FilesError::Runtime)?;
    let stop = [signal(SIGTERM), signal(SIGINT)].map(|signal| signal.map_err(FilesError::Runtime));
    let tree = open(args).await?;
    let wanted = args.wanted();
    let listening = listen(&wanted, &args.wanted_by_default(), None)?;
    let addrs: Vec<SocketAddr> = listening.iter().filter_map(dapple_serve::host::Listening::addr).collect();
    let needs_state = args.encryption.needs_state() || args.needs_token();
    let state = match State::open(args.encryption.state.as_deref()) {
        Ok(state) => Some(state),
        Err(error) if needs_state => return Err(error),
        Err(error) => {
            warn!("{error}; {NOT_REMEMBERED}");
            None
        }
    };
    let token = args.token(state.as_ref())?;
    let sources = args.sources(state.as_ref())?;
    let authorities = sources.authorities().await?;
    let acceptor = acceptor(&sources, authorities.as_ref(), &addrs).await?;
    let files = Files::new(tree, Logins::new(token.clone(), sources.users()?), sources.rules()?);
    files.set_authorities(authorities);
    if let Some(state) = &state {
        let log = state.changes(args.dir.as_deref().unwrap_or(Path::new("")));
        if let Err(error) = files.remember_changes(&log).await {
            warn!("cannot keep {}: {error}; {NOT_REMEMBERED}", log.display());
        }
    }
    if args.rights.trust_owners {
        files.trust_owners();
    }
    let audit = args.audit_log.as_deref();
    let audit = audit.map(|path| audit::begin(path, &files, Handle::current().workers())).transpose()?;
    let (audit_log, writing) = audit.unzip();
    let mut handles = Vec::new();
    let mut serving = Vec::new();
    for one in listening {
        let listener = one.into_listener().map_err(FilesError::Runtime)?;
        let server = args.limited(serve(listener, files.clone()));
        let server = match &acceptor {
            Some(acceptor) => server.tls(acceptor.clone()),
            None => server,
        };
        handles.push(server.handle());
        serving.push(dapple::spawn(async move { server.await }));
    }
    let [term, int] = stop;
    drop(Color::new().spawn_background(end_at_signal(term?, int?, handles.clone())));
    let memory = Arc::new(MemoryState::default());
    if let Some(limit) = MemoryLimit::find(args.limits.bytes_given(&limits::MEMORY_LIMIT)) {
        drop(Color::new().spawn_background(memory::watch(memory.clone(), limit, files.clone())));
    }
    if !args.no_status {
        status::begin(&files, handles.clone(), memory);
    }
    let numbers = Arc::new(FilesNumbers::new(files.clone(), handles, Handle::current(), audit_log.clone()));
    begin_metrics(&args.metrics, numbers, false)?;
    announce(args, &addrs, acceptor.is_some(), token.as_deref(), sources.certificate.as_ref());
    drop(Color::new().spawn_background(reload(renew, files, sources, acceptor, audit_log)));
    for server in serving {
        let served = server.await.map_err(|error| FilesError::Serve(io::Error::other(error.to_string())))?;
        served.map_err(FilesError::Serve)?;
    }
    // Writes the last lines.
    drop(writing);
    Ok(())
}

const NOT_REMEMBERED: &str = "changes of mounts that are in flight when this server ends may happen twice";

/// Ends the servers at the first signal, and the process at the second.
async fn end_at_signal(mut term: Signal, mut int: Signal, servers: Vec<ServeHandle>) {
    race(term.recv(), int.recv()).await;
    servers.iter().for_each(ServeHandle::stop);
    race(term.recv(), int.recv()).await;
    warn!("second signal: what is in flight is cut off");
    std::process::exit(1);
}

async fn open(args: &Args) -> Result<Tree, FilesError> {
    open_dir(args.dir.as_deref().unwrap_or(Path::new("")), Duration::from_secs(args.lease_s)).await
}

async fn open_dir(dir: &Path, lease: Duration) -> Result<Tree, FilesError> {
    Tree::with_leases(dir, Leases::new(lease)).await.map_err(|error| match error.kind() {
        io::ErrorKind::Unsupported => FilesError::Openat2,
        _ => FilesError::Dir(dir.to_owned(), error),
    })
}

/// The TLS side; `None` with `--plain`.
async fn acceptor(
    sources: &Sources,
    authorities: Option<&ClientAuthorities>,
    addrs: &[SocketAddr],
) -> Result<Option<TlsAcceptor>, FilesError> {
    let Some(files) = &sources.certificate else {
        return match addrs.iter().find(|addr| !addr.ip().is_loopback()) {
            Some(addr) => Err(FilesError::PlainToAll(*addr)),
            None => Ok(None),
        };
    };
    let certificates = Certificates::load(vec![files.clone()]).await?;
    Ok(Some(TlsAcceptor::from_config(sources.config(certificates, authorities)?)))
}

/// Reads certificate, users and rules again at each SIGHUP, and opens the audit log again. The old ones stay in place of what cannot be used.
async fn reload(
    mut signal: Signal,
    files: Files,
    sources: Sources,
    acceptor: Option<TlsAcceptor>,
    audit_log: Option<Arc<Log>>,
) {
    loop {
        signal.recv().await;
        if let Some(log) = &audit_log {
            log.reopen();
        }
        let (again, of_rights) = (sources.clone(), files.clone());
        let read = spawn_blocking(move || {
            let (users, rules) = (again.users()?, again.rules()?);
            of_rights.reload(users, rules);
            Ok::<_, FilesError>(())
        });
        match read.await {
            Ok(Ok(())) => info!("read users and rules again"),
            Ok(Err(error)) => error!("users and rules stay unchanged: {error}"),
            Err(error) => error!("users and rules stay unchanged: {error}"),
        }
        let Some((acceptor, from)) = acceptor.as_ref().zip(sources.certificate.clone()) else { continue };
        match sources.reload_certificates(acceptor, from, &files).await {
            Ok(()) => info!("read the certificates again"),
            Err(error) => error!("the certificates stay unchanged: {error}"),
        }
    }
}

/// Prints the line on stdout that scripts wait for, and the lines on stderr that a person needs.
fn announce(
    args: &Args,
    addrs: &[SocketAddr],
    is_encrypted: bool,
    token: Option<&str>,
    certificate: Option<&CertificateFiles>,
) {
    let scheme = if is_encrypted { "https" } else { "http" };
    let urls: Vec<String> = addrs.iter().map(|addr| format!("{scheme}://{addr}")).collect();
    let dir = args.dir.as_deref().unwrap_or(Path::new("."));
    let mut stdout = io::stdout().lock();
    // A closed stdout must not stop the server.
    let _ =
        writeln!(stdout, "dapple: files of {} at {}", dir.display(), urls.join(" and ")).and_then(|()| stdout.flush());
    let Some(url) = urls.first() else { return };
    if args.rights.token.is_none()
        && let Some(token) = token
    {
        eprintln!("dapple: the token, to be kept secret: {token}");
        let trust = match certificate {
            Some(files) if args.encryption.tls_cert.is_none() => format!(" --ca-cert {}", files.chain.display()),
            _ => String::new(),
        };
        eprintln!("dapple: in a browser: {url}/ with any user and the token as the password");
        eprintln!("dapple: to mount it:  DAPPLE_MOUNT_TOKEN={token} dapple mount {url} DIRECTORY");
        eprintln!(
            "dapple: or as WebDAV: RCLONE_WEBDAV_BEARER_TOKEN={token} rclone mount{trust} --webdav-url {url} :webdav: DIRECTORY"
        );
    }
}

impl Args {
    fn wanted(&self) -> Vec<Wanted> {
        self.addr.iter().map(|(host, port)| wanted_at(host, *port)).collect()
    }

    fn wanted_by_default(&self) -> Wanted {
        wanted_at("127.0.0.1", 8443)
    }

    /// Whether a token is made if none is given.
    fn needs_token(&self) -> bool {
        self.rights.token.is_none() && self.rights.user_file.is_none() && self.encryption.client_ca.is_none()
    }

    fn token(&self, state: Option<&State>) -> Result<Option<String>, FilesError> {
        match (&self.rights.token, state) {
            (Some(token), _) => Ok(Some(token.clone())),
            (None, Some(state)) if self.needs_token() => state.token().map(Some),
            _ => Ok(None),
        }
    }

    /// The files that a signal lets the service read again. Without a state, a certificate is not made.
    fn sources(&self, state: Option<&State>) -> Result<Sources, FilesError> {
        let encryption = &self.encryption;
        let given = encryption.tls_cert.clone().zip(encryption.tls_key.clone());
        if given.is_none() && (encryption.tls_cert.is_some() || encryption.tls_key.is_some()) {
            return Err(FilesError::TlsPair);
        }
        if given.is_some() && encryption.plain {
            return Err(FilesError::PlainAndTls);
        }
        let certificate = match (given, state) {
            (Some((chain, key)), _) => Some(CertificateFiles { chain, key }),
            (None, Some(state)) if encryption.needs_state() => Some(state.certificate(&self.names())?),
            _ => None,
        };
        let (users, rules) = (self.rights.user_file.clone(), self.rights.rules.clone());
        let clients = encryption.client_ca.clone();
        Ok(Sources {
            certificate,
            is_tls12: encryption.tls12,
            clients,
            users,
            rules,
            is_read_only: self.rights.read_only,
        })
    }

    /// The names of a certificate that is made.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        for (host, _) in &self.addr {
            let is_any = host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
            if !is_any && !names.contains(host) {
                names.push(host.clone());
            }
        }
        let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        if !host_name.is_empty() && !names.contains(&host_name) {
            names.push(host_name);
        }
        names
    }

    /// Gives a server the limits of the options.
    fn limited<L, V>(&self, server: Serve<L, V>) -> Serve<L, V> {
        let limits = &self.limits;
        let count = |row| limits.number(row);
        let server = server
            .connections_max(count(&limits::CONNECTIONS_MAX) as usize)
            .connections_per_client(u32::try_from(count(&limits::CONNECTIONS_PER_CLIENT)).unwrap_or(u32::MAX))
            .drain(limits.time(&DRAIN))
            .head_timeout(limits.time(&limits::HEAD_TIMEOUT))
            .body_max_bytes(limits.bytes_given(&limits::BODY_MAX))
            .body_timeout(limits.time(&limits::BODY_TIMEOUT))
            .pause_timeout(limits.time(&limits::PAUSE_TIMEOUT))
            .receive_rate_min(count(&limits::RECEIVE_RATE_MIN))
            .send_rate_min(count(&limits::SEND_RATE_MIN))
            .idle_timeout(limits.time(&limits::IDLE_TIMEOUT))
            .streams_max(count(&limits::STREAMS_MAX) as u32)
            .stream_window_bytes(WINDOW_BYTES);
        let target_delay = limits.time(&limits::TARGET_DELAY);
        if target_delay.is_zero() { server.no_admission() } else { server.target_delay(target_delay) }
    }
}

impl args::EncryptionArgs {
    fn needs_state(&self) -> bool {
        !self.plain && self.tls_cert.is_none()
    }
}

impl Sources {
    async fn authorities(&self) -> Result<Option<ClientAuthorities>, FilesError> {
        match &self.clients {
            Some(file) => Ok(Some(ClientAuthorities::load(file).await?)),
            None => Ok(None),
        }
    }

    fn config(
        &self,
        certificates: Certificates,
        authorities: Option<&ClientAuthorities>,
    ) -> Result<ServerConfig, FilesError> {
        let certificates = match authorities {
            Some(authorities) => certificates.asking_clients(authorities.clone()),
            None => certificates,
        };
        let alpn = ["h2", "http/1.1"];
        Ok(if self.is_tls12 { certificates.server_config(alpn)? } else { certificates.tls13_config(alpn)? })
    }

    /// Reads the server's certificate and the clients' authorities again; if one of them cannot be used, both stay.
    async fn reload_certificates(
        &self,
        acceptor: &TlsAcceptor,
        from: CertificateFiles,
        files: &Files,
    ) -> Result<(), FilesError> {
        let certificates = Certificates::load(vec![from]).await?;
        match self.authorities().await? {
            Some(authorities) => {
                acceptor.reload_config(self.config(certificates, Some(&authorities))?);
                files.set_authorities(Some(authorities));
            }
            None => acceptor.reload(certificates),
        }
        Ok(())
    }

    fn users(&self) -> Result<Users, FilesError> {
        let Some(file) = &self.users else { return Ok(Users::default()) };
        let users = Users::load(file)?;
        if users.is_empty() { Err(FilesError::NoUser(file.clone())) } else { Ok(users) }
    }

    fn rules(&self) -> Result<Rules, FilesError> {
        let rules = match &self.rules {
            Some(file) => Rules::load(file)?,
            None => Rules::all(May::Write),
        };
        Ok(if self.is_read_only { rules.read_only() } else { rules })
    }
}

fn wanted_at(host: &str, port: u16) -> Wanted {
    Wanted { host: host.to_owned(), port, reuse_port: false, redirects: false, option: "--addr HOST:PORT" }
}

/// How much of an upload may wait in a stream of HTTP/2: large ones come from far away, too.
const WINDOW_BYTES: u32 = 1 << 20;
