//! A load generator that costs little: one thread, and an event loop around connections with at
//! most one request each.
//!
//! It starts each request when that is due, whatever has become of the others, and gives up slow
//! ones. It shares processors with the server under load, so it uses no runtime, no task per client
//! and no timer per request.

mod connection;
mod exchange;
mod reply;

use super::clients::Clients;
use super::record::{Failure, Outcome, Record};
use super::schedule::Arrival;
use anyhow::{Context, Result};
use connection::{Connection, Step};
use exchange::{judge, request_of};
use reply::Reply;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A source of requests, which is told their outcomes. Times count from the beginning of the load.
pub(super) trait Course {
    /// The time of the next request; `None` if there is none unless one in flight ends.
    fn next_due(&mut self) -> Option<Duration>;

    /// Takes that request.
    fn take(&mut self) -> Result<Arrival>;

    /// Records the end of a request.
    fn ended(&mut self, record: Record);
}

/// The behavior of clients.
pub(super) struct Manners {
    pub(super) to: SocketAddr,
    /// Whether connections are kept for further requests; otherwise each request has its own.
    pub(super) keeps: bool,
    pub(super) give_up: Duration,
    /// The least time between two checks for events: with many requests, waking up for each would
    /// take most of the processors' time. Latencies grow by up to this time.
    pub(super) gather: Duration,
    /// The number of client addresses, used in turn; 0 lets the kernel choose, which uses one.
    pub(super) sources: u32,
    /// The clients.
    pub(super) clients: &'static [Clients],
}

/// A request in flight.
pub(super) struct Request {
    arrival: Arrival,
    late: Duration,
    /// Distinguishes it from others on the same connection.
    number: u64,
}

/// The connections of some clients.
#[derive(Default)]
struct Pool {
    /// Those without a request, the most recently used one at the end; some of them may have ended.
    idle: VecDeque<usize>,
    /// The number of open connections.
    open: usize,
}

pub(super) struct Generator {
    manners: Manners,
    epoll: OwnedFd,
    timer: OwnedFd,
    begin: Instant,
    /// When the timer expires.
    armed: Option<Duration>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    pools: Vec<Pool>,
    /// When requests are given up, by slot and number, in order.
    give_ups: VecDeque<(Duration, usize, u64)>,
    /// Requests, by client and cost.
    bytes: BTreeMap<(usize, u32), Vec<u8>>,
    buf: Vec<u8>,
    number: u64,
    opened: u64,
    in_flight: usize,
    in_flight_max: usize,
}

impl Generator {
    pub(super) fn new(manners: Manners) -> Result<Generator> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // The wait of epoll itself rounds up to milliseconds.
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        let pools = manners.clients.iter().map(|_| Pool::default()).collect();
        Ok(Generator {
            manners,
            epoll,
            timer,
            begin: Instant::now(),
            armed: None,
            connections: Vec::new(),
            free: Vec::new(),
            pools,
            give_ups: VecDeque::new(),
            bytes: BTreeMap::new(),
            buf: vec![0; 16 << 10],
            number: 0,
            opened: 0,
            in_flight: 0,
            in_flight_max: 0,
        })
    }

    /// The most requests that were in flight at the same time.
    pub(super) fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    /// Runs a course to its end.
    pub(super) fn run(&mut self, course: &mut impl Course) -> Result<()> {
        (self.begin, self.armed) = (Instant::now(), None);
        let mut last = Duration::ZERO;
        loop {
            let rest = (last + self.manners.gather).saturating_sub(self.now());
            if !rest.is_zero() {
                std::thread::sleep(rest);
            }
            last = self.now();
            self.begin_due(course)?;
            self.give_up(course);
            let Some(next) = self.next_moment(course) else { return Ok(()) };
            self.turn(next, course)?;
        }
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Starts the due requests; if there are many, it checks for replies in between.
    fn begin_due(&mut self, course: &mut impl Course) -> Result<()> {
        for _ in 0..BEGIN_AT_ONCE_MAX {
            let Some(due) = course.next_due() else { break };
            let now = self.now();
            if due > now {
                break;
            }
            let arrival = course.take()?;
            self.number += 1;
            self.in_flight += 1;
            self.in_flight_max = self.in_flight_max.max(self.in_flight);
            let request = Request { arrival, late: now - due, number: self.number };
            self.begin_one(request, course)?;
        }
        Ok(())
    }

    /// Puts a request on an idle connection, or a new one.
    fn begin_one(&mut self, request: Request, course: &mut impl Course) -> Result<()> {
        let client = request.arrival.client;
        let index = match self.idle_connection(client) {
            Some(index) => index,
            None => {
                let connection = self.open(client)?;
                self.place(connection)
            }
        };
        self.give_ups.push_back((request.arrival.due + self.manners.give_up, index, request.number));
        self.begin_at(index, request, course)
    }

    /// Puts a request on the connection in that slot.
    fn begin_at(&mut self, index: usize, request: Request, course: &mut impl Course) -> Result<()> {
        let Arrival { cost_us, client, .. } = request.arrival;
        let clients = &self.manners.clients[client];
        let bytes = self.bytes.entry((client, cost_us));
        let bytes = bytes.or_insert_with(|| request_of(cost_us, self.manners.keeps, clients));
        let Some(connection) = self.connections[index].as_mut() else { return Ok(()) };
        let is_new = !connection.is_used;
        connection.begin(request);
        match connection.send(bytes) {
            Step::Wait { unsent } if is_new => {
                let data = EventData::new_u64(index as u64);
                connection.is_watched_out = unsent;
                epoll::add(&self.epoll, &connection.socket, data, interest(unsent))?;
            }
            Step::Wait { unsent: true } => self.watch(index, true)?,
            Step::Over(failure) => self.failed(index, failure, course)?,
            _ => {}
        }
        Ok(())
    }

    fn idle_connection(&mut self, client: usize) -> Option<usize> {
        let pool = &mut self.pools[client];
        let connections_min = self.manners.clients[client].connections_min;
        if pool.open < connections_min {
            return None;
        }
        let connections = &self.connections;
        let is_idle = |index: &usize| {
            connections[*index].as_ref().is_some_and(|own| own.request.is_none() && own.client == client)
        };
        let idle = &mut pool.idle;
        std::iter::from_fn(|| if connections_min > 0 { idle.pop_front() } else { idle.pop_back() }).find(is_idle)
    }

    fn open(&mut self, client: usize) -> Result<Connection> {
        let sources = u64::from(self.manners.sources);
        let from = self.manners.clients[client].from;
        let from = from.or_else(|| (sources > 0).then(|| source(self.opened % sources)));
        self.opened += 1;
        self.pools[client].open += 1;
        Connection::open(client, self.manners.to, from)
    }

    /// Finds a slot for a connection.
    fn place(&mut self, connection: Connection) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.connections[index] = Some(connection);
        index
    }

    fn watch(&mut self, index: usize, unsent: bool) -> Result<()> {
        let connection = self.connections[index].as_mut().filter(|connection| connection.is_watched_out != unsent);
        if let Some(connection) = connection {
            connection.is_watched_out = unsent;
            epoll::modify(&self.epoll, &connection.socket, EventData::new_u64(index as u64), interest(unsent))?;
        }
        Ok(())
    }

    /// Gives up slow requests.
    fn give_up(&mut self, course: &mut impl Course) {
        let now = self.now();
        while let Some(&(end, index, number)) = self.give_ups.front() {
            let connection = self.connections[index].as_ref();
            let is_under_way =
                connection.and_then(|connection| connection.request.as_ref()).is_some_and(|own| own.number == number);
            if is_under_way && end > now {
                break;
            }
            self.give_ups.pop_front();
            if is_under_way {
                self.close(index, Outcome::GivenUp, course);
            }
        }
    }

    /// The time of the next action; `None` if everything is done.
    fn next_moment(&mut self, course: &mut impl Course) -> Option<Duration> {
        let give_up = self.give_ups.front().map(|(end, ..)| *end);
        match (course.next_due(), give_up) {
            (Some(due), Some(end)) => Some(due.min(end)),
            (due, end) => due.or(end),
        }
    }

    /// Waits for that time or an event, and handles the events.
    fn turn(&mut self, until: Duration, course: &mut impl Course) -> Result<()> {
        self.arm(until)?;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for events"),
        }
        for event in events {
            match event.data.u64() {
                // The timer has expired, and stays readable until it is set again.
                TIMER => self.armed = None,
                index => self.go_on(index as usize, course)?,
            }
        }
        Ok(())
    }

    /// Sets the timer, unless it is already set to that time.
    fn arm(&mut self, until: Duration) -> Result<()> {
        if self.armed == Some(until) {
            return Ok(());
        }
        self.armed = Some(until);
        let wait = until.saturating_sub(self.now()).max(Duration::from_nanos(1));
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let never_again = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: never_again, it_value: wait };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec).context("cannot set the timer")?;
        Ok(())
    }

    fn go_on(&mut self, index: usize, course: &mut impl Course) -> Result<()> {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return Ok(()) };
        let Some(request) = &connection.request else {
            // Without a request, the server has closed the connection.
            self.forget(index);
            return Ok(());
        };
        let Arrival { cost_us, client, .. } = request.arrival;
        let bytes = self.bytes.get(&(client, cost_us)).map_or(&[][..], Vec::as_slice);
        match connection.go_on(bytes, &mut self.buf) {
            Step::Wait { unsent } => self.watch(index, unsent)?,
            Step::Over(failure) => self.failed(index, failure, course)?,
            Step::Replied(reply) => {
                let outcome = judge(cost_us, &reply, connection.body(&reply));
                self.replied(index, &reply, outcome, course);
            }
        }
        Ok(())
    }

    fn replied(&mut self, index: usize, reply: &Reply, outcome: Outcome, course: &mut impl Course) {
        if !self.manners.keeps || !reply.keeps {
            return self.close(index, outcome, course);
        }
        let Some(connection) = self.connections[index].as_mut() else { return };
        let request = connection.request.take();
        connection.end();
        let client = connection.client;
        self.pools[client].idle.push_back(index);
        self.report(request, outcome, course);
    }

    /// If a kept connection turns out to have been closed before its next request, a new one
    /// replaces it: clients do not count that as an answer.
    fn failed(&mut self, index: usize, failure: Failure, course: &mut impl Course) -> Result<()> {
        let connection = self.connections[index].as_mut();
        let was_ended = matches!(failure, Failure::Broken | Failure::EndedEarly);
        if let Some(connection) = connection.filter(|own| own.is_used && !own.has_reply() && was_ended)
            && let Some(request) = connection.request.take()
        {
            let client = connection.client;
            self.pools[client].open -= 1;
            self.connections[index] = Some(self.open(client)?);
            return self.begin_at(index, request, course);
        }
        self.close(index, Outcome::Failed(failure), course);
        Ok(())
    }

    /// Ends a connection and the request on it.
    fn close(&mut self, index: usize, outcome: Outcome, course: &mut impl Course) {
        let request = self.connections[index].as_mut().and_then(|connection| connection.request.take());
        self.forget(index);
        self.report(request, outcome, course);
    }

    /// Ends a connection without a request.
    fn forget(&mut self, index: usize) {
        if let Some(connection) = self.connections[index].take() {
            self.pools[connection.client].open -= 1;
            self.free.push(index);
        }
    }

    fn report(&mut self, request: Option<Request>, outcome: Outcome, course: &mut impl Course) {
        let Some(Request { arrival, late, .. }) = request else { return };
        self.in_flight -= 1;
        course.ended(Record { arrival, late, took: self.now().saturating_sub(arrival.due), outcome });
    }
}

fn interest(unsent: bool) -> EventFlags {
    if unsent { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN }
}

/// An address of the loopback network other than its first.
fn source(number: u64) -> Ipv4Addr {
    Ipv4Addr::new(127, 1, (number / HOSTS) as u8, (number % HOSTS) as u8 + 1)
}

/// The addresses for each value of the third number.
const HOSTS: u64 = 254;

const TIMER: u64 = u64::MAX;

const EVENTS_MAX: usize = 256;

/// The most requests that are started before the next check for events.
const BEGIN_AT_ONCE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_addresses_of_this_machine() {
        let all: std::collections::BTreeSet<Ipv4Addr> = (0..10_000).map(source).collect();
        assert!(all.len() == 10_000 && all.iter().all(|address| address.is_loopback() && address.octets()[3] != 0));
    }
}
