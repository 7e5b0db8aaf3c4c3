//! Limits on the number of connections, and on their time and that of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple::sync::Semaphore;
use dapple_client::{Client, ConnectError, Error, Phase, Request};

use crate::support::{After, Site, passed_on, reply, run, scripted, until};

/// Without encryption, where only the server's answers show that one connection is not enough.
#[test]
fn requests_beyond_the_limit_of_connections_wait_for_their_turn() {
    run(async {
        for protocols in [&[][..], &["http/1.1"]] {
            let (busy, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let gate = Arc::new(Semaphore::new(0));
            let site = Site::start_with(protocols, {
                let (busy, most, gate) = (busy.clone(), most.clone(), gate.clone());
                move |_| {
                    let (busy, most, gate) = (busy.clone(), most.clone(), gate.clone());
                    async move {
                        most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        gate.acquire().await.unwrap().forget();
                        busy.fetch_sub(1, Ordering::SeqCst);
                        reply(200, "done")
                    }
                }
            });
            let client = Client::builder().tls(site.tls.clone()).connections_per_host(2).build().unwrap();
            let scheme = if protocols.is_empty() { "http" } else { "https" };
            let url = format!("{scheme}://localhost:{}/", site.addr.port());
            let asked: Vec<_> = (0..20)
                .map(|_| {
                    let (client, url) = (client.clone(), url.clone());
                    dapple::spawn(async move { client.get(&url).await.unwrap().text().await.unwrap() })
                })
                .collect();
            until(|| busy.load(Ordering::SeqCst) == 2).await;
            gate.add_permits(20);
            for asked in asked {
                assert_eq!(asked.await.unwrap(), "done");
            }
            assert_eq!((most.load(Ordering::SeqCst), site.connections()), (2, 2), "{scheme}");
        }
    });
}

/// The server agrees on HTTP/1.1 on the first connection; the others get no answer until all have
/// arrived.
#[test]
fn connections_to_an_encrypted_http1_server_open_at_the_same_time() {
    run(async {
        let gate = Arc::new(Semaphore::new(0));
        let site = Site::start_with(&["http/1.1"], {
            let gate = gate.clone();
            move |_| {
                let gate = gate.clone();
                async move {
                    gate.acquire().await.unwrap().forget();
                    reply(200, "done")
                }
            }
        });
        let client = Client::builder().tls(site.tls.clone()).build().unwrap();
        let url = format!("https://localhost:{}/", passed_on(site.addr, 4));
        let asked: Vec<_> = (0..4)
            .map(|_| {
                let (client, url) = (client.clone(), url.clone());
                dapple::spawn(async move { client.get(&url).await.unwrap().text().await.unwrap() })
            })
            .collect();
        until(|| site.connections() == 4).await;
        gate.add_permits(4);
        for asked in asked {
            assert_eq!(asked.await.unwrap(), "done");
        }
    });
}

#[test]
fn a_request_that_is_dropped_gives_its_connection_back() {
    run(async {
        let site = Site::start(false, async |request: Request<dapple::serve::Body>| {
            if request.uri().path() == "/never" {
                std::future::pending::<()>().await;
            }
            reply(200, vec![0; 10_000_000])
        });
        let client = Client::builder().connections_per_host(1).build().unwrap();
        // Without an answer; with an unread one; with a partly read one.
        let early = dapple::time::timeout(Duration::from_millis(20), client.get(&site.url("/never"))).await;
        assert!(early.is_err());
        drop(client.get(&site.url("/")).await.unwrap());
        let mut response = client.get(&site.url("/")).await.unwrap();
        response.chunk().await.unwrap().unwrap();
        drop(response);
        assert_eq!(client.get(&site.url("/")).await.unwrap().bytes().await.unwrap().len(), 10_000_000);
        until(|| client.connections() == (1, 1)).await;
    });
}

#[test]
fn idle_connections_are_closed_in_time() {
    run(async {
        let site = Site::start(false, async |_| reply(200, "text"));
        let client = Client::builder().idle_timeout(Duration::from_millis(50)).build().unwrap();
        for _ in 0..2 {
            client.get(&site.url("/")).await.unwrap().text().await.unwrap();
            until(|| client.connections() == (0, 0)).await;
        }
        assert_eq!(site.connections(), 2);
        let keeps_none = Client::builder().idle_per_host(0).build().unwrap();
        keeps_none.get(&site.url("/")).await.unwrap().text().await.unwrap();
        until(|| keeps_none.connections() == (0, 0)).await;
    });
}

#[test]
fn each_time_limit_says_its_name() {
    run(async {
        let short = Duration::from_millis(50);
        let is = |error: &Error, phase: Phase| matches!(error, Error::TimedOut { phase: which, .. } if *which == phase);
        let silent = || scripted(vec![(vec![""], After::Hold)]);
        let client = Client::builder().head_timeout(short).build().unwrap();
        let error = client.get(&silent()).await.unwrap_err();
        assert!(is(&error, Phase::Head) && error.is_timeout() && error.to_string().contains("head_timeout"), "{error}");
        let half = || scripted(vec![(vec!["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345"], After::Hold)]);
        let client = Client::builder().read_timeout(short).build().unwrap();
        let error = client.get(&half()).await.unwrap().bytes().await.unwrap_err();
        assert!(is(&error, Phase::Read), "{error}");
        let client = Client::builder().timeout(short).build().unwrap();
        let error = client.get(&silent()).await.unwrap_err();
        assert!(is(&error, Phase::Whole), "{error}");
        // On a busy machine the head may arrive later than that.
        let whole = match client.get(&half()).await {
            Ok(response) => response.bytes().await.map(drop),
            Err(error) => Err(error),
        };
        let error = whole.unwrap_err();
        assert!(is(&error, Phase::Whole), "{error}");
    });
}

#[test]
fn connection_errors_are_explained() {
    run(async {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let client = Client::new().unwrap();
        let error = client.get(&format!("http://{nobody}/")).await.unwrap_err();
        assert!(matches!(error, Error::Connect(ConnectError::Unreachable { .. })), "{error}");
        let site = Site::start(true, async |_| reply(200, "text"));
        let error = client.get(&format!("https://localhost:{}/", site.addr.port())).await.unwrap_err();
        assert!(matches!(error, Error::Connect(ConnectError::Certificate { .. })), "{error}");
        let plain = Site::start(false, async |_| reply(200, "text"));
        let error = client.get(&format!("https://localhost:{}/", plain.addr.port())).await.unwrap_err();
        assert!(matches!(error, Error::Connect(ConnectError::Tls { .. })), "{error}");
        let error = client.get("a.test/page").await.unwrap_err().to_string();
        assert!(error.contains("write http://HOST"), "{error}");
    });
}
