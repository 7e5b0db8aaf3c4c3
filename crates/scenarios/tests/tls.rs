//! A server that speaks TLS has the same trace in each run of a seed, although its keys are other ones each time.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dapple::net::{TcpListener, TcpStream};
use dapple::serve::Body;
use dapple::time::{sleep, timeout};
use dapple::tls::{Certificates, TlsAcceptor, TlsConnector};
use dapple_sim::{Faults, Simulation, run_seed};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};

/// The certificates that the server has now; the client trusts each of them.
type Current = Arc<Mutex<Option<Certificates>>>;

async fn serve(certificates: Certificates) {
    let listener = TcpListener::bind("0.0.0.0:443").unwrap();
    let acceptor = TlsAcceptor::with_alpn(certificates, ["http/1.1"]).unwrap();
    let echo = |request: Request<Body>| async move {
        let body = request.into_body().collect().await?.to_bytes();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Response::new(Full::<Bytes>::new(body)))
    };
    dapple::serve(listener, tower::service_fn(echo)).tls(acceptor).await.unwrap();
}

async fn ask(current: &Current, body: &[u8]) -> io::Result<Vec<u8>> {
    let roots = current.lock().unwrap().as_ref().map(|certificates| certificates.first().clone());
    let connector = TlsConnector::with_roots(roots).map_err(io::Error::other)?;
    let stream = TcpStream::connect("server:443").await?;
    let stream = connector.connect("server", stream, LIMIT).await.map_err(io::Error::other)?;
    let head =
        format!("POST / HTTP/1.1\r\nhost: server\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    let (mut reply, mut piece) = (Vec::new(), [0; 4096]);
    while !reply.ends_with(body) || !reply.starts_with(b"HTTP/1.1 200 OK\r\n") {
        match stream.read(&mut piece).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            len => reply.extend(&piece[..len]),
        }
    }
    Ok(reply.split_off(reply.len() - body.len()))
}

/// The setup makes the certificates, or each server when it starts.
fn echoes(sim: &mut Simulation, by_host: bool) {
    let current = Current::default();
    let make = || Certificates::self_signed(["server"]).unwrap();
    if !by_host {
        *current.lock().unwrap() = Some(make());
    }
    let of_server = current.clone();
    sim.host("server", move || {
        let current = of_server.clone();
        async move {
            let certificates = match by_host {
                true => make(),
                false => current.lock().unwrap().clone().expect("the setup has made them"),
            };
            *current.lock().unwrap() = Some(certificates.clone());
            serve(certificates).await;
        }
    });
    sim.client("client", move || {
        let current = current.clone();
        async move {
            for round in 1..=6 {
                let body = vec![round as u8; round * 3_000];
                while !matches!(timeout(LIMIT, ask(&current, &body)).await, Ok(Ok(reply)) if reply == body) {
                    sleep(Duration::from_millis(100)).await;
                }
                sleep(Duration::from_millis(500)).await;
            }
        }
    });
    sim.faults(&Faults::new(Duration::from_secs(4)).crash("server").cut("client", "server"));
}

const LIMIT: Duration = Duration::from_secs(1);

fn same_traces(by_host: bool) {
    for seed in 1..=20 {
        let run = || run_seed(seed, &|sim: &mut Simulation| echoes(sim, by_host));
        let first = run();
        assert_eq!(first.failure, None, "{first}");
        assert_eq!(run().hash, first.hash, "{first}");
    }
}

#[test]
fn certificates_of_the_setup_do_not_change_the_trace() {
    same_traces(false);
}

#[test]
fn certificates_of_a_host_do_not_change_the_trace() {
    same_traces(true);
}
