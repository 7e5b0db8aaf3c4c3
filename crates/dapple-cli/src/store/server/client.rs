//! `CLIENT`.

use bytes::Bytes;

use super::clients::Client;
use super::reply::{OK, Reply, integer};
use super::session::{Session, wrong_number};

pub(super) fn run(session: &mut Session<'_>, args: &[Bytes]) -> Reply {
    // Others see the state after the last commands.
    session.show();
    let word = args[0].to_ascii_uppercase();
    match (word.as_slice(), &args[1..]) {
        (b"SETNAME", [name]) => session.set_name(name).err().unwrap_or(OK),
        (b"GETNAME", []) if session.name.is_empty() => Reply::Null,
        (b"GETNAME", []) => Reply::Bulk(session.name.clone()),
        (b"ID", []) => Reply::Number(i64::try_from(session.client.id).unwrap_or(i64::MAX)),
        (b"INFO", []) => Reply::Text(session.client.line()),
        (b"LIST", filter) => list(session, filter).unwrap_or_else(|reply| reply),
        (b"KILL", filter) if !filter.is_empty() => kill(session, filter).unwrap_or_else(|reply| reply),
        (b"SETINFO", [option, value]) => set_info(session, option, value).err().unwrap_or(OK),
        // They choose what Redis evicts, and this server evicts nothing.
        (b"NO-EVICT" | b"NO-TOUCH", [state]) if is_switch(state) => OK,
        (b"REPLY", [state]) if state.eq_ignore_ascii_case(b"ON") => OK,
        (b"NO-EVICT" | b"NO-TOUCH" | b"REPLY", [_]) => Reply::syntax(),
        (known, _) if KNOWN.contains(&known) => wrong_number(&format!("client|{}", String::from_utf8_lossy(known))),
        _ => Reply::unknown_subcommand("CLIENT", &args[0]),
    }
}

const KNOWN: [&[u8]; 9] =
    [b"SETNAME", b"GETNAME", b"ID", b"INFO", b"KILL", b"SETINFO", b"NO-EVICT", b"NO-TOUCH", b"REPLY"];

fn is_switch(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"ON") || word.eq_ignore_ascii_case(b"OFF")
}

fn error<T>(text: &str) -> Result<T, Reply> {
    Err(Reply::Error(format!("ERR {text}")))
}

fn is_shown(word: &[u8]) -> bool {
    word.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// Refuses names that would break the lines in which they are shown.
pub(super) fn check_name(name: &[u8]) -> Result<(), Reply> {
    if is_shown(name) {
        return Ok(());
    }
    error("Client names cannot contain spaces, newlines or special characters.")
}

fn set_info(session: &mut Session<'_>, option: &[u8], value: &Bytes) -> Result<(), Reply> {
    let option = option.to_ascii_lowercase();
    let Some(at) = [&b"lib-name"[..], b"lib-ver"].iter().position(|known| *known == option) else {
        return error(&format!("Unrecognized option '{}'", String::from_utf8_lossy(&option)));
    };
    if !is_shown(value) {
        let option = String::from_utf8_lossy(&option);
        return error(&format!("{option} cannot contain spaces, newlines or special characters."));
    }
    session.library[at] = value.clone();
    session.show();
    Ok(())
}

/// The word of a kind of clients. There are no replicas and no master.
fn kind(word: &[u8]) -> Result<&'static str, Reply> {
    let word = String::from_utf8_lossy(word).to_ascii_lowercase();
    let known = ["normal", "pubsub", "master", "replica", "slave"].into_iter().find(|known| *known == word);
    known.map_or_else(|| error(&format!("Unknown client type '{word}'")), Ok)
}

fn list(session: &Session<'_>, filter: &[Bytes]) -> Result<Reply, Reply> {
    let clients = &session.context.service.clients;
    let found = match filter {
        [] => clients.find(|_| true),
        [option, wanted] if option.eq_ignore_ascii_case(b"TYPE") => {
            let wanted = kind(wanted)?;
            clients.find(|client| client.kind() == wanted)
        }
        [option, ids @ ..] if option.eq_ignore_ascii_case(b"ID") && !ids.is_empty() => {
            let Ok(ids) = ids.iter().map(|id| integer(id)).collect::<Result<Vec<i64>, _>>() else {
                return error("Invalid client ID");
            };
            clients.find(|client| ids.contains(&(client.id as i64)))
        }
        _ => return Err(Reply::syntax()),
    };
    Ok(Reply::Text(found.iter().map(|client| client.line()).collect()))
}

/// Kills one client by its address, or all that pairs of words name.
fn kill(session: &mut Session<'_>, filter: &[Bytes]) -> Result<Reply, Reply> {
    let is_old_form = filter.len() == 1;
    let (mut tests, mut skips_me) = (Vec::<Box<dyn Fn(&Client) -> bool>>::new(), true);
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    if let [addr] = filter {
        let addr = text(addr);
        tests.push(Box::new(move |client| client.addr == addr));
        skips_me = false;
    }
    for pair in filter.chunks(2).filter(|_| !is_old_form) {
        let [option, value] = pair else { return Err(Reply::syntax()) };
        match option.to_ascii_uppercase().as_slice() {
            b"ID" => {
                let Some(id) = integer(value).ok().filter(|id: &i64| *id > 0) else {
                    return error("client-id should be greater than 0");
                };
                tests.push(Box::new(move |client| client.id == id as u64));
            }
            b"ADDR" => {
                let addr = text(value);
                tests.push(Box::new(move |client| client.addr == addr));
            }
            b"LADDR" => {
                let addr = text(value);
                tests.push(Box::new(move |client| client.laddr == addr));
            }
            b"TYPE" => {
                let wanted = kind(value)?;
                tests.push(Box::new(move |client| client.kind() == wanted));
            }
            // All clients are the default user.
            b"USER" if &value[..] == b"default" => {}
            b"USER" => return error(&format!("No such user '{}'", text(value))),
            b"SKIPME" if value.eq_ignore_ascii_case(b"YES") => skips_me = true,
            b"SKIPME" if value.eq_ignore_ascii_case(b"NO") => skips_me = false,
            _ => return Err(Reply::syntax()),
        }
    }
    let own = session.client.id;
    let is_wanted = |client: &Client| !(skips_me && client.id == own) && tests.iter().all(|test| test(client));
    let found = session.context.service.clients.find(is_wanted);
    for client in &found {
        match client.id == own {
            // The reply comes first.
            true => session.is_over = true,
            false => client.killed.cancel(),
        }
    }
    match (is_old_form, found.is_empty()) {
        (true, true) => error("No such client"),
        (true, false) => Ok(OK),
        (false, _) => Ok(Reply::Number(found.len() as i64)),
    }
}
