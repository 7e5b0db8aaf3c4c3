//! `CLIENT`.

use std::collections::HashSet;

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

/// Other clients see names: a line of `CLIENT LIST` has a bound.
const NAME_LEN_MAX: usize = 4096;

fn is_switch(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"ON") || word.eq_ignore_ascii_case(b"OFF")
}

fn error<T>(text: &str) -> Result<T, Reply> {
    Err(Reply::Error(format!("ERR {text}")))
}

fn is_shown(word: &[u8]) -> bool {
    word.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// A copy of a name, which shares no memory with the request; refuses those that would break the lines that show them.
pub(super) fn name(name: &[u8]) -> Result<Bytes, Reply> {
    if !is_shown(name) {
        return error("Client names cannot contain spaces, newlines or special characters.");
    }
    copy("the name of a client", name)
}

fn copy(what: &str, value: &[u8]) -> Result<Bytes, Reply> {
    if value.len() > NAME_LEN_MAX {
        return error(&format!("{what} has at most {NAME_LEN_MAX} bytes"));
    }
    Ok(Bytes::copy_from_slice(value))
}

fn set_info(session: &mut Session<'_>, option: &[u8], value: &[u8]) -> Result<(), Reply> {
    let known = [&b"lib-name"[..], b"lib-ver"];
    let at = known.iter().position(|known| option.eq_ignore_ascii_case(known));
    let option = String::from_utf8_lossy(option);
    let Some(at) = at else { return error(&format!("Unrecognized option '{option}'")) };
    if !is_shown(value) {
        return error(&format!("{option} cannot contain spaces, newlines or special characters."));
    }
    session.library[at] = copy(&option, value)?;
    session.show();
    Ok(())
}

/// The word of a kind of clients. There are no replicas and no master.
fn kind(word: &[u8]) -> Result<&'static str, Reply> {
    let mut kinds = ["normal", "pubsub", "master", "replica", "slave"].into_iter();
    let known = kinds.find(|known| word.eq_ignore_ascii_case(known.as_bytes()));
    known.map_or_else(|| error(&format!("Unknown client type '{}'", String::from_utf8_lossy(word))), Ok)
}

fn list(session: &Session<'_>, filter: &[Bytes]) -> Result<Reply, Reply> {
    let clients = &session.context.service.clients;
    let lines = match filter {
        [] => clients.all().iter().map(|client| client.line()).collect(),
        [option, wanted] if option.eq_ignore_ascii_case(b"TYPE") => {
            let wanted = kind(wanted)?;
            clients.all().iter().filter(|client| client.kind() == wanted).map(|client| client.line()).collect()
        }
        // In the order of the request.
        [option, ids @ ..] if option.eq_ignore_ascii_case(b"ID") && !ids.is_empty() => {
            let Ok(ids) = ids.iter().map(|id| integer(id)).collect::<Result<Vec<i64>, _>>() else {
                return error("Invalid client ID");
            };
            let mut seen = HashSet::new();
            let ids = ids.into_iter().filter(|id| seen.insert(*id));
            ids.filter_map(|id| clients.of(u64::try_from(id).ok()?)).map(|client| client.line()).collect()
        }
        _ => return Err(Reply::syntax()),
    };
    Ok(Reply::Text(lines))
}

/// The clients that `CLIENT KILL` ends: those with all of these properties.
#[derive(Default)]
struct Filter {
    id: Option<u64>,
    addr: Option<Bytes>,
    laddr: Option<Bytes>,
    kind: Option<&'static str>,
    keeps_me: bool,
}

impl Filter {
    fn parse(words: &[Bytes]) -> Result<Filter, Reply> {
        // The old form.
        if let [addr] = words {
            return Ok(Filter { addr: Some(addr.clone()), ..Filter::default() });
        }
        let mut filter = Filter { keeps_me: true, ..Filter::default() };
        // Of several options of one kind, the last one counts.
        for pair in words.chunks(2) {
            let [option, value] = pair else { return Err(Reply::syntax()) };
            match option.to_ascii_uppercase().as_slice() {
                b"ID" => match integer(value).ok().and_then(|id| u64::try_from(id).ok()) {
                    None | Some(0) => return error("client-id should be greater than 0"),
                    id => filter.id = id,
                },
                b"ADDR" => filter.addr = Some(value.clone()),
                b"LADDR" => filter.laddr = Some(value.clone()),
                b"TYPE" => filter.kind = Some(kind(value)?),
                // All clients are the default user.
                b"USER" if &value[..] == b"default" => {}
                b"USER" => return error(&format!("No such user '{}'", String::from_utf8_lossy(value))),
                b"SKIPME" if value.eq_ignore_ascii_case(b"YES") => filter.keeps_me = true,
                b"SKIPME" if value.eq_ignore_ascii_case(b"NO") => filter.keeps_me = false,
                _ => return Err(Reply::syntax()),
            }
        }
        Ok(filter)
    }

    fn has(&self, client: &Client, own: u64) -> bool {
        !(self.keeps_me && client.id == own)
            && self.addr.as_ref().is_none_or(|addr| client.addr.as_bytes() == addr)
            && self.laddr.as_ref().is_none_or(|laddr| client.laddr.as_bytes() == laddr)
            && self.kind.is_none_or(|kind| client.kind() == kind)
    }
}

/// Kills one client by its address, or all that pairs of words name.
fn kill(session: &mut Session<'_>, words: &[Bytes]) -> Result<Reply, Reply> {
    let filter = Filter::parse(words)?;
    let (own, clients) = (session.client.id, &session.context.service.clients);
    let mut found = filter.id.map_or_else(|| clients.all(), |id| clients.of(id).into_iter().collect());
    found.retain(|client| filter.has(client, own));
    for client in &found {
        match client.id == own {
            // The reply comes first.
            true => session.is_over = true,
            false => client.killed.cancel(),
        }
    }
    match (words.len() == 1, found.is_empty()) {
        (true, true) => error("No such client"),
        (true, false) => Ok(OK),
        (false, _) => Ok(Reply::Number(found.len() as i64)),
    }
}
