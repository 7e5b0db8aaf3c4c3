//! A race of several addresses: one that refuses, one that never answers, and the good one.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dapple_io::net::{Connector, TcpListener, TcpStream};
use dapple_sched::Runtime;
use socket2::{Domain, Socket, Type};

use crate::{LIMIT, run, run_standing, runtime, sources, wait_until};

/// Drops all attempts at a port of all addresses of IPv4: its backlog is full.
struct BlackHole {
    addr: SocketAddr,
    _listener: Socket,
    _clients: Vec<Socket>,
}

impl BlackHole {
    fn new() -> BlackHole {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let port = listener.local_addr().unwrap().as_socket().unwrap().port();
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut clients = Vec::new();
        loop {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            // The first few are accepted; one beyond these gets no answer.
            let result = client.connect_timeout(&addr.into(), Duration::from_millis(300));
            clients.push(client);
            if result.is_err() {
                return BlackHole { addr, _listener: listener, _clients: clients };
            }
            assert!(clients.len() < 100, "the backlog of the kernel has no end");
        }
    }
}

/// An address without a listener.
fn refusing() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn quick() -> Connector {
    let mut connector = Connector::new();
    connector.attempt_delay(Duration::from_millis(20));
    connector
}

/// Runs the future, and then checks that all sockets are closed.
fn run_and_count<F: Future<Output = ()>>(test: impl FnOnce(Arc<Runtime>) -> F) {
    let runtime = Arc::new(runtime(2));
    runtime.block_on(dapple_io::time::timeout(LIMIT, test(runtime.clone()))).expect("the test hangs");
    wait_until("no socket is left", || sources(&runtime) == 0);
}

#[test]
fn one_that_refuses_does_not_hold_up_the_next() {
    run_and_count(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let mut patient = Connector::new();
        patient.attempt_delay(LIMIT);
        let stream = patient.connect(vec![refusing(), refusing(), good]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
    });
}

#[test]
fn one_that_swallows_is_passed_by_and_closed() {
    let hole = BlackHole::new();
    run_and_count(|runtime| async move {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let start = Instant::now();
        let stream = quick().connect(vec![hole.addr, refusing(), hole.addr, good]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert!(start.elapsed() >= Duration::from_millis(20), "the first had its time");
        assert_eq!(sources(&runtime), 2, "the listener and the stream: the loser is closed");
        let (served, _) = listener.accept().await.unwrap();
        served.write_all(b"x").await.unwrap();
        let mut buf = [0; 1];
        stream.read_exact(&mut buf).await.unwrap();
    });
}

#[test]
fn an_attempt_that_is_given_up_leaves_no_descriptor() {
    let (one, two) = (BlackHole::new(), BlackHole::new());
    run_and_count(|runtime| async move {
        for i in 0..20 {
            let addrs = vec![one.addr, refusing(), two.addr];
            let connector = quick();
            let limit = Duration::from_millis(i * 4);
            dapple_io::time::timeout(limit, connector.connect(addrs)).await.unwrap_err();
            assert_eq!(sources(&runtime), 0);
        }
    });
}

#[test]
fn where_all_fail_the_error_names_them_all() {
    run(1, async {
        let (a, b) = (refusing(), refusing());
        let error = TcpStream::connect(&[a, b][..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let text = error.to_string();
        assert!(text.contains(&a.to_string()) && text.contains(&b.to_string()) && text.contains("refused"), "{text}");
        let error = TcpStream::connect(a).await.unwrap_err();
        assert!(error.raw_os_error().is_some(), "of one address the kernel's error is passed on");
        assert_eq!(TcpStream::connect(&[][..]).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn addresses_that_are_given_keep_their_order_but_for_taking_turns() {
    run(1, async {
        let port = refusing().port();
        let addr = |ip: &str| SocketAddr::from((ip.parse::<std::net::IpAddr>().unwrap(), port));
        let given = ["127.0.0.1", "127.0.0.2", "::1", "127.0.0.1"].map(addr);
        let text = TcpStream::connect(&given[..]).await.unwrap_err().to_string();
        let tried: Vec<_> = [addr("127.0.0.1"), addr("::1"), addr("127.0.0.2")].map(|addr| addr.to_string()).into();
        let said = text.split_once(": ").unwrap().1;
        let order: Vec<_> = said.split("; ").map(|part| part.split_once(": ").unwrap().0.to_owned()).collect();
        assert!(order.ends_with(&tried), "each once, and the families by turns: {text}");
    });
}

#[test]
fn more_addresses_than_may_be_tried_at_once() {
    let hole = BlackHole::new();
    run_and_count(|runtime| async move {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        // Loopback is large: these are forty addresses of one hole.
        let mut addrs: Vec<SocketAddr> =
            (1..=40).map(|last| (Ipv4Addr::new(127, 0, 0, last), hole.addr.port()).into()).collect();
        addrs.push(good);
        let mut connector = Connector::new();
        connector.attempt_delay(Duration::from_millis(10));
        let stream = connector.connect(addrs).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert!(sources(&runtime) <= 2);
    });
}

#[cfg(feature = "dns")]
mod with_names {
    use hickory_proto::rr::RecordType;
    use std::net::Ipv6Addr;

    use super::*;
    use crate::dns_server::{DnsServer, Reply};
    use dapple_io::net::{Resolver, ResolverConfig};

    fn asking(server: &DnsServer) -> Resolver {
        let mut config = ResolverConfig::default();
        config.name_servers = vec![server.addr];
        (config.resolv_conf, config.hosts, config.search) = (None, None, Some(Vec::new()));
        Resolver::new(config)
    }

    #[test]
    fn connecting_does_not_wait_for_the_other_kind_of_address() {
        // The server never answers for IPv6.
        let server = DnsServer::start(|asked| match asked.kind {
            RecordType::A => Reply::addresses([Ipv4Addr::LOCALHOST], 60),
            _ => Reply::silence(),
        });
        run(2, async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let mut connector = Connector::new();
            connector.resolver(&asking(&server)).resolution_delay(Duration::from_millis(30));
            let start = Instant::now();
            let stream = connector.connect(("web.test", port)).await.unwrap();
            let took = start.elapsed();
            assert_eq!(stream.peer_addr().unwrap().port(), port);
            assert!(took >= Duration::from_millis(30), "IPv6 had its chance");
            // The look-up alone would take ten seconds.
            assert!(took < Duration::from_secs(8), "{took:?}");
        });
    }

    #[test]
    fn ipv6_goes_first_and_ipv4_saves_what_it_cannot() {
        let server = DnsServer::start(|asked| match asked.kind {
            RecordType::AAAA => Reply::addresses([Ipv6Addr::LOCALHOST], 60),
            _ => Reply::addresses([Ipv4Addr::LOCALHOST], 60),
        });
        run(2, async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let mut connector = Connector::new();
            connector.resolver(&asking(&server)).attempt_delay(LIMIT);
            // No listener on ::1 at this port, or no ::1 at all.
            let stream = connector.connect(("web.test", port)).await.unwrap();
            assert!(stream.peer_addr().unwrap().is_ipv4());
            drop(listener);
            let error = connector.connect(("web.test", port)).await.unwrap_err();
            let text = error.to_string();
            let (first, second) = (text.find("[::1]"), text.find("127.0.0.1"));
            assert!(first.is_some() && first < second, "{text}");
            assert!(text.contains(&format!("web.test:{port}")), "{text}");
        });
    }

    #[test]
    fn addresses_that_come_late_are_still_tried() {
        let hole = BlackHole::new();
        let server = DnsServer::start(|asked| match asked.kind {
            RecordType::A => Reply::addresses([Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 3)], 60),
            _ => Reply::addresses([Ipv6Addr::LOCALHOST], 60).after(Duration::from_millis(200)),
        });
        run(2, async {
            // A listener on ::1 at the port of the hole, if there is an ::1.
            let Ok(listener) = TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, hole.addr.port()))) else {
                eprintln!("skipped: there is no ::1 here");
                return;
            };
            let mut connector = quick();
            connector.resolver(&asking(&server)).resolution_delay(Duration::from_millis(1));
            let stream = connector.connect(("web.test", hole.addr.port())).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
        });
    }
}

#[test]
fn the_delay_before_the_next_attempt_is_by_the_clock_of_the_runtime() {
    const HOUR: Duration = Duration::from_secs(3600);
    let hole = BlackHole::new();
    run_standing(2, async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let mut patient = Connector::new();
        patient.attempt_delay(HOUR);
        let start = dapple_io::time::Instant::now();
        let stream = patient.connect(vec![hole.addr, hole.addr, refusing(), good]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert_eq!(start.elapsed(), HOUR, "one address is tried once, and one that refuses costs no time");
    });
}
