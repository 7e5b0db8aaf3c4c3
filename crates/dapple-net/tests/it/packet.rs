//! A packet socket on a veth interface, with the kernel's sockets behind its other end.

use std::io::{ErrorKind, Read};
use std::net::TcpStream as KernelStream;
use std::process::Command;

use dapple_io::net::UdpSocket;
use dapple_net::{Interface, Network};
use dapple_sched::Runtime;

use crate::kernel::{self, address, in_namespace, ip, listen, open};

fn start(queues: usize) -> (Runtime, Network) {
    ip(&["link", "add", "dapple0", "type", "veth", "peer", "name", "host0"]);
    ip(&["link", "set", "dapple0", "up"]);
    address("host0");
    open(INTERFACE, queues)
}

#[test]
fn the_kernel_reads_and_writes_ten_megabytes() {
    in_namespace("packet::the_kernel_reads_and_writes_ten_megabytes", || {
        kernel::the_kernel_reads_and_writes_ten_megabytes(start)
    });
}

#[test]
fn the_kernel_is_refused_and_connected_to() {
    in_namespace("packet::the_kernel_is_refused_and_connected_to", || {
        kernel::the_kernel_is_refused_and_connected_to(start)
    });
}

#[test]
fn datagrams_go_both_ways() {
    in_namespace("packet::datagrams_go_both_ways", || kernel::datagrams_go_both_ways(start));
}

#[test]
fn iperf3_measures_a_relay() {
    in_namespace("packet::iperf3_measures_a_relay", || kernel::iperf3_measures_a_relay(start));
}

#[test]
fn two_queues_share_two_hundred_connections() {
    in_namespace("packet::two_queues_share_two_hundred_connections", || {
        kernel::two_queues_share_two_hundred_connections(start)
    });
}

/// The kernel knows nothing of these addresses, also where it forwards packets: it neither resets connections nor passes packets on.
#[test]
fn the_kernel_of_the_interface_leaves_the_packets_alone() {
    in_namespace("packet::the_kernel_of_the_interface_leaves_the_packets_alone", || {
        let (runtime, network) = start(1);
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        let (listener, addr) = listen(&runtime, "10.7.0.1:80");
        let before = resets();
        for _ in 0..20 {
            let mut stream = KernelStream::connect(addr).unwrap();
            runtime.block_on(async { listener.accept().await.unwrap().0.write_all(b"hello").await.unwrap() });
            let mut all = String::new();
            stream.read_to_string(&mut all).unwrap();
            assert_eq!(all, "hello");
        }
        assert_eq!(resets(), before);
        assert_eq!(network.stats().broken, 0);
        assert!(Command::new("ping").args(["-c", "1", "10.7.0.1"]).output().map_or(true, |ping| ping.status.success()));
    });
}

/// A host that has a new hardware address is found again, and so is a network after the interface was down.
#[test]
fn the_interface_goes_down_and_comes_back() {
    in_namespace("packet::the_interface_goes_down_and_comes_back", || {
        let (runtime, _network) = start(1);
        let (listener, addr) = listen(&runtime, "10.7.0.1:80");
        for _ in 0..2 {
            let mut stream = KernelStream::connect(addr).unwrap();
            runtime.block_on(async { listener.accept().await.unwrap().0.write_all(b"hello").await.unwrap() });
            stream.read_exact(&mut [0; 5]).unwrap();
            ip(&["link", "set", "dapple0", "down"]);
            ip(&["link", "set", "host0", "address", "02:00:00:00:00:99"]);
            ip(&["link", "set", "dapple0", "up"]);
        }
        ip(&["link", "del", "dapple0"]);
        let end = runtime.block_on(async {
            loop {
                if let Err(error) = dapple_io::net::TcpListener::bind("10.7.0.1:81") {
                    return error;
                }
                dapple_sched::yield_now().await;
            }
        });
        assert!(end.to_string().contains("its interface"), "{end}");
    });
}

/// The kernel is a member through its end of the veth, the network through the other: broadcast in both directions.
#[test]
fn a_group_has_the_kernel_and_the_network_as_members() {
    in_namespace("packet::a_group_has_the_kernel_and_the_network_as_members", || {
        let (runtime, _network) = start(2);
        let link = Command::new("ip").args(["-o", "link", "show", "host0"]).output().unwrap();
        let host = String::from_utf8(link.stdout).unwrap().split(':').next().unwrap().parse().unwrap();
        for group in ["239.1.2.3:5000", "[ff15::1:2]:5000"] {
            let group = group.parse().unwrap();
            let kernels = dapple_io::runtime_builder().workers(1).build().unwrap();
            let member = |runtime: &Runtime, on| {
                let _entered = runtime.enter();
                UdpSocket::bind_group(group, on).unwrap()
            };
            let (ours, theirs) = (member(&runtime, 0), member(&kernels, host));
            let two = |socket: UdpSocket, text: &'static [u8]| async move {
                socket.send_to(text, group).await.unwrap();
                let mut came = Vec::new();
                for _ in 0..2 {
                    let mut buf = [0; 100];
                    let (len, _) = socket.recv_from(&mut buf).await.unwrap();
                    came.push(buf[..len].to_vec());
                }
                came.sort();
                assert_eq!(came, [&b"from the kernel"[..], b"from the network"], "{group}");
                // The other may not have all of it yet.
                socket
            };
            let ours = runtime.handle().spawn(two(ours, b"from the network"));
            kernels.block_on(async move {
                let _theirs = two(theirs, b"from the kernel").await;
                ours.await.expect("it does not panic");
            });
        }
    });
}

#[test]
fn what_cannot_be_used_is_refused_with_a_sentence() {
    in_namespace("packet::what_cannot_be_used_is_refused_with_a_sentence", || {
        let refused = |text: &str| text.parse::<Interface>().unwrap().open(1).unwrap_err();
        let missing = refused("packet:none0,10.7.0.1/24");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(missing.to_string().contains("there is no interface none0"), "{missing}");
        for name in ["", "a-name-of-17-bytes"] {
            let text = format!("packet:{name},10.7.0.1/24");
            let Ok(interface) = text.parse::<Interface>() else { continue };
            let error = interface.open(1).unwrap_err();
            assert!(error.to_string().contains("1 to 15 bytes"), "{error}");
        }
        let loopback = refused("packet:lo,10.7.0.1/24");
        assert!(loopback.to_string().contains("not an Ethernet interface"), "{loopback}");
        ip(&["link", "add", "dapple0", "type", "veth", "peer", "name", "host0"]);
        ip(&["link", "set", "dapple0", "address", "02:da:0a:07:00:01"]);
        let own = refused(INTERFACE);
        assert!(own.kind() == ErrorKind::InvalidInput && own.to_string().contains("hardware address"), "{own}");
        // Without the right to open packet sockets.
        let without = Command::new("setpriv")
            .args(["--bounding-set", "-all", "--inh-caps", "-all", "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["packet::without_the_right", "--exact", "--nocapture", "--ignored"])
            .status();
        assert!(without.map_or(true, |status| status.success()));
    });
}

/// Run by the test above.
#[test]
#[ignore = "run by another test"]
fn without_the_right() {
    let error = "packet:host0,10.7.0.1/24".parse::<Interface>().unwrap().open(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

/// Resets that the kernel has sent.
fn resets() -> u64 {
    let all = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = all.lines().filter(|line| line.starts_with("Tcp:"));
    let (heads, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = heads.split(' ').position(|head| head == "OutRsts").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

const INTERFACE: &str = "packet:dapple0,10.7.0.1/24,fd07::1/64";
