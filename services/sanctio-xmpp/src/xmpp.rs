//! XMPP, as a component of a server (XEP-0114) in rooms (XEP-0045).
//!
//! rxml splits the stream into tokens of bounded length, and minidom makes elements of them. The crates `tokio-xmpp` and
//! `xmpp` were rejected: they need tokio's runtime.

use std::collections::HashMap;

use minidom::Element;
use minidom::tree_builder::TreeBuilder;
use rxml::error::EndOrError;
use rxml::{Parse, RawParser};
use sha1::{Digest, Sha1};

use sanctio_legs::link::{Event, Protocol};

pub(crate) struct Xmpp {
    /// The name of the component, and its secret.
    pub(crate) name: String,
    pub(crate) secret: String,
    pub(crate) nick: String,
}

/// The state of a connection.
pub(crate) struct State {
    parser: RawParser,
    tree: TreeBuilder,
    /// Whether the server's stream has begun.
    is_open: bool,
    /// Bytes since the last whole stanza.
    len: usize,
    /// The names of the gateway in its rooms, which a room may change.
    nicks: HashMap<String, String>,
}

impl Protocol for Xmpp {
    const NETWORK: &str = "xmpp";
    type State = State;

    fn open(&self) -> (State, Vec<u8>) {
        let (parser, tree) = (RawParser::new(), TreeBuilder::new());
        let state = State { parser, tree, is_open: false, len: 0, nicks: HashMap::new() };
        let name = escaped(&self.name);
        let hello =
            format!("<?xml version='1.0'?><stream:stream xmlns='{COMPONENT}' xmlns:stream='{STREAM}' to='{name}'>");
        (state, hello.into())
    }

    fn take(&self, state: &mut State, bytes: &[u8]) -> Result<Vec<Event>, String> {
        let (mut events, mut rest) = (Vec::new(), bytes);
        state.len += bytes.len();
        loop {
            match state.parser.parse(&mut rest, false) {
                Ok(Some(event)) => state.tree.process_event(event).map_err(|error| error.to_string())?,
                Ok(None) => return Err("the server ended the stream".to_owned()),
                Err(EndOrError::NeedMoreData) => break,
                Err(EndOrError::Error(error)) => return Err(format!("this is not XML: {error}")),
            }
            match state.tree.depth() {
                0 if state.is_open => return Err("the server ended the stream".to_owned()),
                1 if !state.is_open => {
                    state.is_open = true;
                    let id = state.tree.top().and_then(|stream| stream.attr("id")).unwrap_or_default();
                    let hash = Sha1::digest(format!("{id}{}", self.secret));
                    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
                    events.push(Event::Answer(format!("<handshake>{hash}</handshake>").into()));
                }
                1 => {
                    while let Some(stanza) = state.tree.unshift_child() {
                        state.len = rest.len();
                        self.add_events(&stanza, &mut state.nicks, &mut events)?;
                    }
                }
                _ => {}
            }
        }
        match state.len > STANZA_LEN_MAX {
            true => Err("a stanza is too long".to_owned()),
            false => Ok(events),
        }
    }

    fn join(&self, room: &str) -> Vec<u8> {
        // Earlier messages are not shown again.
        let x = "<x xmlns='http://jabber.org/protocol/muc'><history maxstanzas='0'/></x>";
        format!("<presence from='{}' to='{}/{}'>{x}</presence>", self.own(), escaped(room), escaped(&self.nick)).into()
    }

    fn part(&self, room: &str) -> Vec<u8> {
        let to = format!("{}/{}", escaped(room), escaped(&self.nick));
        format!("<presence type='unavailable' from='{}' to='{to}'/>", self.own()).into()
    }

    fn say(&self, room: &str, number: u64, name: &str, text: &str) -> Vec<u8> {
        let body = escaped(&format!("<{name}> {text}"));
        let (from, to) = (self.own(), escaped(room));
        format!("<message type='groupchat' id='{number}' from='{from}' to='{to}'><body>{body}</body></message>").into()
    }

    fn ping(&self) -> Vec<u8> {
        // The server hands it to this component itself.
        let (from, to) = (self.own(), escaped(&self.name));
        format!("<iq type='get' id='0' from='{from}' to='{to}'><ping xmlns='urn:xmpp:ping'/></iq>").into()
    }

    fn leave(&self) -> Vec<u8> {
        b"</stream:stream>".into()
    }
}

impl Xmpp {
    fn own(&self) -> String {
        format!("gateway@{}", escaped(&self.name))
    }

    fn add_events(
        &self,
        stanza: &Element,
        nicks: &mut HashMap<String, String>,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        let from = stanza.attr("from").unwrap_or_default();
        let (room, nick) = from.split_once('/').unwrap_or((from, ""));
        let room = room.to_ascii_lowercase();
        let is_own = nicks.get(&room).is_some_and(|own| own == nick);
        let child = |name: &str| stanza.children().find(|child| child.name() == name);
        let why =
            || child("error").and_then(|error| error.children().next()).map_or("an error", Element::name).to_owned();
        match (stanza.name(), stanza.attr("type").unwrap_or_default()) {
            ("error", _) => return Err(stanza.children().map(|child| child.name().replace('-', " ")).collect()),
            ("handshake", _) => events.push(Event::Ready),
            ("presence", "error") | ("message", "error") => events.push(Event::Out(room, why())),
            // The presence with the new name follows.
            ("presence", "unavailable") if is_own && has_status(stanza, "303") => {}
            ("presence", "unavailable") if is_own => {
                nicks.remove(&room);
                events.push(Event::Out(room, "it was removed".to_owned()));
            }
            // The room says which one is the gateway: its name may be another one than it asked for.
            ("presence", "") if has_status(stanza, "110") => {
                nicks.insert(room.clone(), nick.to_owned());
                // A new room is locked until its owner takes the defaults.
                if has_status(stanza, "201") {
                    let query = "<query xmlns='http://jabber.org/protocol/muc#owner'><x xmlns='jabber:x:data' type='submit'/></query>";
                    let iq =
                        format!("<iq type='set' id='1' from='{}' to='{}'>{query}</iq>", self.own(), escaped(&room));
                    events.push(Event::Answer(iq.into()));
                }
                events.push(Event::In(room));
            }
            ("message", "groupchat") if is_own => {
                events.extend(stanza.attr("id").and_then(|id| id.parse().ok()).map(Event::Shown));
            }
            ("message", "groupchat") if !nick.is_empty() && child("delay").is_none() => {
                // An id that the sender chose could be that of another message.
                let is_of_room = |id: &&Element| id.name() == "stanza-id" && id.attr("by") == Some(&*room);
                let id = stanza.children().find(is_of_room).and_then(|id| id.attr("id")).map(str::to_owned);
                let (speaker, text) = (nick.to_owned(), child("body").map(Element::text));
                events.extend(text.map(|text| Event::Said { room, speaker, text, id }));
            }
            ("iq", "get" | "set") => {
                let error =
                    "<error type='cancel'><service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>";
                let (id, to) = (escaped(stanza.attr("id").unwrap_or_default()), escaped(from));
                let own = escaped(stanza.attr("to").unwrap_or_default());
                let iq = format!("<iq type='error' id='{id}' from='{own}' to='{to}'>{error}</iq>");
                events.push(Event::Answer(iq.into()));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether a presence in a room has this status.
fn has_status(presence: &Element, code: &str) -> bool {
    presence.children().flat_map(Element::children).any(|status| status.attr("code") == Some(code))
}

fn escaped(text: &str) -> String {
    let safe = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    safe.replace('"', "&quot;").replace('\'', "&apos;")
}

const COMPONENT: &str = "jabber:component:accept";
const STREAM: &str = "http://etherx.jabber.org/streams";
const STANZA_LEN_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "<?xml version='1.0'?><stream:stream xmlns:stream='http://etherx.jabber.org/streams' \
        xmlns='jabber:component:accept' id='3BF96D32'>";

    fn events(stanzas: &str) -> Result<Vec<Event>, String> {
        let xmpp = Xmpp { name: "gw.example".to_owned(), secret: "secret".to_owned(), nick: "sanctio".to_owned() };
        let (mut state, _) = xmpp.open();
        let mut events = Vec::new();
        for piece in format!("{HEAD}{stanzas}").as_bytes().chunks(5) {
            events.extend(xmpp.take(&mut state, piece)?);
        }
        // `printf 3BF96D32secret | sha1sum`
        assert_eq!(
            events.remove(0),
            Event::Answer(b"<handshake>b09ea9b3b7f586be8a08d0a3dd7466f110aeb136</handshake>".into())
        );
        Ok(events)
    }

    #[test]
    fn stanzas_are_events() {
        let all = events(
            "<handshake/> <presence from='Talk@rooms.example/sanctio'><x xmlns='m'><status code='110'/></x></presence>\
             <message type='groupchat' from='talk@rooms.example/sanctio' id='17'><body>own</body></message>\
             <message type='groupchat' from='talk@rooms.example/Ann' id='1'><body>a &lt;b&gt;</body>\
             <stanza-id xmlns='urn:xmpp:sid:0' by='talk@rooms.example' id='x7'/><stanza-id xmlns='urn:xmpp:sid:0' by='evil' id='x8'/></message>\
             <message type='groupchat' from='talk@rooms.example/Ann'><body>old</body><delay xmlns='urn:xmpp:delay'/></message>\
             <message type='groupchat' from='talk@rooms.example'><subject>none</subject></message>\
             <message type='error' from='talk@rooms.example'><error><not-acceptable xmlns='s'/></error></message>",
        );
        let room = || "talk@rooms.example".to_owned();
        let said = Event::Said {
            room: room(),
            speaker: "Ann".to_owned(),
            text: "a <b>".to_owned(),
            id: Some("x7".to_owned()),
        };
        let out = Event::Out(room(), "not-acceptable".to_owned());
        assert_eq!(all.unwrap(), [Event::Ready, Event::In(room()), Event::Shown(17), said, out]);
        let iq = events("<iq type='get' id=\"&apos;1\" from='ann@x/y' to='gw.example'><q xmlns='q'/></iq>").unwrap();
        assert!(
            matches!(&iq[..], [Event::Answer(text)] if String::from_utf8_lossy(text).starts_with("<iq type='error' id='&apos;1' from='gw.example' to='ann@x/y'>"))
        );
    }

    #[test]
    fn its_own_name_is_the_one_that_the_room_says() {
        let presence = |nick: &str, kind: &str, codes: &[u16]| {
            let codes: String = codes.iter().map(|code| format!("<status code='{code}'/>")).collect();
            format!("<presence from='talk@rooms.example/{nick}'{kind}><x xmlns='m'>{codes}</x></presence>")
        };
        let message = |nick: &str, id: u64| {
            format!("<message type='groupchat' from='talk@rooms.example/{nick}' id='{id}'><body>a</body></message>")
        };
        let room = || "talk@rooms.example".to_owned();
        let said = Event::Said { room: room(), speaker: "sanctio".to_owned(), text: "a".to_owned(), id: None };
        // Another client has its name.
        let mut stanzas = presence("sanctio", "", &[]) + &presence("sanctio-2", "", &[110, 210]);
        stanzas += &(message("sanctio-2", 1) + &message("sanctio", 2));
        // And now it gets a third one.
        stanzas += &(presence("sanctio-2", " type='unavailable'", &[303, 110]) + &presence("gw", "", &[110]));
        stanzas += &(message("gw", 3) + &presence("sanctio", " type='unavailable'", &[]));
        stanzas += &presence("gw", " type='unavailable'", &[307, 110]);
        let out = Event::Out(room(), "it was removed".to_owned());
        let expected = [Event::In(room()), Event::Shown(1), said, Event::In(room()), Event::Shown(3), out];
        assert_eq!(events(&stanzas).unwrap(), expected);
    }

    #[test]
    fn a_hostile_server_is_left() {
        assert_eq!(events("<stream:error><host-unknown xmlns='s'/></stream:error>").unwrap_err(), "host unknown");
        for odd in ["</stream:stream>", "<a></b>", "<!DOCTYPE x [<!ENTITY e 'e'>]>", "<a>&e;</a>", "\0"] {
            assert!(events(odd).is_err(), "{odd}");
        }
        assert!(events(&format!("<message>{}", "<a>x</a>".repeat(40_000))).is_err());
        assert!(events(&format!("<message a='{}'/>", "x".repeat(300_000))).is_err());
        // Many short ones are no long one.
        assert!(events(&"<message><a>x</a></message>".repeat(20_000)).is_ok());
    }

    #[test]
    fn texts_stay_texts() {
        let xmpp = Xmpp { name: "gw.example".to_owned(), secret: String::new(), nick: "sanctio".to_owned() };
        let message = String::from_utf8(xmpp.say("talk@rooms.example", 7, "ann@irc", "</body><x a='\"&'>\nb")).unwrap();
        let body = "<body>&lt;ann@irc&gt; &lt;/body&gt;&lt;x a=&apos;&quot;&amp;&apos;&gt;\nb</body></message>";
        assert!(message.ends_with(body), "{message}");
    }
}
