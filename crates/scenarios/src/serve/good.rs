//! Clients that behave, and look at what they get.

use std::io;
use std::time::Duration;

use dapple::net::TcpStream;
use dapple::time::{Instant, sleep, timeout};
use dapple_client::{Client, Request};
use dapple_sched::environment;

use super::server::becomes;
use super::{Bug, CLIENTS, DRAIN, NUMBERS, Shared, UNLUCKY};

pub(super) async fn run(shared: Shared, client: u64, bug: Option<Bug>) {
    let name = CLIENTS[client as usize];
    let pool = Client::builder().timeout(GIVES_UP).tcp_keep_alive(GIVES_UP).build().unwrap();
    let mut line = None;
    let mut number = client * NUMBERS;
    for _ in 0..ROUNDS {
        let numbers: Vec<u64> = (number..number + 1 + environment::random() % 4).collect();
        number += numbers.len() as u64;
        let began = Instant::now();
        loop {
            let asked = match name {
                "pipelined" => timeout(GIVES_UP, ask_in_line(&shared, &mut line, &numbers)).await.unwrap_or(Ok(false)),
                _ => Ok(ask_pool(&shared, &pool, &numbers, bug).await),
            };
            match asked {
                Ok(true) => break,
                _ => line = None,
            }
            sleep(Duration::from_millis(50)).await;
        }
        shared.lock().answers += numbers.len() as u64;
        let took = began.elapsed();
        assert!(name == UNLUCKY || took < IN_TIME, "{name} waited {took:?} for answers");
        for number in numbers {
            assert!(shared.lock().counted.contains(&number), "{number} was not counted");
        }
        sleep(Duration::from_millis(environment::random() % 500)).await;
    }
    shared.lock().clients -= 1;
}

/// The body of a request: some are longer than a window.
fn body(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(1 + (number * 7_919 % 10_000) as usize / if number.is_multiple_of(8) { 1 } else { 100 })
}

/// The answer to this number, in the request of this name, is right, and the request ran once.
fn check(shared: &Shared, number: u64, name: u64, answer: &[u8]) {
    assert_eq!(shared.lock().runs.get(&name), Some(&1), "how often the request of {number} ran");
    assert_eq!(answer.len(), body(number).len(), "the answer to {number} has another length");
    assert_eq!(answer, becomes(number).to_be_bytes().repeat(answer.len() / 8), "the answer to {number} is another's");
}

/// All at once. Returns whether all were answered; some may be refused.
async fn ask_pool(shared: &Shared, pool: &Client, numbers: &[u64], bug: Option<Bug>) -> bool {
    let asked: Vec<_> = numbers
        .iter()
        .map(|&number| {
            let (shared, pool) = (shared.clone(), pool.clone());
            dapple::spawn(async move {
                let name = environment::random();
                let ask =
                    || pool.request(Request::post(format!("http://server/count?{name}")).body(body(number)).unwrap());
                let response = match ask().await {
                    Err(_) if bug == Some(Bug::SendsAgain) => ask().await,
                    response => response,
                };
                let Ok(response) = response else { return false };
                if response.status() != 200 {
                    assert_eq!(response.status(), 503, "the answer to {number}");
                    return false;
                }
                let Ok(answer) = response.bytes().await else { return false };
                check(&shared, number, name, &answer);
                true
            })
        })
        .collect();
    let mut all = true;
    for asked in asked {
        all &= asked.await.unwrap();
    }
    all
}

/// One after the other on a connection, without waiting for answers.
async fn ask_in_line(shared: &Shared, line: &mut Option<TcpStream>, numbers: &[u64]) -> io::Result<bool> {
    let stream = match line {
        Some(stream) => stream,
        None => line.insert(TcpStream::connect("server:80").await?),
    };
    let asked: Vec<_> = numbers.iter().map(|&number| (number, environment::random())).collect();
    for &(number, name) in &asked {
        let body = body(number);
        let head = format!("POST /count?{name} HTTP/1.1\r\nhost: server\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
    }
    for (number, name) in asked {
        let (head, mut answer) = (head(stream).await?, Vec::new());
        answer.resize(length(&head), 0);
        stream.read_exact(&mut answer).await?;
        if !head.starts_with("HTTP/1.1 200 ") {
            assert!(head.starts_with("HTTP/1.1 503 "), "the answer to {number} is {head:?}");
            return Ok(false);
        }
        check(shared, number, name, &answer);
    }
    Ok(true)
}

/// The head of a reply, in small letters but for the first line.
async fn head(stream: &TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        head.extend(byte);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn length(head: &str) -> usize {
    let head = head.to_ascii_lowercase();
    let value = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    value.map_or(0, |value| value.trim().parse().unwrap())
}

const ROUNDS: usize = 12;

/// The server is away during a drain.
const IN_TIME: Duration = Duration::from_secs(2).saturating_add(DRAIN);
const GIVES_UP: Duration = Duration::from_secs(2);
