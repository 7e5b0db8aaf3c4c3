//! The command line of `dapple store`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use dapple::store::StoreUrl;
use dapple_serve::command_line::{LimitArgs, LimitOption, Rows, limits};

use crate::config::number;
use crate::observe::MetricsArgs;

/// Keep tables on disk: create them, read and change them, load and dump them
///
/// URL names the store: `redb:DIR` is a directory of redb files, the choice for most tables;
/// `fjall:DIR` is one of fjall, which is faster to write and slower to read and count; and
/// `etcd://HOST:PORT[,HOST:PORT…]/NAME` is a store in etcd, which outlives the machine. Only one
/// process at a time can open a store. Keys are ordered byte by byte. Names, keys and values are
/// text; `\xNN` stands for any other byte, in loaded files and in output.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Create a table, and the store if there is none
    Create {
        #[command(flatten)]
        table: TableTarget,
        /// The failures that a write survives once it is acknowledged
        #[arg(long, value_enum, default_value_t = Survives::Synced)]
        durability: Survives,
    },
    /// Print the tables
    List(Target),
    /// Remove a table with all its data
    Destroy(TableTarget),
    /// Print the value of a key; exit code 1 if it has none
    Get {
        #[command(flatten)]
        table: TableTarget,
        key: String,
    },
    /// Set the value of a key; creates the table if needed
    Put {
        #[command(flatten)]
        table: TableTarget,
        key: String,
        value: String,
        /// Only if the key has no value
        #[arg(long, conflicts_with = "if_version")]
        if_absent: bool,
        /// Only if the value has this version, as `get --json` prints it
        #[arg(long, value_name = "N")]
        if_version: Option<u64>,
    },
    /// Remove a key and print its value; exit code 1 if it has none
    Remove {
        #[command(flatten)]
        table: TableTarget,
        key: String,
    },
    /// Print keys and values in the order of the keys, with a tab between
    Scan {
        #[command(flatten)]
        table: TableTarget,
        /// Only keys with this prefix
        #[arg(long, conflicts_with_all = ["from", "to"])]
        prefix: Option<String>,
        /// Only this key and greater ones
        #[arg(long, value_name = "KEY")]
        from: Option<String>,
        /// Only keys below this one
        #[arg(long, value_name = "KEY")]
        to: Option<String>,
        /// The most entries to print
        #[arg(long, value_name = "N", value_parser = number::<u64>(1..=u64::MAX))]
        limit: Option<u64>,
    },
    /// Print the number of keys
    Count(TableTarget),
    /// Put all lines of a file, each `KEY<tab>VALUE`; creates the table if needed
    Load {
        #[command(flatten)]
        table: TableTarget,
        /// The file; `-` is standard input
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Print all keys and values in the form that `load` reads
    Dump(TableTarget),
    /// Print partitions, tables, keys and bytes on disk
    Stats(Target),
    /// Read all files and check them
    Verify(Target),
    /// Copy a store, as it is at one moment, into a new one
    Checkpoint {
        #[command(flatten)]
        store: Target,
        /// The place of the copy: redb:DIR, fjall:DIR or etcd://HOST:PORT/NAME
        to: StoreUrl,
    },
    /// Make a new store from a copy that `checkpoint` made
    Restore {
        #[command(flatten)]
        store: Target,
        /// The copy: redb:DIR, fjall:DIR or etcd://HOST:PORT/NAME
        from: StoreUrl,
    },
    /// Give a store more partitions
    Split {
        #[command(flatten)]
        store: Target,
        /// The new number of partitions
        #[arg(value_name = "N", value_parser = number::<u32>(1..=1024))]
        wanted: u32,
    },
    /// Give a store fewer partitions
    Merge {
        #[command(flatten)]
        store: Target,
        /// The new number of partitions
        #[arg(value_name = "N", value_parser = number::<u32>(1..=1024))]
        wanted: u32,
    },
    /// Copy a store to another engine or place, and compare checksums of both
    Migrate(Migration),
    /// Measure a store in a table of its own, check all values, and remove the table
    Bench(BenchArgs),
    /// Serve a store to clients of Redis, until SIGTERM
    Serve(ServeArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    pub(super) store: Target,
    /// The numbers of callers that each wait for an answer
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,16,100")]
    #[arg(value_parser = number::<u16>(1..=10_000))]
    pub(super) callers: Vec<u16>,
    /// The number of keys
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = number::<u64>(1..=100_000_000))]
    pub(super) keys: u64,
    /// The bytes of a value; at least those that tell it from others
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = number::<u32>(0..=1 << 20))]
    pub(super) value_len: u32,
    /// The seconds of each measurement
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = seconds)]
    pub(super) secs: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "write seconds from 0.01 to 3600, for example 2".to_owned())
}

#[derive(Debug, clap::Args)]
pub(super) struct Migration {
    /// The store: redb:DIR, fjall:DIR or etcd://HOST:PORT/NAME
    #[arg(long, value_name = "URL")]
    pub(super) from: StoreUrl,
    /// The place of the new store: redb:DIR, fjall:DIR or etcd://HOST:PORT/NAME
    #[arg(long, value_name = "URL")]
    pub(super) to: StoreUrl,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// The number of partitions of the new store [default: as many as the old store has]
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=1024))]
    pub(super) partitions: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) store: Target,
    /// The address to listen on; addresses other than loopback need a password. Without TLS, use
    /// trusted networks only
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(super) host: String,
    /// The port; with 0 the kernel chooses one
    #[arg(long, value_name = "N", default_value_t = 6379)]
    pub(super) port: u16,
    /// The file with the password of clients (AUTH) as its first line
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
    /// Encrypt with this certificate and its chain, in PEM format; SIGHUP reads both files again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,
    /// The number of worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=1024))]
    pub(super) workers: Option<u16>,
    #[command(flatten)]
    pub(super) metrics: MetricsArgs,
    #[command(flatten)]
    pub(super) limits: LimitArgs<StoreRows>,
}

/// The limits of the clients of a served store.
#[derive(Debug)]
pub(super) struct StoreRows;

impl Rows for StoreRows {
    const HEADING: &'static str = "Limits";
    const ROWS: &'static [LimitOption] = &[
        limits::CONNECTIONS_MAX.or(4_096),
        limits::REQUESTS_MEMORY,
        limits::SUBSCRIBER_WAITING_MAX,
        limits::DRAIN.or(10_000),
    ];
}

#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// The store: redb:DIR, fjall:DIR or etcd://HOST:PORT/NAME
    pub(super) url: StoreUrl,

    /// Print JSON, one object a line
    #[arg(long)]
    pub(super) json: bool,

    /// The number of partitions of a new store [default: one per core]
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=1024))]
    pub(super) partitions: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(super) struct TableTarget {
    #[command(flatten)]
    pub(super) store: Target,
    /// The table
    pub(super) table: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Survives {
    /// A power failure
    Synced,
    /// A kill of the process
    Process,
}
