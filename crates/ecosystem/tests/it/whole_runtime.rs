//! Libraries made for tokio, in tasks of a runtime that has tokio's context: none of them has an
//! adapter around it.

use std::future::Future;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::routing::{get, post};
use dapple::Color;
use dapple::net::TcpListener;
use dapple::tokio_compat::BuilderExt;
use futures_util::{SinkExt, StreamExt};
use redis::AsyncCommands;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::LIMIT;

/// Runs a test in a task, on one worker and then on four.
pub(crate) fn run<F: Future<Output = ()> + Send + 'static>(test: impl Fn() -> F) {
    for workers in [1, 4] {
        let runtime = dapple::builder().workers(workers).tokio().build().unwrap();
        let test = test();
        let limited = async move { dapple::time::timeout(LIMIT, test).await.expect("it is done within the limit") };
        runtime.block_on(runtime.spawn(limited)).unwrap_or_else(|error| panic!("{error:?}"));
    }
}

/// Panics unless this is a worker of Dapple's, with tokio's context.
pub(crate) fn assert_both() {
    assert!(dapple::on_worker(), "this is a worker of Dapple's");
    assert!(tokio::runtime::Handle::try_current().is_ok(), "and tokio's context is there");
}

#[test]
fn tasks_wait_for_timers_of_both() {
    run(|| async {
        let tasks: Vec<_> = (0..50)
            .map(|number| {
                dapple::spawn(async move {
                    let since = Instant::now();
                    tokio::time::sleep(Duration::from_millis(number)).await;
                    assert_both();
                    dapple::time::sleep(Duration::from_millis(1)).await;
                    assert!(since.elapsed() > Duration::from_millis(number));
                    assert_both();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let never = std::future::pending::<()>();
        tokio::time::timeout(Duration::from_millis(1), never).await.unwrap_err();
    });
}

#[test]
fn a_task_of_tokio_runs_on_its_own_thread_and_is_awaited() {
    run(|| async {
        let there = tokio::spawn(async {
            assert!(!dapple::on_worker());
            tokio::task::yield_now().await;
            std::thread::current().name().map(str::to_owned)
        });
        assert_eq!(there.await.unwrap().as_deref(), Some("dapple-tokio"));
        assert_both();
        let blocking = tokio::task::spawn_blocking(dapple::on_worker);
        assert!(!blocking.await.unwrap());
    });
}

#[test]
fn callbacks_the_pool_and_block_on_have_the_context() {
    run(|| async {
        let (tx, rx) = mpsc::channel();
        let told = tx.clone();
        Color::new().post(move || told.send(tokio::runtime::Handle::try_current().is_ok()).unwrap());
        let told = tx.clone();
        let pooled = dapple::blocking::spawn_blocking(move || {
            told.send(tokio::runtime::Handle::try_current().is_ok()).unwrap();
            // A thread that may block.
            assert_eq!(tokio::runtime::Handle::current().block_on(async { 6 * 7 }), 42);
        });
        pooled.await.unwrap();
        let handle = dapple::Handle::current();
        let thread = std::thread::spawn(move || {
            // Other tests of this process have runtimes, too.
            let _entered = handle.enter();
            let there = dapple::wait(async { tokio::spawn(async { true }).await });
            tx.send(there.unwrap()).unwrap();
        });
        dapple::blocking::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
        let told = dapple::blocking::spawn_blocking(move || rx.iter().collect::<Vec<_>>()).await.unwrap();
        assert_eq!(told, [true; 3]);
    });
}

#[test]
fn an_echo_over_sockets_of_tokio() {
    run(|| async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let color = Color::new();
        let accepting = dapple::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                color.spawn(async move {
                    let (mut reader, mut writer) = stream.split();
                    tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                    assert_both();
                });
            }
        });
        let clients: Vec<_> = (0..20u8)
            .map(|number| {
                dapple::spawn(async move {
                    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
                    let sent = vec![number; 100_000];
                    let (mut reader, mut writer) = stream.split();
                    let mut back = vec![0; sent.len()];
                    let (wrote, read) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut back));
                    wrote.unwrap();
                    read.unwrap();
                    assert_eq!(sent, back);
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        accepting.abort();
    });
}

#[test]
fn reqwest_asks_axum() {
    run(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/shout", listener.local_addr().unwrap());
        let router = Router::new().route("/shout", post(async |text: String| text.to_uppercase()));
        let server = dapple::spawn(async move { dapple::serve(listener, router).no_admission().await });
        for version in [reqwest::Client::builder(), reqwest::Client::builder().http2_prior_knowledge()] {
            // Of this machine only: no proxy from the environment.
            let client = version.no_proxy().timeout(LIMIT).build().unwrap();
            let asking: Vec<_> = (0..20)
                .map(|number| {
                    let request = client.post(&url).body(format!("number {number}"));
                    dapple::spawn(async move { request.send().await?.text().await })
                })
                .collect();
            for (number, ask) in asking.into_iter().enumerate() {
                assert_eq!(ask.await.unwrap().unwrap(), format!("NUMBER {number}"));
            }
        }
        server.abort();
    });
}

#[test]
fn a_channel_of_tonic_asks_its_health_service() {
    run(|| async {
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_service_status("shop", ServingStatus::Serving).await;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = dapple::spawn(async move { dapple::serve(listener, health).no_admission().await });
        let endpoint = tonic::transport::Endpoint::try_from(url).unwrap().timeout(LIMIT);
        let mut client = HealthClient::new(endpoint.connect().await.unwrap());
        let request = || HealthCheckRequest { service: "shop".to_owned() };
        assert_eq!(client.check(request()).await.unwrap().into_inner().status, 1);
        let mut watch = client.watch(request()).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
        reporter.set_service_status("shop", ServingStatus::NotServing).await;
        assert_eq!(watch.message().await.unwrap().unwrap().status, 2);
        assert_both();
        server.abort();
    });
}

/// axum starts a task of tokio's for each upgraded connection.
#[test]
fn websockets_of_axum_and_tungstenite() {
    run(|| async {
        let echo = |mut socket: WebSocket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                if socket.send(message).await.is_err() {
                    break;
                }
            }
        };
        let router = Router::new().route("/", get(async move |upgrade: WebSocketUpgrade| upgrade.on_upgrade(echo)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let server = dapple::spawn(async move { dapple::serve(listener, router).no_admission().await });
        let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        for number in 0..20 {
            let sent = Message::text(format!("number {number}"));
            socket.send(sent.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), sent);
        }
        server.abort();
    });
}

/// Enough of Redis for one client: it answers `GET` with the last value of `SET`, and all else with
/// `+OK`.
async fn small_redis(listener: TcpListener) {
    let (stream, _) = listener.accept().await.unwrap();
    let (mut pending, mut stored) = (Vec::new(), Vec::new());
    loop {
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).await.unwrap();
        if read == 0 {
            return;
        }
        pending.extend_from_slice(&bytes[..read]);
        while let Some((words, len)) = command(&pending) {
            let reply = match &words[..] {
                [get, _] if get == "GET" => format!("${}\r\n{}\r\n", stored.len(), String::from_utf8_lossy(&stored)),
                [set, _, value] if set == "SET" => {
                    stored = value.clone().into_bytes();
                    "+OK\r\n".to_owned()
                }
                _ => "+OK\r\n".to_owned(),
            };
            pending.drain(..len);
            stream.write_all(reply.as_bytes()).await.unwrap();
        }
    }
}

/// The words of the first command, an array of strings, and its length; `None` until all of it is
/// there.
fn command(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.split_inclusive("\r\n").filter(|line| line.ends_with("\r\n"));
    let head = lines.next()?;
    let count: usize = head.trim_start_matches('*').trim_end().parse().ok()?;
    let (mut words, mut len) = (Vec::new(), head.len());
    for _ in 0..count {
        let (size, word) = (lines.next()?, lines.next()?);
        len += size.len() + word.len();
        words.push(word.trim_end().to_owned());
    }
    Some((words, len))
}

#[test]
fn redis_stores_and_reads() {
    run(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let server = dapple::spawn(small_redis(listener));
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let _: () = connection.set("color", "dappled").await.unwrap();
        let stored: String = connection.get("color").await.unwrap();
        assert_eq!(stored, "dappled");
        assert_both();
        drop(connection);
        server.await.unwrap();
    });
}

/// A tokio runtime that Dapple made drops its tasks when Dapple's runtime ends; the program's own
/// continues.
#[test]
fn the_runtime_of_tokio_ends_with_dapple_unless_it_is_the_programs() {
    let (tx, rx) = mpsc::channel::<()>();
    let runtime = dapple::builder().workers(2).tokio().build().unwrap();
    runtime.block_on(async {
        tokio::spawn(async move {
            let _tx = tx;
            std::future::pending::<()>().await
        });
    });
    drop(runtime);
    // Ends when the task has been dropped.
    assert!(rx.recv().is_err());

    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let runtime = dapple::builder().workers(2).tokio_handle(tokio.handle().clone()).build().unwrap();
    let mut task = None;
    runtime.block_on(async {
        task = Some(tokio::spawn(async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            "goes on"
        }));
    });
    drop(runtime);
    assert_eq!(tokio.block_on(task.expect("it was started")).unwrap(), "goes on");
}
