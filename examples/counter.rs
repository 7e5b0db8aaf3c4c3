//! Counts words for all clients together: one shared map, every connection its own color.
//!
//! ```text
//! cargo run --example counter [PORT]
//! ```

use std::collections::HashMap;
use std::io;

use dapple::Colored;
use dapple::net::{TcpListener, TcpStream};
use dapple::time::timeout;
use lines::{SILENCE_MAX, next_line};

#[path = "shared/lines.rs"]
mod lines;

#[dapple::main]
async fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "7002".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    let addr = listener.local_addr()?;
    println!("counter listens on {addr}; try: nc {} {}, then type words", addr.ip(), addr.port());
    let counts = Colored::new(HashMap::new());
    loop {
        let (stream, _peer) = listener.accept().await?;
        drop(dapple::spawn(visit(stream, counts.clone())));
    }
}

/// Answers each line with the number of times it was sent, by any client. `None` if the client
/// left, fell silent or stopped reading.
async fn visit(stream: TcpStream, counts: Colored<HashMap<String, u64>>) -> Option<()> {
    let mut received = Vec::new();
    loop {
        let word = next_line(&stream, &mut received).await?;
        // All access to the shared map is here. It runs while the map's color is held: one at a
        // time, without a lock.
        let count = counts.with(|counts| add(counts, &word)).await;
        let answer = count.map_or("too many words\n".to_owned(), |count| format!("{count} {word}\n"));
        timeout(SILENCE_MAX, stream.write_all(answer.as_bytes())).await.ok()?.ok()?;
    }
}

/// Counts `word` once more; `None` if the map is full and the word is new.
fn add(counts: &mut HashMap<String, u64>, word: &str) -> Option<u64> {
    if counts.len() >= WORDS_MAX && !counts.contains_key(word) {
        return None;
    }
    let count = counts.entry(word.to_owned()).or_default();
    *count += 1;
    Some(*count)
}

const WORDS_MAX: usize = 100_000;
