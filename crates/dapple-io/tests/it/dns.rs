//! Names, with a name server of our own on loopback.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use dapple_io::net::{Resolver, ResolverConfig, TcpListener, TcpStream, UdpSocket, resolve};
use dapple_io::time::sleep;
use dapple_sched::spawn;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use crate::dns_server::{DnsServer, Reply};
use crate::{LIMIT, run, run_standing, runtime, sources, wait_until};

/// Asks this server only, and no files.
fn config(servers: &[&DnsServer]) -> ResolverConfig {
    let mut config = ResolverConfig::default();
    config.name_servers = servers.iter().map(|server| server.addr).collect();
    (config.resolv_conf, config.hosts) = (None, None);
    config.search = Some(Vec::new());
    config
}

fn asking(server: &DnsServer) -> Resolver {
    Resolver::new(config(&[server]))
}

fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// One address of each kind.
fn both(kind: RecordType, ttl: u32) -> Reply {
    match kind {
        RecordType::A => Reply::addresses([v4(7)], ttl),
        RecordType::AAAA => Reply::addresses([Ipv6Addr::LOCALHOST], ttl),
        _ => Reply::code(ResponseCode::NotImp),
    }
}

#[test]
fn services_are_found_by_their_names() {
    let server = DnsServer::start(|asked| match (asked.name, asked.kind) {
        ("_sign._tcp.test.", RecordType::SRV) => {
            Reply::services([(20, 0, 7002, "b.test."), (10, 5, 7001, "A.test."), (10, 1, 7000, "a.test.")])
        }
        ("_none._tcp.test.", RecordType::SRV) => Reply::services([(0, 0, 0, ".")]),
        ("_other._tcp.test.", _) => Reply::nothing(),
        ("_ill._tcp.test.", _) => Reply::code(ResponseCode::ServFail),
        _ => Reply::code(ResponseCode::NXDomain),
    });
    run(2, async {
        let resolver = asking(&server);
        let found = resolver.services("_sign._tcp.test").await.unwrap();
        let found: Vec<_> = found.iter().map(|at| (at.priority, at.weight, at.host.as_str(), at.port)).collect();
        assert_eq!(found, [(10, 1, "a.test", 7000), (10, 5, "A.test", 7001), (20, 0, "b.test", 7002)]);
        assert_eq!(resolver.services("_none._tcp.test").await.unwrap(), [], "it says that it is not there");
        for (name, kind) in [
            ("_other._tcp.test", io::ErrorKind::NotFound),
            ("_no._tcp.test", io::ErrorKind::NotFound),
            ("127.0.0.1", io::ErrorKind::InvalidInput),
            ("a b", io::ErrorKind::InvalidInput),
        ] {
            assert_eq!(resolver.services(name).await.unwrap_err().kind(), kind, "{name}");
        }
        let error = resolver.services("_ill._tcp.test").await.unwrap_err();
        assert!(error.kind() != io::ErrorKind::NotFound && error.to_string().contains("_ill"), "{error}");
    });
}

#[test]
fn both_kinds_of_addresses_come_and_are_remembered() {
    let server = DnsServer::start(|asked| both(asked.kind, 300));
    run(2, async {
        let resolver = asking(&server);
        for _ in 0..3 {
            let found = resolver.resolve("Web.Test").await.unwrap();
            assert_eq!(found, [IpAddr::from(Ipv6Addr::LOCALHOST), v4(7)]);
        }
        let stats = resolver.stats();
        assert_eq!((stats.lookups, stats.asked, stats.cache_hits, stats.cache_entries), (3, 2, 4, 2));
        assert_eq!((stats.udp_queries, stats.tcp_connections, stats.failures), (2, 0, 0));
        assert_eq!(server.asked_in_all(), 2);
        resolver.clear_cache();
        resolver.resolve("web.test").await.unwrap();
        assert_eq!(server.asked_in_all(), 4);
    });
}

#[test]
fn answers_are_asked_for_again_when_they_have_expired() {
    // The alias has a shorter lifetime than its target.
    let server = DnsServer::start(|asked| match asked.kind {
        RecordType::A => Reply::addresses([v4(9)], 3600).alias("target.test.", 1),
        _ => Reply::nothing().negative_ttl(3600),
    });
    run(1, async {
        let resolver = asking(&server);
        let start = Instant::now();
        while server.asked("alias.test.", RecordType::A) < 2 {
            assert_eq!(resolver.resolve("alias.test").await.unwrap(), [v4(9)]);
            sleep(Duration::from_millis(20)).await;
        }
        assert!(start.elapsed() >= Duration::from_secs(1), "not before a second has passed");
        assert!(resolver.stats().cache_hits > 0);
        assert_eq!(server.asked("alias.test.", RecordType::AAAA), 1, "that holds for an hour");
    });
}

#[test]
fn a_missing_name_is_remembered_for_as_long_as_the_zone_says() {
    let server = DnsServer::start(|asked| match asked.name {
        "gone.test." => Reply::code(ResponseCode::NXDomain).negative_ttl(600),
        "empty.test." => Reply::nothing().negative_ttl(600),
        _ => Reply::code(ResponseCode::NXDomain),
    });
    run(1, async {
        let resolver = asking(&server);
        for (name, text) in [("gone.test", "no such host"), ("empty.test", "has no address")] {
            for _ in 0..3 {
                let error = resolver.resolve(name).await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::NotFound);
                let said = error.to_string();
                assert!(
                    said.contains(text) && said.contains(name) && said.contains(&server.addr.to_string()),
                    "{said}"
                );
            }
            assert_eq!(server.asked(&format!("{name}."), RecordType::A), 1);
        }
        assert_eq!(resolver.stats().cache_negative_hits, 8);
        // Without a lifetime it is not kept.
        for _ in 0..2 {
            resolver.resolve("other.test").await.unwrap_err();
        }
        assert_eq!(server.asked("other.test.", RecordType::A), 2);
        assert_eq!(resolver.stats().failures, 0, "these are answers");
    });
}

#[test]
fn an_answer_too_long_for_a_datagram_comes_by_tcp() {
    let all: Vec<IpAddr> = (1..=50).map(v4).collect();
    let answer = all.clone();
    let server = DnsServer::start(move |asked| match asked.kind {
        RecordType::A => Reply::addresses(answer.iter().copied(), 60).truncated(),
        _ => Reply::nothing().negative_ttl(60),
    });
    run(1, async {
        let resolver = asking(&server);
        let mut found = resolver.resolve("many.test").await.unwrap();
        found.sort();
        assert_eq!(found, all);
        assert!(resolver.stats().tcp_connections >= 1);
        assert_eq!(server.asked_by_tcp(), 1);
    });
}

#[test]
fn answers_with_another_number_are_passed_by() {
    let server = DnsServer::start(|asked| match asked.kind {
        RecordType::A => Reply::addresses([v4(3)], 60).forged_before(),
        _ => Reply::nothing().negative_ttl(60),
    });
    run(1, async {
        let resolver = asking(&server);
        assert_eq!(resolver.resolve("forged.test").await.unwrap(), [v4(3)]);
    });
}

#[test]
fn a_lost_datagram_is_sent_again() {
    let server = DnsServer::start(|asked| match asked.before {
        0 => Reply::silence(),
        _ => both(asked.kind, 60),
    });
    run(1, async {
        let resolver = asking(&server);
        assert_eq!(resolver.resolve("lost.test").await.unwrap().len(), 2);
        assert!(resolver.stats().udp_queries >= 4);
    });
}

#[test]
fn a_server_that_lives_answers_for_one_that_does_not() {
    let silent = DnsServer::start(|_| Reply::silence());
    let alive = DnsServer::start(|asked| both(asked.kind, 60));
    // No server is there: the address was given back.
    let nobody = std::net::UdpSocket::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    run(2, async {
        let mut config = config(&[&silent, &alive]);
        config.name_servers.insert(0, nobody);
        let resolver = Resolver::new(config);
        assert_eq!(resolver.resolve("web.test").await.unwrap().len(), 2);
    });
    let other = DnsServer::start(|_| Reply::silence());
    run(2, async {
        // More silent servers than are asked at a time.
        let mut config = config(&[&silent, &other, &alive]);
        config.timeout = Some(Duration::from_millis(400));
        let resolver = Resolver::new(config);
        assert_eq!(resolver.resolve("web.test").await.unwrap().len(), 2);
    });
}

#[test]
fn servers_that_do_not_answer_are_a_clear_error_in_time() {
    let silent = DnsServer::start(|_| Reply::silence());
    let broken = DnsServer::start(|_| Reply::code(ResponseCode::ServFail));
    run(2, async {
        let mut settings = config(&[&silent]);
        (settings.timeout, settings.attempts) = (Some(Duration::from_millis(200)), Some(2));
        let resolver = Resolver::new(settings);
        let start = Instant::now();
        let error = resolver.resolve("web.test").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(error.to_string().contains(&silent.addr.to_string()), "{error}");
        assert!(start.elapsed() >= Duration::from_millis(200));
        assert_eq!(resolver.stats().failures, 2);
        assert_eq!(resolver.stats().cache_entries, 0, "a missing answer is not remembered");

        let error = asking(&broken).resolve("web.test").await.unwrap_err();
        assert!(error.to_string().contains("Server Failure"), "{error}");
    });
}

#[test]
fn one_kind_of_address_is_enough() {
    // A server that does not support IPv6, as many do not.
    for other in [Reply::code(ResponseCode::NotImp), Reply::code(ResponseCode::ServFail), Reply::nothing()] {
        let server = DnsServer::start(move |asked| match asked.kind {
            RecordType::A => Reply::addresses([v4(1)], 60),
            _ => other.clone(),
        });
        run(1, async { assert_eq!(asking(&server).resolve("old.test").await.unwrap(), [v4(1)]) });
    }
}

#[test]
fn the_files_of_the_system_count_and_are_read_again() {
    let server = DnsServer::start(|asked| match asked.name {
        "web.inner.test." => both(asked.kind, 60),
        "web." => Reply::code(ResponseCode::NXDomain).negative_ttl(60),
        _ => Reply::code(ResponseCode::NXDomain).negative_ttl(60),
    });
    let dir = tempfile::tempdir().unwrap();
    let (resolv_conf, hosts) = (dir.path().join("resolv.conf"), dir.path().join("hosts"));
    std::fs::write(&resolv_conf, "nameserver 127.0.0.1\nsearch outer.test inner.test\noptions timeout:2\nnonsense\n")
        .unwrap();
    std::fs::write(&hosts, "127.0.0.5 printer printer.home # upstairs\n::1 printer\n").unwrap();
    run(2, async {
        let mut config = ResolverConfig::default();
        // The file cannot name a port.
        config.name_servers = vec![server.addr];
        (config.resolv_conf, config.hosts) = (Some(resolv_conf.clone()), Some(hosts.clone()));
        let resolver = Resolver::new(config);
        assert_eq!(resolver.resolve("web").await.unwrap().len(), 2);
        assert_eq!(server.asked("web.outer.test.", RecordType::A), 1, "in the order of the list");
        assert_eq!(server.asked("web.", RecordType::A), 0);
        assert_eq!(resolver.resolve("printer").await.unwrap(), [IpAddr::from(Ipv6Addr::LOCALHOST), v4(5)]);
        assert_eq!(resolver.resolve("PRINTER.home.").await.unwrap(), [v4(5)]);
        let before = server.asked_in_all();
        assert_eq!(server.asked("printer.", RecordType::A), 0);
        assert_eq!(resolver.stats().reloads, 1);

        std::fs::write(&hosts, "127.0.0.6 printer\n").unwrap();
        std::fs::write(&resolv_conf, "search other.test\n").unwrap();
        let start = Instant::now();
        while resolver.resolve("printer").await.unwrap() != [v4(6)] {
            assert!(start.elapsed() < LIMIT, "the change is not noticed");
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(server.asked_in_all(), before);
        assert!(resolver.resolve("nothing").await.is_err());
        assert_eq!(server.asked("nothing.other.test.", RecordType::A), 1);
        assert!(resolver.stats().reloads >= 2);
    });
}

#[test]
fn names_are_looked_up_while_all_threads_of_the_pool_are_stuck() {
    let server = DnsServer::start(|asked| both(asked.kind, 0));
    let mut limits = dapple_io::Config::default();
    limits.blocking_threads_max = 1;
    let runtime = dapple_io::runtime_builder_with(limits).workers(1).build().unwrap();
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    runtime.block_on(async {
        let resolver = asking(&server);
        assert_eq!(resolver.resolve("web.test").await.unwrap().len(), 2);
        let held = dapple_io::blocking::spawn_blocking(move || stuck.recv().is_err());
        // Longer than the files count without a check.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1300) {
            assert_eq!(resolver.resolve("web.test").await.unwrap().len(), 2);
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(resolver.stats().cache_hits, 0, "an answer without a lifetime is asked for each time");
        drop(release);
        assert!(held.await.unwrap());
    });
}

#[test]
fn concurrent_equal_queries_share_the_answer() {
    let server = DnsServer::start(|asked| both(asked.kind, 60).after(Duration::from_millis(50)));
    run(2, async {
        let resolver = asking(&server);
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let resolver = resolver.clone();
                spawn(async move { resolver.resolve("web.test").await.unwrap().len() })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), 2);
        }
        // Not the server's counts: a query without an answer is sent again, which can happen to
        // these on a busy machine.
        let stats = resolver.stats();
        assert_eq!(stats.asked, 2);
        assert_eq!(stats.shared + stats.cache_hits, 398);
    });
}

#[test]
fn a_flood_of_names_is_bounded() {
    let server = DnsServer::start(|asked| both(asked.kind, 60));
    let runtime = runtime(2);
    runtime.block_on(async {
        let mut config = config(&[&server]);
        (config.cache_entries_max, config.queries_max) = (16, 4);
        let resolver = Resolver::new(config);
        let tasks: Vec<_> = (0..300)
            .map(|i| {
                let resolver = resolver.clone();
                spawn(async move { resolver.resolve(&format!("host{i}.test")).await })
            })
            .collect();
        let mut most = 0;
        for task in tasks {
            while !task.is_finished() {
                most = most.max(sources(&runtime));
                dapple_sched::yield_now().await;
            }
            assert_eq!(task.await.unwrap().unwrap().len(), 2);
        }
        assert!(most <= 4 * 4, "each query has a socket, or one for each repetition: {most}");
        assert!(resolver.stats().cache_entries <= 16);
    });
    wait_until("no socket is left", || sources(&runtime) == 0);
}

#[test]
fn a_dropped_lookup_leaves_nothing_behind() {
    let server = DnsServer::start(|asked| match asked.name {
        "late.test." => both(asked.kind, 60).after(Duration::from_millis(150)),
        _ => Reply::silence(),
    });
    let runtime = runtime(2);
    runtime.block_on(async {
        let mut config = config(&[&server]);
        (config.timeout, config.attempts, config.queries_max) = (Some(Duration::from_millis(300)), Some(1), 8);
        let resolver = Resolver::new(config);
        // Dropped in all stages, even while it waits for its turn.
        for i in 0..50 {
            let name = format!("silent{i}.test");
            let limit = Duration::from_millis(i % 10);
            dapple_io::time::timeout(limit, resolver.resolve(&name)).await.unwrap_err();
        }
        // A later look-up finds the answer in the cache, unless the other tests used up the time.
        let late = dapple_io::time::timeout(Duration::from_millis(100), resolver.resolve("late.test")).await;
        assert!(late.is_err() || late.is_ok_and(|found| found.is_ok()));
        let start = Instant::now();
        while resolver.resolve("late.test").await.is_err() {
            assert!(start.elapsed() < LIMIT);
        }
    });
    wait_until("no socket is left", || sources(&runtime) == 0);
}

#[test]
fn whatever_takes_names_uses_the_resolver_that_was_installed() {
    let server = DnsServer::start(|asked| match (asked.name, asked.kind) {
        ("web.test.", RecordType::A) => Reply::addresses([v4(1)], 60),
        ("web.test.", _) => Reply::nothing().negative_ttl(60),
        _ => Reply::code(ResponseCode::NXDomain),
    });
    run(2, async {
        let resolver = asking(&server);
        resolver.install().unwrap();
        assert_eq!(resolve("web.test").await.unwrap(), [v4(1)]);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect(("web.test", port)).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
        TcpStream::connect(format!("web.test:{port}")).await.unwrap();
        let error = TcpStream::connect("gone.test:80").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);

        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let port = b.local_addr().unwrap().port();
        a.send_to(b"one", ("web.test", port)).await.unwrap();
        a.connect(format!("web.test:{port}")).await.unwrap();
        a.send(b"two").await.unwrap();
        let mut buf = [0; 8];
        for expected in [b"one", b"two"] {
            let (len, from) = b.recv_from(&mut buf).await.unwrap();
            assert_eq!((&buf[..len], from), (&expected[..], a.local_addr().unwrap()));
        }
    });
}

#[test]
fn names_that_need_no_server_ask_none() {
    let server = DnsServer::start(|_| Reply::silence());
    run(1, async {
        let resolver = asking(&server);
        assert_eq!(resolver.resolve("127.0.0.9").await.unwrap(), [v4(9)]);
        assert_eq!(resolver.resolve("[::1]").await.unwrap(), [IpAddr::from(Ipv6Addr::LOCALHOST)]);
        assert!(resolver.resolve("my.localhost").await.unwrap().iter().all(IpAddr::is_loopback));
        for bad in ["", "a b", "web.test:80", "..", "http://web.test/"] {
            assert_eq!(resolver.resolve(bad).await.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{bad}");
        }
        assert_eq!(server.asked_in_all(), 0);
        assert_eq!(resolver.stats().lookups, 0);
    });
}

#[test]
fn a_resolver_serves_one_runtime_after_the_other() {
    let server = DnsServer::start(|asked| both(asked.kind, 1));
    let resolver = asking(&server);
    for i in 0..3 {
        let name = format!("host{i}.test");
        assert_eq!(run(1, async { resolver.resolve(&name).await }).unwrap().len(), 2);
    }
    assert_eq!(server.asked_in_all(), 6);
}

#[test]
fn limits_are_by_the_clock_of_the_runtime() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    run_standing(2, async {
        let mut config = config(&[]);
        config.name_servers = vec![silent.local_addr().unwrap()];
        (config.timeout, config.attempts) = (Some(HOUR), Some(2));
        let start = dapple_io::time::Instant::now();
        let error = Resolver::new(config).resolve("web.test").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(start.elapsed() >= HOUR && start.elapsed() <= 3 * HOUR, "{:?}", start.elapsed());
    });
}

#[test]
fn answers_hold_by_the_clock_of_the_runtime() {
    let server = DnsServer::start(|asked| both(asked.kind, 3600));
    run_standing(1, async {
        let resolver = asking(&server);
        let start = dapple_io::time::Instant::now();
        for (after, asked) in [(Duration::ZERO, 1), (HOUR - LIMIT, 1), (2 * LIMIT, 2), (LIMIT, 2)] {
            sleep(after).await;
            let passed = start.elapsed();
            // The server is a thread that the clock does not see.
            let _paused = dapple_io::time::pause();
            assert_eq!(resolver.resolve("web.test").await.unwrap().len(), 2);
            assert_eq!(server.asked("web.test.", RecordType::A), asked);
            assert_eq!(start.elapsed(), passed);
        }
    });
}

#[test]
fn a_server_in_the_process_is_not_overtaken_by_a_short_limit() {
    run_standing(2, async {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut config = config(&[]);
        config.name_servers = vec![server.local_addr().unwrap()];
        config.timeout = Some(Duration::from_millis(1));
        let _serving = spawn(async move {
            let mut packet = [0; 512];
            loop {
                let (len, from) = server.recv_from(&mut packet).await.unwrap();
                // The query again, as an answer: there is no such name.
                (packet[2], packet[3]) = (packet[2] | 0x80, 0x83);
                server.send_to(&packet[..len], from).await.unwrap();
            }
        });
        let resolver = Resolver::new(config);
        let start = dapple_io::time::Instant::now();
        for i in 0..50 {
            let error = resolver.resolve(&format!("no{i}.test")).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(resolver.stats().failures, 0);
    });
}

const HOUR: Duration = Duration::from_secs(3600);
