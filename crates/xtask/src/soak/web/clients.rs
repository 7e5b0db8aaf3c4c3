//! What clients do: some ask and check each answer, others do what nobody should.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

/// The files that are asked for.
pub(super) struct Site {
    pub(super) folder: PathBuf,
    files: Vec<(String, Vec<u8>)>,
}

impl Site {
    /// Small ones, and some that are too long for the cache.
    pub(super) fn make() -> Result<Site, String> {
        let folder = std::env::temp_dir().join(format!("dapple-soak-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let lengths = [0, 1, 100, 4_000, 60_000, 300_000, 700_000, 3_000_000];
        let mut site = Site { folder, files: Vec::new() };
        for (number, len) in lengths.into_iter().enumerate() {
            let mut dice = Dice::new(number as u64 + 1);
            let content: Vec<u8> = (0..len).map(|_| dice.roll(256) as u8).collect();
            let name = format!("{number}.bin");
            std::fs::write(site.folder.join(&name), &content).map_err(|error| format!("{name}: {error}"))?;
            site.files.push((name, content));
        }
        Ok(site)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Numbers that a seed decides (xorshift).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        let mut dice = Dice(seed | 1);
        (0..8).for_each(|_| _ = dice.roll(2));
        dice
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// Some requests on one connection, each of which has to be answered right.
pub(super) fn be_good(port: u16, site: &Site, dice: &mut Dice) -> Result<(), String> {
    let connect = || -> io::Result<BufReader<TcpStream>> { Ok(BufReader::new(connect(port)?)) };
    let mut stream = connect().map_err(|error| format!("a good client cannot connect: {error}"))?;
    for number in 0..=dice.roll(8) {
        let (name, content) = &site.files[dice.roll(site.files.len() as u64) as usize];
        match ask(&mut stream, name, content, dice) {
            Ok(Goes::On) => {}
            Ok(Goes::Ends) => break,
            // A connection may end between two requests at any time, and the second is asked again elsewhere.
            Ok(Goes::Unanswered) if number > 0 => return be_good(port, site, dice),
            Ok(Goes::Unanswered) => {
                return Err(format!("a good request for {name}, the first of its connection, has no answer"));
            }
            Err(error) => return Err(format!("a good request for {name}: {error}")),
        }
    }
    Ok(())
}

/// How it goes on with a connection.
enum Goes {
    On,
    /// The reply said that it is the last one.
    Ends,
    /// It was closed before a byte of the reply.
    Unanswered,
}

fn ask(stream: &mut BufReader<TcpStream>, name: &str, content: &[u8], dice: &mut Dice) -> io::Result<Goes> {
    let first = dice.roll(content.len().max(1) as u64) as usize;
    let (method, lines, status, expected) = match dice.roll(5) {
        0 if !content.is_empty() => ("GET", format!("Range: bytes={first}-\r\n"), 206, &content[first..]),
        1 => ("HEAD", String::new(), 200, &[][..]),
        2 => ("GET", "If-None-Match: *\r\n".to_owned(), 304, &[][..]),
        _ => ("GET", String::new(), 200, content),
    };
    let request = format!("{method} /{name} HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let cut = dice.roll(request.len() as u64) as usize;
    let sent = stream.get_mut().write_all(&request.as_bytes()[..cut]);
    let sent = sent.and_then(|()| stream.get_mut().write_all(&request.as_bytes()[cut..]));
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut line = String::new();
    match sent.and_then(|()| stream.read_line(&mut line)) {
        Ok(0) => return Ok(Goes::Unanswered),
        Ok(_) => {}
        Err(error) if line.is_empty() && is_closed(&error) => return Ok(Goes::Unanswered),
        Err(error) => return Err(error),
    }
    if !line.starts_with(&format!("HTTP/1.1 {status} ")) {
        return Err(wrong(format!("{status} expected, got {line:?}")));
    }
    let mut goes = Goes::On;
    while !line.trim_end().is_empty() {
        if line.trim_end().eq_ignore_ascii_case("connection: close") {
            goes = Goes::Ends;
        }
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(wrong("the head is cut short".to_owned()));
        }
    }
    let mut body = vec![0; expected.len()];
    stream.read_exact(&mut body)?;
    if body == expected { Ok(goes) } else { Err(wrong("the bytes are wrong".to_owned())) }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Something that nobody should do. What comes of it, the client does not care.
pub(super) fn be_hostile(port: u16, site: &Site, dice: &mut Dice) {
    let Ok(mut stream) = connect(port) else {
        return std::thread::sleep(Duration::from_millis(50));
    };
    let _ = misbehave(&mut stream, site, dice);
}

fn misbehave(stream: &mut TcpStream, site: &Site, dice: &mut Dice) -> io::Result<()> {
    let pause = Duration::from_millis(dice.roll(1_500));
    let big = site.files.last().map_or("", |(name, _)| name);
    match dice.roll(9) {
        // Comes and goes.
        0 => {}
        1 => {
            let garbage: Vec<u8> = (0..dice.roll(3_000)).map(|_| dice.roll(256) as u8).collect();
            stream.write_all(&garbage)?;
        }
        // Never finishes a head.
        2 => {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")?;
            std::thread::sleep(pause);
        }
        // Asks for much and reads none of it, or some.
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
            stream.shutdown(Shutdown::Write)?;
            stream.read_to_end(&mut Vec::new())?;
        }
        // Framing in disguise.
        6 => {
            stream.write_all(
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / ",
            )?;
            std::thread::sleep(pause);
        }
        // Heads without end.
        7 => {
            for _ in 0..100 {
                stream.write_all(&[b'x'; 1_000])?;
            }
        }
        // Many small requests, whose replies nobody reads.
        _ => stream.write_all("GET /2.bin HTTP/1.1\r\nHost: a\r\n\r\n".repeat(500).as_bytes())?,
    }
    Ok(())
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A connection on which nothing comes for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(30);
