//! Hosts that are found, and balanced as one service.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use dapple::net::{Resolver, ResolverConfig, TcpListener};
use dapple_io::time::{sleep, timeout};
use dapple_remote::{ByFate, Discovery, Host, HostLimits, Member, Members, RemoteStage, Stopper};
use dapple_stage::BoxError;
use dapple_tower::balance::Balance;
use dapple_tower::middleware::retry::{Attempts, Retry};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use tower_service::Service;

use super::dns_server::{DnsServer, Reply};
use super::{Running, echo, runtime};

type Who = Balance<String, RemoteStage<(), u8>, ByFate>;

/// A host of a stage that replies with a number.
fn host(number: u8, listener: TcpListener) -> Stopper {
    let host = Host::builder().register_fn("who", move |()| async move { Ok::<_, BoxError>(number) }).build();
    let stop = host.stopper();
    let _detached = dapple_sched::spawn(host.serve(listener));
    stop
}

async fn ask<S: Service<(), Response = u8, Error = BoxError>>(service: &mut S) -> Result<u8, BoxError> {
    std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(()).await
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("{what}: that does not happen"));
}

async fn next(members: &mut Members) -> Member {
    timeout(Duration::from_secs(60), members.next()).await.expect("there is news").expect("the runtime runs")
}

#[test]
fn a_name_is_all_its_addresses_as_they_change() {
    let stage = Arc::new(AtomicU8::new(0));
    let told = stage.clone();
    let server = DnsServer::start(move |asked| {
        let v4 = |last: &[u8]| Reply::addresses(last.iter().map(|&last| Ipv4Addr::new(127, 0, 0, last)), 0);
        match (asked.kind, told.load(Ordering::SeqCst)) {
            (RecordType::A, 0) => v4(&[1]),
            (RecordType::A, 1) => v4(&[1, 2]),
            (RecordType::A, 2) => Reply::code(ResponseCode::ServFail),
            (RecordType::A, 3) => v4(&[2]),
            (_, 4) => Reply::code(ResponseCode::NXDomain),
            _ => Reply::nothing(),
        }
    });
    let runtime = runtime();
    runtime.block_on(async {
        let mut config = ResolverConfig::default();
        config.name_servers = vec![server.addr];
        (config.resolv_conf, config.hosts, config.search) = (None, None, Some(Vec::new()));
        Resolver::new(config).install().unwrap();

        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let second = TcpListener::bind(SocketAddr::from(([127, 0, 0, 2], port))).unwrap();
        let stops = [host(1, first), host(2, second)];
        let at = |last: u8| format!("127.0.0.{last}:{port}");

        let discovery = Discovery::dns("stages.test", port).unwrap().every(Duration::from_millis(100));
        let mut members = discovery.members("who");
        let mut who: Who = discovery.balance("who");
        assert_eq!(next(&mut members).await, Member::Joined(at(1)));
        stage.store(1, Ordering::SeqCst);
        assert_eq!(next(&mut members).await, Member::Joined(at(2)));
        until("both are found", || who.balancer().serving_len() == 2).await;
        let mut seen = [0; 3];
        while seen[1] == 0 || seen[2] == 0 {
            seen[usize::from(ask(&mut who).await.unwrap())] += 1;
        }
        // A failing name server changes nothing.
        stage.store(2, Ordering::SeqCst);
        let asked = server.asked("stages.test.", RecordType::A);
        until("it is asked again", || server.asked("stages.test.", RecordType::A) > asked + 2).await;
        assert_eq!(who.balancer().len(), 2);
        stage.store(3, Ordering::SeqCst);
        assert_eq!(next(&mut members).await, Member::Left(at(1)));
        until("one is left", || who.balancer().len() == 1).await;
        assert_eq!(ask(&mut who).await.unwrap(), 2);
        stage.store(4, Ordering::SeqCst);
        assert_eq!(next(&mut members).await, Member::Left(at(2)));
        stops.iter().for_each(Stopper::stop);
    });
}

#[test]
fn a_service_is_what_its_records_say_as_they_change() {
    let ports = Arc::new(std::sync::OnceLock::<[u16; 2]>::new());
    let (stage, known) = (Arc::new(AtomicU8::new(0)), ports.clone());
    let told = stage.clone();
    let server = DnsServer::start(move |asked| {
        let Some([first, second]) = known.get().copied() else { return Reply::nothing() };
        match (asked.name, asked.kind, told.load(Ordering::SeqCst)) {
            ("_who._tcp.test.", RecordType::SRV, 0) => {
                Reply::services([(5, 0, first, "one.test."), (9, 0, second, "two.test.")])
            }
            ("_who._tcp.test.", RecordType::SRV, 1) => Reply::services([(9, 0, second, "two.test.")]),
            ("_who._tcp.test.", RecordType::SRV, _) => Reply::code(ResponseCode::NXDomain),
            (_, RecordType::A, _) => Reply::addresses([Ipv4Addr::LOCALHOST], 60),
            _ => Reply::nothing(),
        }
    });
    let runtime = runtime();
    runtime.block_on(async {
        let mut config = ResolverConfig::default();
        config.name_servers = vec![server.addr];
        (config.resolv_conf, config.hosts, config.search) = (None, None, Some(Vec::new()));
        Resolver::new(config).install().unwrap();

        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        ports.set(listeners.each_ref().map(|listener| listener.local_addr().unwrap().port())).unwrap();
        let [first, second] = listeners;
        let stops = [host(1, first), host(2, second)];
        let [one, two] = *ports.get().unwrap();

        let discovery: Discovery = "srv:_who._tcp.test".parse().unwrap();
        let discovery = discovery.every(Duration::from_millis(100));
        let mut members = discovery.members("who");
        let mut who: Who = discovery.balance("who");
        assert_eq!(next(&mut members).await, Member::Joined(format!("one.test.:{one}")));
        until("the first is found", || who.balancer().serving_len() == 1).await;
        assert_eq!(ask(&mut who).await.unwrap(), 1);
        stage.store(1, Ordering::SeqCst);
        assert_eq!(next(&mut members).await, Member::Joined(format!("two.test.:{two}")));
        assert_eq!(next(&mut members).await, Member::Left(format!("one.test.:{one}")));
        let mut sure = Retry::new(Attempts::new(10).judge(ByFate), who.clone());
        while ask(&mut sure).await.unwrap() != 2 {}
        stage.store(2, Ordering::SeqCst);
        assert_eq!(next(&mut members).await, Member::Left(format!("two.test.:{two}")));
        stops.iter().for_each(Stopper::stop);
    });
}

#[test]
fn the_targets_of_a_service_are_full_names() {
    let port = Arc::new(std::sync::OnceLock::<u16>::new());
    let known = port.clone();
    let server = DnsServer::start(move |asked| match (asked.name, asked.kind) {
        ("_who._tcp.test.", RecordType::SRV) => Reply::services([(0, 0, *known.get().unwrap(), "one.")]),
        ("one.", RecordType::A) => Reply::addresses([Ipv4Addr::LOCALHOST], 60),
        // Another host, without a listening process.
        ("one.inside.test.", RecordType::A) => Reply::addresses([Ipv4Addr::new(127, 0, 0, 99)], 60),
        _ => Reply::nothing(),
    });
    let runtime = runtime();
    runtime.block_on(async {
        let mut config = ResolverConfig::default();
        config.name_servers = vec![server.addr];
        (config.resolv_conf, config.hosts, config.search) = (None, None, Some(vec!["inside.test".to_owned()]));
        Resolver::new(config).install().unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        port.set(listener.local_addr().unwrap().port()).unwrap();
        let stop = host(1, listener);
        let who: Who = "srv:_who._tcp.test".parse::<Discovery>().unwrap().balance("who");
        until("it is found", || who.balancer().pick().is_ok_and(|picked| picked.value().peer().is_connected())).await;
        assert_eq!(server.asked("one.inside.test.", RecordType::A), 0);
        assert_eq!(ask(&mut who.clone()).await.unwrap(), 1);
        stop.stop();
    });
}

#[test]
fn present_hosts_of_a_list_serve_and_the_others_join_later() {
    let runtime = runtime();
    runtime.block_on(async {
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let mut listeners = listeners.into_iter();
        let mut stops = vec![host(0, listeners.next().unwrap()), host(1, listeners.next().unwrap())];
        drop(listeners);
        let list = addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
        let who: Who = list.parse::<Discovery>().unwrap().balance("who");
        let mut sure = Retry::new(Attempts::new(10).judge(ByFate), who.clone());
        for _ in 0..50 {
            assert!(ask(&mut sure).await.unwrap() < 2, "the third is not there");
        }
        until("two serve", || who.balancer().serving_len() == 2).await;
        stops.push(host(2, TcpListener::bind(addresses[2]).unwrap()));
        until("three serve", || who.balancer().serving_len() == 3).await;
        while ask(&mut sure).await.unwrap() != 2 {}
        // A stopped host leaves without an error, also for callers that do not retry.
        stops.remove(0).stop();
        let mut plain = who.clone();
        for _ in 0..200 {
            let reply = ask(&mut sure).await.unwrap();
            assert!(reply < 3);
        }
        until("two serve", || who.balancer().serving_len() == 2).await;
        for _ in 0..50 {
            assert_ne!(ask(&mut plain).await.unwrap(), 0);
        }
        stops.iter().for_each(Stopper::stop);
    });
}

#[test]
fn connections_end_with_the_balance() {
    let runtime = runtime();
    runtime.block_on(async {
        let mut limits = HostLimits::default();
        limits.connections_max = 1;
        let running = Running::start(echo().limits(limits).build());
        let discovery = Discovery::list([running.address.clone()]).unwrap();
        let balanced = discovery.balance::<String, String>("echo");
        until("it is connected", || {
            balanced.balancer().pick().is_ok_and(|picked| picked.value().peer().is_connected())
        })
        .await;
        let mut other = running.stage::<String, String>("echo");
        assert!(other.send("a".into()).await.is_err(), "the only connection is taken");
        drop(balanced);
        while other.send("a".into()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
        drop(other);
        running.end().await;
    });
}
