//! The client, a separate process: a constant number of tasks in flight, a new one for each reply.

use super::record::{RECORD_LEN, Stamp, read, write};
use crate::experiment::Histogram;
use crate::machine::end_with_parent;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Arguments of the hidden `spectrum-client` command.
#[derive(clap::Args)]
pub(crate) struct ClientArgs {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    in_flight: u32,
    #[arg(long)]
    secs: f64,
}

/// The client's figures.
#[derive(Serialize, Deserialize)]
pub(super) struct SeenByClient {
    pub(super) secs: f64,
    pub(super) tasks: u64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// Runs the client. It prints a line when the measurement begins and one when it ends, so that the
/// server can read its CPU time, and then its figures.
pub(crate) fn run_client(args: &ClientArgs) -> Result<()> {
    end_with_parent()?;
    let socket = TcpStream::connect(("127.0.0.1", args.port)).context("cannot reach the server")?;
    socket.set_nodelay(true)?;
    // Otherwise it would wait for ever for a task that the server has lost.
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut pipeline = Pipeline {
        socket,
        start: Instant::now(),
        uses: vec![0; args.in_flight as usize],
        buf: vec![0; BUF_RECORDS * RECORD_LEN],
        filled: 0,
        latencies: Histogram::default(),
        measuring: false,
        refill: true,
        in_pipeline: 0,
    };
    pipeline.fill(args.in_flight)?;
    // The first replies wait behind everything that was sent at once.
    let warm_up = Duration::from_secs_f64((args.secs / 4.0).max(0.25));
    pipeline.turn_until(Instant::now() + warm_up, u64::from(args.in_flight))?;
    println!("begin");
    pipeline.measuring = true;
    let begin = Instant::now();
    pipeline.turn_until(begin + Duration::from_secs_f64(args.secs), 1)?;
    let secs = begin.elapsed().as_secs_f64();
    println!("end");
    pipeline.measuring = false;
    pipeline.drain()?;
    let latencies = &pipeline.latencies;
    let (p50_ms, p99_ms) = (latencies.quantile_ns(0.5) / 1e6, latencies.quantile_ns(0.99) / 1e6);
    println!("{}", serde_json::to_string(&SeenByClient { secs, tasks: latencies.count(), p50_ms, p99_ms })?);
    Ok(())
}

struct Pipeline {
    socket: TcpStream,
    start: Instant,
    /// The number of uses of each slot; the reply to each use is awaited.
    uses: Vec<u32>,
    buf: Vec<u8>,
    filled: usize,
    latencies: Histogram,
    measuring: bool,
    /// Whether each reply brings a new task.
    refill: bool,
    in_pipeline: u64,
}

impl Pipeline {
    /// Sends the first tasks, spread over twice the wait of a task: if sent all at once they would
    /// stay together for ever.
    fn fill(&mut self, in_flight: u32) -> Result<()> {
        let piece = in_flight.div_ceil(PIECES).max(1);
        let mut records = Vec::new();
        for slot in 0..in_flight {
            let mut record = [0; RECORD_LEN];
            let sent_ns = self.start.elapsed().as_nanos() as u64;
            write(&mut record, &Stamp { slot, use_number: 0, sent_ns });
            records.extend_from_slice(&record);
            if (slot + 1) % piece == 0 || slot + 1 == in_flight {
                self.socket.write_all(&records)?;
                records.clear();
                std::thread::sleep(2 * super::WAIT / PIECES);
            }
        }
        self.in_pipeline = u64::from(in_flight);
        Ok(())
    }

    /// Runs until that time, and until at least this many replies have arrived.
    fn turn_until(&mut self, end: Instant, replies_min: u64) -> Result<()> {
        let mut replies = 0;
        while replies < replies_min || Instant::now() < end {
            replies += self.turn()?;
        }
        Ok(())
    }

    /// Waits for the replies to all sent tasks.
    fn drain(&mut self) -> Result<()> {
        self.refill = false;
        while self.in_pipeline > 0 {
            self.turn()?;
        }
        Ok(())
    }

    /// Takes some replies and sends as many tasks; returns their number.
    fn turn(&mut self) -> Result<u64> {
        let count = self.socket.read(&mut self.buf[self.filled..]).context("no reply came for a minute")?;
        ensure!(count > 0, "the server ended the connection");
        self.filled += count;
        let whole = self.filled / RECORD_LEN * RECORD_LEN;
        let now_ns = self.start.elapsed().as_nanos() as u64;
        for record in self.buf[..whole].chunks_exact_mut(RECORD_LEN) {
            let stamp = read(record)?;
            let uses = self.uses.get_mut(stamp.slot as usize).context("a reply to a task that was never sent")?;
            ensure!(*uses == stamp.use_number, "a second reply to one task, or one to another");
            if self.measuring {
                self.latencies.add(now_ns - stamp.sent_ns);
            }
            *uses += 1;
            write(record, &Stamp { use_number: *uses, sent_ns: now_ns, ..stamp });
        }
        if self.refill {
            self.socket.write_all(&self.buf[..whole]).context("the server takes no tasks")?;
        } else {
            self.in_pipeline -= (whole / RECORD_LEN) as u64;
        }
        self.buf.copy_within(whole..self.filled, 0);
        self.filled -= whole;
        Ok((whole / RECORD_LEN) as u64)
    }
}

/// The most replies read at once.
const BUF_RECORDS: usize = 4_096;

/// The number of pieces in which the first tasks are sent.
const PIECES: u32 = 50;
