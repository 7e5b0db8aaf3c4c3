//! A chat like the example's, written again in short, with one mistake each: the example has no place for one.

use std::sync::Arc;

use dapple::Colored;
use dapple::net::{TcpListener, TcpStream};
use dapple::sync::Mutex;

use super::Bug;

type Members = Vec<Arc<TcpStream>>;

pub(super) async fn serve(listener: TcpListener, bug: Bug) {
    let (room, lock) = (Colored::new(Members::new()), Arc::new(Mutex::new(())));
    while let Ok((stream, _)) = listener.accept().await {
        drop(dapple::spawn(visit(Arc::new(stream), room.clone(), lock.clone(), bug)));
    }
}

async fn visit(stream: Arc<TcpStream>, room: Colored<Members>, lock: Arc<Mutex<()>>, bug: Bug) {
    let mut received = Vec::new();
    let _ = stream.try_write(b"your name, please; then, on a line of its own, a room\n");
    let Some(name) = next_line(&stream, &mut received).await else { return };
    if next_line(&stream, &mut received).await.is_none() {
        return;
    }
    let of_room = stream.clone();
    room.with(move |members| members.push(of_room)).await;
    let mut line = Some("(enters)".to_owned());
    while let Some(text) = line {
        say(&room, &lock, format!("{name}: {text}\n"), bug).await;
        line = next_line(&stream, &mut received).await;
    }
    room.with(move |members| members.retain(|member| !Arc::ptr_eq(member, &stream))).await;
    say(&room, &lock, format!("{name}: (leaves)\n"), bug).await;
}

async fn say(room: &Colored<Members>, lock: &Mutex<()>, line: String, bug: Bug) {
    match bug {
        Bug::LeavesOut => {
            room.with(move |members| members.iter().for_each(|member| _ = member.try_write(line.as_bytes()))).await;
        }
        Bug::OutsideOfColor => {
            for member in room.with(|members| members.clone()).await {
                let _ = member.try_write(line.as_bytes());
                dapple::yield_now().await;
            }
        }
        Bug::Waits => {
            let _one_at_a_time = lock.lock().await;
            for member in room.with(|members| members.clone()).await {
                let _ = member.write_all(line.as_bytes()).await;
            }
        }
    }
}

async fn next_line(stream: &TcpStream, received: &mut Vec<u8>) -> Option<String> {
    while !received.contains(&b'\n') {
        let mut bytes = [0; 512];
        let count = stream.read(&mut bytes).await.ok().filter(|count| *count > 0)?;
        received.extend(&bytes[..count]);
    }
    let end = received.iter().position(|byte| *byte == b'\n')?;
    let line: Vec<u8> = received.drain(..=end).collect();
    Some(String::from_utf8_lossy(&line[..end]).into_owned())
}
