//! A server of SMTP for the addresses of conversations.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dapple::net::TcpListener;
use dapple::task::{First, Group, race};
use dapple::time::{sleep, timeout};
use smtp_proto::Request;

use crate::letter;
use crate::wire::Wire;
use sanctio_legs::hub::{Hub, Leg};

pub(crate) struct Receiver {
    pub(crate) hub: Arc<Hub>,
    pub(crate) domain: String,
}

/// A mail before its text.
#[derive(Default)]
struct Envelope {
    sender: Option<String>,
    legs: Vec<Leg>,
}

/// Serves until the program ends.
pub(crate) async fn serve(listener: TcpListener, receiver: Receiver) {
    let (receiver, sessions) = (Arc::new(receiver), Group::limited(SESSIONS_MAX));
    loop {
        match race(receiver.hub.ending.cancelled(), listener.accept()).await {
            First::Left(()) => break,
            First::Right(Ok((stream, _))) => {
                let receiver = receiver.clone();
                // A client that leaves in the middle is no news.
                sessions.spawn(async move { drop(receiver.session(Wire::new(stream)).await) }).await;
            }
            // Too many open files, for now.
            First::Right(Err(_)) => sleep(ACCEPT_AGAIN).await,
        }
    }
    // Mails that are being kept get their answer.
    let _ = timeout(END_MAX, sessions.all_ended()).await;
}

impl Receiver {
    async fn session(&self, mut wire: Wire) -> io::Result<()> {
        let domain = &self.domain;
        wire.send(format!("220 {domain} sanctio\r\n")).await?;
        let (mut envelope, mut refused) = (Envelope::default(), 0);
        while let Some(line) = wire.line().await? {
            let request = Request::parse(&mut line.iter());
            let reply = match request {
                Ok(Request::Ehlo { .. }) => {
                    format!("250-{domain}\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 SIZE {MAIL_LEN_MAX}")
                }
                Ok(Request::Helo { .. }) => format!("250 {domain}"),
                Ok(Request::Mail { from }) if from.size > MAIL_LEN_MAX => "552 5.3.4 the mail is too long".to_owned(),
                Ok(Request::Mail { from }) => {
                    envelope = Envelope { sender: Some(from.address.to_ascii_lowercase()), legs: Vec::new() };
                    "250 2.1.0 ok".to_owned()
                }
                Ok(Request::Rcpt { to }) => self.recipient(&mut envelope, &to.address).await,
                Ok(Request::Data) if !envelope.legs.is_empty() => {
                    wire.send("354 end with a dot\r\n").await?;
                    let mail = wire.mail(MAIL_LEN_MAX).await?;
                    self.keep(std::mem::take(&mut envelope), mail).await
                }
                Ok(Request::Data) => "503 5.5.1 MAIL and RCPT come first".to_owned(),
                Ok(Request::Rset) => {
                    envelope = Envelope::default();
                    "250 2.0.0 ok".to_owned()
                }
                Ok(Request::Noop { .. }) => "250 2.0.0 ok".to_owned(),
                Ok(Request::Vrfy { .. }) => "252 2.1.5 send a mail and see".to_owned(),
                Ok(Request::Quit) => return wire.send("221 2.0.0 bye\r\n").await,
                Ok(_) => "502 5.5.1 this server does not do that".to_owned(),
                Err(_) => "500 5.5.2 this is no request of SMTP".to_owned(),
            };
            refused += usize::from(reply.starts_with('5'));
            if refused > REFUSED_MAX {
                return wire.send("421 4.7.0 too many errors\r\n").await;
            }
            wire.send(reply + "\r\n").await?;
        }
        Ok(())
    }

    /// Only members of a conversation write to it, and only to this domain.
    async fn recipient(&self, envelope: &mut Envelope, address: &str) -> String {
        let Some(sender) = envelope.sender.clone() else { return "503 5.5.1 MAIL comes first".to_owned() };
        let address = address.to_ascii_lowercase();
        let Some((talk, _)) = address.split_once('@').filter(|(_, domain)| *domain == self.domain) else {
            return format!("550 5.7.1 this server takes mails to {} only", self.domain);
        };
        let legs = match self.hub.known_legs().await {
            Ok(legs) => legs,
            Err(_) => return "451 4.3.0 the conversations are not here now".to_owned(),
        };
        let leg = Leg { talk: talk.to_owned(), place: sender };
        match () {
            () if envelope.legs.contains(&leg) => {}
            () if envelope.legs.len() >= LEGS_MAX => return "452 4.5.3 too many recipients".to_owned(),
            () if legs.contains(&leg) => envelope.legs.push(leg),
            () if legs.iter().any(|leg| leg.talk == talk) => return "550 5.7.1 only members write to it".to_owned(),
            () => return "550 5.1.1 there is no such conversation".to_owned(),
        }
        "250 2.1.5 ok".to_owned()
    }

    /// Answers when all conversations have the mail, which is on the disk then.
    async fn keep(&self, envelope: Envelope, mail: Option<Vec<u8>>) -> String {
        let Some(mail) = mail else { return "552 5.3.4 the mail is too long".to_owned() };
        let Some(heard) = letter::read(&mail, &self.domain) else {
            return "250 2.0.0 ok, though no conversation gets mails of programs".to_owned();
        };
        for leg in &envelope.legs {
            let local = leg.place.split('@').next().unwrap_or_default();
            let name = heard.name.as_deref().unwrap_or(local);
            match self.hub.say(leg, name, &heard.text, &heard.id).await {
                Ok(()) => {}
                Err(problem) if problem.status.is_some_and(|status| status.is_client_error()) => {
                    return "554 5.6.0 the mail has no text that the conversation takes".to_owned();
                }
                // The client sends it again, and a conversation that has it already knows it.
                Err(_) => return "451 4.3.0 the conversations are not here now".to_owned(),
            }
        }
        "250 2.0.0 ok".to_owned()
    }
}

const MAIL_LEN_MAX: usize = 1 << 20;
const SESSIONS_MAX: usize = 100;
const LEGS_MAX: usize = 20;
const REFUSED_MAX: usize = 20;
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
const END_MAX: Duration = Duration::from_secs(2);
