//! The command line of `dapple sign`.

use std::path::PathBuf;
use std::time::Duration;

use dapple::stage::remote::Discovery;
use dapple_serve::command_line::{host_and_port, number, seconds};

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

    /// The largest size of a task, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = number::<u32>(0..=16_777_216))]
    pub(super) task_bytes_max: u32,

    /// The most connections; further ones get an error and are closed
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = number::<u32>(1..=100_000))]
    pub(super) connections: u32,

    /// The most unanswered tasks of one connection; beyond that the server stops reading from it
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = number::<u32>(1..=65_536))]
    pub(super) in_flight_max: u32,

    /// The memory for tasks of all connections, in MiB: incoming tasks, tasks in service, and
    /// answers not yet taken. When it is used up the server stops reading until there is room; it
    /// refuses nothing because of this limit
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = number::<u64>(1..=1_048_576))]
    pub(super) tasks_mib: u64,

    /// How long a client may take to complete a frame, or to take its answers, in seconds
    #[arg(long, value_name = "N", default_value = "10", value_parser = seconds)]
    pub(super) frame_timeout_s: Duration,

    /// How long a connection may have no tasks, in seconds
    #[arg(long, value_name = "N", default_value = "300", value_parser = seconds)]
    pub(super) idle_s: Duration,

    /// How long accepted tasks may take after the signal to stop, in seconds
    #[arg(long, value_name = "N", default_value = "30", value_parser = seconds)]
    pub(super) drain_s: Duration,
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
        let (task, all) = (needed(self.task_bytes_max as usize + FRAME_LEN, self.copies()), self.tasks_mib << 20);
        if task as u64 > all {
            let (bytes, mib) = (self.task_bytes_max, self.tasks_mib);
            let least = task.div_ceil(1 << 20);
            return Some(format!(
                "--tasks-mib {mib} is too little for a task of --task-bytes-max {bytes}; give {least} or more"
            ));
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
        (self.task_bytes_max > HOST_TASK_BYTES_MAX).then(|| {
            let bytes = self.task_bytes_max;
            format!(
                "--task-bytes-max {bytes} is more than a host accepts; with --hosts the most is \
                {HOST_TASK_BYTES_MAX}"
            )
        })
    }
}

/// The length, the kind and the number of a task.
const FRAME_LEN: usize = 13;

/// Messages to hosts have at most 4 MiB, including some overhead.
const HOST_TASK_BYTES_MAX: u32 = (4 << 20) - 64;
