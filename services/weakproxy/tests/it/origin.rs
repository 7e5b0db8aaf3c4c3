//! An origin with answers as the tests want them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use image::codecs::jpeg::JpegEncoder;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage, Rgba, RgbaImage};

/// A server on a thread, which lives as long as the test's process.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) base: String,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
struct Answer {
    /// With the line of the status, and lines of fields after it.
    head: String,
    body: Vec<u8>,
    /// A length that is not that of the body.
    len: usize,
}

impl Origin {
    pub(crate) fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let origin = Origin { base, answers: Arc::default(), requests: Arc::default() };
        let server = origin.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                thread::spawn(move || while server.serve(&stream).is_some() {});
            }
        });
        origin
    }

    /// Answers requests for a path. `fields` are lines; the first one may be another status.
    pub(crate) fn set(&self, path: &str, fields: &[&str], body: impl Into<Vec<u8>>) {
        let body = body.into();
        let len = body.len();
        self.set_cut(path, fields, body, len);
    }

    /// As [`set`](Self::set), with a body that ends before the stated length.
    pub(crate) fn set_cut(&self, path: &str, fields: &[&str], body: Vec<u8>, len: usize) {
        let status = fields.first().filter(|field| field.starts_with("HTTP/"));
        let fields = &fields[usize::from(status.is_some())..];
        let mut head = format!("{}\r\n", status.unwrap_or(&"HTTP/1.1 200 OK"));
        fields.iter().for_each(|field| head += &format!("{field}\r\n"));
        self.answers.lock().unwrap().insert(path.to_owned(), Answer { head, body, len });
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The heads and bodies of the requests for a path.
    pub(crate) fn requests(&self, path: &str) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.split(' ').nth(1) == Some(path)).cloned().collect()
    }

    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let (mut text, mut len) = (String::new(), 0);
        loop {
            let begin = text.len();
            if reader.read_line(&mut text).ok()? == 0 {
                return None;
            }
            let line = text[begin..].to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                len = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body).ok()?;
        text += &String::from_utf8_lossy(&body);
        let mut line = text.split(' ');
        let (method, path) = (line.next()?.to_owned(), line.next()?.to_owned());
        let answer = self.answers.lock().unwrap().get(&path).cloned();
        let lower = text.to_ascii_lowercase();
        self.requests.lock().unwrap().push(text);
        let missing = Answer { head: "HTTP/1.1 404 Not Found\r\n".to_owned(), body: Vec::new(), len: 0 };
        let Answer { head, body, len } = answer.unwrap_or(missing);
        let tag = head.to_ascii_lowercase().lines().find_map(|line| Some(line.strip_prefix("etag: ")?.to_owned()));
        if tag.is_some_and(|tag| lower.contains(&format!("if-none-match: {tag}"))) {
            let fields = head.split_once("\r\n")?.1;
            return (&*stream).write_all(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").as_bytes()).ok();
        }
        (&*stream).write_all(format!("{head}content-length: {len}\r\n\r\n").as_bytes()).ok()?;
        if method != "HEAD" {
            (&*stream).write_all(&body).ok()?;
        }
        (len == body.len()).then_some(())
    }
}

/// A picture like a photo: areas, and noise of a camera in them.
pub(crate) fn photo(width: u32, height: u32) -> DynamicImage {
    let mut noise = 1_u32;
    let image = RgbImage::from_fn(width, height, |x, y| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let grain = (noise >> 28) as u8;
        Rgb([
            (x * 200 / width) as u8 + grain,
            (y * 200 / height) as u8 + grain,
            ((x / 40 + y / 40) % 2 * 90) as u8 + grain,
        ])
    });
    image.into()
}

/// A picture of which half is transparent.
pub(crate) fn logo(width: u32, height: u32) -> DynamicImage {
    RgbaImage::from_fn(width, height, |x, y| Rgba([x as u8, y as u8, 90, if x < width / 2 { 0 } else { 255 }])).into()
}

pub(crate) fn jpeg(image: &DynamicImage, quality: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    image.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, quality)).unwrap();
    bytes
}

pub(crate) fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}
