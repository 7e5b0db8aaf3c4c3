//! `dapple stage-host`: the stages of this program, for other processes and machines.

mod stages;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use dapple::stage::remote::{Discovery, HostError, HostLimits, HostOptions, host_run};
use dapple::tls::CertificateFiles;
use dapple_serve::command_line::{LimitArgs, LimitOption, Rows};
use dapple_sign::HostArgs;

use crate::config::{number, socket_addr};

/// Host stages for other processes and machines, over HTTP/2
///
/// Programs register stages of their own in the same way, and get the same options:
/// `dapple::stage::remote::host_main`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The address to listen on; with port 0 the kernel chooses one. Without TLS, use trusted
    /// networks only
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7000", value_parser = socket_addr)]
    listen: SocketAddr,

    /// The stage to run; may be given several times [default: all; `sign` only with --sign-log]
    #[arg(long, value_name = "NAME")]
    stage: Vec<String>,

    /// The number of replicas of each stage
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u16>(1..=10_000))]
    replicas: u16,

    /// List the stages with their input and output types, and exit
    #[arg(long)]
    list: bool,

    /// The number of worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=1024))]
    workers: Option<u16>,

    /// Take the socket over from the stage host that listens there, which then ends without losing
    /// a request; if there is none, just start
    #[arg(long)]
    take_over: bool,

    /// Let others find this host: etcd://HOST:PORT[,HOST:PORT…]/PREFIX
    #[arg(long, value_name = "WHERE")]
    register: Option<Discovery>,

    /// The address by which others reach this host [default: that of --listen]
    #[arg(long, value_name = "HOST:PORT", requires = "register")]
    advertise: Option<String>,

    /// How long until etcd forgets a host that has died, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number::<u64>(2..=3600))]
    ttl_s: u64,

    /// Keep a drawing of the stages and their queue lengths in this file (SVG; text if its name
    /// ends in .txt)
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,

    /// Encrypt with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    #[command(flatten)]
    limits: LimitArgs<HostRows>,

    #[command(flatten)]
    sign: HostArgs,
}

/// The limits of the stages' clients.
#[derive(Debug)]
struct HostRows;

impl Rows for HostRows {
    const HEADING: &'static str = "Limits";
    const ROWS: &'static [LimitOption] = HostLimits::ROWS;
}

/// Hosts stages until a signal ends the process.
///
/// # Errors
///
/// See [`HostError`].
pub(crate) fn run(args: &Args) -> Result<ExitCode, HostError> {
    if args.list {
        let stages = args.sign.register_to_list(stages::plain());
        // A closed stdout is no error.
        let _ = io::stdout().write_all(stages.list_text().as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    // Reports an unknown name before asking for a log.
    args.sign.register_to_list(stages::plain()).only(&args.stage).map_err(HostError::Options)?;
    let stages = args.sign.register(stages::plain(), &args.stage, args.take_over)?;
    host_run(stages, &args.options()).map(|()| ExitCode::SUCCESS)
}

impl Args {
    fn options(&self) -> HostOptions {
        let mut options = HostOptions::default();
        options.listen = self.listen;
        options.stages = self.stage.clone();
        options.replicas = usize::from(self.replicas);
        options.workers = self.workers.map(usize::from);
        options.take_over = self.take_over;
        options.register = self.register.clone();
        options.advertise = self.advertise.clone();
        options.ttl = Duration::from_secs(self.ttl_s);
        for row in HostLimits::ROWS {
            options.limits.set(row, self.limits.base(row).unwrap_or_else(|| row.default_number()));
        }
        options.graph = self.graph.clone();
        let files = self.tls_cert.clone().zip(self.tls_key.clone());
        options.tls = files.map(|(chain, key)| CertificateFiles { chain, key });
        options
    }
}
