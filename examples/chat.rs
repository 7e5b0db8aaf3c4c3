//! Chat over TCP. Each room is state with its own color: its messages have one order, and no room
//! waits
//! for another.      `cargo run --example chat [PORT]`

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;

use dapple::Colored;
use dapple::net::{TcpListener, TcpStream};
use lines::next_line;

#[path = "shared/lines.rs"]
mod lines;

type Room = Colored<Vec<Arc<TcpStream>>>;

#[dapple::main]
async fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "7003".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    let addr = listener.local_addr()?;
    println!("chat listens on {addr}; try, in two terminals: nc {} {}", addr.ip(), addr.port());
    serve(listener).await
}

/// Also run in the simulator, by `crates/scenarios`.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    let rooms = Colored::new(HashMap::new());
    loop {
        let (stream, _peer) = listener.accept().await?;
        drop(dapple::spawn(visit(Arc::new(stream), rooms.clone())));
    }
}

/// One visitor. `None` if the client left before entering a room, or there is no room.
async fn visit(stream: Arc<TcpStream>, rooms: Colored<HashMap<String, Room>>) -> Option<()> {
    let mut received = Vec::new();
    stream.try_write(b"your name, please; then, on a line of its own, a room\n").ok()?;
    let name = next_line(&stream, &mut received).await?;
    let place = next_line(&stream, &mut received).await?;
    // Take the room out of the map, then enter it: one state after the other, never one inside the
    // other.
    let room = rooms.with(|rooms| find_or_open(rooms, place)).await?;
    room.with(|members| members.push(stream.clone())).await;
    let mut line = Some("(enters)".to_owned());
    while let Some(text) = line {
        room.with(|members| say(members, &format!("{name}: {text}\n"))).await;
        line = next_line(&stream, &mut received).await;
    }
    room.with(|members| members.retain(|member| !Arc::ptr_eq(member, &stream))).await;
    room.with(|members| say(members, &format!("{name}: (leaves)\n"))).await;
    Some(())
}

fn find_or_open(rooms: &mut HashMap<String, Room>, name: String) -> Option<Room> {
    let may_open = rooms.len() < 1_000 || rooms.contains_key(&name);
    may_open.then(|| rooms.entry(name).or_insert_with(|| Room::new(Vec::new())).clone())
}

/// Runs in the room's color, so it does not wait: a visitor that reads too slowly is disconnected.
fn say(members: &mut Vec<Arc<TcpStream>>, line: &str) {
    let is_told = |member: &TcpStream| member.try_write(line.as_bytes()).is_ok_and(|count| count == line.len());
    members.retain(|member| is_told(member) || member.shutdown(Shutdown::Both).is_err());
}
