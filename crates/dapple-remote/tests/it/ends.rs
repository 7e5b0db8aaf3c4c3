//! How hosts and connections end.

use std::sync::Arc;
use std::time::Duration;

use dapple_io::net::{TcpListener, TcpStream};
use dapple_io::time::sleep;
use dapple_remote::{Fate, Host, HostLimits, Peer, RemoteError, RemoteStage};
use dapple_stage::BoxError;
use dapple_sync::sync::Semaphore;

use super::{Running, echo, runtime};

/// A stage that ends on request, and signals when it has begun.
fn gated(begun: &Arc<Semaphore>, gate: &Arc<Semaphore>) -> Host {
    let (begun, gate) = (begun.clone(), gate.clone());
    let handler = move |number: u32| {
        let (begun, gate) = (begun.clone(), gate.clone());
        async move {
            begun.add_permits(1);
            gate.acquire().await?.forget();
            Ok::<_, BoxError>(number + 1)
        }
    };
    let mut limits = HostLimits::default();
    limits.drain = Duration::from_secs(60);
    Host::builder().register_fn("gated", handler).limits(limits).build()
}

#[test]
fn requests_running_at_the_stop_are_finished() {
    let runtime = runtime();
    runtime.block_on(async {
        let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let running = Running::start(gated(&begun, &gate));
        let mut stage: RemoteStage<u32, u32> = running.stage("gated");
        let mut other = stage.clone();
        let reply = dapple_sched::spawn(async move { other.send(1).await });
        begun.acquire().await.unwrap().forget();
        running.stop.stop();
        // The peer knows, and sends nothing more there; there is no other client.
        while stage.peer().is_connected() {
            sleep(Duration::from_millis(1)).await;
        }
        let refused = stage.send(2).await.unwrap_err();
        assert!(matches!(refused.downcast_ref(), Some(RemoteError::Unreachable { .. })), "{refused:?}");
        gate.add_permits(1);
        assert_eq!(reply.await.unwrap().unwrap(), 2);
        assert_eq!(running.serving.await.unwrap().unwrap().connections_cut, 0);
    });
}

#[test]
fn a_request_that_takes_too_long_is_cut_and_its_fate_unknown() {
    let runtime = runtime();
    runtime.block_on(async {
        let begun = Arc::new(Semaphore::new(0));
        let (counted, mut limits) = (begun.clone(), HostLimits::default());
        limits.drain = Duration::from_millis(50);
        let handler = move |()| {
            counted.add_permits(1);
            std::future::pending::<Result<(), BoxError>>()
        };
        let running = Running::start(Host::builder().register_fn("endless", handler).limits(limits).build());
        let mut stage: RemoteStage<(), ()> = running.stage("endless");
        let reply = dapple_sched::spawn(async move { stage.send(()).await });
        begun.acquire().await.unwrap().forget();
        assert_eq!(running.end().await.connections_cut, 1);
        let error = reply.await.unwrap().unwrap_err();
        assert_eq!(Fate::of(&error), Fate::Unknown, "{error:?}");
    });
}

#[test]
fn a_host_that_takes_over_gets_all_requests_and_none_is_lost() {
    let runtime = runtime();
    runtime.block_on(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let start = |name: &'static str| {
            let host =
                Host::builder().register_fn("who", move |()| async move { Ok::<_, BoxError>(name.to_owned()) }).build();
            let listener = TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
            (host.stopper(), dapple_sched::spawn(host.serve(listener)))
        };
        let mut before = start("0");
        let stop = Arc::new(Semaphore::new(0));
        let senders: Vec<_> = (0..8)
            .map(|_| {
                let (stop, mut stage) = (stop.clone(), Peer::new(address.as_str()).unwrap().stage::<(), String>("who"));
                dapple_sched::spawn(async move {
                    let mut count = 0;
                    while stop.available_permits() == 0 {
                        stage.send(()).await.unwrap_or_else(|error| panic!("request {count}: {error}"));
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for name in ["1", "2", "3", "4", "5"] {
            let after = start(name);
            before.0.stop();
            assert_eq!(before.1.await.unwrap().unwrap().connections_cut, 0);
            before = after;
        }
        let mut stage = Peer::new(address.as_str()).unwrap().stage::<(), String>("who");
        assert_eq!(stage.send(()).await.unwrap(), "5");
        stop.add_permits(1);
        for sender in senders {
            assert!(sender.await.unwrap() > 0);
        }
        drop(stage);
        before.0.stop();
        before.1.await.unwrap().unwrap();
    });
}

#[test]
fn a_broken_connection_leaves_no_caller_waiting_and_reports_unknown_fates() {
    let runtime = runtime();
    runtime.block_on(async {
        let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let running = Running::start(gated(&begun, &gate));
        let front = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stage: RemoteStage<u32, u32> =
            Peer::new(front.local_addr().unwrap().to_string()).unwrap().stage("gated");
        let back = running.address.clone();
        let relay = dapple_sched::spawn(async move {
            let (client, _) = front.accept().await.unwrap();
            let server = TcpStream::connect(back).await.unwrap();
            let (client, server) = (Arc::new(client), Arc::new(server));
            let pump = |from: Arc<TcpStream>, to: Arc<TcpStream>| async move {
                let mut buf = vec![0; 16 << 10];
                while let Ok(count @ 1..) = from.read(&mut buf).await {
                    to.write_all(&buf[..count]).await.unwrap();
                }
            };
            let other = dapple_sched::spawn(pump(server.clone(), client.clone()));
            let this = dapple_sched::spawn(pump(client, server));
            (other, this)
        });
        let reply = dapple_sched::spawn(async move { stage.send(1).await });
        begun.acquire().await.unwrap().forget();
        let (other, this) = relay.await.unwrap();
        other.abort();
        this.abort();
        let error = reply.await.unwrap().unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(RemoteError::Unknown { .. })), "{error:?}");
        assert_eq!(Fate::of(&error), Fate::Unknown);
        gate.add_permits(1);
        running.end().await;
    });
}

#[test]
fn idle_connections_are_closed_except_those_of_peers() {
    let runtime = runtime();
    runtime.block_on(async {
        let mut limits = HostLimits::default();
        limits.idle_timeout = Duration::from_millis(100);
        let running = Running::start(echo().limits(limits).build());
        let mut stage: RemoteStage<String, String> = running.stage("echo");
        stage.send("a".into()).await.unwrap();
        let stranger = TcpStream::connect(running.address.as_str()).await.unwrap();
        stranger.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut text = Vec::new();
        let mut buf = [0; 1024];
        while let Ok(count @ 1..) = stranger.read(&mut buf).await {
            text.extend_from_slice(&buf[..count]);
        }
        assert!(text.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&text));
        assert!(stage.peer().is_connected(), "the stranger was idle as long as the peer, and the peer stays");
        running.end().await;
    });
}

#[test]
fn the_longest_wait_between_attempts_can_be_set() {
    let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    runtime.block_on(async {
        // Nothing listens at this port once the listener is dropped.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let longest = Duration::from_millis(20);
        let peer = Peer::builder(address).retry_wait_max(longest).build().unwrap();
        // Without the limit, the wait would be longer after the second failure, and seconds after the tenth.
        for _ in 0..10 {
            let error = peer.connect().await.unwrap_err();
            let RemoteError::Unreachable { retry_after, .. } = error else { panic!("{error:?}") };
            assert!(retry_after <= longest, "{retry_after:?}");
            sleep(retry_after).await;
        }
    });
}
