//! IRC, as a client in channels.
//!
//! irc-proto reads the lines. The client of the crate `irc` was rejected: it needs tokio's runtime, and reports a message
//! as sent when it is in a queue.

use irc_proto::{Command, Message, Response};

use sanctio_legs::link::{Event, Protocol};

pub(crate) struct Irc {
    pub(crate) nick: String,
}

/// The state of a connection.
pub(crate) struct State {
    nick: String,
    /// A line that has not ended.
    line: Vec<u8>,
}

impl Protocol for Irc {
    const NETWORK: &str = "irc";
    type State = State;

    fn open(&self) -> (State, Vec<u8>) {
        let nick = self.nick.clone();
        let hello = format!("NICK {nick}\r\nUSER {nick} 0 * :a gateway to other networks\r\n");
        (State { nick, line: Vec::new() }, hello.into())
    }

    fn take(&self, state: &mut State, bytes: &[u8]) -> Result<Vec<Event>, String> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            state.line.extend(piece);
            if state.line.len() > LINE_LEN_MAX {
                return Err("a line is too long".to_owned());
            }
            if state.line.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&std::mem::take(&mut state.line)).into_owned();
                // An odd line is none of the ones that count.
                let message = line.trim_end_matches(['\r', '\n']).parse::<Message>();
                events.extend(message.ok().map_or(Ok(None), |message| state.event(message))?);
            }
        }
        Ok(events)
    }

    fn join(&self, room: &str) -> Vec<u8> {
        format!("JOIN {room}\r\n").into()
    }

    fn part(&self, room: &str) -> Vec<u8> {
        format!("PART {room}\r\n").into()
    }

    fn say(&self, room: &str, number: u64, name: &str, text: &str) -> Vec<u8> {
        let mut lines: Vec<&str> = text.split('\n').flat_map(pieces).filter(|line| !line.trim().is_empty()).collect();
        if lines.len() > LINES_MAX {
            lines.truncate(LINES_MAX - 1);
            lines.push("[…]");
        }
        let lines: String = lines.iter().map(|line| format!("PRIVMSG {room} :<{name}> {line}\r\n")).collect();
        // The server answers in order.
        format!("{lines}PING :{number}\r\n").into()
    }

    fn ping(&self) -> Vec<u8> {
        b"PING :0\r\n".into()
    }

    fn leave(&self) -> Vec<u8> {
        b"QUIT :the gateway ends\r\n".into()
    }
}

impl State {
    fn event(&mut self, message: Message) -> Result<Option<Event>, String> {
        let speaker = message.source_nickname().unwrap_or_default().to_owned();
        let is_own = speaker.eq_ignore_ascii_case(&self.nick);
        Ok(Some(match message.command {
            Command::PING(token, _) => Event::Answer(format!("PONG :{token}\r\n").into()),
            Command::PONG(_, Some(token)) => return Ok(token.parse().ok().map(Event::Shown)),
            Command::ERROR(text) => return Err(text),
            Command::JOIN(room, ..) if is_own => Event::In(room.to_ascii_lowercase()),
            Command::KICK(room, nick, why) if nick.eq_ignore_ascii_case(&self.nick) => {
                Event::Out(room.to_ascii_lowercase(), format!("{speaker} has removed it: {}", why.unwrap_or_default()))
            }
            Command::NICK(nick) if is_own => {
                self.nick = nick;
                return Ok(None);
            }
            // A NOTICE gets no answer, by the rules of IRC, and other gateways show none either.
            Command::PRIVMSG(room, text) if !is_own && room.starts_with('#') => {
                let room = room.to_ascii_lowercase();
                return Ok(text_of(&text).map(|text| Event::Said { room, speaker, text, id: None }));
            }
            Command::Response(Response::RPL_WELCOME, args) => {
                self.nick = args.into_iter().next().ok_or("a welcome without a name")?;
                Event::Ready
            }
            Command::Response(Response::ERR_NICKNAMEINUSE, _) => {
                self.nick.push('_');
                if self.nick.len() > NICK_LEN_MAX {
                    return Err("all names are in use; choose another one with --nick".to_owned());
                }
                Event::Answer(format!("NICK {}\r\n", self.nick).into())
            }
            Command::Response(response, args) if is_no_entry(response) && args.len() > 2 => {
                Event::Out(args[1].to_ascii_lowercase(), args[2..].join(" "))
            }
            _ => return Ok(None),
        }))
    }
}

fn is_no_entry(response: Response) -> bool {
    use Response::*;
    matches!(
        response,
        ERR_NOSUCHCHANNEL
            | ERR_TOOMANYCHANNELS
            | ERR_CHANNELISFULL
            | ERR_INVITEONLYCHAN
            | ERR_BANNEDFROMCHAN
            | ERR_BADCHANNELKEY
    )
}

/// A message without colors, and an action as words; `None` if it is a request for the client itself.
fn text_of(text: &str) -> Option<String> {
    let text = match text.strip_prefix('\u{1}') {
        Some(request) => format!("/me {}", request.strip_prefix("ACTION ")?.trim_end_matches('\u{1}')),
        None => text.to_owned(),
    };
    let mut parts = text.split('\u{3}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A color is one or two digits, and maybe a comma and another one.
        let digits = |text: &str| text.bytes().take(2).take_while(u8::is_ascii_digit).count();
        let first = digits(part);
        let second = part[first..].strip_prefix(',').filter(|_| first > 0).map_or(0, digits);
        plain += &part[first + if second > 0 { second + 1 } else { 0 }..];
    }
    Some(plain)
}

/// The pieces of a line that fit in messages of IRC.
fn pieces(mut line: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while line.len() > PIECE_LEN_MAX {
        let fits = |(at, _): &(usize, char)| *at <= PIECE_LEN_MAX;
        let end = line.char_indices().take_while(fits).last().map_or(line.len(), |(at, _)| at);
        // Between two words, unless the piece would be short.
        let end = line[..end].rfind(' ').filter(|space| *space > end / 2).unwrap_or(end);
        let (piece, rest) = line.split_at(end);
        pieces.push(piece);
        line = rest.trim_start();
    }
    pieces.push(line);
    pieces
}

/// A line has 512 bytes, and 8191 of tags before them.
const LINE_LEN_MAX: usize = 9000;
/// 512 bytes have room for this, the source that the server adds, the channel and the speaker.
const PIECE_LEN_MAX: usize = 250;
const LINES_MAX: usize = 10;
const NICK_LEN_MAX: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn events(lines: &str) -> Result<Vec<Event>, String> {
        let irc = Irc { nick: "sanctio".to_owned() };
        let (mut state, _) = irc.open();
        let mut events = Vec::new();
        // In small pieces, as the network may deliver them.
        for piece in lines.as_bytes().chunks(3) {
            events.extend(irc.take(&mut state, piece)?);
        }
        Ok(events)
    }

    #[test]
    fn lines_are_events() {
        let said = |text: &str| {
            let (room, speaker, text) = ("#talk".to_owned(), "Ann".to_owned(), text.to_owned());
            Event::Said { room, speaker, text, id: None }
        };
        let lines = ":s 001 sanctio :Welcome\r\n:sanctio!u@h JOIN :#Talk\r\n:Ann!u@h PRIVMSG #Talk :\u{3}04,1red\u{3} \u{2}hat\r\nPING :x\r\n\
            :sanctio!u@h PRIVMSG #talk :own\r\n:Ann!u@h NOTICE #talk :no\r\n:Ann!u@h PRIVMSG sanctio :private\r\n\
            :Ann!u@h PRIVMSG #talk :\u{1}ACTION waves\u{1}\r\n:Ann!u@h PRIVMSG #talk :\u{1}VERSION\u{1}\r\nodd\r\n\r\n\
            :s PONG s :17\r\n:Ben!u@h KICK #talk sanctio :why\r\n:s 474 sanctio #talk :banned\r\n";
        let expected = [
            Event::Ready,
            Event::In("#talk".to_owned()),
            said("red \u{2}hat"),
            Event::Answer(b"PONG :x\r\n".into()),
            said("/me waves"),
            Event::Shown(17),
            Event::Out("#talk".to_owned(), "Ben has removed it: why".to_owned()),
            Event::Out("#talk".to_owned(), "banned".to_owned()),
        ];
        assert_eq!(events(lines).unwrap(), expected);
        assert_eq!(events(":s 433 * sanctio :in use\r\n").unwrap(), [Event::Answer(b"NICK sanctio_\r\n".into())]);
        assert!(events(&":s 433 * sanctio :in use\r\n".repeat(40)).is_err());
        assert!(events(&"x".repeat(10_000)).is_err() && events("ERROR :bye\r\n").is_err());
    }

    #[test]
    fn its_own_name_is_the_one_that_the_server_says() {
        let own = |nick: &str| format!(":{nick}!u@h JOIN #talk\r\n:{nick}!u@h PRIVMSG #talk :own\r\n");
        // It is cut at first, and changed by the server later.
        let lines = format!(":s 001 sanct :hi\r\n{}:sanct!u@h NICK :Guest7\r\n{}", own("sanct"), own("guest7"));
        let entered = || Event::In("#talk".to_owned());
        assert_eq!(events(&lines).unwrap(), [Event::Ready, entered(), entered()]);
        // Another one that takes the name then is not it.
        let said = |speaker: &str| {
            let (room, text) = ("#talk".to_owned(), "x".to_owned());
            Event::Said { room, speaker: speaker.to_owned(), text, id: None }
        };
        let lines = format!("{lines}:Ann!u@h NICK sanct\r\n:sanct!u@h PRIVMSG #talk :x\r\n");
        assert_eq!(events(&lines).unwrap()[3..], [said("sanct")]);
    }

    #[test]
    fn texts_fit_in_lines() {
        let irc = Irc { nick: "sanctio".to_owned() };
        let say = |text: &str| String::from_utf8(irc.say("#talk", 7, "ann@xmpp", text)).unwrap();
        assert_eq!(say("a\n\nb"), "PRIVMSG #talk :<ann@xmpp> a\r\nPRIVMSG #talk :<ann@xmpp> b\r\nPING :7\r\n");
        let long = say(&"w\u{f6}rter ".repeat(500));
        assert!(long.lines().all(|line| line.len() < 400) && long.lines().count() == LINES_MAX + 1);
        assert!(long.contains("<ann@xmpp> […]\r\n"));
        let words = "word ".repeat(200);
        assert_eq!(pieces(words.trim_end()).join(" "), words.trim_end());
        assert_eq!(pieces(&"\u{f6}".repeat(400)).concat(), "\u{f6}".repeat(400));
    }
}
