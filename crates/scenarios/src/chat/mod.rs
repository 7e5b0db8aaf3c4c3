//! The chat of `examples/chat.rs`, with visitors that are slow, cut off or gone.

mod careless;
#[allow(dead_code, reason = "the example has a `main` of its own")]
#[path = "../../../../examples/chat.rs"]
mod example;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple::net::{TcpListener, TcpStream};
use dapple::time::{Instant, sleep, timeout};
use dapple_sched::environment;
use dapple_sim::{Faults, Simulation};

use crate::Scenario;

pub(crate) const CHAT: Scenario = Scenario {
    name: "chat",
    holds: "all visitors of a room hear the same, in one order and without a gap, and none waits for a slow one",
    setup: |sim| chat(sim, None),
    bugs: &[
        ("the room's members are told outside of the room's color", |sim| chat(sim, Some(Bug::OutsideOfColor))),
        ("a line that a visitor has no room for is left out", |sim| chat(sim, Some(Bug::LeavesOut))),
        ("the room waits for slow visitors", |sim| chat(sim, Some(Bug::Waits))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    OutsideOfColor,
    LeavesOut,
    Waits,
}

/// The lines that each visit has heard.
type Heard = Arc<Mutex<Vec<Vec<String>>>>;

fn chat(sim: &mut Simulation, bug: Option<Bug>) {
    sim.settings(|settings| {
        settings.time_max = Duration::from_secs(120);
        // Visitors that do not read are full soon.
        settings.network.window = 1_500;
    });
    sim.host("server", move || async move {
        let listener = TcpListener::bind("0.0.0.0:7003").unwrap();
        match bug {
            None => example::serve(listener).await.unwrap(),
            Some(bug) => careless::serve(listener, bug).await,
        }
    });
    let heard = Heard::default();
    let visitors = [("steady0", true), ("steady1", true), ("unlucky0", false), ("unlucky1", false)];
    for (name, is_steady) in visitors {
        let heard = heard.clone();
        sim.client(name, move || visitor(name, is_steady, heard.clone()));
    }
    let of_slow = heard.clone();
    sim.host("slow", move || slow_visitor(of_slow.clone()));
    let checked = heard.clone();
    let mut looked_at = 0;
    sim.invariant(move || {
        let heard = checked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = looked_at..heard.len();
        looked_at = heard.len();
        new.try_for_each(|visit| agree(&heard[..=visit]))
    });
    let mut faults = Faults::new(Duration::from_secs(3));
    for name in ["unlucky0", "unlucky1", "slow"] {
        faults = faults.cut(name, "server").freeze(name).reset(name);
    }
    sim.faults(&faults);
}

/// Visits some times, and says something each time.
async fn visitor(name: &str, is_steady: bool, heard: Heard) {
    for visit in 0..3 {
        let mut lines = Vec::new();
        let ended = timeout(Duration::from_secs(20), talk(&format!("{name}.{visit}"), is_steady, &mut lines)).await;
        assert!(!is_steady || matches!(ended, Ok(Ok(()))), "{name} was disconnected: {ended:?}");
        heard.lock().unwrap_or_else(PoisonError::into_inner).push(lines);
        sleep(Duration::from_millis(environment::random() % 300)).await;
    }
}

/// One visit: what it hears is in `lines`, also if it is cut short.
async fn talk(name: &str, is_steady: bool, lines: &mut Vec<String>) -> io::Result<()> {
    let stream = TcpStream::connect("server:7003").await?;
    stream.write_all(format!("{name}\nroom\n").as_bytes()).await?;
    let mut received = Vec::new();
    hear(&stream, &mut received, lines, "please").await?;
    lines.clear();
    hear(&stream, &mut received, lines, &format!("{name}: (enters)")).await?;
    for number in 0..8 {
        let said_at = Instant::now();
        stream.write_all(format!("{number} {}\n", "x".repeat(50)).as_bytes()).await?;
        hear(&stream, &mut received, lines, &format!("{name}: {number} ")).await?;
        let took = said_at.elapsed();
        assert!(!is_steady || took < IN_TIME, "{name} heard itself after {took:?}");
        sleep(Duration::from_millis(environment::random() % 100)).await;
    }
    Ok(())
}

/// Reads lines until one that has this text.
async fn hear(stream: &TcpStream, received: &mut Vec<u8>, lines: &mut Vec<String>, text: &str) -> io::Result<()> {
    loop {
        while let Some(end) = received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = received.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            let is_it = line.contains(text);
            lines.push(line);
            if is_it {
                return Ok(());
            }
        }
        let mut bytes = [0; 512];
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.extend(&bytes[..count]);
    }
}

/// Reads nothing for a while, and then all that there is.
async fn slow_visitor(heard: Heard) {
    loop {
        let mut lines = Vec::new();
        let visit = async {
            let stream = TcpStream::connect("server:7003").await?;
            stream.write_all(b"slow\nroom\n").await?;
            let mut received = Vec::new();
            hear(&stream, &mut received, &mut lines, "please").await?;
            lines.clear();
            sleep(Duration::from_millis(environment::random() % 3_000)).await;
            hear(&stream, &mut received, &mut lines, "nothing that is said").await
        };
        let _ended = timeout(Duration::from_secs(5), visit).await;
        heard.lock().unwrap_or_else(PoisonError::into_inner).push(lines);
        sleep(Duration::from_millis(100)).await;
    }
}

/// Any two have heard common lines in the same order, and with the same lines between.
fn agree(heard: &[Vec<String>]) -> Result<(), String> {
    let Some((last, others)) = heard.split_last() else { return Ok(()) };
    for other in others {
        let common = |of: &[String], with: &[String]| {
            let is_common = |line: &String| !line.starts_with("slow:") && with.contains(line);
            let (first, last) = (of.iter().position(is_common)?, of.iter().rposition(is_common)?);
            Some(of[first..=last].to_vec())
        };
        let (one, two) = (common(last, other), common(other, last));
        if one != two {
            return Err(format!("two visitors have heard different things: {one:?} and {two:?}"));
        }
    }
    Ok(())
}

const IN_TIME: Duration = Duration::from_secs(1);
