//! Edge cases of a client: endless limits, empty bodies, its own end and that of its runtime.

use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::Duration;

use dapple_client::{Body, Client, Request};
use http_body_util::{BodyExt, Empty, Full};

use crate::support::{After, Site, reply, run, scripted, until};

#[test]
fn a_request_in_flight_does_not_spin_a_closing_runtime() {
    let runtime = dapple::builder().workers(1).build().unwrap();
    let url = scripted(vec![(vec!["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345"], After::Hold)]);
    let client = Client::new().unwrap();
    let asking = async move { client.get(&url).await.unwrap() };
    let response = runtime.block_on(runtime.spawn(asking)).unwrap();
    let report = runtime.shutdown(Duration::from_millis(100));
    assert_eq!(report.workers_stuck, 0);
    drop(response);
}

#[test]
fn idle_connections_are_closed_in_time_after_another_runtime_has_ended() {
    let client = Client::builder().idle_timeout(Duration::from_millis(50)).build().unwrap();
    // The connection of the first response is in use until its runtime has ended.
    let half = (vec!["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345"], After::Hold);
    let url = scripted(vec![half, (vec!["HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ntext"], After::Hold)]);
    let runtime = dapple::builder().workers(1).build().unwrap();
    let asking = {
        let (client, url) = (client.clone(), url.clone());
        async move { client.get(&url).await.unwrap() }
    };
    let response = runtime.block_on(runtime.spawn(asking)).unwrap();
    drop(runtime);
    run(async move {
        client.get(&url).await.unwrap().text().await.unwrap();
        until(|| client.connections().1 == 0).await;
    });
    drop(response);
}

#[test]
fn a_dropped_client_closes_idle_connections() {
    run(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 2000]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npage").unwrap();
            let _ = sender.send(stream.read(&mut [0; 2000]).unwrap());
        });
        let client = Client::builder().idle_timeout(Duration::from_secs(100_000)).build().unwrap();
        client.get(&url).await.unwrap().text().await.unwrap();
        drop(client);
        let ended = dapple::blocking::spawn_blocking(move || ended.recv_timeout(Duration::from_secs(60)));
        assert_eq!(ended.await.unwrap(), Ok(0));
    });
}

#[test]
fn a_limit_may_be_as_long_as_there_are_durations() {
    run(async {
        let site = Site::start(false, async |_| reply(200, "text"));
        let max = Duration::MAX;
        let builder = Client::builder().connect_timeout(max).head_timeout(max).read_timeout(max);
        let client = builder.timeout(max).idle_timeout(max).build().unwrap();
        assert_eq!(client.get(&site.url("/")).await.unwrap().text().await.unwrap(), "text");
    });
}

#[test]
fn the_client_sets_host_and_length() {
    run(async {
        let site = Site::start(false, async |request: Request<dapple::serve::Body>| {
            let all = |name| request.headers().get_all(name).iter().map(|value| value.to_str().unwrap()).collect();
            let (hosts, lens): (Vec<_>, Vec<_>) = (all("host"), all("content-length"));
            reply(200, format!("{} {}", hosts.join(","), lens.join(",")))
        });
        let client = Client::new().unwrap();
        for (method, len) in [("POST", "0"), ("PUT", "0"), ("PATCH", "0"), ("GET", "")] {
            let request = Request::builder().method(method).uri(site.url("/"));
            let request = request.header("host", "a.test").header("host", "b.test").header("content-length", "7");
            let response = client.request(request.body(()).unwrap()).await.unwrap();
            assert_eq!(response.text().await.unwrap(), format!("{} {len}", site.addr), "{method}");
        }
    });
}

#[test]
fn a_connection_is_kept_after_any_kind_of_body() {
    run(async {
        let site = Site::start(false, async |request: Request<dapple::serve::Body>| {
            let _ = request.into_body().collect().await;
            reply(200, "text")
        });
        let client = Client::new().unwrap();
        for _ in 0..3 {
            for body in [Body::new(Full::new("12345".into())), Body::new(Empty::<bytes::Bytes>::new())] {
                let response = client.request(Request::post(site.url("/")).body(body).unwrap()).await.unwrap();
                response.text().await.unwrap();
            }
        }
        assert_eq!(site.connections(), 1);
    });
}
