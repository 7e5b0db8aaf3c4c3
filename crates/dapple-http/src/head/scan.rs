//! Finding the end of a head while it arrives.

use memchr::memchr;

use super::HeadLimits;
use crate::refusal::Refusal;

/// Looks for the end of a head. Each byte is looked at once, however many pieces the head comes in.
///
/// What can be refused by the lines alone is refused here: lines that end with LF only, folded fields, what is too long or too much.
/// A head that is found still has to be [parsed](super::parse).
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScan {
    /// Where the head begins, behind empty lines.
    start: usize,
    /// Where the line begins that is not complete yet.
    line_start: usize,
    /// Up to where there is no LF that has not been seen.
    scanned: usize,
    /// Lines of the head that are complete.
    lines: usize,
    empty_lines: usize,
}

/// A complete head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where the request line begins.
    pub start: usize,
    /// Behind the empty line.
    pub end: usize,
    /// How many fields there are.
    pub fields: usize,
}

impl HeadScan {
    /// A scan of what a connection sends from here on.
    pub fn new() -> HeadScan {
        HeadScan::default()
    }

    /// Looks on in `input`, which has to begin with all that was given before. `None`: the end is still to come.
    ///
    /// # Errors
    ///
    /// What arrived so far can never become a head that is taken.
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
            // What speaks another protocol often never ends a line.
            check_start(input[self.line_start..].first())?;
        }
        Ok(None)
    }

    /// The length of the line whose LF is at `at`.
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

    /// Whether a line that reaches to `end`, perhaps with the CR of its end, is still taken.
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

/// What a request may begin with: a method, or an empty line in front of it.
fn check_start(first: Option<&u8>) -> Result<(), Refusal> {
    match first {
        None | Some(b'\r' | b'\n') => Ok(()),
        Some(b' ' | b'\t') => Err(Refusal::RequestLine),
        Some(byte) if byte.is_ascii_graphic() => Ok(()),
        Some(_) => Err(Refusal::Method),
    }
}

/// RFC 9112, section 2.2, asks to ignore one at least; some clients send one behind a body.
const EMPTY_LINES_MAX: usize = 4;

/// What may stand in a request line beside the target: a method, two spaces, the version, a CR.
const REQUEST_LINE_BESIDE_MAX: usize = super::parse::METHOD_LEN_MAX + 2 + "HTTP/1.1".len() + 1;
