//! A name that changes its address between two look-ups ("rebinding"), with a hostile name server.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use dapple::net::{Resolver, ResolverConfig};

use dapple_client::Scheme;
use dapple_client::relay::AddressKind;

use super::{Origin, Upstream};
use crate::proxy::args::Waits;
use crate::proxy::destination::Destination;
use crate::proxy::failure::Failure;
use crate::proxy::rules::{Kind, Rules};
use crate::proxy::tally::Tally;

/// Answers the n-th query for an IPv4 address with the addresses that `answer` returns, with a time
/// to live of zero. Returns its address, and the number of queries.
fn name_server(answer: impl Fn(usize) -> Vec<Ipv4Addr> + Send + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    thread::spawn(move || {
        let mut buf = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut buf) {
            let name_len = buf[HEAD_LEN..len].iter().position(|byte| *byte == 0).unwrap() + 1;
            let question = &buf[HEAD_LEN..HEAD_LEN + name_len + 4];
            let is_v4 = question[name_len..] == [0, 1, 0, 1];
            let ips = if is_v4 { answer(count.fetch_add(1, Ordering::Relaxed)) } else { Vec::new() };
            let mut reply = buf[..2].to_vec();
            // A reply to one question, with this many addresses.
            reply.extend([0x81, 0x80, 0, 1, 0, ips.len() as u8, 0, 0, 0, 0]);
            reply.extend(question);
            for ip in ips {
                // The name of the question; an address; internet class; time to live zero.
                reply.extend([0xc0, HEAD_LEN as u8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                reply.extend(ip.octets());
            }
            socket.send_to(&reply, from).unwrap();
        }
    });
    (addr, asked)
}

/// Connects to a name of that server once for each result.
fn connect_to<const N: usize>(server: SocketAddr, rules: Rules, port: u16) -> [Result<SocketAddr, Failure>; N] {
    connect_within(LIMIT, server, rules, port)
}

fn connect_within<const N: usize>(
    limit: Duration,
    server: SocketAddr,
    rules: Rules,
    port: u16,
) -> [Result<SocketAddr, Failure>; N] {
    let runtime = dapple::builder().workers(1).build().unwrap();
    let _entered = runtime.enter();
    let mut config = ResolverConfig::default();
    (config.name_servers, config.search) = (vec![server], Some(Vec::new()));
    (config.resolv_conf, config.hosts) = (None, None);
    Resolver::new(config).install().unwrap();
    let origin = Origin { scheme: Scheme::Http, host: "rebinding.test".to_owned(), port };
    let waits = Waits { connect: limit, response: LIMIT, tunnel: LIMIT };
    let (tally, handle) = (Arc::new(Tally::new(runtime.handle().clone())), runtime.handle().clone());
    let upstream = Upstream::new(rules, waits, 8, false, tally, handle);
    let connected = async || {
        let (stream, _place) = upstream.open(&origin).await?;
        Ok(stream.socket().peer_addr().unwrap())
    };
    std::array::from_fn(|_| runtime.block_on(connected()))
}

/// Listens at the same port of an allowed and of a forbidden address.
fn listeners() -> (TcpListener, TcpListener, u16) {
    for _ in 0..100 {
        let allowed = TcpListener::bind((ALLOWED, 0)).unwrap();
        let port = allowed.local_addr().unwrap().port();
        if let Ok(refused) = TcpListener::bind((REFUSED, port)) {
            refused.set_nonblocking(true).unwrap();
            return (allowed, refused, port);
        }
    }
    panic!("no port is free at both addresses");
}

fn rules() -> Rules {
    Rules::new(false, &[Destination::Network("127.0.0.1/32".parse().unwrap())], &[], &[])
}

#[test]
fn the_proxy_connects_to_the_address_that_it_checked() {
    let (_allowed, refused, port) = listeners();
    // A program that looked the name up again to connect would reach a forbidden address.
    let (server, asked) = name_server(|count| vec![if count % 2 == 0 { ALLOWED } else { REFUSED }]);
    let [first, second, third] = connect_to(server, rules(), port);
    let reached = Ok(SocketAddr::from((ALLOWED, port)));
    assert_eq!((first, third), (reached.clone(), reached));
    assert_eq!(second, Err(Failure::Refused(REFUSED.into(), Kind::Address(AddressKind::Loopback))));
    assert_eq!(asked.load(Ordering::Relaxed), 3, "one look-up for each connection");
    assert!(refused.accept().is_err(), "nobody came");
}

#[test]
fn only_allowed_addresses_are_tried() {
    let (allowed, refused, port) = listeners();
    let (server, _) = name_server(|_| vec![REFUSED, ALLOWED]);
    assert_eq!(connect_to(server, rules(), port), [Ok(SocketAddr::from((ALLOWED, port)))]);
    // No server is left at the allowed address, and the forbidden one is not tried instead.
    drop(allowed);
    let [result] = connect_to(server, rules(), port);
    assert!(matches!(result, Err(Failure::Unreachable(_))), "{result:?}");
    assert!(refused.accept().is_err(), "nobody came");
}

#[test]
fn a_silent_name_server_is_a_timeout_of_the_lookup() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let limit = Duration::from_millis(300);
    let [result] = connect_within(limit, silent.local_addr().unwrap(), rules(), 80);
    assert_eq!(result, Err(Failure::LookupTimeout));
    assert_eq!(
        (Failure::LookupTimeout.status().as_u16(), Failure::LookupTimeout.error_type()),
        (504, Some("dns_timeout"))
    );
}

const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const REFUSED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

const LIMIT: Duration = Duration::from_secs(20);

/// The head of a message.
const HEAD_LEN: usize = 12;
