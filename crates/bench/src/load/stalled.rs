//! Clients that ask for a large answer and read nothing of it.

use super::client::Load;
use super::problem::Problem;
use anyhow::{Context, Result, ensure};
use dapple::net::TcpStream;
use dapple::time::timeout;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::Ordering::Relaxed;

/// Open connections, each with an answer that is not read.
pub(super) struct Stalled(Vec<TcpStream>);

impl Stalled {
    /// Connects `count` clients one after the other, each of which sends the request and waits until the answer begins.
    pub(super) async fn open(load: &Load, count: u32, path: &str) -> Result<Stalled> {
        // What arrives first over TLS is no answer.
        let is_plain = load.routes.iter().all(|route| route.tls.is_none());
        ensure!(count == 0 || is_plain, "--stalled is for servers without TLS: pass http:// URLs");
        let mut streams = Vec::new();
        for number in 0..count as usize {
            let stream = timeout(load.limit, Stalled::begin(load, number, path)).await.map_err(|_| Problem::TimedOut);
            let stream = stream.flatten().map_err(|problem| anyhow::anyhow!("{problem}"));
            streams.push(stream.with_context(|| format!("stalled client {number} of {count} got no answer"))?);
        }
        Ok(Stalled(streams))
    }

    async fn begin(load: &Load, number: usize, path: &str) -> Result<TcpStream, Problem> {
        let route = &load.routes[number % load.routes.len()];
        let stream = route.connect(load.connections.fetch_add(1, Relaxed)).await.map_err(Problem::Connect)?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nuser-agent: dapple-load\r\n\r\n", route.to);
        stream.write_all(request.as_bytes()).await.map_err(Problem::Broken)?;
        match stream.peek(&mut [0]).await.map_err(Problem::Broken)? {
            0 => Err(Problem::Ended),
            _ => Ok(stream),
        }
    }

    /// An error if the server has ended one of them meanwhile: it was not measured beside so many, then.
    pub(super) fn check(&self) -> Result<()> {
        let (open, all) = (self.0.iter().filter(|stream| is_open(stream)).count(), self.0.len());
        ensure!(open == all, "the server ended {} of {all} stalled clients before the end", all - open);
        Ok(())
    }
}

/// Whether the server has not ended a connection.
fn is_open(stream: &TcpStream) -> bool {
    let mut seen = [PollFd::new(stream, PollFlags::RDHUP)];
    // Without waiting: what the kernel knows now.
    poll(&mut seen, Some(&Timespec::default())).is_ok_and(|changed| changed == 0)
}
