//! The content type of a file, by the end of its name.

use http::HeaderValue;

/// The `Content-Type` of a file with this name. Unknown endings are plain bytes, which a browser
/// offers to save.
pub(crate) fn of(name: &[u8]) -> HeaderValue {
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    let ending = match file.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => file[dot + 1..].to_ascii_lowercase(),
        None => Vec::new(),
    };
    if let Some((_, known)) = TYPES.iter().find(|(known, _)| known.as_bytes() == ending) {
        return HeaderValue::from_static(known);
    }
    let listed = std::str::from_utf8(&ending).ok().and_then(|ending| mime_guess::from_ext(ending).first_raw());
    match listed {
        Some(text) if text.starts_with("text/") => {
            HeaderValue::try_from(format!("{text}; charset=utf-8")).expect("a listed type is made of header characters")
        }
        Some(listed) => HeaderValue::from_static(listed),
        None => HeaderValue::from_static("application/octet-stream"),
    }
}

/// Whether compression makes content of this type shorter: text of any kind, and formats that are
/// not compressed already.
pub(crate) fn is_compressible(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or(content_type).trim_end();
    let ends = |ending: &str| essence.ends_with(ending);
    essence.starts_with("text/") || ends("+json") || ends("+xml") || COMPRESSIBLE.contains(&essence)
}

/// Text is sent as UTF-8, which editors write. Types not listed here come from mime_guess's list;
/// these are frequent, or have another name there than in current standards.
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
    ("br", "application/x-brotli"),
    ("tar", "application/x-tar"),
];

/// Compressible types that are not text.
const COMPRESSIBLE: &[&str] = &[
    "application/json",
    "application/xml",
    "application/javascript",
    "application/wasm",
    "application/rtf",
    "application/x-tar",
    "font/ttf",
    "font/otf",
    "image/bmp",
    "image/x-icon",
];

#[cfg(test)]
mod tests {
    use super::{TYPES, is_compressible, of};

    #[test]
    fn the_ending_decides() {
        assert_eq!(of(b"a/index.html"), "text/html; charset=utf-8");
        assert_eq!(of(b"A.B/PHOTO.JPG"), "image/jpeg");
        for plain in [&b"a.b/file"[..], b"", b"file.", b"file.unknown", b"file.\xff"] {
            assert_eq!(of(plain), "application/octet-stream");
        }
    }

    #[test]
    fn rarer_endings_have_a_type_too() {
        assert_eq!(of(b"a.rtx"), "text/richtext; charset=utf-8");
        assert_eq!(of(b"a.epub"), "application/epub+zip");
        assert_eq!(of(b"a.7z"), "application/x-7z-compressed");
    }

    #[test]
    fn compressed_formats_are_not_compressed_again() {
        for (ending, content_type) in TYPES {
            let packed = [
                "png", "jpg", "jpeg", "gif", "webp", "avif", "woff", "woff2", "mp3", "ogg", "opus", "flac", "wav",
                "mp4", "webm", "pdf", "zip", "gz", "zst", "br",
            ];
            assert_eq!(is_compressible(content_type), !packed.contains(ending), "{ending}");
        }
        assert!(!is_compressible("application/octet-stream"));
    }
}
