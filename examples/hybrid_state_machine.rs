//! The hybrid style: callbacks drive a state machine, tasks call into it, and it wakes tasks.
//!
//! ```text
//! cargo run --example hybrid_state_machine
//! ```
//!
//! The machine is a connection to a server that is not always up. Events happen to it in any order,
//! and each is one transition: callbacks are the natural form, and the table below is the whole
//! program. A user of the connection follows a sequence of steps, with a loop and an early end: a
//! task is the natural form. Both share the same state.
//!
//! | state | event | next | effect |
//! |---|---|---|---|
//! | `Down` | a task asks | `Dialing` | starts to connect, in the background |
//! | `Dialing` | connected | `Up` | **wakes** the tasks that wait for a line; a timer watches for silence |
//! | `Dialing` | refused | `Down` | gives them the error |
//! | `Up` | unused for long | `Down` | closes, after the last task has finished with it |
//!
//! The machine has one color, so no two events overlap in it. It never waits: slow operations are
//! event sources that call back. A task *calls into it* with `with`, which runs a closure in the
//! machine's color, and *waits for it* with a oneshot channel that the machine keeps.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dapple::Colored;
use dapple::event::{self, Registration};
use dapple::net::{TcpListener, TcpStream};
use dapple::sync::oneshot;

#[dapple::main]
async fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    drop(dapple::spawn(serve(listener)));
    let line = Line::new(addr);

    // Three tasks ask at once: one connects, all get the connection.
    let users: Vec<_> = (b'a'..=b'c').map(|byte| dapple::spawn(use_line(line.clone(), byte))).collect();
    for user in users {
        println!("a task {}", user.await.expect("no panic")?);
    }
    // No task asks for a while: the timer's callback closes the connection, and the next task
    // notices.
    line.until(|state| matches!(state, State::Down)).await;
    println!("a task {}", use_line(line.clone(), b'x').await?);

    let (states, dialed) = line.machine.with(|machine| (machine.seen.join(" "), machine.dialed)).await;
    println!("the machine went through: {states}");
    println!("it dialed {dialed} times");
    Ok(())
}

/// A user, top to bottom: gets the connection, and talks.
async fn use_line(line: Line, byte: u8) -> io::Result<String> {
    let stream = line.stream().await?;
    // The machine serves one user at a time, because its answers have no names.
    let _turn = line.talking.lock().await;
    stream.write_all(&[byte]).await?;
    let mut answer = [0];
    stream.read_exact(&mut answer).await?;
    // A call into the machine, as an event.
    line.machine.with(|machine| machine.is_active = true).await;
    Ok(format!("sent {} and got {}", byte as char, answer[0] as char))
}

/// The tasks' handle of the machine.
#[derive(Clone)]
struct Line {
    machine: Colored<Machine>,
    talking: Arc<dapple::sync::Mutex<()>>,
}

struct Machine {
    addr: SocketAddr,
    state: State,
    /// Tasks that wait for the connection.
    waiting: Vec<oneshot::Sender<io::Result<Arc<TcpStream>>>>,
    /// Tasks that wait for a change.
    watching: Vec<oneshot::Sender<()>>,
    /// The event sources of the current state; the next state drops them, which cancels them.
    sources: Vec<Registration>,
    is_active: bool,
    seen: Vec<&'static str>,
    dialed: u32,
}

enum State {
    Down,
    Dialing,
    Up(Arc<TcpStream>),
}

impl Line {
    fn new(addr: SocketAddr) -> Line {
        let machine = Machine {
            addr,
            state: State::Down,
            waiting: Vec::new(),
            watching: Vec::new(),
            sources: Vec::new(),
            is_active: false,
            seen: vec!["down"],
            dialed: 0,
        };
        Line { machine: Colored::new(machine), talking: Arc::default() }
    }

    /// The open connection, dialed if necessary. A task that is canceled here just leaves: its
    /// answer is dropped.
    async fn stream(&self) -> io::Result<Arc<TcpStream>> {
        let (tell, told) = oneshot::channel();
        let line = self.machine.clone();
        self.machine.with(move |machine| machine.ask(tell, &line)).await;
        told.await.map_err(|_gone| io::Error::other("the machine has ended"))?
    }

    /// Waits until the machine is in such a state.
    async fn until(&self, is_there: impl Fn(&State) -> bool + Copy + Send) {
        loop {
            let (tell, told) = oneshot::channel();
            let watch = |machine: &mut Machine| {
                let there = is_there(&machine.state);
                machine.watching.push(tell);
                there
            };
            if self.machine.with(watch).await {
                return;
            }
            let _ = told.await;
        }
    }
}

/// The events. Each gets the machine, in its color, and returns at once.
impl Machine {
    fn ask(&mut self, tell: oneshot::Sender<io::Result<Arc<TcpStream>>>, line: &Colored<Machine>) {
        match &self.state {
            State::Up(stream) => drop(tell.send(Ok(stream.clone()))),
            State::Dialing => self.waiting.push(tell),
            State::Down => {
                self.waiting.push(tell);
                self.dialed += 1;
                let (host, port) = (self.addr.ip().to_string(), self.addr.port());
                let dialing = event::on_connect(&host, port, callback(line, Machine::connected));
                self.enter(State::Dialing, dialing);
            }
        }
    }

    fn connected(&mut self, result: io::Result<TcpStream>, line: &Colored<Machine>) {
        match result.map(Arc::new) {
            Ok(stream) => {
                for waiting in self.waiting.drain(..) {
                    let _ = waiting.send(Ok(stream.clone()));
                }
                self.is_active = true;
                let silence = event::every(SILENCE, callback(line, Machine::looked));
                self.enter(State::Up(stream), silence);
            }
            Err(error) => self.fail(&error),
        }
    }

    /// The timer: no task has used the connection since the last time.
    fn looked(&mut self, (): (), _line: &Colored<Machine>) {
        if !std::mem::take(&mut self.is_active) {
            self.enter_quietly(State::Down);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        for waiting in self.waiting.drain(..) {
            let _ = waiting.send(Err(io::Error::new(error.kind(), error.to_string())));
        }
        self.enter_quietly(State::Down);
    }

    /// Enters a state that waits for an event.
    fn enter(&mut self, state: State, source: io::Result<Registration>) {
        self.enter_quietly(state);
        match source {
            Ok(source) => self.sources.push(source),
            Err(error) => self.fail(&error),
        }
    }

    fn enter_quietly(&mut self, state: State) {
        self.sources.clear();
        self.seen.push(match state {
            State::Down => "down",
            State::Dialing => "dialing",
            State::Up(_) => "up",
        });
        self.state = state;
        for watching in self.watching.drain(..) {
            let _ = watching.send(());
        }
    }
}

/// A callback of the machine's color. It keeps the machine alive while an event source has it.
fn callback<A: Send + 'static>(line: &Colored<Machine>, event: Event<A>) -> dapple::Callback<A> {
    let machine = line.clone();
    line.color().wrap(move |arg| {
        // It cannot be busy: this callback holds its color. An error: a transition has panicked,
        // and the machine has stopped.
        let _ = machine.try_with(|inner| event(inner, arg, &machine));
    })
}

/// A transition; the machine's handle is for the callbacks that it registers.
type Event<A> = fn(&mut Machine, A, &Colored<Machine>);

/// The other end: answers in capitals, one client after the other.
async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _peer) = listener.accept().await?;
        let mut byte = [0];
        while let Ok(1) = stream.read(&mut byte).await {
            stream.write_all(&byte.map(|byte| byte.to_ascii_uppercase())).await?;
        }
    }
}

/// How long the connection may be unused.
const SILENCE: Duration = Duration::from_millis(20);
