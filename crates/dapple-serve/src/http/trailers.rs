//! Fields after a body (RFC 9110, section 6.5).

use http::HeaderMap;

/// Writes the last chunk, followed by these fields (RFC 9112, section 7.1.2).
pub(super) fn write_last_chunk(trailers: &HeaderMap, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    write_fields(trailers, out);
}

/// Writes these fields and the empty line after them.
pub(super) fn write_fields(fields: &HeaderMap, out: &mut Vec<u8>) {
    for (name, value) in fields {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}
