//! A way to etcd that holds one request back, as a member does that was stopped with the request in its socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Forwards requests to one member.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    pub(crate) endpoint: String,
}

struct Shared {
    member: String,
    /// Requests for this path count; the one with which this is 0 is held.
    hold: Mutex<Option<(&'static str, usize)>>,
    held: Mutex<Option<Vec<u8>>>,
}

impl Relay {
    pub(crate) fn to(member: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let member = member.trim_start_matches("http://").to_owned();
        let shared = Arc::new(Shared { member, hold: Mutex::default(), held: Mutex::default() });
        let of_thread = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                stream.set_nodelay(true).unwrap();
                let shared = of_thread.clone();
                std::thread::spawn(move || shared.forward(stream));
            }
        });
        Relay { shared, endpoint }
    }

    /// Holds a request for `path` back, after `others`; it is not answered.
    pub(crate) fn hold(&self, path: &'static str, others: usize) {
        *self.shared.hold.lock().unwrap() = Some((path, others));
    }

    pub(crate) fn holds(&self) -> bool {
        self.shared.held.lock().unwrap().is_some()
    }

    /// Lets the held request through; false if there is none.
    pub(crate) fn deliver(&self) -> bool {
        *self.shared.hold.lock().unwrap() = None;
        let Some(request) = self.shared.held.lock().unwrap().take() else { return false };
        let mut member = BufReader::new(TcpStream::connect(&self.shared.member).unwrap());
        member.get_mut().write_all(&request).unwrap();
        read_message(&mut member).unwrap();
        true
    }
}

impl Shared {
    fn forward(&self, client: TcpStream) -> io::Result<()> {
        let mut member = BufReader::new(TcpStream::connect(&self.member)?);
        member.get_ref().set_nodelay(true)?;
        let mut client = BufReader::new(client);
        loop {
            let request = read_message(&mut client)?;
            if self.is_to_hold(&request) {
                *self.held.lock().unwrap() = Some(request);
                // Until the client gives up.
                return client.read(&mut [0]).map(drop);
            }
            member.get_mut().write_all(&request)?;
            let reply = read_message(&mut member)?;
            client.get_mut().write_all(&reply)?;
        }
    }

    fn is_to_hold(&self, request: &[u8]) -> bool {
        let mut hold = self.hold.lock().unwrap();
        let Some((path, others)) = &mut *hold else { return false };
        if !request.starts_with(format!("POST {path} ").as_bytes()) {
            return false;
        }
        let is_it = *others == 0;
        *others = others.saturating_sub(1);
        if is_it {
            *hold = None;
        }
        is_it
    }
}

/// Head and body, of a known length or in chunks.
fn read_message(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let (mut message, mut len, mut is_chunked) = (Vec::new(), 0, false);
    loop {
        let line = read_line(from, &mut message)?.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            len = value.trim().parse().map_err(io::Error::other)?;
        }
        is_chunked |= line.starts_with("transfer-encoding:");
        if line.trim().is_empty() {
            break;
        }
    }
    if !is_chunked {
        read_exact(from, len, &mut message)?;
        return Ok(message);
    }
    loop {
        let chunk = read_line(from, &mut message)?;
        len = usize::from_str_radix(chunk.trim(), 16).map_err(io::Error::other)?;
        if len == 0 {
            // Trailers.
            while !read_line(from, &mut message)?.trim().is_empty() {}
            return Ok(message);
        }
        read_exact(from, len + 2, &mut message)?;
    }
}

fn read_line(from: &mut impl BufRead, message: &mut Vec<u8>) -> io::Result<String> {
    let begin = message.len();
    match from.read_until(b'\n', message)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(String::from_utf8_lossy(&message[begin..]).into_owned()),
    }
}

fn read_exact(from: &mut impl BufRead, len: usize, message: &mut Vec<u8>) -> io::Result<()> {
    let begin = message.len();
    message.resize(begin + len, 0);
    from.read_exact(&mut message[begin..])
}
