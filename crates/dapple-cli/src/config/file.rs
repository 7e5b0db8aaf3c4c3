//! Options in a TOML file.

use std::path::Path;

use clap::Arg;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::layer::{Layer, Origin};
use super::nearest::nearest;
use super::option::{self, COMMAND_LINE_ONLY, Kind, Options};
use super::problem::{Problem, Source};
use super::sections::Sections;

/// Reads the file at `path`: gives its options to the layer, and returns its tables.
///
/// Paths in it are relative to its folder.
pub(crate) fn read(path: &Path, options: &Options, layer: &mut Layer, problems: &mut Vec<Problem>) -> Sections {
    let text = match std::fs::read(path).map(String::from_utf8) {
        Ok(Ok(text)) => text,
        Ok(Err(_)) => {
            problems.push(Problem::file(path, "this is not UTF-8, which TOML requires; save it as UTF-8"));
            return Sections::default();
        }
        Err(error) => {
            let message =
                format!("cannot read this file ({error}); give the path of a readable TOML file: `--config FILE`");
            problems.push(Problem::file(path, &message));
            return Sections::default();
        }
    };
    let source = Source::new(path, &text);
    let (document, errors) = DeTable::parse_recoverable(&text);
    if !errors.is_empty() {
        let broken = errors.iter().map(|error| source.problem(error.span().unwrap_or(0..0), syntax(error.message())));
        problems.extend(broken);
        return Sections::default();
    }
    let mut found = Vec::new();
    let mut entries: Vec<_> = document.into_inner().into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let name = key.get_ref().as_ref();
        let Some(arg) = options.find(name) else {
            if COMMAND_LINE_ONLY.contains(&name) || !is_table(&value) {
                found.push(source.problem(key.span(), unknown(name, options)));
            }
            continue;
        };
        let outcome = values(arg, &value, &source, path).and_then(|values| {
            let checked = options.check(arg, &values);
            let line = source.position(key.span().start).0;
            let given = checked.and_then(|()| layer.give(options, arg, values, Origin::Line(line)));
            given.map_err(|message| source.problem(value.span(), message))
        });
        found.extend(outcome.err());
    }
    problems.extend(found);
    layer.next_source(options);
    let names = options.all().map(|arg| arg.get_id().to_string()).collect();
    Sections::new(source, names)
}

/// Whether this is a table, or a list of them.
fn is_table(value: &Spanned<DeValue<'_>>) -> bool {
    match value.get_ref() {
        DeValue::Table(_) => true,
        DeValue::Array(items) => items.iter().any(|item| item.get_ref().is_table()),
        _ => false,
    }
}

/// toml's message about a syntax error, on one line.
fn syntax(message: &str) -> String {
    format!("this is not TOML: {}", message.replace('\n', ", "))
}

fn unknown(name: &str, options: &Options) -> String {
    if COMMAND_LINE_ONLY.contains(&name) {
        return format!("`{name}` can only be given on the command line, as --{name}");
    }
    match nearest(name, options.all().map(|arg| arg.get_id().as_str())) {
        Some(near) => format!("there is no option `{name}`; did you mean `{near}`?"),
        None => format!("there is no option `{name}`; `--help` lists all options; in the file write `_` for `-`"),
    }
}

/// The value in the form of the command line; several if the option takes several.
fn values(arg: &Arg, value: &Spanned<DeValue<'_>>, source: &Source, file: &Path) -> Result<Vec<String>, Problem> {
    match value.get_ref() {
        DeValue::Array(items) if option::is_list(arg) => {
            items.iter().map(|item| single(arg, item, source, file)).collect()
        }
        _ => single(arg, value, source, file).map(|value| vec![value]),
    }
}

fn single(arg: &Arg, value: &Spanned<DeValue<'_>>, source: &Source, file: &Path) -> Result<String, Problem> {
    let wrong = |wanted: &str| {
        let (id, found) = (arg.get_id(), value.get_ref().type_str());
        let meant =
            value.get_ref().as_str().filter(|text| option::kind(arg) != Kind::Text && text.parse::<f64>().is_ok());
        let example = meant.map_or_else(|| option::example(arg), |text| format!("{id} = {text}"));
        source.problem(
            value.span(),
            format!("`{id}` takes {wanted}, and this is {}; write `{example}`", with_article(found)),
        )
    };
    match (option::kind(arg), value.get_ref()) {
        (Kind::Switch, DeValue::Boolean(is_on)) => Ok(is_on.to_string()),
        (Kind::Switch, _) => Err(wrong("true or false")),
        (Kind::Number, DeValue::Integer(number)) => Ok(decimal(number)),
        (Kind::Seconds, DeValue::Integer(number)) => Ok(decimal(number)),
        (Kind::Seconds, DeValue::Float(number)) => Ok(number.as_str().to_owned()),
        (Kind::Seconds, _) => Err(wrong("seconds, without quotes")),
        (Kind::Number, _) => Err(wrong("a whole number without quotes")),
        (Kind::Text, DeValue::String(text)) if option::is_path(arg) && text != "-" => {
            let folder = file.parent().unwrap_or(Path::new(""));
            // The file is UTF-8, but its folder's path may not be; then opening the result fails.
            Ok(folder.join(text.as_ref()).to_string_lossy().into_owned())
        }
        (Kind::Text, DeValue::String(text)) => Ok(text.to_string()),
        (Kind::Text, _) => Err(wrong("a string in quotes")),
    }
}

/// Writes a number in decimal digits, which options take; TOML also has hexadecimal numbers.
fn decimal(number: &toml::de::DeInteger<'_>) -> String {
    let parsed = i128::from_str_radix(number.as_str(), number.radix());
    parsed.map_or_else(|_| number.to_string(), |number| number.to_string())
}

fn with_article(kind: &str) -> String {
    match kind.starts_with(['a', 'e', 'i', 'o', 'u']) {
        true => format!("an {kind}"),
        false => format!("a {kind}"),
    }
}
