//! What to call a file's content, by the end of its name.

use http::HeaderValue;

/// The `Content-Type` of a file with this name. Unknown endings are plain bytes, which a browser offers to save.
pub(crate) fn of(name: &[u8]) -> HeaderValue {
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    let ending = match file.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => file[dot + 1..].to_ascii_lowercase(),
        None => Vec::new(),
    };
    let known = TYPES.iter().find(|(known, _)| known.as_bytes() == ending);
    HeaderValue::from_static(known.map_or("application/octet-stream", |(_, content_type)| content_type))
}

/// Text is sent as UTF-8, which is what editors write.
const TYPES: &[(&str, &str)] = &[
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("webmanifest", "application/manifest+json"),
    ("txt", "text/plain; charset=utf-8"),
    ("log", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("xml", "application/xml"),
    ("atom", "application/atom+xml"),
    ("rss", "application/rss+xml"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("ico", "image/x-icon"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("ttf", "font/ttf"),
    ("otf", "font/otf"),
    ("mp3", "audio/mpeg"),
    ("ogg", "audio/ogg"),
    ("opus", "audio/ogg"),
    ("flac", "audio/flac"),
    ("wav", "audio/wav"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
    ("pdf", "application/pdf"),
    ("wasm", "application/wasm"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("zst", "application/zstd"),
    ("tar", "application/x-tar"),
];

#[cfg(test)]
mod tests {
    #[test]
    fn the_ending_decides() {
        assert_eq!(super::of(b"a/index.html"), "text/html; charset=utf-8");
        assert_eq!(super::of(b"A.B/PHOTO.JPG"), "image/jpeg");
        for plain in [&b"a.b/file"[..], b"", b"file.", b"file.unknown"] {
            assert_eq!(super::of(plain), "application/octet-stream");
        }
    }
}
