//! Peers that do what no client should. Those with a good network say when the server has more patience with them than it should.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use dapple::net::TcpStream;
use dapple::time::{Instant, sleep, timeout};
use dapple_sched::environment;

use super::server::LARGE;
use super::{CUT_NUMBERS, PATIENCE, Shared};

pub(super) async fn run(shared: Shared, has_faults: bool) {
    loop {
        let misdeed = ALL[environment::random() as usize % ALL.len()];
        let of_task = shared.clone();
        let doing = dapple::spawn(async move {
            let ended = do_it(misdeed).await;
            if !has_faults && let Ok(Some(fault)) = ended {
                of_task.fault(fault);
            }
        });
        // Often several at a time.
        if environment::random().is_multiple_of(2) {
            let _ = doing.await;
        }
        sleep(Duration::from_millis(environment::random() % 300)).await;
    }
}

#[derive(Clone, Copy, Debug)]
enum Misdeed {
    HalfHead,
    SlowHead,
    SlowBody,
    CutBody,
    NeverReads,
    ReadsSlowly,
    LeavesInTheMiddle,
    HugeHead,
    TwoLengths,
    NoHttp,
    ManyConnections,
}

const ALL: [Misdeed; 11] = [
    Misdeed::HalfHead,
    Misdeed::SlowHead,
    Misdeed::SlowBody,
    Misdeed::CutBody,
    Misdeed::NeverReads,
    Misdeed::ReadsSlowly,
    Misdeed::LeavesInTheMiddle,
    Misdeed::HugeHead,
    Misdeed::TwoLengths,
    Misdeed::NoHttp,
    Misdeed::ManyConnections,
];

/// Errors are what the server should answer with; a text says what it should not have done.
async fn do_it(misdeed: Misdeed) -> io::Result<Option<String>> {
    let stream = TcpStream::connect("server:80").await?;
    let number = HOSTILE_NUMBERS + environment::random() % 1_000_000;
    match misdeed {
        Misdeed::HalfHead => {
            stream.write_all(b"POST /count HTTP/1.1\r\nhost: ser").await?;
            ends_within(&stream, PATIENCE, misdeed).await
        }
        Misdeed::SlowHead => {
            let began = Instant::now();
            stream.write_all(b"GET /large HTTP/1.1\r\nx: ").await?;
            while began.elapsed() < PATIENCE * 3 {
                stream.write_all(b"x").await?;
                sleep(Duration::from_millis(200)).await;
            }
            Ok(Some("a head may take three times its limit".to_owned()))
        }
        Misdeed::SlowBody => {
            let began = Instant::now();
            stream.write_all(&post(number, 1_000)).await?;
            while began.elapsed() < PATIENCE * 3 {
                stream.write_all(b"x").await?;
                sleep(Duration::from_millis(200)).await;
            }
            Ok(Some("a body may take three times its limit".to_owned()))
        }
        Misdeed::CutBody => {
            stream.write_all(&post(number, 16)).await?;
            stream.write_all(&(CUT_NUMBERS + number).to_be_bytes()).await?;
            stream.shutdown(Shutdown::Write)?;
            read_all(&stream, &mut Vec::new()).await?;
            Ok(None)
        }
        Misdeed::NeverReads | Misdeed::ReadsSlowly => take_large(&stream, misdeed).await,
        Misdeed::LeavesInTheMiddle => {
            for part in [post(number, 8), number.to_be_bytes().to_vec()].into_iter().cycle().take(9) {
                stream.write_all(&part).await?;
            }
            sleep(Duration::from_micros(environment::random() % 30_000)).await;
            Ok(None)
        }
        Misdeed::HugeHead => {
            let head = format!("GET / HTTP/1.1\r\nhost: server\r\nx: {}\r\n\r\n", "x".repeat(100_000));
            let _ = stream.write_all(head.as_bytes()).await;
            is_refused(&stream, misdeed).await
        }
        Misdeed::TwoLengths => {
            let text = b"POST /count HTTP/1.1\r\nhost: server\r\ncontent-length: 8\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
            stream.write_all(text).await?;
            is_refused(&stream, misdeed).await
        }
        Misdeed::NoHttp => {
            stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, b'\r', b'\n', b'\r', b'\n']).await?;
            is_refused(&stream, misdeed).await
        }
        Misdeed::ManyConnections => {
            let mut all = vec![stream];
            while all.len() < 30 {
                all.push(TcpStream::connect("server:80").await?);
            }
            sleep(Duration::from_millis(environment::random() % 2_000)).await;
            Ok(None)
        }
    }
}

/// Asks for a long reply, and reads it slowly or not at all.
async fn take_large(stream: &TcpStream, misdeed: Misdeed) -> io::Result<Option<String>> {
    stream.write_all(b"GET /large HTTP/1.1\r\nhost: server\r\n\r\n").await?;
    if matches!(misdeed, Misdeed::ReadsSlowly) {
        while stream.read(&mut [0; 1_000]).await? > 0 {
            sleep(Duration::from_millis(20)).await;
        }
        return Ok(None);
    }
    sleep(PATIENCE * 3).await;
    let mut reply = Vec::new();
    let ended = timeout(PATIENCE * 3, read_all(stream, &mut reply)).await;
    let is_whole = ended.is_err() || reply.len() > LARGE;
    Ok(is_whole.then(|| "a reply that was not read stayed for three times its limit".to_owned()))
}

fn post(number: u64, len: usize) -> Vec<u8> {
    format!("POST /count?{number} HTTP/1.1\r\nhost: server\r\ncontent-length: {len}\r\n\r\n").into_bytes()
}

async fn read_all(stream: &TcpStream, into: &mut Vec<u8>) -> io::Result<()> {
    let mut bytes = [0; 4_096];
    loop {
        match stream.read(&mut bytes).await? {
            0 => return Ok(()),
            len => into.extend(&bytes[..len]),
        }
    }
}

async fn ends_within(stream: &TcpStream, limit: Duration, misdeed: Misdeed) -> io::Result<Option<String>> {
    let ended = timeout(limit * 3, read_all(stream, &mut Vec::new())).await;
    Ok(ended.is_err().then(|| format!("{misdeed:?}: the connection stays for three times its limit")))
}

/// The server answers with an error, or not at all.
async fn is_refused(stream: &TcpStream, misdeed: Misdeed) -> io::Result<Option<String>> {
    let mut reply = Vec::new();
    let ended = timeout(PATIENCE * 3, read_all(stream, &mut reply)).await;
    let is_good = ended.is_ok() && !reply.starts_with(b"HTTP/1.1 2") && !reply.starts_with(b"HTTP/1.1 3");
    Ok((!is_good).then(|| format!("{misdeed:?} is answered with {:?}", String::from_utf8_lossy(&reply))))
}

/// Numbers that no good client has.
const HOSTILE_NUMBERS: u64 = 1 << 40;
