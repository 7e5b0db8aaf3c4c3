//! A configuration file, a variable besides it, and a site's rules in it.
//!
//! The input is the file, a variable, and the path of a request, with a NUL between.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::ValueHint;
use clap::{Arg, ArgAction, Command, value_parser};
use dapple_serve::command_line::{host_and_port, number};
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};

use self::load::{Loaded, load};
use super::rules::Rules;

#[allow(dead_code, reason = "only the reading code of this file is used")]
#[path = "../../../src/config/environment.rs"]
mod environment;
#[path = "../../../src/config/file.rs"]
mod file;
#[path = "../../../src/config/layer.rs"]
mod layer;
#[allow(dead_code, reason = "only the reading code of this file is used")]
#[path = "../../../src/config/load.rs"]
mod load;
#[path = "../../../src/config/nearest.rs"]
mod nearest;
#[path = "../../../src/config/option.rs"]
mod option;
#[path = "../../../src/config/problem.rs"]
mod problem;
#[allow(dead_code, reason = "only the reading code of this file is used")]
#[path = "../../../src/config/sections.rs"]
mod sections;
#[path = "../../../src/config/show.rs"]
mod show;

/// Errors are reported with their place. Valid settings print as a file with the same settings, and
/// rules break no message.
pub(super) fn config(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (file, variable, key) = (next(), next(), next());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.toml");
    std::fs::write(&path, file).expect("a file");
    let variables = String::from_utf8_lossy(variable);
    let variables = variables.split_once('=').map(|(name, value)| (format!("DAPPLE_PAINT_{name}"), value.to_owned()));
    match loaded(&path, variables) {
        Err(problems) => told(&problems, &path, file),
        Ok(loaded) => {
            let shown = loaded.show();
            std::fs::write(&path, &shown).expect("a file");
            let again = self::loaded(&path, None).unwrap_or_else(|problems| panic!("{problems}\n{shown}"));
            let (mut again, mut values) = (values(&again.show()), values(&shown));
            // A path is relative to the folder of its file, and one in a variable to the working
            // directory.
            if values.get("log").and_then(|log| log.as_str()).is_some_and(|log| !log.starts_with('/')) {
                again.remove("log");
                values.remove("log");
            }
            assert_eq!(again, values);
            match loaded.sections.read::<Rules>() {
                Err(problems) => told(&problems, &path, file),
                Ok(rules) => kept(&rules, key),
            }
        }
    }
}

fn loaded(path: &Path, variable: Option<(String, String)>) -> Result<Loaded, problem::Problems> {
    let words = ["dapple".into(), "paint".into(), "--config".into(), OsString::from(path)];
    load(command(), words.into(), variable.into_iter().map(|(name, value)| (name.into(), value.into())))
}

/// A command with an option of each kind.
fn command() -> Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    let seconds = |text: &str| {
        let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        seconds.ok_or("write seconds")
    };
    let paint = Command::new("paint").args([
        option("config").value_parser(value_parser!(PathBuf)),
        option("coats").default_value("1").value_parser(number::<u16>(1..=9)),
        option("cans").value_parser(value_parser!(u64)),
        option("dry").action(ArgAction::SetTrue),
        option("wait").default_value("0.5").value_parser(seconds),
        option("plan"),
        option("sketch").conflicts_with("plan"),
        option("tint").action(ArgAction::Append),
        option("addr").action(ArgAction::Append).value_parser(host_and_port),
        option("log").value_hint(ValueHint::FilePath).value_parser(value_parser!(PathBuf)),
        option("form").value_parser(["common", "json"]),
    ]);
    Command::new("dapple").subcommand(paint)
}

/// Every problem belongs to the variable, the file, or a place in the file, which is shown.
fn told(problems: &problem::Problems, path: &Path, text: &[u8]) {
    assert!(!problems.0.is_empty());
    let lines = text.split(|byte| *byte == b'\n').count();
    for problem in &problems.0 {
        let problem = problem.to_string();
        let Some(rest) = problem.strip_prefix(&path.display().to_string()) else {
            assert!(problem.starts_with("DAPPLE_PAINT_"), "{problem}");
            continue;
        };
        let mut place = rest.splitn(4, ':').skip(1);
        let Some(line) = place.next().and_then(|line| line.parse::<usize>().ok()) else {
            assert!(rest.starts_with(": ") && rest.len() > 2, "{problem}");
            continue;
        };
        let column = place.next().and_then(|column| column.parse::<usize>().ok());
        assert!((1..=lines).contains(&line) && column.is_some_and(|column| column > 0), "{problem}");
        assert!(place.next().is_some_and(|message| message.trim().len() > 3) && problem.ends_with('^'), "{problem}");
    }
}

/// The printed settings, without the sources of values.
fn values(shown: &str) -> toml::Table {
    shown.parse().unwrap_or_else(|error| panic!("{error}\n{shown}"))
}

/// Redirects are addresses, rules change no framing field, and error pages are files of the site.
fn kept(rules: &Rules, key: &[u8]) {
    if let Some((status, location)) = rules.redirect(key) {
        assert!(status.is_redirection());
        let is_address = ["/", "http://", "https://"].iter().any(|start| location.starts_with(start));
        assert!(is_address && !location.contains(' ') && HeaderValue::from_str(&location).is_ok(), "{location}");
        assert!(!location.starts_with("//"), "{location}");
    }
    let mut headers = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("7"))]);
    rules.label(key, &mut headers);
    assert_eq!(headers[CONTENT_LENGTH], "7");
    for page in rules.error_page_keys() {
        assert!(page.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0')), "{page}");
    }
}
