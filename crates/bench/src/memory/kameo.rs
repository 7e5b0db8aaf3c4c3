//! Actors of kameo with unbounded mailboxes.

use super::subject::{Small, Subject, Tally};
use anyhow::Result;
use kameo::Actor;
use kameo::actor::{ActorRef, Spawn};
use kameo::error::Infallible;
use kameo::mailbox;
use kameo::message::{Context, Message};
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// A runtime and the refs of its actors.
pub(crate) struct Actors {
    runtime: Runtime,
    colors: Vec<ActorRef<Color>>,
    tally: &'static Tally,
}

impl Actors {
    /// A runtime without actors.
    pub(crate) fn start(tally: &'static Tally) -> Result<Actors> {
        let runtime = Builder::new_multi_thread().worker_threads(1).build()?;
        Ok(Actors { runtime, colors: Vec::new(), tally })
    }
}

struct Color;

impl Actor for Color {
    type Args = &'static Tally;
    type Error = Infallible;

    async fn on_start(tally: &'static Tally, _: ActorRef<Color>) -> Result<Color, Infallible> {
        tally.started.fetch_add(1, Relaxed);
        Ok(Color)
    }
}

impl Message<Small> for Color {
    type Reply = ();

    async fn handle(&mut self, small: Small, _: &mut Context<Color, ()>) {
        small.run();
    }
}

impl Message<oneshot::Receiver<()>> for Color {
    type Reply = ();

    async fn handle(&mut self, gate: oneshot::Receiver<()>, _: &mut Context<Color, ()>) {
        let _ = gate.await;
    }
}

impl Subject for Actors {
    fn make(&mut self, count: usize) {
        let _entered = self.runtime.enter();
        self.colors.reserve_exact(count);
        self.colors.extend((0..count).map(|_| Color::spawn_with_mailbox(self.tally, mailbox::unbounded())));
    }

    fn make_stalled(&mut self, gate: oneshot::Receiver<()>) -> usize {
        self.make(1);
        let index = self.colors.len() - 1;
        let _ = self.colors[index].tell(gate).try_send();
        index
    }

    fn post(&self, index: usize, small: Small) {
        // An actor ends only when its refs do, so it is still running.
        let _ = self.colors[index].tell(small).try_send();
    }

    fn distinct(&self) -> usize {
        self.colors.iter().map(ActorRef::id).collect::<HashSet<_>>().len()
    }

    fn starts(&self) -> bool {
        true
    }
}
