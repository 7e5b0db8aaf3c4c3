//! Callbacks for events that take more than one step: each has a small task that awaits the event
//! and then calls.

use std::io;
use std::net::SocketAddr;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dapple_sched::{Callback, Handle, JoinHandle};

use super::{Cancel, Registration};
use crate::driver::current;
use crate::net::{TcpListener, TcpStream, tcp_connect};
use crate::{oneshot, process, signal};

/// Calls the callback with every connection that the listener accepts.
///
/// At most 16 connections wait for the callback; while it is slow, more wait in the kernel's
/// backlog. A shortage of descriptors is handled as in [`TcpListener::accept`]. An error of the
/// listener itself ends the registration, with a line in the log.
///
/// ```
/// use std::io::Read;
/// use std::net::SocketAddr;
/// use dapple_io::event::on_accept;
/// use dapple_io::net::{TcpListener, TcpStream};
/// use dapple_sched::Color;
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// let _entered = runtime.enter();
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let addr = listener.local_addr()?;
/// let greet = Color::DEFAULT.wrap(|(stream, _peer): (TcpStream, SocketAddr)| {
///     let _ = stream.try_write(b"hello");
/// });
/// let _accepting = on_accept(listener, greet)?;
///
/// let mut greeting = String::new();
/// std::net::TcpStream::connect(addr)?.read_to_string(&mut greeting)?;
/// assert_eq!(greeting, "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// There is no runtime here.
#[track_caller]
pub fn on_accept(listener: TcpListener, callback: Callback<(TcpStream, SocketAddr)>) -> io::Result<Registration> {
    start(|canceled| async move {
        loop {
            for _ in 0..ACCEPTED_MAX {
                match listener.accept().await {
                    Ok(accepted) => callback.call_unless(&canceled, accepted),
                    Err(error) => {
                        tracing::error!(%error, "a listener can no longer accept");
                        return;
                    }
                }
            }
            if turn_of(&callback).await.is_none() {
                return;
            }
        }
    })
}

/// Connects to a host by name or address (the papers' `tcpconnect`), then calls the callback once,
/// with the stream or the error that [`TcpStream::connect`] would return.
///
/// # Errors
///
/// There is no runtime here.
#[track_caller]
pub fn on_connect(host: &str, port: u16, callback: Callback<io::Result<TcpStream>>) -> io::Result<Registration> {
    let host = host.to_owned();
    start(|canceled| async move { callback.call_unless(&canceled, tcp_connect(&host, port).await) })
}

/// Calls the callback at each signal. Signals before the callback has run count as one. See
/// [`signal`](crate::signal) for the effects of catching a signal.
///
/// # Errors
///
/// As [`signal::signal`](crate::signal::signal).
#[track_caller]
pub fn on_signal(number: i32, callback: Callback<()>) -> io::Result<Registration> {
    let mut signal = signal::signal(number)?;
    start(|canceled| async move {
        loop {
            signal.recv().await;
            callback.call_unless(&canceled, ());
            if turn_of(&callback).await.is_none() {
                return;
            }
        }
    })
}

/// Calls the callback once, with the child's status, after the child has ended. A cancel does not
/// end the child.
///
/// # Errors
///
/// There is no runtime here, or no descriptor is left.
#[track_caller]
pub fn on_child_exit(child: Child, callback: Callback<io::Result<ExitStatus>>) -> io::Result<Registration> {
    let mut child = process::Child::from_std(child)?;
    start(|canceled| async move { callback.call_unless(&canceled, child.wait().await) })
}

/// Resolves after all earlier calls of the callback have run; `None` if the runtime drops it
/// instead.
async fn turn_of<A: Send + 'static>(callback: &Callback<A>) -> Option<()> {
    let (sender, receiver) = oneshot::channel();
    // A color keeps its order, so this runs after the calls.
    callback.color().post(move || sender.send(()));
    receiver.await
}

/// Starts the task of a source; the task gets the mark that each of its calls checks at its turn.
#[track_caller]
fn start<F>(task: impl FnOnce(Arc<AtomicBool>) -> F) -> io::Result<Registration>
where
    F: Future<Output = ()> + Send + 'static,
{
    // For the advice in its error if there is no runtime.
    current::shared()?;
    let canceled = Arc::new(AtomicBool::new(false));
    // In the background: a shutdown need not wait for a source that waits for events.
    let task = Handle::current().new_color().spawn_background(task(canceled.clone()));
    Ok(Registration::new(Arc::new(TaskSource { task, canceled })))
}

struct TaskSource {
    task: JoinHandle<()>,
    canceled: Arc<AtomicBool>,
}

impl Cancel for TaskSource {
    fn cancel(&self) {
        // Release pairs with the look in `Callback::call_unless`.
        self.canceled.store(true, Ordering::Release);
        self.task.abort();
    }
}

/// The most connections that wait for the callback of [`on_accept`].
const ACCEPTED_MAX: usize = 16;
