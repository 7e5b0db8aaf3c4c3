//! Sockets for datagrams.

use std::io::ErrorKind;
use std::net::SocketAddr;

use dapple_io::net::UdpSocket;
use dapple_net::LinkFaults;
use dapple_sched::Runtime;

use crate::world::{World, client_settings, server_settings};

#[test]
fn datagrams_go_both_ways_in_both_families() {
    let world = World::new(LinkFaults::default());
    for (server, client) in [("10.7.0.1:53", "0.0.0.0:0"), ("[fd07::1]:53", "[::]:0")] {
        let socket = {
            let _entered = world.server.enter();
            UdpSocket::bind(server).unwrap()
        };
        let serving = world.server.handle().spawn(async move {
            let mut buf = [0; 100];
            let (len, from) = socket.recv_from(&mut buf).await.unwrap();
            socket.send_to(&buf[..len], from).await.unwrap();
        });
        world.client.block_on(async {
            let socket = UdpSocket::bind(client).unwrap();
            let to: std::net::SocketAddr = server.parse().unwrap();
            socket.connect(to).await.unwrap();
            socket.send(b"hello").await.unwrap();
            let mut buf = [0; 3];
            assert_eq!(socket.recv(&mut buf).await.unwrap(), 3, "the rest is lost");
            assert_eq!(&buf, b"hel");
            serving.await.expect("it does not panic");
        });
    }
}

#[test]
fn a_datagram_longer_than_a_packet_is_refused() {
    let world = World::new(LinkFaults::default());
    world.client.block_on(async {
        let socket = UdpSocket::bind("10.7.0.2:0").unwrap();
        let to: std::net::SocketAddr = "10.7.0.1:53".parse().unwrap();
        assert_eq!(socket.send_to(&[0; 1472], to).await.unwrap(), 1472);
        let error = socket.send_to(&[0; 1473], to).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("at most 1472 bytes"), "{error}");
    });
}

#[test]
fn datagrams_that_nothing_receives_are_bounded() {
    let mut settings = server_settings();
    settings.datagram_buffer = 4096;
    let world = World::with(LinkFaults::default(), settings);
    let socket = {
        let _entered = world.server.enter();
        UdpSocket::bind("10.7.0.1:53").unwrap()
    };
    world.client.block_on(async {
        let sender = UdpSocket::bind("10.7.0.2:0").unwrap();
        let to: std::net::SocketAddr = "10.7.0.1:53".parse().unwrap();
        for _ in 0..100 {
            sender.send_to(&[7; 500], to).await.unwrap();
        }
        while world.server_net.stats().received < 100 {
            dapple_sched::yield_now().await;
        }
        assert_eq!(world.server_net.stats().datagrams_lost, 93);
        let mut buf = [0; 500];
        for _ in 0..7 {
            assert_eq!(socket.try_recv_from(&mut buf).unwrap().0, 500);
        }
        assert_eq!(socket.try_recv_from(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_group_gets_what_a_member_sends_and_no_other_does() {
    let world = World::new(LinkFaults::default());
    for group in ["239.1.2.3:5000", "[ff15::1:2]:5000"] {
        let group: SocketAddr = group.parse().unwrap();
        let member = |runtime: &Runtime| {
            let _entered = runtime.enter();
            UdpSocket::bind_group(group, 0).unwrap()
        };
        let (one, other) = (member(&world.server), member(&world.client));
        let stranger = {
            let _entered = world.client.enter();
            UdpSocket::bind(SocketAddr::new(client_settings().addresses[0].0, 5000)).unwrap()
        };
        let receiving = world.client.handle().spawn(async move {
            let mut buf = [0; 100];
            let (len, from) = other.recv_from(&mut buf).await.unwrap();
            (buf[..len].to_vec(), from)
        });
        world.server.block_on(async {
            one.send_to(b"to all", group).await.unwrap();
            let mut buf = [0; 100];
            assert_eq!(one.recv_from(&mut buf).await.unwrap().0, 6, "a member itself");
        });
        let (bytes, from) = world.client.block_on(receiving).expect("it does not panic");
        assert_eq!((&bytes[..], from.port()), (&b"to all"[..], 5000));
        assert!(server_settings().addresses.iter().any(|(own, _)| *own == from.ip()), "{from}");
        assert_eq!(stranger.try_recv_from(&mut [0; 100]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    let _entered = world.server.enter();
    let error = UdpSocket::bind_group("10.7.0.1:5000".parse().unwrap(), 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let _member = UdpSocket::bind_group("239.1.2.3:5000".parse().unwrap(), 0).unwrap();
    let again = UdpSocket::bind_group("239.1.2.3:5000".parse().unwrap(), 0).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AddrInUse);
}
