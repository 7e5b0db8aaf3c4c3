//! Interfaces in memory, each with clients that run where the interface is polled: so the work of both sides is on the workers, and two
//! workers have the whole machine for it.

use super::experiment::{Case, Figures};
use crate::experiment::{Trial, Window};
use anyhow::{Result, bail, ensure};
use dapple_io::net::{TcpListener, TcpStream};
use dapple_net::{Device, Network, OnNetwork, Received, Settings};
use dapple_sched::Handle;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};
use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Runs one trial: as many interfaces as workers.
pub(super) fn measure(trial: &Trial<Case>) -> Result<Figures> {
    let Case { connections, workers, .. } = trial.case;
    let counts = Arc::new(Counts::default());
    let interface = |index: usize| {
        let clients = Clients::new(2 + u8::try_from(index)?, connections, counts.clone())?;
        Ok(Arc::new(Mutex::new(clients)))
    };
    let interfaces = (0..workers).map(interface).collect::<Result<Vec<_>>>()?;
    let devices = interfaces.iter().map(|clients| Arc::new(Link(clients.clone())) as Arc<dyn Device>).collect();
    let network = Network::new(devices, Settings::new(SERVER.into(), 24))?;
    let runtime = dapple_io::runtime_builder().workers(workers).network(network).build()?;
    let listener = {
        let _entered = runtime.enter();
        TcpListener::bind((SERVER, PORT))?
    };
    interfaces.iter().for_each(|clients| Clients::begin(clients));
    drop(runtime.handle().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(Handle::current().new_color().spawn(answer(stream)));
        }
    }));
    let window = Window::of(trial.secs, || counts.answers.load(Relaxed))?;
    ensure!(!counts.is_wrong.load(Relaxed), "a client got other bytes than were sent");
    for clients in &interfaces {
        let starved = lock(clients).served.iter().filter(|served| **served <= 1).count();
        if starved > 0 {
            bail!("{starved} clients without an answer");
        }
    }
    Ok(Figures {
        rate_per_s: window.rate(),
        mb_per_s: window.rate() * ANSWER_LEN as f64 / 1e6,
        cpu_us_per_request: window.cpu_ns() / 1e3,
        switches: window.switches(),
        secs: window.secs,
        ..Figures::default()
    })
}

/// Answers each request of a connection.
async fn answer(stream: TcpStream) -> io::Result<()> {
    let (mut request, answer) = ([0; REQUEST_LEN], pattern());
    loop {
        stream.read_exact(&mut request).await?;
        stream.write_all(&answer).await?;
    }
}

fn pattern() -> Vec<u8> {
    (0..ANSWER_LEN).map(|at| (at % 251) as u8).collect()
}

#[derive(Default)]
struct Counts {
    answers: AtomicU64,
    is_wrong: AtomicBool,
}

/// The hosts behind one interface: one, with a few connections.
struct Clients {
    interface: Interface,
    sockets: SocketSet<'static>,
    /// Each connection, and the bytes of its answer that have come.
    connections: Vec<(SocketHandle, usize)>,
    /// Requests of each.
    served: Vec<u64>,
    wire: Queues,
    /// Whether the server listens. Before, it would refuse them.
    may_begin: bool,
    /// The task that receives for the server.
    receiver: Option<Waker>,
    counts: Arc<Counts>,
    answer: Vec<u8>,
}

/// Packets in both directions.
#[derive(Default)]
struct Queues {
    to_server: VecDeque<Vec<u8>>,
    to_clients: VecDeque<Vec<u8>>,
}

impl Clients {
    fn new(host: u8, connections: usize, counts: Arc<Counts>) -> Result<Clients> {
        let mut wire = Queues::default();
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut wire, Instant::ZERO);
        let own = Ipv4Addr::new(10, 7, 0, host);
        interface.update_ip_addrs(|all| {
            // The first of them finds room.
            let _ = all.push(IpCidr::new(own.into(), 24));
        });
        let mut sockets = SocketSet::new(Vec::new());
        let buffer = |len| SocketBuffer::new(vec![0; len]);
        let mut handles = Vec::new();
        for port in 0..connections {
            let mut socket = Socket::new(buffer(64 << 10), buffer(4 << 10));
            socket.set_nagle_enabled(false);
            socket.set_ack_delay(None);
            let port = 10_000 + u16::try_from(port)?;
            socket.connect(interface.context(), (SERVER, PORT), port)?;
            handles.push((sockets.add(socket), ANSWER_LEN));
        }
        let served = vec![0; connections];
        let answer = pattern();
        Ok(Clients {
            interface,
            sockets,
            connections: handles,
            served,
            wire,
            may_begin: false,
            receiver: None,
            counts,
            answer,
        })
    }

    /// Lets the clients connect.
    fn begin(clients: &Mutex<Clients>) {
        let receiver = {
            let mut clients = lock(clients);
            clients.may_begin = true;
            clients.receiver.take()
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }

    /// Takes in what the server has sent, and asks again.
    fn step(&mut self) {
        let now = Instant::now();
        self.interface.poll(now, &mut self.wire, &mut self.sockets);
        let mut has_asked = false;
        for ((handle, received), served) in self.connections.iter_mut().zip(&mut self.served) {
            let socket = self.sockets.get_mut::<Socket<'_>>(*handle);
            while socket.can_recv() {
                let (counts, answer) = (&self.counts, &self.answer);
                let expected = &answer[*received % ANSWER_LEN..];
                let took = socket.recv(|bytes| {
                    let len = bytes.len().min(expected.len());
                    if bytes[..len] != expected[..len] {
                        counts.is_wrong.store(true, Relaxed);
                    }
                    (len, len)
                });
                *received += took.unwrap_or(0);
            }
            if *received == ANSWER_LEN && socket.can_send() {
                if *served > 0 {
                    self.counts.answers.fetch_add(1, Relaxed);
                }
                *served += 1;
                *received = 0;
                has_asked |= socket.send_slice(&[7; REQUEST_LEN]).is_ok();
            }
        }
        if has_asked {
            self.interface.poll(now, &mut self.wire, &mut self.sockets);
        }
    }
}

/// The server's end of an interface.
struct Link(Arc<Mutex<Clients>>);

impl Device for Link {
    fn mtu(&self) -> usize {
        MTU
    }

    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<Received>> {
        let mut clients = lock(&self.0);
        if clients.may_begin && clients.wire.to_server.is_empty() {
            clients.step();
        }
        let Some(packet) = clients.wire.to_server.pop_front() else {
            clients.receiver = Some(cx.waker().clone());
            return Poll::Pending;
        };
        buf[..packet.len()].copy_from_slice(&packet);
        Poll::Ready(Ok(Received { len: packet.len(), is_checked: true }))
    }

    fn send(&self, packet: &[u8], _segment_len: Option<u16>) -> io::Result<()> {
        let mut clients = lock(&self.0);
        clients.wire.to_clients.push_back(packet.to_vec());
        let receiver = clients.receiver.take();
        drop(clients);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        Ok(())
    }
}

impl smoltcp::phy::Device for Queues {
    type RxToken<'a> = Incoming;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Incoming, Outgoing<'_>)> {
        let packet = self.to_clients.pop_front()?;
        Some((Incoming(packet), Outgoing(&mut self.to_server)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Outgoing<'_>> {
        Some(Outgoing(&mut self.to_server))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }
}

struct Incoming(Vec<u8>);

impl RxToken for Incoming {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

struct Outgoing<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push_back(packet);
        result
    }
}

fn lock(clients: &Mutex<Clients>) -> MutexGuard<'_, Clients> {
    clients.lock().unwrap_or_else(PoisonError::into_inner)
}

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
const PORT: u16 = 80;
const MTU: usize = 1500;
const REQUEST_LEN: usize = 64;
const ANSWER_LEN: usize = 4096;
