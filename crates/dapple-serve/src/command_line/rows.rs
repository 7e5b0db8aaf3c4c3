//! Rows of the table of limits as arguments of clap.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::limit::{LimitOption, Unit};

/// The limits that a program has.
pub trait Rows: 'static {
    /// The heading under which `--help` lists them.
    const HEADING: &'static str;
    /// The rows, with the program's defaults, in the order of `--help`.
    const ROWS: &'static [LimitOption];
}

/// Values of the [`Rows`] `R`, to be flattened into a program's arguments.
///
/// ```
/// use clap::Parser;
/// use dapple_serve::command_line::{LimitArgs, LimitOption, Rows, limits};
///
/// #[derive(Debug)]
/// struct Few;
///
/// impl Rows for Few {
///     const HEADING: &'static str = "Limits";
///     const ROWS: &'static [LimitOption] = &[limits::STREAMS_MAX, limits::HEAD_TIMEOUT.or(5_000)];
/// }
///
/// #[derive(Parser)]
/// struct Program {
///     #[command(flatten)]
///     limits: LimitArgs<Few>,
/// }
///
/// let program = Program::parse_from(["program", "--streams-max", "7"]);
/// assert_eq!(program.limits.number(&limits::STREAMS_MAX), 7);
/// assert_eq!(program.limits.time(&limits::HEAD_TIMEOUT).as_secs(), 5);
/// ```
pub struct LimitArgs<R> {
    /// By name; limits without a value and a default are missing. Numbers are in the row's unit.
    values: BTreeMap<&'static str, Value>,
    rows: PhantomData<fn() -> R>,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Number(u64),
    Time(Duration),
}

impl<R: Rows> LimitArgs<R> {
    /// The number that was given for `row`, or its default.
    ///
    /// # Panics
    ///
    /// There is neither, or the program does not have the row.
    pub fn number(&self, row: &LimitOption) -> u64 {
        self.number_given(row).unwrap_or_else(|| panic!("--help shows a default of {}", row.name))
    }

    /// The number that was given for `row`, or its default, if there is either.
    ///
    /// # Panics
    ///
    /// The program does not have the row, or it is a time.
    pub fn number_given(&self, row: &LimitOption) -> Option<u64> {
        match self.value(row)? {
            Value::Number(number) => Some(number),
            Value::Time(_) => panic!("{} is a time", row.name),
        }
    }

    /// As [`number_given`](Self::number_given), in bytes.
    ///
    /// # Panics
    ///
    /// The same, or the row's unit is not one of bytes.
    pub fn bytes_given(&self, row: &LimitOption) -> Option<u64> {
        let factor = match row.unit {
            Unit::Bytes => 1,
            Unit::KiB => 1 << 10,
            Unit::MiB => 1 << 20,
            _ => panic!("{} is no size", row.name),
        };
        self.number_given(row).map(|number| number.saturating_mul(factor))
    }

    /// As [`number`](Self::number), in bytes.
    ///
    /// # Panics
    ///
    /// There is no such number, or the row's unit is not one of bytes.
    pub fn bytes(&self, row: &LimitOption) -> usize {
        let bytes = self.bytes_given(row).unwrap_or_else(|| panic!("--help shows a default of {}", row.name));
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// The time that was given for `row`, or its default.
    ///
    /// # Panics
    ///
    /// There is neither, or the program does not have the row.
    pub fn time(&self, row: &LimitOption) -> Duration {
        self.time_given(row).unwrap_or_else(|| panic!("--help shows a default of {}", row.name))
    }

    /// The time that was given for `row`, or its default, if there is either.
    ///
    /// # Panics
    ///
    /// The program does not have the row, or it is no time.
    pub fn time_given(&self, row: &LimitOption) -> Option<Duration> {
        match self.value(row)? {
            Value::Time(time) => Some(time),
            Value::Number(number) if row.unit == Unit::Milliseconds => Some(Duration::from_millis(number)),
            Value::Number(_) => panic!("{} is no time", row.name),
        }
    }

    /// The value that was given for `row`, or its default, in [`Unit::base`]s.
    ///
    /// # Panics
    ///
    /// The program does not have the row.
    pub fn base(&self, row: &LimitOption) -> Option<u64> {
        self.value(row).map(|value| match value {
            Value::Number(number) => number,
            Value::Time(time) => time.as_millis() as u64,
        })
    }

    fn value(&self, row: &LimitOption) -> Option<Value> {
        assert!(R::ROWS.iter().any(|own| own.name == row.name), "the program has no {}", row.name);
        self.values.get(row.name).copied()
    }

    fn read(matches: &ArgMatches) -> BTreeMap<&'static str, Value> {
        let value = |row: &LimitOption| match row.unit {
            Unit::Seconds => matches.get_one(row.name).copied().map(Value::Time),
            _ => matches.get_one(row.name).copied().map(Value::Number),
        };
        R::ROWS.iter().filter_map(|row| Some((row.name, value(row)?))).collect()
    }
}

/// The argument of a row.
fn arg(row: &'static LimitOption, heading: &'static str) -> Arg {
    let parser = match row.unit {
        Unit::Seconds => ValueParser::new(|text: &str| row.read_time(text)),
        _ => ValueParser::new(|text: &str| row.read_number(text)),
    };
    let help = match row.default_note {
        Some(note) => format!("{} [default: {note}]", row.help),
        None if row.default.is_none() => format!("{} [default: no limit]", row.help),
        None => row.help.to_owned(),
    };
    let aliases = row.names_before.iter().map(|name| name.replace('_', "-"));
    let arg = Arg::new(row.name)
        .long(row.name.replace('_', "-"))
        .aliases(aliases)
        .value_name(if row.unit == Unit::Seconds { "S" } else { "N" });
    let arg = arg.help(help).help_heading(heading).value_parser(parser);
    match row.default_text() {
        Some(default) => arg.default_value(default),
        None => arg,
    }
}

impl<R: Rows> FromArgMatches for LimitArgs<R> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(LimitArgs { values: Self::read(matches), rows: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.values.extend(Self::read(matches));
        Ok(())
    }
}

impl<R: Rows> Args for LimitArgs<R> {
    fn augment_args(command: Command) -> Command {
        R::ROWS.iter().fold(command, |command, row| command.arg(arg(row, R::HEADING)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<R> fmt::Debug for LimitArgs<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.values).finish()
    }
}
