//! A network with two devices: the queues of one interface.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use dapple_io::net::{TcpListener, TcpStream};
use dapple_net::{Device, LinkFaults, MemoryDevice, Received, pair};

use crate::world::{World, pattern, server_settings};

/// The other end of both queues, which deals packets out in turn: so most come to the queue that does not have the connection.
struct Dealer {
    queues: [MemoryDevice; 2],
    deals: fn(&[u8]) -> usize,
}

impl Device for Dealer {
    fn mtu(&self) -> usize {
        1500
    }

    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<Received>> {
        match self.queues[0].poll_receive(cx, buf) {
            Poll::Pending => self.queues[1].poll_receive(cx, buf),
            ready => ready,
        }
    }

    fn send(&self, packet: &[u8], segment_len: Option<u16>) -> io::Result<()> {
        self.queues[(self.deals)(packet)].send(packet, segment_len)
    }
}

fn world(deals: fn(&[u8]) -> usize) -> World {
    let ((one, one_end), (two, two_end)) = (pair(1500, LinkFaults::default()), pair(1500, LinkFaults::default()));
    let dealer = Dealer { queues: [one_end, two_end], deals };
    World::over(vec![Arc::new(one), Arc::new(two)], Arc::new(dealer), server_settings())
}

/// The last bit of the sender's port, as a kernel chooses the queue of a connection by a hash of its ends.
fn by_port(packet: &[u8]) -> usize {
    usize::from(packet[21] & 1)
}

#[test]
fn connections_come_through_both_queues() {
    let world = world(by_port);
    let (listener, addr) = world.listen("10.7.0.1:80");
    drop(world.server.handle().spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            drop(dapple_sched::spawn(async move { stream.write_all(&pattern(50_000)).await }));
        }
    }));
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            world.client.handle().spawn(async move {
                let stream = TcpStream::connect(addr).await.unwrap();
                let mut all = vec![0; 50_000];
                stream.read_exact(&mut all).await.unwrap();
                assert!(all == pattern(50_000));
            })
        })
        .collect();
    world.client.block_on(async {
        for task in tasks {
            task.await.expect("it does not panic");
        }
    });
}

#[test]
fn a_connection_that_began_here_is_found_from_the_other_queue() {
    // All packets come through the first queue; every other connection is of the second.
    let world = world(|_| 0);
    let listener = {
        let _entered = world.client.enter();
        TcpListener::bind("10.7.0.2:80").unwrap()
    };
    drop(world.client.handle().spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            drop(dapple_sched::spawn(async move { stream.write_all(&pattern(50_000)).await }));
        }
    }));
    world.server.block_on(async {
        for _ in 0..4 {
            let stream = TcpStream::connect("10.7.0.2:80").await.unwrap();
            let mut all = vec![0; 50_000];
            stream.read_exact(&mut all).await.unwrap();
            assert!(all == pattern(50_000));
        }
    });
}
