//! Tasks of tokio, each with an unbounded channel: the message is the 24 bytes themselves.

use super::subject::{Small, Subject, Tally};
use anyhow::Result;
use std::sync::atomic::Ordering::Relaxed;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// A runtime and the senders to its tasks.
pub(crate) struct Channels {
    runtime: Runtime,
    colors: Vec<UnboundedSender<Small>>,
    tally: &'static Tally,
}

impl Channels {
    /// A runtime without tasks.
    pub(crate) fn start(tally: &'static Tally) -> Result<Channels> {
        let runtime = Builder::new_multi_thread().worker_threads(1).build()?;
        Ok(Channels { runtime, colors: Vec::new(), tally })
    }
}

async fn serve(tally: &'static Tally, mut inbox: UnboundedReceiver<Small>) {
    tally.started.fetch_add(1, Relaxed);
    while let Some(small) = inbox.recv().await {
        small.run();
    }
}

impl Subject for Channels {
    fn make(&mut self, count: usize) {
        self.colors.reserve_exact(count);
        for _ in 0..count {
            let (to_color, inbox) = unbounded_channel();
            self.runtime.spawn(serve(self.tally, inbox));
            self.colors.push(to_color);
        }
    }

    fn make_stalled(&mut self, gate: oneshot::Receiver<()>) -> usize {
        let (to_color, inbox) = unbounded_channel();
        let tally = self.tally;
        self.runtime.spawn(async move {
            let _ = gate.await;
            serve(tally, inbox).await;
        });
        self.colors.push(to_color);
        self.colors.len() - 1
    }

    fn post(&self, index: usize, small: Small) {
        // A task ends only when its sender does, so it is still running.
        let _ = self.colors[index].send(small);
    }

    fn distinct(&self) -> usize {
        let distinct = |pair: &[UnboundedSender<Small>]| !pair[0].same_channel(&pair[1]);
        self.colors.windows(2).filter(|pair| distinct(pair)).count() + 1
    }

    fn starts(&self) -> bool {
        true
    }
}
