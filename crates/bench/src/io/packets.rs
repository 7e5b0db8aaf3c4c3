//! Packets from a client to a server and back, by their size: throughput and round trips. Gribble,
//! Figures 36, 37.

mod peers;

use crate::experiment::{Column, Experiment, Histogram, Peer, Plot, Seen, Trial, Window, workers_text};
use crate::machine::pin_to_cores;
use crate::usage::Switches;
use crate::words::name;
use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// The options of `bench io --only packets`.
#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Options of packets")]
pub(super) struct Flags {
    /// Bytes of a packet, and of its reply
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "10,100,1000,2000,10000", value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    packet_len: Vec<u32>,
    /// The transports (default: all)
    #[arg(long, value_delimiter = ',', value_name = "HOW,...")]
    transport: Vec<Transport>,
    /// Packets in flight: 1 shows round trips, many show throughput
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,64", value_parser = clap::value_parser!(u16).range(1..))]
    in_flight: Vec<u16>,
}

impl Flags {
    pub(super) fn cases(&self, workers: &[usize]) -> Vec<Case> {
        let mut cases = Vec::new();
        let wanted = |it: &&Transport| self.transport.is_empty() || self.transport.contains(it);
        for &transport in Transport::value_variants().iter().filter(wanted) {
            for &in_flight in &self.in_flight {
                for &packet_len in &self.packet_len {
                    let (packet_len, in_flight) = (packet_len as usize, usize::from(in_flight));
                    cases.extend(workers.iter().map(|&workers| Case { transport, in_flight, packet_len, workers }));
                }
            }
        }
        cases
    }
}

/// A transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Transport {
    /// TCP over the loopback address, without delay (TCP_NODELAY)
    Tcp,
    /// A pair of Unix sockets
    Unix,
    /// Two pipes
    Pipe,
}

/// The names and cases of the rows of `bench regret`, each by the number of workers.
pub(super) fn regret_cases() -> Vec<(String, impl Fn(usize) -> Case + 'static)> {
    let mut cases = Vec::new();
    for &transport in Transport::value_variants() {
        for in_flight in [1, 16] {
            let case = move |workers| Case { transport, in_flight, packet_len: 100, workers };
            cases.push((format!("packets-{}-{in_flight}", name(transport)), case));
        }
    }
    cases
}

pub(super) struct Packets;

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    transport: Transport,
    /// Packets in flight.
    in_flight: usize,
    /// Bytes of a packet.
    packet_len: usize,
    /// Kernel threads that run client and server; cores, if each side is a kernel thread itself.
    workers: usize,
}

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Returned packets per second of wall-clock time.
    packets_per_s: f64,
    /// Megabytes (10^6) per second, in both directions together.
    mb_per_s: f64,
    /// The median round trip.
    p50_us: f64,
    /// 99 of 100 took no longer.
    p99_us: f64,
    /// User and system time of the whole process, client and server, per round trip.
    cpu_us_per_packet: f64,
    /// Context switches of the whole process per packet.
    #[serde(flatten)]
    switches: Option<Switches>,
    /// Seconds measured.
    secs: f64,
}

impl Experiment for Packets {
    const NAME: &'static str = "packets";
    const PEERS: &'static [Peer] = &[Peer::Dapple, Peer::Tokio, Peer::Pthreads];
    const LEGEND: &'static str = "\
Medians of the runs. MB/s counts both directions. p50, p99: from sending a packet until it is back. CPU is user and system time
of the whole process, client and server. Each packet is written by itself. Each run checks the number and the content of every
packet that comes back. pthreads with N workers: pinned to N cores.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        if trial.peer == Peer::Pthreads {
            pin_to_cores(trial.case.workers)?;
        }
        let run = Run::new(trial.case);
        let keep = peers::start(trial.peer, &run)?;
        let window = Window::of(trial.secs, || run.returned.load(Relaxed));
        run.stop.store(true, Relaxed);
        if let Some(problem) = run.problem.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bail!(problem);
        }
        let window = window?;
        // The time that a peer takes to stop is not measured here.
        std::mem::forget(keep);
        Ok(Figures {
            packets_per_s: window.rate(),
            mb_per_s: window.rate() * 2.0 * trial.case.packet_len as f64 / 1e6,
            p50_us: run.latencies.quantile_ns(0.5) / 1e3,
            p99_us: run.latencies.quantile_ns(0.99) / 1e3,
            cpu_us_per_packet: window.cpu_ns() / 1e3,
            switches: window.switches(),
            secs: window.secs,
        })
    }

    fn seen(_: &Case, of: &Figures) -> Option<Seen> {
        let (rate_per_s, cpu_us_per_op) = (of.packets_per_s, of.cpu_us_per_packet);
        Some(Seen { rate_per_s, cpu_us_per_op, p99_us: Some(of.p99_us), switches: of.switches })
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(60.0 + trial.secs * 2.0)
    }

    fn obstacle(_: Peer, _: &Case) -> Option<String> {
        None
    }

    fn title(case: &Case) -> String {
        format!("packets: over {}, {} in flight", name(case.transport), case.in_flight)
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("bytes", case.packet_len.to_string()), ("workers", case.workers.to_string())]
    }

    fn one_worker(case: &Case) -> Option<Case> {
        Some(Case { workers: 1, ..*case })
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "k packets/s", figure: |of| of.packets_per_s / 1e3, decimals: 1 },
            Column { head: "MB/s", figure: |of| of.mb_per_s, decimals: 1 },
            Column { head: "p50 us", figure: |of| of.p50_us, decimals: 1 },
            Column { head: "p99 us", figure: |of| of.p99_us, decimals: 1 },
            Column { head: "CPU us", figure: |of| of.cpu_us_per_packet, decimals: 2 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        let plot = |stem, y_title, figure| Plot {
            stem,
            y_title,
            y_log: true,
            figure,
            x_title: "bytes of a packet",
            x: |case: &Case| case.packet_len,
            part: |case: &Case| {
                format!("{} {} in flight {}", name(case.transport), case.in_flight, workers_text(case.workers))
            },
        };
        vec![
            plot("rate", "MB per second, both directions", |of: &Figures| of.mb_per_s),
            plot("latency", "median round trip, us", |of: &Figures| of.p50_us),
        ]
    }
}

/// One end of the connection, for one peer. Both directions are used at the same time.
trait End: Send + Sync + 'static {
    fn write_all(&self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
    /// Reads some bytes; 0 is the end.
    fn read(&self, buf: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// The common state of client and server.
struct Run {
    case: Case,
    stop: AtomicBool,
    returned: AtomicU64,
    latencies: Histogram,
    start: Instant,
    /// Packets that may still be sent.
    free: Semaphore,
    problem: Mutex<Option<String>>,
}

impl Run {
    fn new(case: Case) -> Arc<Run> {
        Arc::new(Run {
            case,
            stop: AtomicBool::new(false),
            returned: AtomicU64::new(0),
            latencies: Histogram::default(),
            start: Instant::now(),
            free: Semaphore::new(case.in_flight),
            problem: Mutex::new(None),
        })
    }

    /// Sends every packet back.
    async fn serve(self: Arc<Run>, end: impl End) {
        let mut packets = Packed::new(self.case.packet_len);
        while let Ok(count @ 1..) = end.read(packets.room()).await {
            packets.filled += count;
            for packet in packets.whole() {
                if end.write_all(packet).await.is_err() {
                    return;
                }
            }
            packets.keep_rest();
        }
    }

    /// The client with one packet in flight: sends it and waits for it.
    async fn ping(self: Arc<Run>, end: impl End) {
        let outcome = async {
            let mut packet = vec![0; self.case.packet_len];
            for number in 0.. {
                self.stamp(&mut packet, number);
                end.write_all(&packet).await?;
                let mut filled = 0;
                while filled < packet.len() {
                    let count = end.read(&mut packet[filled..]).await?;
                    ensure!(count > 0, "the server ended");
                    filled += count;
                }
                self.note(&packet, number)?;
                if self.stop.load(Relaxed) {
                    break;
                }
            }
            Ok(())
        };
        self.ended(outcome.await);
    }

    /// The sending half of a client with several packets in flight.
    async fn send(self: Arc<Run>, end: Arc<impl End>) {
        let outcome = async {
            let mut packet = vec![0; self.case.packet_len];
            let mut number = 0;
            while !self.stop.load(Relaxed) {
                self.free.acquire().await?.forget();
                self.stamp(&mut packet, number);
                end.write_all(&packet).await?;
                number += 1;
            }
            Ok(())
        };
        self.ended(outcome.await);
    }

    /// Its receiving half.
    async fn receive(self: Arc<Run>, end: Arc<impl End>) {
        let outcome = async {
            let mut packets = Packed::new(self.case.packet_len);
            let mut number = 0;
            while !self.stop.load(Relaxed) {
                let count = end.read(packets.room()).await?;
                ensure!(count > 0, "the server ended");
                packets.filled += count;
                let mut returned = 0;
                for packet in packets.whole() {
                    self.note(packet, number)?;
                    number += 1;
                    returned += 1;
                }
                self.free.add_permits(returned);
                packets.keep_rest();
            }
            Ok(())
        };
        self.ended(outcome.await);
    }

    /// Writes the time of sending, and its number, which is its content too.
    fn stamp(&self, packet: &mut [u8], number: u64) {
        packet[..8].copy_from_slice(&(self.start.elapsed().as_nanos() as u64).to_le_bytes());
        packet[8..].fill(number as u8);
    }

    /// Checks and counts a returned packet.
    fn note(&self, packet: &[u8], number: u64) -> Result<()> {
        ensure!(packet[8..].iter().all(|byte| *byte == number as u8), "packet {number} is not what was sent");
        let sent_ns = packet[..8].iter().rev().fold(0, |ns, byte| ns << 8 | u64::from(*byte));
        self.latencies.add((self.start.elapsed().as_nanos() as u64).saturating_sub(sent_ns));
        self.returned.fetch_add(1, Relaxed);
        Ok(())
    }

    fn ended(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(format!("{error:#}"));
        }
    }
}

/// Incoming packets, several at once or in pieces.
struct Packed {
    buf: Vec<u8>,
    filled: usize,
    packet_len: usize,
}

impl Packed {
    fn new(packet_len: usize) -> Packed {
        Packed { buf: vec![0; READ_LEN.max(2 * packet_len)], filled: 0, packet_len }
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.buf[self.filled..]
    }

    fn whole(&self) -> impl Iterator<Item = &[u8]> {
        self.buf[..self.filled].chunks_exact(self.packet_len)
    }

    fn keep_rest(&mut self) {
        let whole = self.filled / self.packet_len * self.packet_len;
        self.buf.copy_within(whole..self.filled, 0);
        self.filled -= whole;
    }
}

/// The least room for one read, in bytes.
const READ_LEN: usize = 64 * 1024;
