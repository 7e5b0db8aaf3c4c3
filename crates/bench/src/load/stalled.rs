//! Clients that ask for a large answer and read nothing of it.

use super::client::Load;
use super::problem::Problem;
use anyhow::{Context, Result, ensure};
use dapple::net::TcpStream;
use dapple::time::timeout;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use std::sync::atomic::Ordering::Relaxed;

/// Open connections, each with an answer that is not read.
pub(super) struct Stalled(Vec<TcpStream>);

impl Stalled {
    /// Connects `count` clients one after the other, each of which sends the request and waits until the answer begins.
    pub(super) async fn open(load: &Load, count: u32, path: &str) -> Result<Stalled> {
        // The first bytes over TLS are no answer.
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

    /// An error unless all of them have an answer of status 200 that fills their buffers: the figures are not of so many stalled clients,
    /// then.
    pub(super) fn check(&self) -> Result<()> {
        let (stalled, all) = (self.0.iter().filter(|stream| is_stalled(stream)).count(), self.0.len());
        ensure!(
            stalled == all,
            "of {all} stalled clients {} have no answer of status 200 and {STALLED_LEN} bytes or more: ask for a larger file, \
             or the server has ended them",
            all - stalled
        );
        Ok(())
    }
}

/// Whether a good answer waits that is longer than a small file, on a connection that is not ended.
fn is_stalled(stream: &TcpStream) -> bool {
    let mut seen = [PollFd::new(stream, PollFlags::RDHUP)];
    // Without waiting: what the kernel knows now.
    let is_open = poll(&mut seen, Some(&Timespec::default())).is_ok_and(|changed| changed == 0);
    let mut unread = vec![0; STALLED_LEN];
    let taken = recv(stream, &mut unread[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    is_open && taken.is_ok_and(|(_, len)| len == STALLED_LEN) && unread.starts_with(b"HTTP/1.1 200 ")
}

/// A server writes at least this much to a client that reads nothing: the kernel's buffers have more room.
const STALLED_LEN: usize = 32 << 10;
