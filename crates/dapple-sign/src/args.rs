//! The command line of `dapple sign`.

use std::path::PathBuf;

use dapple::stage::remote::Discovery;
use dapple_serve::command_line::{LimitArgs, LimitOption, Rows, host_and_port, limits, number};

use super::budget::needed;

/// Sign tasks with two secrets and log them: the SignServer of Gribble's thesis, in its four
/// structures.
///
/// `dapple sign-client` sends tasks. docs/sign.md describes the protocol.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The structure of the service: a thread for each task; one queue around everything; three
    /// stages; replicas of these stages
    #[arg(long, value_enum)]
    pub(super) variant: Variant,

    /// Append 128 bytes to this file for each task; an existing log is continued. Required unless
    /// --hosts is given
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,

    /// Answer only when the record is on the disk (one fsync for all waiting tasks)
    #[arg(long)]
    pub(super) sync: bool,

    /// The largest size of the log, in MB; beyond it tasks are answered with an error [default:
    /// 10240]
    #[arg(long, value_name = "N", value_parser = number::<u64>(0..=1_048_576))]
    log_max_mb: Option<u64>,

    /// The address to listen on; with port 0 the kernel chooses one. Not encrypted: for trusted
    /// networks only
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070", value_parser = host_and_port)]
    pub(super) addr: (String, u16),

    /// A file with the bytes of the first secret [default: the one published in the thesis]
    #[arg(long, value_name = "FILE")]
    pub(super) first_secret: Option<PathBuf>,

    /// A file with the bytes of the second secret [default: the one published in the thesis]
    #[arg(long, value_name = "FILE")]
    pub(super) second_secret: Option<PathBuf>,

    /// The number of worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=1024))]
    pub(super) workers: Option<u16>,

    /// The most threads with a task (threaded) [default: 256]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=32_768))]
    threads: Option<usize>,

    /// The most tasks waiting to start (wrapped, pipelined, replicated); more are refused [default:
    /// 1024]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=1_000_000))]
    queue: Option<usize>,

    /// Where to find replicas in other processes (replicated): `dapple stage-host --stage sign` at
    /// HOST:PORT[,HOST:PORT…], dns:NAME:PORT, srv:NAME or etcd://HOST:PORT[,HOST:PORT…]/PREFIX.
    /// Each host has its own log and secrets
    #[arg(long, value_name = "WHERE")]
    pub(super) hosts: Option<Discovery>,

    /// The most tasks in service (wrapped), at each replica or host (replicated) [default: 64]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=65_536))]
    width: Option<usize>,

    /// The most records in one write (pipelined, replicated without --hosts) [default: 64]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=4096))]
    batch: Option<usize>,

    /// The fewest replicas (replicated, without --hosts) [default: 2]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=256))]
    replicas: Option<usize>,

    /// The most replicas under load [default: --replicas]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=256))]
    replicas_max: Option<usize>,

    /// Keep a drawing of the stages and their current queue lengths in this file; as text if its
    /// name ends in .txt
    #[arg(long, value_name = "FILE")]
    pub(super) graph: Option<PathBuf>,

    #[command(flatten)]
    pub(super) limits: LimitArgs<SignRows>,
}

/// The limits of the service. Its requests are tasks.
#[derive(Debug)]
pub(super) struct SignRows;

impl Rows for SignRows {
    const HEADING: &'static str = "Limits";
    const ROWS: &'static [LimitOption] = &[
        limits::CONNECTIONS_MAX.or(1_024),
        limits::IN_FLIGHT_MAX,
        BODY_MAX,
        limits::REQUESTS_MEMORY,
        limits::FRAME_TIMEOUT,
        limits::IDLE_TIMEOUT.or(300_000),
        limits::DRAIN.or(30_000),
    ];
}

/// The structure of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Variant {
    Threaded,
    Wrapped,
    Pipelined,
    Replicated,
}

impl Variant {
    /// The name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::Threaded => "threaded",
            Variant::Wrapped => "wrapped",
            Variant::Pipelined => "pipelined",
            Variant::Replicated => "replicated",
        }
    }
}

impl Args {
    /// In bytes.
    pub(super) fn log_max(&self) -> u64 {
        self.log_max_mb.unwrap_or(10_240) << 20
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.unwrap_or(256)
    }

    pub(super) fn queue(&self) -> usize {
        self.queue.unwrap_or(1024)
    }

    pub(super) fn width(&self) -> usize {
        self.width.unwrap_or(64)
    }

    pub(super) fn batch(&self) -> usize {
        self.batch.unwrap_or(64)
    }

    pub(super) fn replicas(&self) -> usize {
        self.replicas.unwrap_or(2)
    }

    pub(super) fn replicas_max(&self) -> usize {
        self.replicas_max.unwrap_or(self.replicas())
    }

    /// The number of copies of a task in memory: as it arrived, and as a message to a host.
    pub(super) fn copies(&self) -> usize {
        1 + usize::from(self.hosts.is_some())
    }

    /// Describes options that do not go together.
    pub(super) fn misuse(&self) -> Option<String> {
        if let Some(misuse) = self.misuse_of_variant().or_else(|| self.misuse_of_hosts()) {
            return Some(misuse);
        }
        if self.replicas_max() < self.replicas() {
            let (least, most) = (self.replicas(), self.replicas_max());
            return Some(match self.replicas {
                Some(_) => format!("--replicas {least} is more than --replicas-max {most}; swap them"),
                None => format!(
                    "--replicas-max {most} is less than --replicas, which is {least} by default; give \
                    both"
                ),
            });
        }
        let bytes = self.limits.bytes(&BODY_MAX);
        let task = needed(bytes + FRAME_LEN, self.copies());
        if task > self.limits.bytes(&limits::REQUESTS_MEMORY) {
            let (mb, least) = (self.limits.number(&limits::REQUESTS_MEMORY), task.div_ceil(1 << 20));
            let (memory, body) = (limits::REQUESTS_MEMORY.flag(), BODY_MAX.flag());
            return Some(format!("{memory} {mb} is too little for a task of {body} {bytes}; give {least} or more"));
        }
        let has_stages = self.variant != Variant::Threaded;
        (self.graph.is_some() && !has_stages)
            .then(|| "--graph: the threaded variant has no stages; choose another --variant".to_owned())
    }

    /// Finds an option that the variant does not use.
    fn misuse_of_variant(&self) -> Option<String> {
        use Variant::{Pipelined, Replicated, Threaded, Wrapped};
        let options: [(&str, bool, &[Variant]); 6] = [
            ("--threads", self.threads.is_some(), &[Threaded]),
            ("--queue", self.queue.is_some(), &[Wrapped, Pipelined, Replicated]),
            ("--width", self.width.is_some(), &[Wrapped, Replicated]),
            ("--batch", self.batch.is_some(), &[Pipelined, Replicated]),
            ("--replicas", self.replicas.is_some(), &[Replicated]),
            ("--replicas-max", self.replicas_max.is_some(), &[Replicated]),
        ];
        let is_misused = |(_, is_given, of): &(&str, bool, &[Variant])| *is_given && !of.contains(&self.variant);
        let (option, _, variants) = options.into_iter().find(is_misused)?;
        let variants: Vec<&str> = variants.iter().map(|variant| variant.name()).collect();
        let (variant, others) = (self.variant.name(), variants.join(", "));
        Some(format!("--variant {variant} does not use {option}, which is for {others}; leave it out"))
    }

    fn misuse_of_hosts(&self) -> Option<String> {
        if self.hosts.is_none() {
            let missing = "--log FILE is missing: the file to which each task appends a record";
            return self.log.is_none().then(|| missing.to_owned());
        }
        if self.variant != Variant::Replicated {
            return Some("--hosts is only for --variant replicated".to_owned());
        }
        let of_hosts = [
            ("--log", self.log.is_some()),
            ("--sync", self.sync),
            ("--log-max-mb", self.log_max_mb.is_some()),
            ("--first-secret", self.first_secret.is_some()),
            ("--second-secret", self.second_secret.is_some()),
        ];
        if let Some((option, _)) = of_hosts.into_iter().find(|(_, is_given)| *is_given) {
            let name = option.trim_start_matches("--");
            return Some(format!(
                "{option} does not go with --hosts, because each host has its own; give --sign-{name} to `dapple \
                stage-host --stage sign` there"
            ));
        }
        let of_this_process = [
            ("--replicas", self.replicas.is_some(), "there are as many replicas as hosts"),
            ("--replicas-max", self.replicas_max.is_some(), "there are as many replicas as hosts"),
            ("--batch", self.batch.is_some(), "each host has its own log and batch size"),
        ];
        if let Some((option, _, why)) = of_this_process.into_iter().find(|(_, is_given, _)| *is_given) {
            return Some(format!("{option} does not go with --hosts: {why}"));
        }
        let bytes = self.limits.bytes(&BODY_MAX);
        (bytes > HOST_TASK_BYTES_MAX).then(|| {
            let body = BODY_MAX.flag();
            format!("{body} {bytes} is more than a host takes; with --hosts up to {HOST_TASK_BYTES_MAX}")
        })
    }
}

/// The length, the kind and the number of a task.
const FRAME_LEN: usize = 13;

/// Messages to hosts have at most 4 MiB, including some overhead.
const HOST_TASK_BYTES_MAX: usize = (4 << 20) - 64;

/// The largest task.
pub(super) const BODY_MAX: LimitOption = limits::BODY_MAX.or(64 << 10).at_most(16 << 20);
