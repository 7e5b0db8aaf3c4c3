//! Replies in versions 2 and 3 of the protocol.

use std::io::Write;

use bytes::Bytes;
use dapple::store::{Error, Refusal};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Simple(&'static str),
    Text(String),
    Bulk(Bytes),
    Number(i64),
    Null,
    /// The absence of a list, which version 2 distinguishes from that of a string.
    NullList,
    List(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// Pairs, which version 2 has in one list.
    Pairs(Vec<(Reply, Reply)>),
    /// Something that the client did not ask for just now, which version 3 distinguishes.
    Push(Vec<Reply>),
    /// Several replies, one after the other.
    Several(Vec<Reply>),
    Error(String),
}

pub(super) const OK: Reply = Reply::Simple("OK");

impl Reply {
    pub(super) fn bulk(value: Option<Bytes>) -> Reply {
        value.map_or(Reply::Null, Reply::Bulk)
    }

    /// 1 or 0.
    pub(super) fn yes(is_so: bool) -> Reply {
        Reply::Number(i64::from(is_so))
    }

    pub(super) fn named<const N: usize>(entries: [(&str, Reply); N]) -> Reply {
        Reply::Map(entries.into_iter().map(|(name, reply)| (Reply::Text(name.to_owned()), reply)).collect())
    }

    pub(super) fn text(text: &str) -> Reply {
        Reply::Text(text.to_owned())
    }

    pub(super) fn no_memory() -> Reply {
        Reply::Error("OOM command not allowed when used memory > 'maxmemory'.".to_owned())
    }

    pub(super) fn unknown_subcommand(command: &str, word: &[u8]) -> Reply {
        let word = String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
        Reply::Error(format!("ERR unknown subcommand '{word}'. Try {command} HELP."))
    }

    pub(super) fn syntax() -> Reply {
        Reply::Error("ERR syntax error".to_owned())
    }

    /// The bytes that it takes when it is encoded, and some more.
    pub(super) fn len(&self) -> usize {
        const HEAD: usize = 32;
        let of_pairs = |pairs: &[(Reply, Reply)]| pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        HEAD + match self {
            Reply::Text(text) | Reply::Error(text) => text.len(),
            Reply::Bulk(bytes) => bytes.len(),
            Reply::List(replies) | Reply::Push(replies) | Reply::Several(replies) => {
                replies.iter().map(Reply::len).sum()
            }
            Reply::Map(pairs) | Reply::Pairs(pairs) => of_pairs(pairs),
            Reply::Simple(_) | Reply::Number(_) | Reply::Null | Reply::NullList => 0,
        }
    }

    /// Writes the reply; writing to a vector cannot fail.
    pub(super) fn encode(&self, out: &mut Vec<u8>, is_resp3: bool) {
        let _ = match self {
            Reply::Simple(text) => write!(out, "+{text}\r\n"),
            Reply::Error(text) => write!(out, "-{}\r\n", text.replace(['\r', '\n'], " ")),
            Reply::Number(number) => write!(out, ":{number}\r\n"),
            Reply::Null | Reply::NullList if is_resp3 => write!(out, "_\r\n"),
            Reply::Null => write!(out, "$-1\r\n"),
            Reply::NullList => write!(out, "*-1\r\n"),
            Reply::Text(text) => return encode_bulk(out, text.as_bytes()),
            Reply::Bulk(bytes) => return encode_bulk(out, bytes),
            Reply::List(replies) | Reply::Push(replies) => {
                let mark = if is_resp3 && matches!(self, Reply::Push(_)) { '>' } else { '*' };
                let _ = write!(out, "{mark}{}\r\n", replies.len());
                replies.iter().for_each(|reply| reply.encode(out, is_resp3));
                Ok(())
            }
            Reply::Pairs(pairs) => {
                let _ = write!(out, "*{}\r\n", if is_resp3 { pairs.len() } else { pairs.len() * 2 });
                for (name, value) in pairs {
                    if is_resp3 {
                        let _ = write!(out, "*2\r\n");
                    }
                    name.encode(out, is_resp3);
                    value.encode(out, is_resp3);
                }
                Ok(())
            }
            Reply::Several(replies) => {
                replies.iter().for_each(|reply| reply.encode(out, is_resp3));
                Ok(())
            }
            Reply::Map(entries) => {
                let _ = if is_resp3 {
                    write!(out, "%{}\r\n", entries.len())
                } else {
                    write!(out, "*{}\r\n", entries.len() * 2)
                };
                for (name, reply) in entries {
                    name.encode(out, is_resp3);
                    reply.encode(out, is_resp3);
                }
                Ok(())
            }
        };
    }
}

fn encode_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    let _ = write!(out, "${}\r\n", bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Parses a word as a number; the error is the one that Redis sends.
pub(super) fn integer(word: &[u8]) -> Result<i64, Reply> {
    let number: Option<i64> = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    // Redis accepts only the form that it prints.
    let number = number.filter(|number| number.to_string().as_bytes() == word);
    number.ok_or_else(|| Reply::Error("ERR value is not an integer or out of range".to_owned()))
}

/// Redis has no reply for an unknown outcome; clients treat any error that way.
impl From<Error> for Reply {
    fn from(error: Error) -> Reply {
        Reply::Error(match &error {
            Error::NotApplied(Refusal::Overflow) => "ERR increment or decrement would overflow".to_owned(),
            Error::Unavailable(_) => format!("BUSY {error}"),
            _ => format!("ERR {error}"),
        })
    }
}
