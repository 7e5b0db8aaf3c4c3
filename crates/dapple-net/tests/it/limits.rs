//! Limits: a flood of beginnings, too many connections, and what is remembered of those that are over.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dapple_io::net::TcpStream;
use dapple_net::{LinkFaults, pair};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use crate::world::{Flooding, World, pattern, server_settings};

/// The first packet of a connection from an address that does not answer.
fn syn(number: u32) -> Vec<u8> {
    let (source, target) = (Ipv4Addr::from_bits(0x0a08_0000 + number), Ipv4Addr::new(10, 7, 0, 1));
    let (source, target) = (IpAddress::from(source), IpAddress::from(target));
    let segment = TcpRepr {
        src_port: 1000,
        dst_port: 80,
        control: TcpControl::Syn,
        seq_number: TcpSeqNumber(7),
        ack_number: None,
        window_len: 1000,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None, None, None],
        timestamp: None,
        payload: &[],
    };
    let ip = IpRepr::new(source, target, IpProtocol::Tcp, segment.buffer_len(), 64);
    let mut packet = vec![0; ip.buffer_len()];
    let checksums = ChecksumCapabilities::default();
    ip.emit(&mut packet[..], &checksums);
    segment.emit(&mut TcpPacket::new_unchecked(&mut packet[ip.header_len()..]), &source, &target, &checksums);
    packet
}

#[test]
fn a_flood_of_beginnings_is_bounded_and_good_clients_connect() {
    let (here, there) = pair(1500, LinkFaults::default());
    let number = AtomicU32::new(0);
    let packets = move || (0..20).map(|_| syn(number.fetch_add(1, Ordering::Relaxed))).collect();
    let mut settings = server_settings();
    settings.half_open_max = 64;
    let client = Arc::new(Flooding { device: there, packets });
    let world = World::over(vec![Arc::new(here)], client, settings);
    let (listener, addr) = world.listen("10.7.0.1:80");
    let accepting = world.server.handle().spawn(async move {
        for _ in 0..50 {
            let (stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"hello").await.unwrap();
        }
    });
    world.client.block_on(async {
        for _ in 0..50 {
            let stream = TcpStream::connect(addr).await.unwrap();
            let mut buf = [0; 5];
            stream.read_exact(&mut buf).await.unwrap();
            let stats = world.server_net.stats();
            assert!(stats.half_open <= 64, "{stats:?}");
        }
        accepting.await.expect("it does not panic");
    });
    let stats = world.server_net.stats();
    assert!(stats.half_open_evicted > 500, "{stats:?}");
}

/// Bytes of memory of this process.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Both ends are in this process, and none takes a file descriptor.
#[test]
fn ten_thousand_connections_at_once_take_a_few_pages_each() {
    let mut settings = server_settings();
    settings.receive_buffer = 16 << 10;
    settings.send_buffer = 16 << 10;
    let world = World::with(LinkFaults::default(), settings);
    let (listener, addr) = world.listen("10.7.0.1:80");
    let before = resident();
    drop(world.server.handle().spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            drop(dapple_sched::spawn(async move {
                let mut buf = [0; 100];
                while stream.read_exact(&mut buf).await.is_ok() {
                    stream.write_all(&buf).await.unwrap();
                }
            }));
        }
    }));
    world.client.block_on(async {
        let mut streams = Vec::new();
        while streams.len() < TEN_THOUSAND {
            let connecting: Vec<_> =
                (0..100).map(|_| dapple_sched::spawn(async move { TcpStream::connect(addr).await.unwrap() })).collect();
            for task in connecting {
                streams.push(task.await.expect("it does not panic"));
            }
        }
        let bytes = pattern(TEN_THOUSAND + 100);
        for (number, stream) in streams.iter().enumerate() {
            stream.write_all(&bytes[number..number + 100]).await.unwrap();
        }
        for (number, stream) in streams.iter().enumerate() {
            let mut buf = [0; 100];
            stream.read_exact(&mut buf).await.unwrap();
            assert!(buf == bytes[number..number + 100], "connection {number}");
        }
        assert_eq!(world.server_net.stats().connections, TEN_THOUSAND);
        assert_eq!(world.client_net.stats().connections, TEN_THOUSAND);
        let each = resident().saturating_sub(before) / TEN_THOUSAND;
        println!("{each} bytes for both ends of a connection");
        // Other tests of this process take memory, too.
        assert!(each < 64 << 10, "{each} bytes for both ends of a connection");
    });
}

#[test]
fn beyond_the_limit_a_client_waits_for_one_that_ends() {
    let mut settings = server_settings();
    settings.connections_max = 2;
    let world = World::with(LinkFaults::default(), settings);
    let (listener, addr) = world.listen("10.7.0.1:80");
    let (first, second) = world.client.block_on(async {
        let first = TcpStream::connect(addr).await.unwrap();
        (first, TcpStream::connect(addr).await.unwrap())
    });
    let third = world.client.handle().spawn(TcpStream::connect(addr));
    world.client.block_on(async {
        while world.server_net.stats().refused == 0 {
            dapple_sched::yield_now().await;
        }
        drop(first);
        let (accepted, _) = listener.accept().await.unwrap();
        assert_eq!(accepted.read(&mut [0; 1]).await.unwrap(), 0);
        drop(accepted);
        // smoltcp repeats the first packet after a second.
        third.await.expect("it does not panic").unwrap();
        drop(second);
    });
}

#[test]
fn a_full_queue_of_a_listener_leaves_clients_to_try_again() {
    let mut settings = server_settings();
    settings.backlog_max = 3;
    let world = World::with(LinkFaults::default(), settings);
    let (listener, addr) = world.listen("10.7.0.1:80");
    let tasks: Vec<_> = (0..6).map(|_| world.client.handle().spawn(TcpStream::connect(addr))).collect();
    world.client.block_on(async {
        while world.server_net.stats().refused == 0 {
            dapple_sched::yield_now().await;
        }
        assert!(world.server_net.stats().connections <= 3);
        let mut accepted = Vec::new();
        let mut connected = Vec::new();
        drop(world.server.handle().spawn(async move {
            loop {
                accepted.push(listener.accept().await.unwrap());
            }
        }));
        for task in tasks {
            // Some may have been reset, when several came at the same moment.
            connected.push(task.await.expect("it does not panic"));
        }
    });
}

#[test]
fn few_connections_that_are_over_are_remembered() {
    let mut settings = server_settings();
    settings.time_wait_max = 5;
    let world = World::with(LinkFaults::default(), settings);
    let (listener, addr) = world.listen("10.7.0.1:80");
    drop(world.server.handle().spawn(async move {
        loop {
            // The server ends first, and so has to remember.
            let (stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"hello").await.unwrap();
        }
    }));
    world.client.block_on(async {
        for _ in 0..30 {
            let stream = TcpStream::connect(addr).await.unwrap();
            let mut buf = [0; 6];
            assert_eq!(stream.read(&mut buf).await.unwrap(), 5);
            assert_eq!(stream.read(&mut buf).await.unwrap(), 0);
        }
        while world.server_net.stats().connections > 0 || world.client_net.stats().connections > 0 {
            dapple_sched::yield_now().await;
        }
    });
    let stats = world.server_net.stats();
    assert_eq!(stats.time_wait, 5, "{stats:?}");
}

const TEN_THOUSAND: usize = 10_000;
