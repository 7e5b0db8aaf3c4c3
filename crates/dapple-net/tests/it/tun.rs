//! A TUN interface, with the kernel's sockets at the other end.

use std::io::{ErrorKind, Read};
use std::net::TcpStream as KernelStream;

use dapple_net::{Interface, Network};
use dapple_sched::Runtime;

use crate::kernel::{self, address, in_namespace, ip, listen, open};

fn start(queues: usize) -> (Runtime, Network) {
    let opened = open("tun:dapple0,10.7.0.1/24,fd07::1/64", queues);
    address("dapple0");
    opened
}

#[test]
fn the_kernel_reads_and_writes_ten_megabytes() {
    in_namespace("tun::the_kernel_reads_and_writes_ten_megabytes", || {
        kernel::the_kernel_reads_and_writes_ten_megabytes(start)
    });
}

#[test]
fn the_kernel_is_refused_and_connected_to() {
    in_namespace("tun::the_kernel_is_refused_and_connected_to", || {
        kernel::the_kernel_is_refused_and_connected_to(start)
    });
}

#[test]
fn datagrams_go_both_ways() {
    in_namespace("tun::datagrams_go_both_ways", || kernel::datagrams_go_both_ways(start));
}

#[test]
fn iperf3_measures_a_relay() {
    in_namespace("tun::iperf3_measures_a_relay", || kernel::iperf3_measures_a_relay(start));
}

#[test]
fn two_queues_share_two_hundred_connections() {
    in_namespace("tun::two_queues_share_two_hundred_connections", || {
        kernel::two_queues_share_two_hundred_connections(start)
    });
}

#[test]
fn an_interface_with_one_queue_is_opened_with_one() {
    in_namespace("tun::an_interface_with_one_queue_is_opened_with_one", || {
        ip(&["tuntap", "add", "dapple0", "mode", "tun", "user", "0"]);
        let (runtime, _network) = start(4);
        let (listener, addr) = listen(&runtime, "10.7.0.1:80");
        let mut stream = KernelStream::connect(addr).unwrap();
        runtime.block_on(async { listener.accept().await.unwrap().0.write_all(b"hello").await.unwrap() });
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        assert_eq!(all, "hello");
        let busy = "tun:dapple0,10.7.0.3/24".parse::<Interface>().unwrap().open(1).unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::ResourceBusy, "{busy}");
    });
}
