//! One thing that was said, and the texts and names that are safe on all networks.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The legs of a conversation, each with the language of its readers: see [`leg`].
pub(crate) type Legs = BTreeMap<String, Option<String>>;

/// Something that was said: an entry of a conversation's archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Said {
    /// Milliseconds since 1970, never less than those of the entry before.
    pub(crate) at_ms: u64,
    /// The leg that it came by, which it does not leave by: `irc:#talk`; or `web`.
    pub(crate) leg: String,
    pub(crate) speaker: String,
    pub(crate) text: String,
    pub(crate) language: Option<String>,
    /// The id that its network gave it, by which a repetition is known.
    pub(crate) id: Option<String>,
}

impl Said {
    /// Takes a message from a network; `None` if nothing of its text is left.
    pub(crate) fn new(leg: &str, speaker: &str, text: &str, id: Option<String>) -> Option<Said> {
        let text = clean(text);
        let said = Said { at_ms: 0, leg: leg.to_owned(), speaker: name(speaker), text, language: None, id };
        (!said.text.is_empty()).then_some(said)
    }

    /// The name that other networks show.
    pub(crate) fn name(&self) -> String {
        format!("{}@{}", self.speaker, self.leg.split(':').next().unwrap_or_default())
    }
}

/// Checks a leg, and writes it as it is compared: `NETWORK:PLACE`. The program of the network knows what its places are;
/// here they have no letters that would end a line, a word or an address in some protocol.
///
/// # Errors
/// A sentence for the client.
pub(crate) fn leg(text: &str) -> Result<String, String> {
    let is_good = |letter: u8| letter.is_ascii_graphic() && !b"\"'()<>,;\\/&".contains(&letter);
    let is_place = |place: &str| (1..=PLACE_LEN_MAX).contains(&place.len()) && place.bytes().all(is_good);
    if text.split_once(':').is_some_and(|(network, place)| is_name(network) && is_place(place)) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(format!("{text:?} is no leg, such as irc:#talk, xmpp:talk@rooms.example.org, or mail:ann@example.org"))
}

/// Whether this may be the name of a conversation: the local part of its address, and a part of the path of its page.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64)
}

/// A speaker's name, without letters that would make it look like another one.
fn name(text: &str) -> String {
    let hidden = |letter: &char| matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    let shown: String = text.chars().filter(|letter| !letter.is_control() && !hidden(letter)).collect();
    let shown = shown.replace(['@', '<', '>'], "_");
    match shown.trim() {
        "" => "someone".to_owned(),
        shown => shown.chars().take(NAME_LEN_MAX).collect(),
    }
}

/// A text that is safe in each protocol: lines end with `\n`, and there are no other control characters.
fn clean(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n").replace('\t', " ");
    let is_good =
        |letter: &char| (*letter == '\n' || !letter.is_control()) && !matches!(letter, '\u{fffe}' | '\u{ffff}');
    let text: String = text.chars().filter(is_good).collect();
    text.trim_matches('\n').trim_end().to_owned()
}

/// The longest text, in bytes.
pub(crate) const TEXT_LEN_MAX: usize = 4000;
const NAME_LEN_MAX: usize = 40;
const PLACE_LEN_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_no_letters_that_a_protocol_could_take_for_its_own() {
        assert_eq!(clean("\r\na\rb\r\nQUIT\n\0\u{1}c\td\u{ffff}\u{7f} \n\n"), "a\nb\nQUIT\nc d");
        assert_eq!(Said::new("web", "ann", "\u{1}\r\n", None), None);
    }

    #[test]
    fn names_cannot_look_like_those_of_other_networks() {
        let name = |speaker: &str| Said::new("irc:#talk", speaker, "x", None).unwrap().name();
        assert_eq!(name("ann"), "ann@irc");
        assert_eq!(name("ben@mail> <ann"), "ben_mail_ _ann@irc");
        assert_eq!(name("\u{202e}a\nnn\u{200b} "), "ann@irc");
        assert_eq!(name(" \r\n"), "someone@irc");
        assert_eq!(name(&"x".repeat(99)).len(), NAME_LEN_MAX + 4);
    }

    #[test]
    fn legs_name_a_network_and_a_place_in_it() {
        assert_eq!(leg("irc:#Talk"), Ok("irc:#talk".to_owned()));
        assert!(leg("xmpp:talk@rooms.example.org").is_ok() && leg("mail:ann@example.org").is_ok());
        for odd in [
            "",
            "irc",
            "irc:",
            ":x",
            "IRC:#a",
            "irc:#a b",
            "irc:#a,#b",
            "irc:#a\r\nQUIT",
            "xmpp:a@b/c",
            "mail:<a@b>",
            "mail:a@b>",
        ] {
            assert!(leg(odd).is_err(), "{odd}");
        }
        assert!(leg(&format!("mail:{}@b", "a".repeat(300))).is_err());
        assert!(is_name("talk-2") && !is_name("Talk") && !is_name("") && !is_name("a/b") && !is_name(&"a".repeat(41)));
    }
}
