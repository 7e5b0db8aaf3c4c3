//! Prints the settings in use, in the form of a configuration file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;

use clap::builder::{BoolishValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Id};

use super::layer::Origin;
use super::option::{self, Kind, Options};

/// One option and the value in use.
#[derive(Clone)]
pub(crate) struct Setting {
    heading: String,
    pub(super) name: String,
    /// The value in the form of the file; `None` if it is not given and has no default.
    pub(super) value: Option<String>,
    /// Whether the value equals the default.
    is_default: bool,
    origin: String,
}

impl Setting {
    /// The source of the value; `None` if it is the default, even if given.
    pub(super) fn given(&self) -> Option<&str> {
        (!self.is_default).then_some(&self.origin)
    }
}

/// All options and their values, in the order of their declaration.
pub(crate) fn settings(options: &Options, matches: &ArgMatches, origins: &BTreeMap<Id, Origin>) -> Vec<Setting> {
    let setting = |arg: &Arg| {
        let id = arg.get_id().as_str();
        let written = |values: &mut dyn Iterator<Item = &OsStr>| {
            let values: Vec<String> = values.map(|value| literal(arg, &value.to_string_lossy())).collect();
            match option::is_list(arg) {
                true => format!("[{}]", values.join(", ")),
                false => values.concat(),
            }
        };
        let value = matches.get_raw(id).map(|mut values| written(&mut values));
        let defaults = arg.get_default_values();
        let default = (!defaults.is_empty()).then(|| written(&mut defaults.iter().map(|value| value.as_os_str())));
        let is_default = value == default;
        let origin = match (matches.value_source(id), origins.get(arg.get_id())) {
            (Some(ValueSource::CommandLine), _) => "command line".to_owned(),
            (_, Some(Origin::Variable(name))) => name.clone(),
            (_, Some(Origin::Line(line))) => format!("line {line} of the file"),
            _ => "default".to_owned(),
        };
        let heading = arg.get_help_heading().unwrap_or_default().to_owned();
        Setting { heading, name: id.to_owned(), value, is_default, origin }
    };
    options.all().map(setting).collect()
}

/// A file with the same settings, and a note at each line about the value's source.
pub(crate) fn as_file(settings: &[Setting]) -> String {
    let mut text = String::new();
    let mut heading = "";
    for setting in settings {
        if setting.heading != heading {
            heading = &setting.heading;
            let _ = write!(text, "\n# {heading}\n");
        }
        let line = match &setting.value {
            Some(value) => format!("{} = {value}", setting.name),
            None => format!("# {} is not set", setting.name),
        };
        let _ = match setting.value {
            Some(_) => writeln!(text, "{line:<40} # {}", setting.origin),
            None => writeln!(text, "{line}"),
        };
    }
    text
}

/// A value as TOML requires it, which is stricter than the command line and the environment: those
/// also take `yes`, `007`, `.5`.
fn literal(arg: &Arg, value: &str) -> String {
    let read = match option::kind(arg) {
        Kind::Switch => BoolishValueParser::new()
            .parse_ref(&Command::default(), None, OsStr::new(value))
            .map(|is_on| is_on.to_string())
            .ok(),
        Kind::Number => value.parse().ok().map(|number: u64| number.to_string()),
        Kind::Seconds => value.parse().ok().map(|seconds: f64| seconds.to_string()),
        Kind::Text => None,
    };
    read.unwrap_or_else(|| toml::Value::String(value.to_owned()).to_string())
}
