//! Finds the end of a head while it arrives.

use memchr::memchr;

use super::HeadLimits;
use crate::refusal::Refusal;

/// Searches for the end of a head. It looks at each byte once, for any number of pieces.
///
/// It refuses what the lines alone show: lines that end with LF only, folded fields, lengths and
/// counts above the limits. A head that is found must still be [parsed](super::parse).
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScan {
    /// The start of the head, after empty lines.
    start: usize,
    /// The start of the incomplete line.
    line_start: usize,
    /// Up to here all LFs have been seen.
    scanned: usize,
    /// Complete lines of the head.
    lines: usize,
    empty_lines: usize,
}

/// A complete head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The start of the request line.
    pub start: usize,
    /// The end of the empty line.
    pub end: usize,
    /// The number of fields.
    pub fields: usize,
}

impl HeadScan {
    /// A scan of the next bytes of a connection.
    pub fn new() -> HeadScan {
        HeadScan::default()
    }

    /// Continues in `input`, which must begin with everything given before. `None` if the end is
    /// still to come.
    ///
    /// # Errors
    ///
    /// The bytes so far can never become an accepted head.
    pub fn find(&mut self, input: &[u8], limits: &HeadLimits) -> Result<Option<Found>, Refusal> {
        while let Some(ahead) = memchr(b'\n', &input[self.scanned..]) {
            let at = self.scanned + ahead;
            let line = self.line(input, at, limits)?;
            self.scanned = at + 1;
            self.line_start = at + 1;
            match (line, self.lines) {
                (0, 0) if self.empty_lines == EMPTY_LINES_MAX => return Err(Refusal::EmptyLines),
                (0, 0) => {
                    self.empty_lines += 1;
                    self.start = self.line_start;
                }
                (0, lines) => {
                    return Ok(Some(Found { start: self.start, end: self.scanned, fields: lines - 1 }));
                }
                _ if self.lines > limits.fields_max => return Err(Refusal::TooManyFields),
                _ => self.lines += 1,
            }
        }
        self.scanned = input.len();
        self.check_len(input.len(), limits)?;
        if self.lines == 0 && !input.is_empty() {
            // A client of another protocol often never ends a line.
            check_start(input[self.line_start..].first())?;
        }
        Ok(None)
    }

    /// The length of the line with its LF at `at`.
    fn line(&self, input: &[u8], at: usize, limits: &HeadLimits) -> Result<usize, Refusal> {
        self.check_len(at, limits)?;
        if self.lines == 0 {
            check_start(input[self.line_start..].first())?;
        } else if matches!(input[self.line_start], b' ' | b'\t') {
            return Err(Refusal::Folded);
        }
        if at == self.line_start || input[at - 1] != b'\r' {
            return Err(Refusal::BareLineFeed);
        }
        Ok(at - 1 - self.line_start)
    }

    /// Whether a line that reaches to `end`, perhaps including its CR, is within the limits.
    fn check_len(&self, end: usize, limits: &HeadLimits) -> Result<(), Refusal> {
        if self.lines == 0 && end - self.line_start > limits.target_len_max + REQUEST_LINE_BESIDE_MAX {
            return Err(Refusal::TargetTooLong);
        }
        match end - self.start >= limits.len_max {
            true => Err(Refusal::HeadTooLong),
            false => Ok(()),
        }
    }
}

/// The possible first byte of a request: of a method, or of an empty line before it.
fn check_start(first: Option<&u8>) -> Result<(), Refusal> {
    match first {
        None | Some(b'\r' | b'\n') => Ok(()),
        Some(b' ' | b'\t') => Err(Refusal::RequestLine),
        Some(byte) if byte.is_ascii_graphic() => Ok(()),
        Some(_) => Err(Refusal::Method),
    }
}

/// RFC 9112, section 2.2, asks to ignore at least one; some clients send one after a body.
const EMPTY_LINES_MAX: usize = 4;

/// The parts of a request line other than the target: a method, two spaces, the version, a CR.
const REQUEST_LINE_BESIDE_MAX: usize = super::parse::METHOD_LEN_MAX + 2 + "HTTP/1.1".len() + 1;
