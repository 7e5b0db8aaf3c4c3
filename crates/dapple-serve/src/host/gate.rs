//! The gate: accepts on the listening sockets, and ends that in order.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dapple_io::net::{Listener, TcpStream};
use dapple_io::time::sleep;
use dapple_sched::environment;
use dapple_sched::{Color, JoinHandle};
use tracing::error;

use super::admission::Admission;
use super::listening::Listening;
use super::stage::{EndStage, Ending};
use crate::accept::{Accepting, Host, LAST_MAX};

/// Accepts on a listener for as long as the process runs.
///
/// # Errors
///
/// The listener no longer works.
pub async fn accept<L: Listener, H: Host<Connection = L::Connection>>(
    listener: L,
    host: Arc<H>,
    admission: Arc<Admission>,
) -> io::Result<()> {
    let (stage, last_pause) = (Arc::default(), LAST_MAX);
    Accepting { listener, host, admission, stage, is_short: false, is_shared: false, is_own: false, last_pause }
        .run()
        .await
}

/// All accepting tasks of a server.
pub struct Gate {
    pub admission: Arc<Admission>,
    pub stage: Arc<EndStage>,
    /// Whether descriptors set the connection limit.
    is_short: bool,
    tasks: Vec<JoinHandle<()>>,
    /// Duplicates of the sockets, for a successor; `None` for those that end with this process.
    sockets: Vec<(String, Option<OwnedFd>)>,
}

impl Gate {
    pub fn new(admission: Arc<Admission>, is_short: bool) -> Gate {
        Gate { admission, stage: Arc::default(), is_short, tasks: Vec::new(), sockets: Vec::new() }
    }

    /// Begins to accept for `host`. Accepting runs on the default color.
    pub fn open<H: Host<Connection = TcpStream>>(&mut self, listening: Listening, host: Arc<H>) -> io::Result<()> {
        self.sockets.push((listening.label.clone(), listening.duplicate()?));
        let accepting = Accepting {
            is_shared: listening.is_shared(),
            listener: listening.into_listener()?,
            host,
            admission: self.admission.clone(),
            stage: self.stage.clone(),
            is_short: self.is_short,
            is_own: true,
            last_pause: LAST_MAX,
        };
        self.add(Color::DEFAULT.spawn(async move {
            if let Err(error) = accepting.run().await {
                error!(%error, "cannot accept more connections on a socket");
            }
        }));
        Ok(())
    }

    /// Returns the sockets, for another process.
    ///
    /// # Errors
    ///
    /// There is no descriptor left, or a socket is on a network of this process's own and ends with it.
    pub fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let duplicate = |(label, socket): &(String, Option<OwnedFd>)| match socket {
            Some(socket) => Ok((label.clone(), socket.try_clone()?)),
            None => Err(io::Error::other(
                "they are on a network of this process's own, which ends with it; stop this process, and start the next",
            )),
        };
        self.sockets.iter().map(duplicate).collect()
    }

    /// Adds a task that accepts in another way, until the stage says that accepting ends.
    pub fn add(&mut self, accepting: JoinHandle<()>) {
        self.tasks.push(accepting);
    }

    /// Stops accepting, and returns when that began. From then on every reply should be the last on
    /// its connection.
    pub async fn close(&mut self, ending: Ending) -> Instant {
        let begin = environment::now();
        self.stage.begin(ending);
        for task in self.tasks.drain(..) {
            // Panics have been reported already.
            let _ = task.await;
        }
        self.sockets.clear();
        begin
    }

    /// Waits until busy connections have had their last reply; `open` counts those that may still
    /// get one.
    pub async fn last_replies(&self, begin: Instant, open: impl Fn() -> usize) {
        while open() > 0 && environment::now() - begin < LAST_REPLIES {
            sleep(TICK).await;
        }
    }

    /// Waits until no connection is open; `false` if that takes longer than `limit`.
    pub(super) async fn drained(&self, limit: Duration) -> bool {
        let begin = environment::now();
        while self.admission.open() > 0 {
            if environment::now() - begin >= limit {
                return false;
            }
            sleep(TICK).await;
        }
        true
    }
}

/// How long connections may wait for their next request; its reply announces the end.
const LAST_REPLIES: Duration = Duration::from_millis(500);

const TICK: Duration = Duration::from_millis(5);
