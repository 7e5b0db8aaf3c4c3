//! A client of SMTP, which gives messages to a server as mails to members.

use std::io;

use crate::letter;
use crate::wire::Wire;
use sanctio_legs::hub::{Hub, Leg, Message, Network};

pub(crate) struct Sender {
    /// The server.
    pub(crate) relay: String,
    pub(crate) domain: String,
}

impl Network for Sender {
    /// Sends a mail, which is claimed when the server has agreed to everything but its text.
    async fn deliver(&self, hub: &Hub, leg: &Leg, message: &Message) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", self.relay);
        let mail = letter::write(&leg.talk, &leg.place, &self.domain, message).map_err(failed)?;
        let mut wire = Wire::connect(&self.relay).await.map_err(failed)?;
        let (from, to) = (format!("{}@{}", leg.talk, self.domain), &leg.place);
        let requests = [
            String::new(),
            format!("EHLO {}\r\n", self.domain),
            format!("MAIL FROM:<{from}>\r\n"),
            format!("RCPT TO:<{to}>\r\n"),
            "DATA\r\n".to_owned(),
        ];
        for request in requests {
            wire.send(&request).await.map_err(failed)?;
            let (code, text) = reply(&mut wire).await.map_err(failed)?;
            match code {
                200..400 => {}
                // It would be refused again.
                500.. if request.starts_with("RCPT") => {
                    eprintln!("mail: message {} of {} is refused for {to}: {text}", message.position, leg.talk);
                    return hub.claim(leg, message).await.map(drop);
                }
                _ => return Err(format!("{}: {text}", self.relay)),
            }
        }
        // Without its end, the server does not take the mail.
        if !hub.claim(leg, message).await? {
            return Ok(());
        }
        let sent = wire.send(mail).await;
        let answer = match sent {
            Ok(()) => reply(&mut wire).await,
            Err(error) => Err(error),
        };
        if let Some(why) =
            answer.map_or_else(|error| Some(error.to_string()), |(code, text)| (code >= 300).then_some(text))
        {
            eprintln!("mail: message {} of {} may be lost for {to}: {why}", message.position, leg.talk);
        }
        let _ = wire.send("QUIT\r\n").await;
        Ok(())
    }
}

/// The code of a reply, and its last line.
async fn reply(wire: &mut Wire) -> io::Result<(u16, String)> {
    for _ in 0..LINES_MAX {
        let line = wire.line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        let code = line.get(..3).and_then(|code| code.parse().ok()).filter(|code| (200..600).contains(code));
        let code = code.ok_or_else(|| io::Error::other(format!("this is no reply of SMTP: {line:?}")))?;
        if line.as_bytes().get(3) != Some(&b'-') {
            return Ok((code, line));
        }
    }
    Err(io::Error::other("the reply has too many lines"))
}

const LINES_MAX: usize = 100;
