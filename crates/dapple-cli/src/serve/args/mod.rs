//! The options of `dapple serve`, each declared once: see [`crate::config`] for its other names.
//!
//! A group of options is a struct of its own. A field is an option; its doc comment is its help;
//! `value_parser = number(…)` gives a number its range.

use std::path::PathBuf;

use dapple_serve::command_line::{LimitArgs, LimitOption, Rows, limits};

pub(crate) use self::listen::ListenArgs;
pub(crate) use self::tls::TlsArgs;
use super::looks::Looks;
use crate::config::number;
use crate::observe::ToldArgs;
use crate::server::{CONNECTIONS_MAX, CONNECTIONS_PER_CLIENT, ConnectionRows, DRAIN};

mod listen;
mod tls;

/// Serve a directory over HTTP/1.1 and HTTP/2, plain or encrypted, on every core
///
/// Every connection has a color of its own, so that different connections are served in parallel
/// while each is served as if it were alone. Accepting runs on the default color; the page cache is
/// ten shards with a color each.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory to serve; `index.html` answers for a directory
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Read options from this TOML file too; the command line and the environment win over it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Check all options, the file, and everything they name; print the settings in use, and serve
    /// nothing
    #[arg(long)]
    pub(crate) check: bool,

    #[command(flatten)]
    pub(crate) listen: ListenArgs,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    #[command(flatten)]
    pub(crate) files: FilesArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs<ServeRows>,

    #[command(flatten)]
    pub(crate) connection: LimitArgs<ConnectionRows>,

    #[command(flatten)]
    pub(crate) told: ToldArgs,

    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
}

/// The files to serve, and how.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct FilesArgs {
    /// Memory for cached pages, in MiB; a file larger than a twentieth of it is streamed from the
    /// disk [default: 128, or a quarter of the memory limit if that is less]
    #[arg(long, value_name = "N", value_parser = number::<u64>(0..=1 << 24))]
    pub(crate) cache_mb: Option<u64>,

    /// Follow symbolic links that lead out of DIR
    #[arg(long)]
    pub(crate) follow: bool,

    /// List the files of a directory that has no index.html
    #[arg(long)]
    pub(crate) list: bool,

    /// Serve files with names that begin with a dot, such as .git and .env; .well-known is always
    /// served
    #[arg(long)]
    pub(crate) hidden: bool,

    /// Send everything as it is: do not compress text, and do not send a.js.br, a.js.zst or a.js.gz
    /// in place of a.js
    #[arg(long)]
    pub(crate) no_compress: bool,
}

/// Limits on clients and on memory.
#[derive(Debug)]
pub(crate) struct ServeRows;

impl Rows for ServeRows {
    const HEADING: &'static str = "Limits";
    const ROWS: &'static [LimitOption] = &[
        CONNECTIONS_MAX,
        CONNECTIONS_PER_CLIENT,
        DRAIN,
        limits::MEMORY_LIMIT.or_note("the limit of the control group, if it has one"),
        // Requests for pages in memory are never refused.
        limits::TARGET_DELAY.or(1_000),
    ];
}

impl Args {
    /// The admission of reads from the disk; `None` if all are admitted.
    pub(crate) fn looks(&self) -> Option<Looks> {
        let target_delay = self.limits.time(&limits::TARGET_DELAY);
        (!target_delay.is_zero()).then(|| Looks::new(target_delay))
    }
}

/// The runtime, and the status page.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct RuntimeArgs {
    /// The number of workers [default: DAPPLE_WORKERS, or else as many cores as this process may
    /// use]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// Put everything on the default color: the same program without parallelism, for comparison
    #[arg(long)]
    pub(crate) serial: bool,

    /// Do not answer at /-/status, where the server shows its metrics
    #[arg(long)]
    pub(crate) no_status: bool,
}

const EXAMPLES: &str = "\
Every option can also be given in the environment (--cache-mb 64 is DAPPLE_SERVE_CACHE_MB=64) and in the file of
--config (cache_mb = 64). The command line wins over the environment, and that over the file.

Examples:
  dapple serve site                        on http://127.0.0.1:8080, for this machine only
  dapple serve site --addr 0.0.0.0:8000    for every machine that can reach this one
  dapple serve site --port 0               on any free port; the printed line says which
  dapple serve --config serve.toml --check print the settings, and check whether they make sense
  dapple serve site --serial               without parallelism, to see what colors buy

SIGTERM or Ctrl-C ends it: it takes no new connections and finishes requests within --drain-s seconds; a second one ends
it at once. SIGUSR2 starts the program file anew, which takes over without a gap. DAPPLE_LOG (error, warn, info, debug)
sets how much it says on stderr; warn when left out.";
