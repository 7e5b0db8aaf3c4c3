//! Interfaces with the kernel's sockets at the other end, in a network namespace of the test's own, and what holds on each kind.

use std::io::{ErrorKind, Read, Write};
use std::net::{
    Shutdown, SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream, UdpSocket as KernelSocket,
};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dapple_io::net::{TcpListener, TcpStream, UdpSocket};
use dapple_io::time::sleep;
use dapple_net::{Interface, Network, OnNetwork};
use dapple_sched::Runtime;

use crate::world::pattern;

/// A runtime on a new interface `dapple0` with that many queues, at `10.7.0.1` and `fd07::1`; the kernel is at `10.7.0.2` and `fd07::2`.
pub(crate) type Start = fn(usize) -> (Runtime, Network);

/// Runs `body` in a process with a network of its own; without the right to make one, prints a sentence.
pub(crate) fn in_namespace(test: &str, body: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let probe = Command::new("unshare").args(["--net", "ip", "tuntap", "add", "probe0", "mode", "tun"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        println!("{test}: SKIPPED, it needs root, /dev/net/tun, and the programs unshare and ip");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let status = Command::new("unshare")
        .arg("--net")
        .arg(program)
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{test} failed in its namespace");
}

/// A runtime on an interface.
pub(crate) fn open(interface: &str, queues: usize) -> (Runtime, Network) {
    let network = interface.parse::<Interface>().unwrap().open(queues).unwrap();
    let runtime = dapple_io::runtime_builder().workers(2).network(network.clone()).build().unwrap();
    (runtime, network)
}

/// Gives the kernel's end its addresses.
pub(crate) fn address(interface: &str) {
    ip(&["addr", "add", "10.7.0.2/24", "dev", interface]);
    ip(&["addr", "add", "fd07::2/64", "dev", interface, "nodad"]);
    ip(&["link", "set", interface, "up"]);
}

/// Runs the program `ip`.
pub(crate) fn ip(args: &[&str]) {
    assert!(Command::new("ip").args(args).status().unwrap().success(), "ip {args:?}");
}

/// A listener of the network's, with its address.
pub(crate) fn listen(runtime: &Runtime, at: &str) -> (TcpListener, SocketAddr) {
    let _entered = runtime.enter();
    (TcpListener::bind(at).unwrap(), at.parse().unwrap())
}

/// Both families: bytes both ways, and the end of one direction first.
pub(crate) fn the_kernel_reads_and_writes_ten_megabytes(start: Start) {
    let (runtime, network) = start(1);
    for at in ["10.7.0.1:80", "[fd07::1]:80"] {
        let (listener, addr) = listen(&runtime, at);
        let serving = runtime.handle().spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            stream.write_all(&pattern(BULK)).await.unwrap();
            let mut all = vec![0; BULK];
            stream.read_exact(&mut all).await.unwrap();
            assert!(all == pattern(BULK));
            assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
            stream.write_all(b"good bye").await.unwrap();
        });
        let mut stream = KernelStream::connect(addr).unwrap();
        let mut all = vec![0; BULK];
        stream.read_exact(&mut all).unwrap();
        assert!(all == pattern(BULK));
        stream.write_all(&all).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut end = String::new();
        stream.read_to_string(&mut end).unwrap();
        assert_eq!(end, "good bye");
        runtime.block_on(serving).expect("it does not panic");
    }
    assert_eq!(network.stats().broken, 0, "{network:?}");
}

/// Ports without a listener, on both sides, and a connection that begins here.
pub(crate) fn the_kernel_is_refused_and_connected_to(start: Start) {
    let (runtime, _network) = start(1);
    let (_listener, _) = listen(&runtime, "10.7.0.1:80");
    assert_eq!(KernelStream::connect("10.7.0.1:81").unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let refused = runtime.block_on(TcpStream::connect("10.7.0.2:81")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // A loopback address is the kernel's, on both sides.
    let kernels = KernelListener::bind("10.7.0.2:82").unwrap();
    let answering = thread::spawn(move || {
        let (mut stream, from) = kernels.accept().unwrap();
        assert_eq!(from.ip().to_string(), "10.7.0.1");
        stream.write_all(b"hello").unwrap();
    });
    runtime.block_on(async {
        let stream = TcpStream::connect("10.7.0.2:82").await.unwrap();
        let mut buf = [0; 5];
        stream.read_exact(&mut buf).await.unwrap();
        assert_eq!(&buf, b"hello");
    });
    answering.join().unwrap();
}

/// A datagram of the most bytes, and the answer.
pub(crate) fn datagrams_go_both_ways(start: Start) {
    let (runtime, _network) = start(1);
    let socket = {
        let _entered = runtime.enter();
        UdpSocket::bind("0.0.0.0:53").unwrap()
    };
    let serving = runtime.handle().spawn(async move {
        let mut buf = [0; 2000];
        let (len, from) = socket.recv_from(&mut buf).await.unwrap();
        socket.send_to(&buf[..len], from).await.unwrap();
    });
    let kernels = KernelSocket::bind("10.7.0.2:0").unwrap();
    kernels.send_to(&[7; 1472], "10.7.0.1:53").unwrap();
    let mut buf = [0; 2000];
    assert_eq!(kernels.recv(&mut buf).unwrap(), 1472);
    runtime.block_on(serving).expect("it does not panic");
}

/// Connections of both directions on two queues.
pub(crate) fn two_queues_share_two_hundred_connections(start: Start) {
    let (runtime, network) = start(2);
    let (listener, addr) = listen(&runtime, "10.7.0.1:80");
    drop(runtime.handle().spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            drop(dapple_sched::spawn(async move { stream.write_all(&pattern(50_000)).await }));
        }
    }));
    let clients: Vec<_> = (0..200).map(|_| KernelStream::connect(addr).unwrap()).collect();
    let expected = pattern(50_000);
    for mut client in clients {
        let mut all = vec![0; 50_000];
        client.read_exact(&mut all).unwrap();
        assert!(all == expected);
    }
    // Connections that begin here may be answered through the other queue.
    let kernels = KernelListener::bind("10.7.0.2:82").unwrap();
    let answering = thread::spawn(move || {
        for _ in 0..10 {
            kernels.accept().unwrap().0.write_all(b"hello").unwrap();
        }
    });
    runtime.block_on(async {
        for _ in 0..10 {
            let stream = TcpStream::connect("10.7.0.2:82").await.unwrap();
            stream.read_exact(&mut [0; 5]).await.unwrap();
        }
    });
    answering.join().unwrap();
    assert_eq!(network.stats().broken, 0);
}

const INSIDE: &str = "DAPPLE_NET_INSIDE";
const BULK: usize = 10 << 20;

/// iperf3 over the kernel's sockets measures a way through the network and back, in both directions. It stops its server when all is sent,
/// so that what is still on the way does not count.
pub(crate) fn iperf3_measures_a_relay(start: Start) {
    let program = std::env::var_os("IPERF3").unwrap_or_else(|| "iperf3".into());
    if Command::new(&program).arg("--version").output().is_err() {
        println!("iperf3_measures_a_relay: SKIPPED, it needs the program iperf3");
        return;
    }
    let (runtime, network) = start(1);
    let (listener, _) = listen(&runtime, "10.7.0.1:5201");
    drop(runtime.handle().spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            drop(dapple_sched::spawn(relay_to_iperf3(near)));
        }
    }));
    for direction in [&[][..], &["--reverse"]] {
        let args = ["--server", "--one-off", "--bind", "10.7.0.2"];
        let mut server = Ended(Command::new(&program).args(args).stdout(Stdio::null()).spawn().unwrap());
        let args = ["--client", "10.7.0.1", "--bytes", "50M", "--json"];
        let run = Command::new(&program).args(args).args(direction).output().unwrap();
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{text}");
        let received = text.split_once("\"sum_received\"").and_then(|(_, sum)| sum.split_once("\"bytes\":"));
        let received = received.and_then(|(_, bytes)| bytes.split(',').next()?.trim().parse::<u64>().ok());
        assert!(received.is_some_and(|bytes| bytes >= 25 << 20), "{text}");
        assert!(server.0.wait().unwrap().success());
    }
    assert_eq!(network.stats().broken, 0, "{network:?}");
}

/// A program that does not outlive the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Passes on both directions between a connection and iperf3's server, which may still be starting.
async fn relay_to_iperf3(near: TcpStream) {
    let far = loop {
        match TcpStream::connect("10.7.0.2:5201").await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => sleep(Duration::from_millis(20)).await,
            connected => break connected.unwrap(),
        }
    };
    let (near, far) = (Arc::new(near), Arc::new(far));
    let back = dapple_sched::spawn(relay(far.clone(), near.clone()));
    relay(near, far).await;
    let _ = back.await;
}

/// Passes on what comes, and its end.
async fn relay(from: Arc<TcpStream>, to: Arc<TcpStream>) {
    let mut buf = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut buf).await {
        if to.write_all(&buf[..len]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
