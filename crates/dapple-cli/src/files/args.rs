//! The options of `dapple files`.

use std::path::PathBuf;

use dapple_serve::command_line::{LimitArgs, LimitOption, Rows, limits};

use crate::config::{host_and_port, number};
use crate::observe::MetricsArgs;
use crate::server::{CONNECTIONS_PER_CLIENT, DRAIN};

/// Serve a directory of files to be read and changed, over WebDAV and HTTPS
///
/// With nothing but DIR it listens on this machine only, with a key and a token that it makes at the first start and keeps; it prints
/// both, and how to mount the files.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) action: Option<Action>,

    /// The directory to serve
    #[arg(value_name = "DIR", required = true)]
    pub(super) dir: Option<PathBuf>,

    /// Read options from this TOML file too; the command line and the environment win over it
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Check all options, and the files that they name; print the settings in use, and serve nothing
    #[arg(long)]
    pub(super) check: bool,

    /// The address to listen on, may be given several times; 0.0.0.0 or [::] as the host means every address of this machine; with
    /// port 0 the kernel chooses one [default: 127.0.0.1:8443]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(super) addr: Vec<(String, u16)>,

    #[command(flatten)]
    pub(super) encryption: EncryptionArgs,

    #[command(flatten)]
    pub(super) rights: RightsArgs,

    /// How long a client may use what it read without asking again, unless it is told of a change, in seconds
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = number::<u64>(1..=3600))]
    pub(super) lease_s: u64,

    #[command(flatten)]
    pub(super) limits: LimitArgs<FilesRows>,

    /// Write a line of JSON for each change that a client makes or tries to make: time, user, address, call, path and result; SIGHUP
    /// opens the file again. If it cannot be written (the disk is full), the service goes on, says so, and counts the lines that are lost
    #[arg(long, value_name = "FILE")]
    pub(super) audit_log: Option<PathBuf>,

    /// Do not serve the numbers of the service as /-/status
    #[arg(long)]
    pub(super) no_status: bool,

    #[command(flatten)]
    pub(super) metrics: MetricsArgs,

    /// The number of workers [default: DAPPLE_WORKERS, or else as many cores as this process may use]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=1024))]
    pub(super) workers: Option<u16>,
}

/// Commands beside the service.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    /// Set the password of a user, new or known; reads it from the terminal, or from standard input
    Passwd {
        /// The file of --user-file; it is made if there is none
        file: PathBuf,
        /// The user's name
        name: String,
    },
    /// Say what a directory offers to the service, and what clients will miss; serves nothing
    Check {
        /// The directory
        dir: PathBuf,
    },
}

/// Certificate and key.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Encryption")]
pub(super) struct EncryptionArgs {
    /// A certificate and its chain, in PEM format; SIGHUP reads it again [default: one made at the first start, in --state]
    #[arg(long, value_name = "FILE")]
    pub(super) tls_cert: Option<PathBuf>,

    /// The key of the certificate, in PEM format
    #[arg(long, value_name = "FILE")]
    pub(super) tls_key: Option<PathBuf>,

    /// Also let in clients that show a certificate of these authorities, as the user of its name: a PEM file, with lists of revoked
    /// certificates (CRL) if there are any; SIGHUP reads it again. Clients without a certificate log in as before, if there is a token or
    /// a user file
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    pub(super) client_ca: Option<PathBuf>,

    /// Also accept clients of TLS 1.2
    #[arg(long)]
    pub(super) tls12: bool,

    /// Do not encrypt: for a proxy on this machine; refused for other addresses than loopback
    #[arg(long)]
    pub(super) plain: bool,

    /// The directory of the key, the certificate and the token that are made at the first start [default:
    /// ~/.local/state/dapple/files]
    #[arg(long, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
}

/// The clients that are let in, and their rights.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Rights")]
pub(super) struct RightsArgs {
    /// A secret that lets a client in: as `Authorization: Bearer TOKEN`, or as the password of any user. Better given as
    /// DAPPLE_FILES_TOKEN, since other users of this machine see command lines [default: with --user-file or --client-ca none, otherwise one made at
    /// the first start]
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    pub(super) token: Option<String>,

    /// The users with their passwords, a file that `dapple files passwd` writes; SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    pub(super) user_file: Option<PathBuf>,

    /// The rights of users by path, a TOML file; SIGHUP reads it again [default: every client that is let in may read and write]
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,

    /// Let mounts change the owners of files, and set the bits setuid and setgid, as far as this program's user may: only for clients
    /// that are trusted like that user
    #[arg(long)]
    pub(super) trust_owners: bool,

    /// Let no one change anything
    #[arg(long)]
    pub(super) read_only: bool,
}

fn token(text: &str) -> Result<String, String> {
    let is_good = (16..=1024).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_good {
        return Ok(text.to_owned());
    }
    Err("a token has 16 to 1024 visible characters of ASCII; `openssl rand -hex 16` makes one".to_owned())
}

/// The limits of clients.
#[derive(Debug)]
pub(super) struct FilesRows;

impl Rows for FilesRows {
    const HEADING: &'static str = "Limits";
    const ROWS: &'static [LimitOption] = &[
        limits::CONNECTIONS_MAX.or(10_000),
        CONNECTIONS_PER_CLIENT.or(0),
        DRAIN,
        limits::HEAD_TIMEOUT,
        limits::BODY_MAX.or_note("no limit"),
        limits::BODY_TIMEOUT,
        limits::PAUSE_TIMEOUT.or(30_000),
        limits::RECEIVE_RATE_MIN.or(1_024),
        limits::SEND_RATE_MIN.or(1_024),
        limits::IDLE_TIMEOUT.or(75_000),
        limits::STREAMS_MAX,
        limits::MEMORY_LIMIT.or_note("the limit of the control group, if it has one"),
        limits::TARGET_DELAY.or(1_000),
    ];
}

const EXAMPLES: &str = "\
Every option can also be given in the environment (--lease-s 10 is DAPPLE_FILES_LEASE_S=10) and in the file of
--config (lease_s = 10). The command line wins over the environment, and that over the file.

Examples:
  dapple files /srv/files                          on https://127.0.0.1:8443, for this machine only
  dapple files /srv/files --addr 0.0.0.0:8443      for every machine that can reach this one
  dapple files passwd users ann                    set the password of a user
  dapple files check /srv/files                    what the directory's file system offers
  dapple files /srv/files --user-file users --rules rules.toml

SIGTERM or Ctrl-C ends it: it takes no new connections and finishes requests within --drain-s seconds. SIGHUP reads the
certificates, the users and the rules again. DAPPLE_LOG=info logs each request with its user on stderr.";
