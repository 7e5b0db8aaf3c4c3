//! Colors and state inside a tokio program: a Dapple runtime in the same process, awaited across.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use dapple::{Color, Colored};

#[test]
fn state_and_tasks_are_awaited_from_tokio() {
    let dapple = dapple::builder().workers(2).build().unwrap();
    let _entered = dapple.enter();
    let state = Colored::new(Vec::new());
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let handle = dapple.handle().clone();
    let sum = tokio.block_on(async {
        let tasks: Vec<_> = (0..64u64)
            .map(|n| {
                let (state, handle) = (state.clone(), handle.clone());
                tokio::spawn(async move {
                    for _ in 0..100 {
                        state.with(|list| list.push(n)).await;
                        tokio::task::yield_now().await;
                    }
                    // A Dapple task, joined by a tokio task; it runs on a Dapple worker.
                    handle.spawn(async move { (n, dapple::on_worker()) }).await.unwrap()
                })
            })
            .collect();
        let mut sum = 0;
        for task in tasks {
            let (n, on_worker) = task.await.unwrap();
            assert!(on_worker);
            sum += n;
        }
        sum
    });
    assert_eq!(sum, (0..64).sum::<u64>());
    assert_eq!(state.with_blocking(|list| list.len()), 6_400);
}

#[test]
fn tokio_is_awaited_from_dapple() {
    let dapple = dapple::builder().workers(2).build().unwrap();
    let _entered = dapple.enter();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let state = Colored::new(0);
    let (tx, mut rx) = tokio::sync::mpsc::channel(4);
    let inner = state.clone();
    let reader = Color::new().spawn(async move {
        while let Some(n) = rx.recv().await {
            inner.with(|sum| *sum += n).await;
        }
    });
    tokio.spawn(async move {
        for n in 1..=100 {
            tx.send(n).await.unwrap();
        }
    });
    dapple.block_on(reader).unwrap();
    assert_eq!(state.with_blocking(|sum| *sum), 5_050);
}

/// Ends after a timer and a task of tokio, inside a Dapple task.
async fn needs_tokio() -> u32 {
    let task = dapple::spawn(async {
        assert!(dapple::on_worker());
        tokio::time::sleep(Duration::from_millis(1)).await;
        tokio::spawn(async { 6 * 7 }).await.unwrap()
    });
    task.await.unwrap()
}

#[dapple::test(tokio, workers = 1)]
async fn the_attribute_of_tests_brings_tokio() {
    assert_eq!(needs_tokio().await, 42);
    // The body's own thread has the context, too; without `clock` the clock is the real one.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let since = dapple::time::Instant::now();
    dapple::time::sleep(Duration::from_millis(2)).await;
    assert!(since.elapsed() >= Duration::from_millis(2));
}

#[test]
fn the_attribute_of_main_brings_tokio() {
    #[dapple::main(workers = 2, tokio)]
    async fn main() -> u32 {
        assert_eq!(dapple::Handle::current().workers(), 2);
        needs_tokio().await
    }
    assert_eq!(main(), 42);
}

/// Answers with the results of a tokio timer and task, and needs tokio's context on drop, as sqlx's
/// connections do.
async fn by_tokio(request: http::Request<dapple::serve::Body>) -> Result<http::Response<String>, Infallible> {
    struct EndsInTokio;
    impl Drop for EndsInTokio {
        fn drop(&mut self) {
            drop(tokio::spawn(async {}));
        }
    }
    let _ends = EndsInTokio;
    assert!(dapple::on_worker());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let path = request.uri().path().to_owned();
    Ok(http::Response::new(tokio::spawn(async move { format!("{path} by tokio") }).await.unwrap()))
}

/// The server's reply to `GET PATH`.
fn get(addr: SocketAddr, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(addr).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn one_service_has_tokio_and_the_rest_of_the_program_has_not() {
    let runtime = dapple::builder().workers(2).build().unwrap();
    let _entered = runtime.enter();
    let listener = dapple::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = dapple::serve(listener, tower::service_fn(by_tokio)).with_tokio().unwrap();
    let handle = server.handle();
    let serving = runtime.spawn(async move { server.await });
    for path in ["/one", "/two"] {
        let reply = get(addr, path);
        assert!(reply.starts_with("HTTP/1.1 200 OK") && reply.ends_with(&format!("{path} by tokio")), "{reply}");
    }
    let elsewhere = runtime.spawn(async { tokio::runtime::Handle::try_current().is_err() });
    assert!(runtime.block_on(elsewhere).unwrap());
    handle.stop();
    runtime.block_on(serving).unwrap().unwrap();
}

#[test]
fn one_service_takes_the_tokio_that_is_there() {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let runtime = dapple::builder().workers(2).build().unwrap();
    let _entered = runtime.enter();
    let listener = dapple::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let service = tower::service_fn(async |_: http::Request<dapple::serve::Body>| {
        let id = tokio::runtime::Handle::current().id();
        Ok::<_, Infallible>(http::Response::new(id.to_string()))
    });
    let in_tokio = tokio.enter();
    let server = dapple::serve(listener, service).with_tokio().unwrap();
    drop(in_tokio);
    let serving = runtime.spawn(async move { server.await });
    assert!(get(addr, "/").ends_with(&format!("\r\n\r\n{}", tokio.handle().id())));
    serving.abort();
}
