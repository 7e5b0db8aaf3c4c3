//! `CLIENT`.

use bytes::Bytes;

use super::reply::{OK, Reply};
use super::session::{Session, wrong_number};

pub(super) fn run(session: &mut Session<'_>, args: &[Bytes]) -> Reply {
    let word = args[0].to_ascii_uppercase();
    match (word.as_slice(), &args[1..]) {
        (b"SETNAME", [name]) => session.set_name(name).err().unwrap_or(OK),
        (b"GETNAME", []) if session.name.is_empty() => Reply::Null,
        (b"GETNAME", []) => Reply::Bulk(session.name.clone()),
        (b"ID", []) => Reply::Number(i64::try_from(session.id).unwrap_or(i64::MAX)),
        (b"INFO", []) => Reply::Text(info(session)),
        (b"SETINFO", [_, _]) => OK,
        // They choose what Redis evicts, and this server evicts nothing.
        (b"NO-EVICT" | b"NO-TOUCH", [state]) if is_switch(state) => OK,
        (b"REPLY", [state]) if state.eq_ignore_ascii_case(b"ON") => OK,
        (b"NO-EVICT" | b"NO-TOUCH" | b"REPLY", [_]) => Reply::syntax(),
        (known, _) if KNOWN.contains(&known) => wrong_number(&format!("client|{}", String::from_utf8_lossy(known))),
        _ => Reply::unknown_subcommand("CLIENT", &args[0]),
    }
}

const KNOWN: [&[u8]; 8] = [b"SETNAME", b"GETNAME", b"ID", b"INFO", b"SETINFO", b"NO-EVICT", b"NO-TOUCH", b"REPLY"];

fn is_switch(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"ON") || word.eq_ignore_ascii_case(b"OFF")
}

/// Refuses names that would break the lines in which they are shown.
pub(super) fn check_name(name: &[u8]) -> Result<(), Reply> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(());
    }
    Err(Reply::Error("ERR Client names cannot contain spaces, newlines or special characters.".to_owned()))
}

fn info(session: &Session<'_>) -> String {
    let (channels, patterns) = session.subscriber.as_ref().map_or((0, 0), |subscriber| subscriber.counts());
    format!(
        "id={} name={} db={} sub={channels} psub={patterns} multi={} resp={}\n",
        session.id,
        String::from_utf8_lossy(&session.name),
        session.context.index,
        session.queue.as_ref().map_or(-1, |queue| queue.len() as i64),
        if session.is_resp3 { 3 } else { 2 },
    )
}
