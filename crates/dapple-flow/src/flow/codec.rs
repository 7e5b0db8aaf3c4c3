//! Codecs: items as bytes.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Finds items in arriving bytes.
///
/// ```
/// use std::io;
/// use bytes::{Buf, BytesMut};
/// use dapple_flow::flow::{self, Decode};
///
/// /// Numbers of two bytes, the higher one first.
/// struct Numbers;
///
/// impl Decode for Numbers {
///     type Item = u16;
///
///     fn decode(&mut self, buf: &mut BytesMut) -> io::Result<Option<u16>> {
///         Ok((buf.len() >= 2).then(|| buf.get_u16()))
///     }
///
///     fn item_len_max(&self) -> usize {
///         2
///     }
/// }
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let (sink, source) = flow::pipe()?;
///     sink.write(&b"\x01\x00\x00\x07"[..]).await?;
///     let mut numbers = source.decode(Numbers);
///     assert_eq!(numbers.next().await.expect("something came")?, 256);
///     assert_eq!(numbers.next().await.expect("something came")?, 7);
///     io::Result::Ok(())
/// })?;
/// # Ok::<(), io::Error>(())
/// ```
pub trait Decode: Send + 'static {
    /// The items of a source.
    type Item: Send + 'static;

    /// Takes one item off the front of the buffer; `None` while it is incomplete. The remaining
    /// bytes stay for the next call, which comes at once after an item, and otherwise when more
    /// bytes have arrived.
    ///
    /// # Errors
    ///
    /// The bytes are not an item. The source then ends.
    fn decode(&mut self, buf: &mut BytesMut) -> io::Result<Option<Self::Item>>;

    /// As [`decode`](Self::decode), when no more bytes will arrive, until it returns `None`.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode). By default the error is `UnexpectedEof` if bytes remain that
    /// are no item.
    fn decode_end(&mut self, buf: &mut BytesMut) -> io::Result<Option<Self::Item>> {
        match self.decode(buf)? {
            None if !buf.is_empty() => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the stream ended inside of an item"))
            }
            item => Ok(item),
        }
    }

    /// The largest size of an item in bytes. If a source has more bytes than this and no item, it
    /// ends with an error, so that a peer cannot make it collect bytes for ever.
    fn item_len_max(&self) -> usize;
}

/// Turns items into bytes.
pub trait Encode: Clone + Send + Sync + 'static {
    /// The items of a sink.
    type Item: Send + 'static;

    /// The bytes of an item, which are written together.
    ///
    /// # Errors
    ///
    /// The item cannot be encoded. The sink continues with others.
    fn encode(&self, item: Self::Item) -> io::Result<Bytes>;
}

/// Bytes without structure, in pieces as the device delivers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks;

impl Decode for Chunks {
    type Item = Bytes;

    fn decode(&mut self, buf: &mut BytesMut) -> io::Result<Option<Bytes>> {
        Ok((!buf.is_empty()).then(|| std::mem::take(buf).freeze()))
    }

    fn item_len_max(&self) -> usize {
        usize::MAX
    }
}

impl Encode for Chunks {
    type Item = Bytes;

    fn encode(&self, item: Bytes) -> io::Result<Bytes> {
        Ok(item)
    }
}

/// Lines of UTF-8 text that end with `\n` or `\r\n`, or with the stream. Items are without the line
/// end; a sink adds `\n`.
///
/// ```
/// use dapple_flow::flow::{self, Lines};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let (sink, source) = flow::pipe()?;
///     let (sink, mut source) = (sink.encode(Lines::new(1024)), source.decode(Lines::new(1024)));
///     sink.write("first").await?;
///     sink.write("second").await?;
///     assert_eq!(source.next().await.expect("something came")?, "first");
///     assert!(sink.write("two\nlines").await.is_err());
///     assert_eq!(source.next().await.expect("something came")?, "second");
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lines {
    len_max: usize,
    /// Bytes already searched for a line end.
    searched: usize,
}

impl Lines {
    /// Lines of at most `len_max` bytes, not counting the line end. Longer ones are an error.
    pub fn new(len_max: usize) -> Self {
        Lines { len_max, searched: 0 }
    }

    fn text(&self, mut line: BytesMut) -> io::Result<Option<String>> {
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        if line.len() > self.len_max {
            return Err(too_long("line", line.len(), self.len_max));
        }
        let text = String::from_utf8(line.into());
        text.map(Some).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a line is not valid UTF-8"))
    }
}

impl Decode for Lines {
    type Item = String;

    fn decode(&mut self, buf: &mut BytesMut) -> io::Result<Option<String>> {
        let searched = self.searched.min(buf.len());
        let Some(found) = buf[searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = buf.len();
            return Ok(None);
        };
        let line = buf.split_to(searched + found);
        buf.advance(1);
        self.searched = 0;
        self.text(line)
    }

    fn decode_end(&mut self, buf: &mut BytesMut) -> io::Result<Option<String>> {
        match self.decode(buf)? {
            None if !buf.is_empty() => {
                self.searched = 0;
                self.text(std::mem::take(buf))
            }
            line => Ok(line),
        }
    }

    fn item_len_max(&self) -> usize {
        // `\r`, and the first byte above the limit.
        self.len_max.saturating_add(2)
    }
}

impl Encode for Lines {
    type Item = String;

    fn encode(&self, item: String) -> io::Result<Bytes> {
        if item.contains('\n') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a line cannot contain a line end"));
        }
        if item.len() > self.len_max {
            return Err(too_long("line", item.len(), self.len_max));
        }
        let mut bytes = item.into_bytes();
        bytes.push(b'\n');
        Ok(bytes.into())
    }
}

/// Frames: a length of four bytes (big-endian), followed by that many bytes.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    len_max: usize,
}

impl Frames {
    /// Frames of at most `len_max` bytes, not counting the length. Longer ones are an error.
    ///
    /// # Panics
    ///
    /// If `len_max` does not fit into four bytes.
    pub fn new(len_max: usize) -> Self {
        assert!(u32::try_from(len_max).is_ok(), "a frame has less than 4 GiB: give a lower limit than {len_max}");
        Frames { len_max }
    }
}

impl Decode for Frames {
    type Item = Bytes;

    fn decode(&mut self, buf: &mut BytesMut) -> io::Result<Option<Bytes>> {
        let Some(head) = buf.first_chunk::<HEAD_LEN>() else { return Ok(None) };
        let len = u32::from_be_bytes(*head) as usize;
        if len > self.len_max {
            return Err(too_long("frame", len, self.len_max));
        }
        if buf.len() < HEAD_LEN + len {
            return Ok(None);
        }
        buf.advance(HEAD_LEN);
        Ok(Some(buf.split_to(len).freeze()))
    }

    fn item_len_max(&self) -> usize {
        self.len_max.saturating_add(HEAD_LEN)
    }
}

impl Encode for Frames {
    type Item = Bytes;

    fn encode(&self, item: Bytes) -> io::Result<Bytes> {
        if item.len() > self.len_max {
            return Err(too_long("frame", item.len(), self.len_max));
        }
        let mut frame = BytesMut::with_capacity(HEAD_LEN + item.len());
        frame.put_u32(item.len() as u32);
        frame.put_slice(&item);
        Ok(frame.freeze())
    }
}

fn too_long(what: &str, len: usize, len_max: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a {what} has at least {len} bytes, and the limit is {len_max}"))
}

/// The size of the length field.
const HEAD_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// All items decoded from bytes that arrive in pieces of `step`.
    fn decode_all<C: Decode>(mut codec: C, bytes: &[u8], step: usize) -> io::Result<Vec<C::Item>> {
        let (mut buf, mut items) = (BytesMut::new(), Vec::new());
        for piece in bytes.chunks(step) {
            buf.extend_from_slice(piece);
            while let Some(item) = codec.decode(&mut buf)? {
                items.push(item);
            }
        }
        while let Some(item) = codec.decode_end(&mut buf)? {
            items.push(item);
        }
        Ok(items)
    }

    #[test]
    fn lines_in_pieces_of_any_size() {
        let text = "a\r\n\nlonger line\nthe last";
        for step in 1..text.len() {
            let lines = decode_all(Lines::new(11), text.as_bytes(), step).unwrap();
            assert_eq!(lines, ["a", "", "longer line", "the last"], "{step}");
        }
        assert!(decode_all(Lines::new(10), text.as_bytes(), 1).is_err());
        assert!(decode_all(Lines::new(10), b"\xff\n", 1).is_err());
        assert!(decode_all(Lines::new(10), b"", 1).unwrap().is_empty());
    }

    #[test]
    fn frames_in_pieces_of_any_size() {
        let frames = Frames::new(5);
        let bytes: Vec<u8> =
            ["", "a", "12345"].iter().flat_map(|text| frames.encode((*text).into()).unwrap()).collect();
        for step in 1..bytes.len() {
            assert_eq!(decode_all(frames, &bytes, step).unwrap(), ["", "a", "12345"], "{step}");
        }
        for cut in [1, 6, bytes.len() - 1] {
            let error = decode_all(frames, &bytes[..cut], 3).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{cut}");
        }
        assert!(frames.encode("123456".into()).is_err());
        assert!(decode_all(Frames::new(4), &bytes, 100).is_err());
        assert!(decode_all(frames, b"\xff\xff\xff\xff", 100).is_err(), "refused before anything is allocated");
    }
}
