//! Servers of protocols other than HTTP, with the same listening, limits and end.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dapple_io::net::{Peer, TcpStream};
use dapple_sched::Color;
use dapple_sync::task::{First, race};
use tracing::warn;

use super::admission::{Admission, AdmittedConnection};
use super::gate::Gate;
use super::listening::Listening;
use super::signals::StopSignals;
use super::stage::{EndStage, Ending};
use crate::accept::Host;
use crate::connections::farewell;

/// A protocol: one session for each connection.
pub trait Sessions: Send + Sync + 'static {
    /// The reply for a client for which there is no room.
    fn full(&self) -> Vec<u8>;

    /// Serves one connection until it ends. When `stage` ends, it answers pending requests, and
    /// reads no more.
    fn serve(self: Arc<Self>, stream: TcpStream, stage: &EndStage) -> impl Future<Output = ()> + Send;
}

/// Serves until a signal to stop, then lets sessions end for at most `drain`, or until a second
/// signal.
///
/// Connections beyond `admission`'s limit get the reply [`full`](Sessions::full) and are closed.
/// Idle sessions are not closed to make room for others.
///
/// # Errors
///
/// The socket does not work.
pub async fn serve_sessions<S: Sessions>(
    listening: Listening,
    sessions: Arc<S>,
    admission: Arc<Admission>,
    signals: &mut StopSignals,
    drain: Duration,
) -> io::Result<()> {
    let mut gate = Gate::new(admission, false);
    let stage = gate.stage.clone();
    gate.open(listening, Arc::new(SessionHost { sessions, stage }))?;
    signals.next().await;
    let ended = async {
        gate.close(Ending::Stop).await;
        gate.drained(drain).await
    };
    match race(ended, signals.next()).await {
        First::Left(true) => {}
        First::Left(false) => warn!("cut connections: their requests took longer than {drain:?}"),
        First::Right(()) => warn!("second signal: ending at once"),
    }
    Ok(())
}

struct SessionHost<S> {
    sessions: Arc<S>,
    stage: Arc<EndStage>,
}

impl<S: Sessions> Host for SessionHost<S> {
    type Connection = TcpStream;

    fn serve(&self, stream: TcpStream, _peer: Peer, place: AdmittedConnection) {
        let (sessions, stage) = (self.sessions.clone(), self.stage.clone());
        self.spawn(async move {
            // Clients of these protocols keep connections for later: marked as busy, the connection
            // is never closed to make room for others.
            place.link().begin();
            let serving = pin!(sessions.serve(stream, &stage));
            let _ = place.link().unless_cut(serving).await;
            place.finish();
        });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(Color::new().spawn(task));
    }

    /// // The refusal is plain text of this protocol, not HTTP.
    fn is_plain(&self) -> bool {
        true
    }

    fn farewell(&self, stream: TcpStream, _words: &'static [u8]) -> impl Future<Output = ()> + Send + 'static {
        let words = self.sessions.full();
        async move { farewell(stream, &words, u64::MAX).await }
    }
}
