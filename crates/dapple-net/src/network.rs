//! A network: its devices, the sockets on them, and the tasks that receive.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use dapple_io::environment::{self, DatagramSocket, ListenSocket, StreamSocket};
use dapple_io::time::{Sleep, sleep, sleep_until};
use dapple_sched::Handle;
use smoltcp::time::Instant;

use crate::connection::real;
use crate::device::{Device, Received};
use crate::ports::Ports;
use crate::settings::Settings;
use crate::sockets::{Datagrams, Listener, Stream};
use crate::stack::{Stack, now};
use crate::stats::Stats;

/// TCP and UDP in user space over one or more devices, for one runtime.
///
/// [`OnNetwork::network`](crate::OnNetwork::network) gives it to the builder of the runtime, and
/// [`TcpListener`](dapple_io::net::TcpListener), [`TcpStream`](dapple_io::net::TcpStream) and [`UdpSocket`](dapple_io::net::UdpSocket) are
/// on it from then on. Loopback addresses stay the kernel's. It answers from the first socket on. Clones are the same network.
#[derive(Clone)]
pub struct Network {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) stacks: Box<[Stack]>,
    pub(crate) ports: Arc<Ports>,
    started: OnceLock<Result<(), ErrorKind>>,
    next_stack: AtomicUsize,
    is_over: AtomicBool,
}

impl Network {
    /// A network over these devices, which all carry packets of the same addresses: queues of one interface. Each gets a color of its own.
    ///
    /// # Errors
    /// `InvalidInput` for no device, no address, more than eight addresses, or one that is not of a single host.
    pub fn new(devices: Vec<Arc<dyn Device>>, settings: Settings) -> io::Result<Network> {
        check(&devices, &settings)?;
        let ports = Arc::new(Ports::new(settings.addresses.clone(), settings.datagram_sockets_max));
        let count = devices.len();
        let share = settings.share(count);
        let stack = |(index, device)| Stack::new(index, count > 1, device, ports.clone(), &share);
        let stacks = devices.into_iter().enumerate().map(stack).collect();
        let inner = Inner {
            stacks,
            ports,
            started: OnceLock::new(),
            next_stack: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        Ok(Network { inner: Arc::new(inner) })
    }

    /// A network over one device.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// ```
    /// use dapple_io::net::{TcpListener, TcpStream};
    /// use dapple_net::{LinkFaults, Network, OnNetwork, Settings, pair};
    ///
    /// let (here, there) = pair(1500, LinkFaults::default());
    /// let server = Network::over(here, Settings::new("10.7.0.1".parse().unwrap(), 24))?;
    /// let client = Network::over(there, Settings::new("10.7.0.2".parse().unwrap(), 24))?;
    /// let server = dapple_io::runtime_builder().workers(1).network(server).build()?;
    /// let client = dapple_io::runtime_builder().workers(1).network(client).build()?;
    /// let listener = {
    ///     let _entered = server.enter();
    ///     TcpListener::bind("10.7.0.1:80")?
    /// };
    /// let accepting = server.handle().spawn(async move { listener.accept().await });
    /// client.block_on(async {
    ///     let _stream = TcpStream::connect("10.7.0.1:80").await?;
    ///     let (_stream, peer) = accepting.await.expect("it does not panic")?;
    ///     assert_eq!(peer.ip().to_string(), "10.7.0.2");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn over(device: impl Device, settings: Settings) -> io::Result<Network> {
        Network::new(vec![Arc::new(device)], settings)
    }

    /// Counts since the start. Takes the lock of each device for a moment.
    pub fn stats(&self) -> Stats {
        let stats = self.inner.stacks.iter().map(|stack| stack.with(|core, _| core.stats()));
        stats.fold(Stats::default(), Stats::and)
    }

    /// Takes a packet in as if the first device had received it. For fuzzers of the packet path.
    #[doc(hidden)]
    pub fn take_in(&self, packet: &[u8], is_checked: bool) {
        self.inner.stacks[0].with(|core, now| {
            core.take_in(packet, is_checked, now);
            core.settle_all(now);
        });
    }

    /// Resolves once peers have acknowledged everything that was written to connections which are dropped by now. The kernel delivers
    /// after the end of a process; a network in user space ends with it, so await this before, with a limit: a peer may be gone.
    ///
    /// Cancel safe: dropped before it resolves, it changes nothing. Looks every 5 ms.
    pub async fn delivered(&self) {
        while self.inner.stacks.iter().any(|stack| stack.with(|core, _| core.delivers())) {
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Starts the tasks that receive, at the first socket.
    fn start(&self) -> io::Result<()> {
        let started = self.inner.started.get_or_init(|| {
            for index in 0..self.inner.stacks.len() {
                self.inner.stacks[index].device.start().map_err(|error| {
                    tracing::error!(%error, "a network device cannot start");
                    error.kind()
                })?;
                let inner = self.inner.clone();
                // In the background: a shutdown need not wait for it.
                drop(Handle::current().new_color().spawn_background(drive(inner, index)));
            }
            Ok(())
        });
        match *started {
            _ if self.inner.is_over.load(Ordering::Relaxed) => {
                Err(io::Error::other("this network has ended, with its runtime or its interface"))
            }
            started => started.map_err(io::Error::from),
        }
    }
}

impl environment::Network for Network {
    fn has(&self, addr: IpAddr) -> bool {
        !addr.is_loopback()
    }

    fn connect(&self, to: SocketAddr) -> io::Result<Arc<dyn StreamSocket>> {
        self.start()?;
        let stacks = &self.inner.stacks;
        // Relaxed: it only spreads connections.
        let stack = self.inner.next_stack.fetch_add(1, Ordering::Relaxed) % stacks.len();
        let key = stacks[stack].with(|core, now| core.connect(to, now))?;
        Ok(Arc::new(Stream { network: self.inner.clone(), stack, key, aborts: AtomicBool::new(false) }))
    }

    fn listen(&self, at: SocketAddr) -> io::Result<Arc<dyn ListenSocket>> {
        self.start()?;
        let port = self.inner.ports.listen(at)?;
        Ok(Arc::new(Listener { network: self.inner.clone(), port }))
    }

    fn bind_datagrams(&self, at: SocketAddr) -> io::Result<Arc<dyn DatagramSocket>> {
        self.start()?;
        let port = self.inner.ports.bind(at)?;
        Ok(Arc::new(Datagrams { network: self.inner.clone(), port }))
    }

    fn bind_group(&self, group: SocketAddr) -> io::Result<Arc<dyn DatagramSocket>> {
        self.start()?;
        let port = self.inner.ports.bind_group(group)?;
        let member = Datagrams { network: self.inner.clone(), port };
        // One device tells the routers of the link. If this fails, the drop of the socket ends what was begun.
        self.inner.stacks[0].with(|core, now| core.join(group.ip(), now))?;
        Ok(Arc::new(member))
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

fn check(devices: &[Arc<dyn Device>], settings: &Settings) -> io::Result<()> {
    let refuse = |why: String| Err(io::Error::new(ErrorKind::InvalidInput, why));
    if devices.is_empty() {
        return refuse("a network needs a device".to_owned());
    }
    if devices.iter().any(|device| device.mtu() < MTU_MIN) {
        return refuse(format!("a network needs packets of at least {MTU_MIN} bytes"));
    }
    if settings.addresses.is_empty() || settings.addresses.len() > ADDRESSES_MAX {
        return refuse(format!("a network has 1 to {ADDRESSES_MAX} addresses"));
    }
    for (ip, prefix_len) in &settings.addresses {
        let len_max = if ip.is_ipv4() { 32 } else { 128 };
        let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        if *prefix_len > len_max || ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || is_broadcast {
            return refuse(format!("{ip}/{prefix_len} is not the address of a host"));
        }
    }
    Ok(())
}

/// Receives from one device, and runs the timers of its connections, for as long as the runtime lives.
async fn drive(inner: Arc<Inner>, index: usize) {
    let mut driver = Driver::new(&inner.stacks[index]);
    let error = poll_fn(|cx| driver.poll(cx, &inner)).await;
    inner.is_over.store(true, Ordering::Relaxed);
    tracing::error!(%error, "a network device can no longer receive");
}

/// The state of [`drive`].
struct Driver<'a> {
    stack: &'a Stack,
    packets: Vec<Box<[u8]>>,
    received: Vec<Received>,
    sleep: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<'a> Driver<'a> {
    fn new(stack: &'a Stack) -> Driver<'a> {
        let len = stack.device.segments_up_to().unwrap_or(0).max(stack.device.mtu());
        let packets = (0..BATCH_MAX).map(|_| vec![0; len].into_boxed_slice()).collect();
        Driver { stack, packets, received: Vec::with_capacity(BATCH_MAX), sleep: None }
    }

    /// Ready with the error after which nothing comes any more.
    fn poll(&mut self, cx: &mut Context<'_>, inner: &Inner) -> Poll<io::Error> {
        self.stack.with(|core, _| core.driver_runs());
        for _ in 0..BATCHES_MAX {
            let is_drained = match self.receive(cx) {
                Ok(is_drained) => is_drained,
                Err(error) => return Poll::Ready(error),
            };
            self.take_in(inner);
            if is_drained {
                return self.rest(cx);
            }
        }
        // Others have a turn, and timers are not forgotten meanwhile.
        let waker = cx.waker();
        self.stack.with(|core, now| _ = core.run_timers(now, waker));
        waker.wake_by_ref();
        Poll::Pending
    }

    /// Receives a batch; true if there is no more for now.
    fn receive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        self.received.clear();
        while let Some(packet) = self.packets.get_mut(self.received.len()) {
            match self.stack.device.poll_receive(cx, packet) {
                Poll::Ready(received) => self.received.push(received?),
                Poll::Pending => return Ok(true),
            }
        }
        Ok(false)
    }

    fn take_in(&mut self, inner: &Inner) {
        if self.received.is_empty() {
            return;
        }
        let packets = self.packets.iter().zip(&self.received);
        let elsewhere: Vec<_> = self.stack.with(|core, now| {
            let elsewhere = packets.filter_map(|(packet, received)| {
                let packet = &packet[..received.len.min(packet.len())];
                core.take_in(packet, received.is_checked, now).map(|stack| (stack, packet, received.is_checked))
            });
            let elsewhere = elsewhere.collect();
            core.settle_all(now);
            elsewhere
        });
        for (stack, packet, is_checked) in elsewhere {
            inner.stacks[stack].with(|core, now| {
                core.take_in(packet, is_checked, now);
                core.settle_all(now);
            });
        }
    }

    /// Runs timers, and sleeps until the next one, or until a packet comes or a program wants an earlier one.
    fn rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            let Some(next) = self.stack.with(|core, now| core.run_timers(now, cx.waker())) else {
                self.sleep = None;
                return Poll::Pending;
            };
            let sleep = match &mut self.sleep {
                Some((until, sleep)) if *until == next => sleep,
                stale => {
                    let left = real((next - now()).max(smoltcp::time::Duration::ZERO));
                    let until = dapple_io::time::Instant::now() + left;
                    &mut stale.insert((next, Box::pin(sleep_until(until)))).1
                }
            };
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
        }
    }
}

const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(5);
/// Packets that are taken from the device before any is looked at.
const BATCH_MAX: usize = 32;
/// Batches in one poll.
const BATCHES_MAX: usize = 8;
/// The least that IPv6 allows.
const MTU_MIN: usize = 1280;
const ADDRESSES_MAX: usize = 8;
