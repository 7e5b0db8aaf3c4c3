//! What the command line of `dapple sign` says.

use std::path::PathBuf;
use std::time::Duration;

use dapple::stage::remote::Discovery;

use super::budget::needed;
use crate::values::{host_and_port, number, seconds};

/// Sign tasks with two secrets and log them: the SignServer of Gribble's thesis, in its four structures.
///
/// `dapple sign-client` sends tasks. The protocol is in docs/sign.md.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How the service is built: a thread for each task; all behind one queue; three stages; replicas of these stages
    #[arg(long, value_enum)]
    pub(super) variant: Variant,

    /// The file to which 128 bytes are appended for each task; it goes on where a log is there already. Needed, but with --hosts
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,

    /// Answer only when the record is on the disk (fsync, for all that wait at once)
    #[arg(long)]
    pub(super) sync: bool,

    /// How large the log may get, in MB; then tasks are answered with an error [default: 10240]
    #[arg(long, value_name = "N", value_parser = number::<u64>(0..=1_048_576))]
    log_max_mb: Option<u64>,

    /// Where to listen; port 0 lets the kernel choose. It is not encrypted: for trusted networks
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070", value_parser = host_and_port)]
    pub(super) addr: (String, u16),

    /// The first secret, all bytes of this file [default: the one that the thesis has published]
    #[arg(long, value_name = "FILE")]
    pub(super) first_secret: Option<PathBuf>,

    /// The second secret
    #[arg(long, value_name = "FILE")]
    pub(super) second_secret: Option<PathBuf>,

    /// Threads of Dapple [default: one per core]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=1024))]
    pub(super) workers: Option<u16>,

    /// How many threads may have a task (threaded) [default: 256]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=32_768))]
    threads: Option<usize>,

    /// How many tasks may wait to be begun (wrapped, pipelined, replicated); more are refused [default: 1024]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=1_000_000))]
    queue: Option<usize>,

    /// Where the replicas are (replicated), if not in this process: `dapple stage-host --stage sign` at HOST:PORT[,HOST:PORT…],
    /// dns:NAME:PORT, srv:NAME or etcd://HOST:PORT[,HOST:PORT…]/PREFIX. Each host has its own log and secrets
    #[arg(long, value_name = "WHERE")]
    pub(super) hosts: Option<Discovery>,

    /// How many tasks may be in service (wrapped), at each replica or host (replicated) [default: 64]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=65_536))]
    width: Option<usize>,

    /// How many records are written at once at most (pipelined, replicated without --hosts) [default: 64]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=4096))]
    batch: Option<usize>,

    /// How many replicas there are at least (replicated, without --hosts) [default: 2]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=256))]
    replicas: Option<usize>,

    /// How many replicas there may be, if the load asks for them [default: --replicas]
    #[arg(long, value_name = "N", value_parser = number::<usize>(1..=256))]
    replicas_max: Option<usize>,

    /// Keep a drawing of the stages in this file, with the live lengths of their queues; text where it ends in .txt
    #[arg(long, value_name = "FILE")]
    pub(super) graph: Option<PathBuf>,

    /// How large a task may be
    #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = number::<u32>(0..=16_777_216))]
    pub(super) task_bytes_max: u32,

    /// How many connections there may be; more are told so and closed
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = number::<u32>(1..=100_000))]
    pub(super) connections: u32,

    /// How many tasks of one connection may be unanswered; it is not read from while there are more
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = number::<u32>(1..=65_536))]
    pub(super) in_flight_max: u32,

    /// How much memory the tasks of all connections may take, in MiB: those that come in, those that are served, and answers that
    /// are not yet taken. Where it is used up no connection is read from until there is room; nothing is refused for it
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = number::<u64>(1..=1_048_576))]
    pub(super) tasks_mib: u64,

    /// How long a client may take for a frame it has begun, or to take its answers, in seconds
    #[arg(long, value_name = "N", default_value = "10", value_parser = seconds)]
    pub(super) frame_timeout_s: Duration,

    /// How long a connection may be without tasks, in seconds
    #[arg(long, value_name = "N", default_value = "300", value_parser = seconds)]
    pub(super) idle_s: Duration,

    /// How long tasks that were accepted may take after the signal to stop, in seconds
    #[arg(long, value_name = "N", default_value = "30", value_parser = seconds)]
    pub(super) drain_s: Duration,
}

/// How the service is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Variant {
    Threaded,
    Wrapped,
    Pipelined,
    Replicated,
}

impl Variant {
    /// As the command line has it.
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

    /// How often a task is in memory: as it came, and as a message to a host.
    pub(super) fn copies(&self) -> usize {
        1 + usize::from(self.hosts.is_some())
    }

    /// Options that do not go together, in a sentence.
    pub(super) fn misuse(&self) -> Option<String> {
        if let Some(misuse) = self.misuse_of_variant().or_else(|| self.misuse_of_hosts()) {
            return Some(misuse);
        }
        if self.replicas_max() < self.replicas() {
            let (least, most) = (self.replicas(), self.replicas_max());
            return Some(match self.replicas {
                Some(_) => format!("--replicas {least} is more than --replicas-max {most}; swap them"),
                None => format!("--replicas-max {most} is less than --replicas, {least} by default; give both"),
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

    /// An option of which the variant has nothing.
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
        Some(format!("{option} means nothing to --variant {variant}; it is for {others}. Leave it out"))
    }

    fn misuse_of_hosts(&self) -> Option<String> {
        if self.hosts.is_none() {
            let missing = "--log FILE is missing: the file to which a record is appended for each task";
            return self.log.is_none().then(|| missing.to_owned());
        }
        if self.variant != Variant::Replicated {
            return Some("--hosts has the replicas of --variant replicated; the other variants have none".to_owned());
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
                "{option} does not go with --hosts, as each host has its own; \
                 give --sign-{name} to `dapple stage-host --stage sign` there"
            ));
        }
        let of_this_process = [
            ("--replicas", self.replicas.is_some(), "there are as many replicas as hosts"),
            ("--replicas-max", self.replicas_max.is_some(), "there are as many replicas as hosts"),
            ("--batch", self.batch.is_some(), "each host has its own log, and writes as it likes"),
        ];
        if let Some((option, _, why)) = of_this_process.into_iter().find(|(_, is_given, _)| *is_given) {
            return Some(format!("{option} does not go with --hosts: {why}"));
        }
        (self.task_bytes_max > HOST_TASK_BYTES_MAX).then(|| {
            let bytes = self.task_bytes_max;
            format!("--task-bytes-max {bytes} is more than a host takes; with --hosts up to {HOST_TASK_BYTES_MAX}")
        })
    }
}

/// The length, the kind and the number of a task.
const FRAME_LEN: usize = 13;

/// Messages to hosts have up to 4 MiB, with a little beside the task.
const HOST_TASK_BYTES_MAX: u32 = (4 << 20) - 64;
