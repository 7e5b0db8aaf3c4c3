//! Clients that ask for a large answer and read nothing of it.

use super::client::Load;
use super::problem::Problem;
use super::wire::Wire;
use anyhow::{Context, Result, ensure};
use std::sync::atomic::Ordering::Relaxed;

/// Open connections, each with an answer that is not read.
pub(super) struct Stalled(Vec<Wire>);

impl Stalled {
    /// Connects `count` clients one after the other, each of which sends the request and waits until the answer begins.
    pub(super) async fn open(load: &Load, count: u32, path: &str) -> Result<Stalled> {
        let mut wires = Vec::new();
        for number in 0..count as usize {
            let wire = Stalled::begin(load, number, path).await.map_err(|problem| anyhow::anyhow!("{problem}"));
            wires.push(wire.with_context(|| format!("stalled client {number} of {count} got no answer"))?);
        }
        Ok(Stalled(wires))
    }

    async fn begin(load: &Load, number: usize, path: &str) -> Result<Wire, Problem> {
        let route = &load.routes[number % load.routes.len()];
        let wire = route.open(load.connections.fetch_add(1, Relaxed), load.limit).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nuser-agent: dapple-load\r\n\r\n", route.to);
        wire.ask(request.as_bytes(), load.limit).await?;
        Ok(wire)
    }

    /// An error if the server has answered or ended one of them meanwhile: it was not measured beside so many, then.
    pub(super) fn check(&self) -> Result<()> {
        let left = self.0.iter().filter(|wire| wire.waits_with_bytes()).count();
        let all = self.0.len();
        ensure!(left == all, "{left} of {all} stalled clients had an open connection with bytes to read at the end");
        Ok(())
    }
}
