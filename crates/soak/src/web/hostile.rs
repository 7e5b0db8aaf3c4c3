//! Hostile clients. They ignore the results.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use soak::{Attack, Dice, Frames, Trust, Unfinished, Wire};

use super::target::NAME;
use super::{Site, Target};

/// One hostile act.
pub(crate) fn be_hostile(target: &Target, site: &Site, dice: &mut Dice) {
    // The server may have no place, or be changing to the next process.
    let done = match dice.roll(3) {
        0 => attack(target, site, dice),
        1 => handshake(target, dice),
        _ => target.http1().and_then(|mut wire| misbehave(&mut wire, site, dice)),
    };
    if done.is_err() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn attack(target: &Target, site: &Site, dice: &mut Dice) -> io::Result<()> {
    let attack = Attack::ALL[dice.roll(Attack::ALL.len() as u64) as usize];
    let mut frames = Frames::begin(target.http2()?, attack.window())?;
    let steps = [1, 3, 30][dice.roll(3) as usize];
    attack.play(&mut frames, &format!("/{}", site.big()), steps)?;
    std::thread::sleep(pause(dice));
    Ok(())
}

/// Stops in the middle of a handshake, or does the equivalent without TLS.
fn handshake(target: &Target, dice: &mut Dice) -> io::Result<()> {
    let (mut wire, trust) = target.bare()?;
    match trust {
        Some(trust) => stop(&mut wire, trust, dice)?,
        None => wire.write_all(&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0"[..1 + dice.roll(28) as usize])?,
    }
    std::thread::sleep(pause(dice));
    Ok(())
}

fn stop(wire: &mut Wire, trust: &Trust, dice: &mut Dice) -> io::Result<()> {
    let unfinished = match dice.roll(3) {
        0 => Unfinished::Hello(dice.roll(300) as usize),
        1 => Unfinished::Answered,
        _ => Unfinished::Nonsense,
    };
    unfinished.play(wire, NAME, trust)
}

fn misbehave(stream: &mut Wire, site: &Site, dice: &mut Dice) -> io::Result<()> {
    let pause = pause(dice);
    let big = site.big();
    match dice.roll(10) {
        // Connects and leaves.
        0 => {}
        1 => {
            let len = dice.roll(3_000) as usize;
            stream.write_all(&dice.bytes(len))?;
        }
        // Never finishes a head.
        2 => {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")?;
            std::thread::sleep(pause);
        }
        // Requests much and reads none of it, or some.
        3 => {
            stream.write_all(format!("GET /{big} HTTP/1.1\r\nHost: a\r\n\r\n").repeat(20).as_bytes())?;
            std::thread::sleep(pause);
        }
        4 => {
            stream.write_all(format!("GET /{big} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())?;
            stream.read_exact(&mut vec![0; 1 + dice.roll(100_000) as usize])?;
        }
        // Ends in the middle of a body.
        5 => {
            stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\nshort")?;
            stream.socket().shutdown(Shutdown::Write)?;
            stream.read_to_end(&mut Vec::new())?;
        }
        // Disguised framing.
        6 => {
            stream.write_all(
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / ",
            )?;
            std::thread::sleep(pause);
        }
        // Endless heads.
        7 => {
            for _ in 0..100 {
                stream.write_all(&[b'x'; 1_000])?;
            }
        }
        // Repeated new keys.
        8 => {
            for _ in 0..100 {
                stream.change_keys()?;
            }
        }
        // Many small requests, with unread replies.
        _ => stream.write_all("GET /2.bin HTTP/1.1\r\nHost: a\r\n\r\n".repeat(500).as_bytes())?,
    }
    Ok(())
}

fn pause(dice: &mut Dice) -> Duration {
    Duration::from_millis(dice.roll(1_500))
}
