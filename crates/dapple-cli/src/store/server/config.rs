//! `CONFIG`: the settings that clients ask for when they connect, and benchmarks before they start. They are those of the
//! command line, so none can be changed.

use std::collections::HashSet;

use bytes::Bytes;

use super::commands::Answer;
use super::reply::{OK, Reply};
use super::session::wrong_number;
use super::{Service, glob};

/// Runs `CONFIG`.
pub(super) fn run(service: &Service, args: &[Bytes]) -> Answer {
    let refused = |text: &str| Err(Reply::Error(format!("ERR {text}")));
    match (args[0].to_ascii_uppercase().as_slice(), &args[1..]) {
        (b"GET", []) => Err(wrong_number("config|get")),
        (b"GET", patterns) => {
            patterns.iter().try_for_each(|pattern| glob::check(pattern))?;
            Ok(get(service, patterns))
        }
        (b"SET", [] | [_]) => Err(wrong_number("config|set")),
        (b"SET", words) => set(service, words),
        (b"RESETSTAT", []) => refused("the statistics count from the start of the server: its metrics need that"),
        (b"RESETSTAT", _) => Err(wrong_number("config|resetstat")),
        (b"REWRITE", []) => refused("The server is running without a config file"),
        (b"REWRITE", _) => Err(wrong_number("config|rewrite")),
        _ => Err(Reply::unknown_subcommand("CONFIG", &args[0])),
    }
}

/// The settings of Redis that this server has, and their values.
fn settings(service: &Service) -> [(&'static str, String); 15] {
    let fixed = |text: &str| text.to_owned();
    [
        ("appendfsync", fixed("always")),
        ("appendonly", fixed("yes")),
        ("databases", super::DATABASES.to_string()),
        ("dir", service.directory.clone()),
        ("lazyfree-lazy-user-del", fixed("no")),
        ("maxclients", service.admission.max().to_string()),
        ("maxmemory", fixed("0")),
        ("maxmemory-policy", fixed("noeviction")),
        ("notify-keyspace-events", fixed("")),
        ("port", service.port.to_string()),
        ("proto-max-bulk-len", super::request::WORD_LEN_MAX.to_string()),
        ("save", fixed("")),
        ("slowlog-max-len", fixed("0")),
        ("tcp-keepalive", fixed("0")),
        ("timeout", fixed("0")),
    ]
}

fn get(service: &Service, patterns: &[Bytes]) -> Reply {
    let is_asked =
        |name: &str| patterns.iter().any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()));
    let found = settings(service).into_iter().filter(|(name, _)| is_asked(name));
    Reply::Map(found.map(|(name, value)| (Reply::text(name), Reply::Text(value))).collect())
}

/// Takes the values that the settings have. Programs set them to be sure, such as `appendonly yes`.
fn set(service: &Service, words: &[Bytes]) -> Answer {
    let settings = settings(service);
    if !words.len().is_multiple_of(2) {
        return Err(Reply::syntax());
    }
    let mut seen = HashSet::new();
    for pair in words.chunks_exact(2) {
        let (name, value) = (&pair[0], &pair[1]);
        let typed = String::from_utf8_lossy(name);
        let refused = |reason: &str| {
            let text = format!("ERR CONFIG SET failed (possibly related to argument '{typed}') - {reason}");
            Err(Reply::Error(text))
        };
        let Some((known, kept)) = settings.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes())) else {
            return Err(Reply::Error(format!("ERR Unknown option or number of arguments for CONFIG SET - '{typed}'")));
        };
        if !value.eq_ignore_ascii_case(kept.as_bytes()) {
            return refused("can't set immutable config");
        }
        if !seen.insert(known) {
            return refused("duplicate parameter");
        }
    }
    Ok(OK)
}
