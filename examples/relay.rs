//! Copies bytes from one device to another: TCP, a Unix socket, a pipe or a file, as the names say.
//! Or accepts connections, and echoes each line in capitals.
//!
//! ```text
//! cargo run --example relay FROM TO
//! cargo run --example relay echo AT
//! ```
//!
//! A name is `tcp:HOST:PORT`, `unix:PATH`, `pipe:PATH`, `file:PATH` or `append:PATH`. No code in
//! this program depends on the kind.

use std::io;

use dapple::flow::{Any, CloseAtEnd, Connection, Lines, Listener, Queue, Sink, Source, WhenFull};

#[dapple::main]
async fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["echo", at] => echo(at).await,
        [from, to] => relay(from, to).await,
        _ => {
            eprintln!(
                "usage: relay FROM TO, or relay echo AT; a name is, for example, tcp:127.0.0.1:7002 or file:notes.txt"
            );
            std::process::exit(2);
        }
    }
}

/// A source directly into a sink: while the sink is full, the source is not read.
async fn relay(from: &str, to: &str) -> io::Result<()> {
    let sink = Sink::<Any>::open(to).await?;
    let source = Source::<Any>::open(from).await?;
    let pieces = source.chain(sink.clone()).finished().await?;
    // Waits until the last byte is written.
    sink.close().await?;
    println!("relayed {pieces} pieces from {from} to {to}");
    Ok(())
}

async fn echo(at: &str) -> io::Result<()> {
    let mut listener = Listener::<Any>::bind(at).await?;
    println!("relay listens on {}; try: nc", listener.local_name()?);
    while let Some(connection) = listener.next().await {
        // Dropping the handle detaches the task: a vanished visitor ends only its own.
        drop(dapple::spawn(serve(connection?)));
    }
    Ok(())
}

/// Lines from a source to a queue, then through a closure to a sink. A client that writes faster
/// than it reads waits.
async fn serve(connection: Connection<Any>) -> io::Result<()> {
    let source = connection.source.decode(Lines::new(LINE_LEN_MAX));
    let sink = connection.sink.encode(Lines::new(2 * LINE_LEN_MAX));
    let lines = Queue::with(LINES_MAX, WhenFull::Wait);
    let into_queue = source.chain(CloseAtEnd(lines.clone()));
    lines.chain_map(|line: String| Some(line.to_uppercase()), sink.clone()).finished().await?;
    if let Err(error) = into_queue.finished().await {
        sink.write(format!("goodbye: {error}")).await?;
    }
    sink.close().await
}

/// The longest line. Longer ones end the connection.
const LINE_LEN_MAX: usize = 4096;

/// The limit of one visitor's waiting lines.
const LINES_MAX: usize = 64;
