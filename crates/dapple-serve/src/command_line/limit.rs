//! One limit that a program may have, under one name wherever that is written.

use std::time::Duration;

use super::number::{number_or_advice, seconds_or_advice};

/// A limit: its name, its values, and its meaning.
///
/// The name in a TOML file is `name`. The command line has dashes in it, the environment capitals behind the command's prefix. The
/// method of a builder, or the field, is called [so](LimitOption::method): the name without its unit, and `_bytes` for every size.
///
/// ```
/// use dapple_serve::command_line::limits::{HEAD_MAX, HEAD_TIMEOUT};
///
/// assert_eq!((HEAD_TIMEOUT.name, HEAD_TIMEOUT.flag().as_str()), ("head_timeout_s", "--head-timeout-s"));
/// assert_eq!((HEAD_TIMEOUT.method().as_str(), HEAD_MAX.method().as_str()), ("head_timeout", "head_max_bytes"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LimitOption {
    /// As a TOML file has it, with its unit at the end.
    pub name: &'static str,
    /// Names that it had before; read, and shown nowhere.
    pub names_before: &'static [&'static str],
    /// The unit of values.
    pub unit: Unit,
    /// The smallest and the largest value, in [`Unit::base`]s.
    pub range: (u64, u64),
    /// The value if none is given, in [`Unit::base`]s; `None` if there is no limit then, or the
    /// program finds one.
    pub default: Option<u64>,
    /// A program's own words for a default that is no number.
    pub default_note: Option<&'static str>,
    /// One sentence, the same in all programs.
    pub help: &'static str,
}

/// The unit of a limit's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// 1,024 bytes.
    KiB,
    /// 1,048,576 bytes.
    MiB,
    /// Bytes a second.
    BytesPerSecond,
    /// Milliseconds, whole ones.
    Milliseconds,
    /// Seconds, with a part behind the point if need be.
    Seconds,
}

impl Unit {
    /// How the unit is written at the end of a name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Unit::Count | Unit::BytesPerSecond => "",
            Unit::Bytes => "_bytes",
            Unit::KiB => "_kb",
            Unit::MiB => "_mb",
            Unit::Milliseconds => "_ms",
            Unit::Seconds => "_s",
        }
    }

    /// In what ranges and defaults are given: seconds in milliseconds, all others in the unit itself.
    pub const fn base(self) -> &'static str {
        match self {
            Unit::Count => "",
            Unit::Bytes => "bytes",
            Unit::KiB => "KiB",
            Unit::MiB => "MiB",
            Unit::BytesPerSecond => "bytes a second",
            Unit::Milliseconds | Unit::Seconds => "ms",
        }
    }
}

impl LimitOption {
    /// The same limit with the default of another program.
    pub const fn or(mut self, default: u64) -> LimitOption {
        self.default = Some(default);
        self
    }

    /// The same limit, with a default that `note` describes in words.
    pub const fn or_note(mut self, note: &'static str) -> LimitOption {
        (self.default, self.default_note) = (None, Some(note));
        self
    }

    /// The same limit, with `most` as the highest value.
    pub const fn at_most(mut self, most: u64) -> LimitOption {
        self.range.1 = most;
        self
    }

    /// As the command line has it, with its dashes.
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    /// As builders call it: without the unit, or in bytes.
    pub fn method(&self) -> String {
        let stem = self.name.strip_suffix(self.unit.suffix()).unwrap_or(self.name);
        match self.unit {
            Unit::Bytes | Unit::KiB | Unit::MiB => format!("{stem}_bytes"),
            _ => stem.to_owned(),
        }
    }

    /// The number that `text` says, in the [unit](Unit).
    ///
    /// # Errors
    ///
    /// It is out of the range, or not a number: the valid values, and an example.
    pub fn read_number(&self, text: &str) -> Result<u64, String> {
        number_or_advice(text, &(self.range.0..=self.range.1), &self.example())
    }

    /// The time that `text` says, in the [unit](Unit).
    ///
    /// # Errors
    ///
    /// The same as for [`read_number`](LimitOption::read_number).
    pub fn read_time(&self, text: &str) -> Result<Duration, String> {
        let (least, most) = (Duration::from_millis(self.range.0), Duration::from_millis(self.range.1));
        match self.unit {
            Unit::Seconds => seconds_or_advice(text, &(least..=most), &self.example()),
            _ => self.read_number(text).map(Duration::from_millis),
        }
    }

    /// Reads `text`, in [`Unit::base`]s.
    ///
    /// # Errors
    ///
    /// The same as for [`read_number`](LimitOption::read_number).
    pub fn read(&self, text: &str) -> Result<u64, String> {
        match self.unit {
            // The range is one of whole milliseconds, as numbers of 64 bits.
            Unit::Seconds => self.read_time(text).map(|time| time.as_millis() as u64),
            _ => self.read_number(text),
        }
    }

    /// The default as it would be written, if it is a number.
    pub fn default_text(&self) -> Option<String> {
        self.default.map(|default| self.text(default))
    }

    /// The default as a time.
    ///
    /// # Panics
    ///
    /// The limit is no time, or has no default.
    pub const fn default_time(&self) -> Duration {
        assert!(matches!(self.unit, Unit::Milliseconds | Unit::Seconds), "the limit is a time");
        Duration::from_millis(self.default_number())
    }

    /// The default as a number in the row's [unit](Unit).
    ///
    /// # Panics
    ///
    /// The limit has no default.
    pub const fn default_number(&self) -> u64 {
        match self.default {
            Some(default) => default,
            None => panic!("the limit has a default"),
        }
    }

    /// A value that can be written.
    pub fn example(&self) -> String {
        self.default_text().unwrap_or_else(|| self.text(self.range.0.max(EXAMPLE).min(self.range.1)))
    }

    /// A value in [`Unit::base`]s as it would be written.
    pub fn text(&self, value: u64) -> String {
        match self.unit {
            Unit::Seconds => (Duration::from_millis(value).as_secs_f64()).to_string(),
            _ => value.to_string(),
        }
    }
}

/// For limits without a default; of seconds it is 0.1.
const EXAMPLE: u64 = 100;
