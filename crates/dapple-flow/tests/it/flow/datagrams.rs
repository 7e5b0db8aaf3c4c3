//! Datagrams: ports that name handlers, and broadcast to a group.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use dapple_flow::flow::{Datagram, Datagrams, Queue};
use dapple_sched::Color;

use crate::both_ways;

/// The number of the loopback interface.
const LOOPBACK: u32 = 1;

#[test]
fn each_port_names_a_handler() {
    both_ways(2, async || -> io::Result<()> {
        let sums = Queue::new(10);
        let lengths = Queue::new(10);
        let (sums_tx, lengths_tx) = (sums.clone(), lengths.clone());
        let sum = Color::new().wrap(move |datagram: Datagram| {
            let _ = sums_tx.try_push(datagram.bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>());
        });
        let length = Color::new().wrap(move |datagram: Datagram| _ = lengths_tx.try_push(datagram.bytes.len()));
        let (one, other) = (Datagrams::bind("127.0.0.1:0")?, Datagrams::bind("127.0.0.1:0")?);
        let ports = (one.local_addr()?, other.local_addr()?);
        let _flows = (one.chain(sum), other.chain(length));
        let sink = Datagrams::bind("127.0.0.1:0")?.sink();
        for (port, bytes) in [(ports.0, &[1, 2, 3][..]), (ports.1, &[7, 7]), (ports.0, &[40])] {
            sink.send(Datagram::new(port, Bytes::from_static(bytes))).await?;
        }
        assert_eq!(sums.pop().await.expect("it is open"), 6);
        assert_eq!(sums.pop().await.expect("it is open"), 40);
        assert_eq!(lengths.pop().await.expect("it is open"), 2);
        Ok(())
    });
}

#[test]
fn all_members_of_a_group_get_what_one_sends() {
    both_ways(2, async || -> io::Result<()> {
        let first = Datagrams::bind_group("239.129.7.3:0".parse().unwrap(), LOOPBACK)?;
        let group = first.local_addr()?;
        let mut members = vec![first];
        for _ in 0..3 {
            members.push(Datagrams::bind_group(group, LOOPBACK)?);
        }
        let other_group = SocketAddr::new("239.129.7.4".parse().unwrap(), group.port());
        let mut stranger = Datagrams::bind_group(other_group, LOOPBACK)?;
        // From a queue, as from any source.
        let texts = Queue::new(10);
        let broadcast = members[0].broadcast();
        let flow = texts.chain(broadcast.clone());
        for text in ["one", "two"] {
            texts.push(Bytes::from(text)).await.expect("it is open");
        }
        for member in &mut members {
            for text in ["one", "two"] {
                assert_eq!(member.next().await.expect("it does not end")?.bytes, text);
            }
        }
        assert_eq!((broadcast.lost(), broadcast.group()), (0, group));
        stranger.broadcast().send("three").await?;
        assert_eq!(stranger.next().await.expect("it does not end")?.bytes, "three", "and not one, two");
        drop(flow);
        Ok(())
    });
}

#[test]
fn what_cannot_be_sent_is_counted_or_an_error() {
    both_ways(2, async || -> io::Result<()> {
        let source = Datagrams::bind("127.0.0.1:0")?;
        let (sink, to) = (source.sink(), source.local_addr()?);
        let too_long = Datagram::new(to, vec![0; 65_508]);
        assert!(sink.send(too_long.clone()).await.is_err());
        let queue = Queue::new(10);
        let flow = queue.chain(sink.clone());
        queue.push(too_long).await.expect("it is open");
        queue.push(Datagram::new(to, "short")).await.expect("it is open");
        queue.close();
        flow.finished().await?;
        assert_eq!(sink.lost(), 1);
        let error = Datagrams::bind_group("127.0.0.1:0".parse().unwrap(), LOOPBACK).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        Ok(())
    });
}
