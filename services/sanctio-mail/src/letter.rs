//! Mails as messages, and messages as mails.

use mail_builder::MessageBuilder;
use mail_parser::MessageParser;
use sha1::{Digest, Sha1};

use sanctio_legs::hub::Message;

/// The parts of a mail that its conversation gets.
#[derive(Debug, PartialEq)]
pub(crate) struct Heard {
    /// The name of its author, if it has one.
    pub(crate) name: Option<String>,
    pub(crate) text: String,
    pub(crate) id: String,
}

/// Reads a mail; `None` if a program sent it, such as one that says that its owner is on holiday, or a gateway.
pub(crate) fn read(mail: &[u8], domain: &str) -> Option<Heard> {
    let message = MessageParser::default().parse(mail)?;
    let automatic = message.header_raw("Auto-Submitted").is_some_and(|value| !value.trim().eq_ignore_ascii_case("no"));
    if automatic || message.header_raw("List-Id").is_some_and(|list| list.contains(domain)) {
        return None;
    }
    let name = message.from().and_then(|from| from.first()?.name.as_ref().map(|name| name.to_string()));
    // A client that sends a mail without an id again sends the same bytes.
    let hash = || Sha1::digest(mail).iter().map(|byte| format!("{byte:02x}")).collect();
    let id = message.message_id().filter(|id| id.len() <= ID_LEN_MAX).map_or_else(hash, str::to_owned);
    Some(Heard { name, text: said(&message.body_text(0)?), id })
}

/// The text without its signature, and without what it quotes.
fn said(text: &str) -> String {
    let lines: Vec<&str> = text.lines().take_while(|line| *line != "-- ").collect();
    let is_quote = |at: usize| lines.get(at).is_some_and(|line| line.starts_with('>'));
    // `On …, … wrote:` stands before a quote.
    let is_said = |at: &usize| {
        !is_quote(*at) && !(lines[*at].trim_end().ends_with(':') && (is_quote(at + 1) || is_quote(at + 2)))
    };
    (0..lines.len()).filter(is_said).map(|at| lines[at]).collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Writes a message of a conversation as a mail to this address, as SMTP sends it.
///
/// # Errors
/// The mail cannot be written.
pub(crate) fn write(talk: &str, to: &str, domain: &str, message: &Message) -> std::io::Result<Vec<u8>> {
    let address = format!("{talk}@{domain}");
    let subject: String = message.text.lines().next().unwrap_or_default().chars().take(SUBJECT_LEN).collect();
    let mail = MessageBuilder::new()
        .from((message.name.as_str(), address.as_str()))
        .to(to)
        .reply_to(address.as_str())
        .subject(format!("[{talk}] {subject}"))
        .date((message.at_ms / 1000) as i64)
        .message_id(format!("{}.{}.{talk}@{domain}", message.position, message.at_ms))
        // Clients show mails with the same reference together.
        .references(format!("{talk}@{domain}"))
        .header("List-Id", mail_builder::headers::raw::Raw::new(format!("<{talk}.{domain}>")))
        .header("Auto-Submitted", mail_builder::headers::raw::Raw::new("auto-generated"))
        .text_body(message.text.replace('\n', "\r\n"))
        .write_to_vec()?;
    let mut text = String::from_utf8_lossy(&mail).replace("\r\n.", "\r\n..");
    if text.starts_with('.') {
        text.insert(0, '.');
    }
    let end = if text.ends_with("\r\n") { ".\r\n" } else { "\r\n.\r\n" };
    Ok((text + end).into())
}

const SUBJECT_LEN: usize = 60;
const ID_LEN_MAX: usize = 250;

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "From: =?utf-8?q?Ann_M=C3=BCller?= <ann@example.org>\r\nMessage-ID: <1@example.org>\r\nSubject: x\r\n";

    fn heard(head: &str, body: &str) -> Option<Heard> {
        read(format!("{HEAD}{head}\r\n{body}").as_bytes(), "chat.example")
    }

    #[test]
    fn mails_of_people_are_heard() {
        let text = "Yes.\r\n\r\nOn Monday, Ben wrote:\r\n> Coffee?\r\n>\r\n> Now?\r\nNow: yes\r\n-- \r\nAnn\r\n";
        let mail = heard("", text).unwrap();
        assert_eq!(
            (mail.name.unwrap(), &*mail.text, &*mail.id),
            ("Ann M\u{fc}ller".to_owned(), "Yes.\n\nNow: yes", "1@example.org")
        );
        let html = "Content-Type: text/html; charset=utf-8\r\n";
        assert_eq!(heard(html, "<p>Hello <b>you</b> &amp; me</p><script>x()</script>").unwrap().text, "Hello you & me");
        let multi = "Content-Type: multipart/alternative; boundary=b\r\n";
        let parts = "--b\r\nContent-Transfer-Encoding: base64\r\n\r\naGVsbG8=\r\n--b\r\nContent-Type: text/html\r\n\r\n<i>x</i>\r\n--b--\r\n";
        assert_eq!(heard(multi, parts).unwrap().text, "hello");
        assert_eq!(
            (heard("Auto-Submitted: auto-replied\r\n", "x"), heard("List-Id: <talk.chat.example>\r\n", "x")),
            (None, None)
        );
        assert!(heard("Auto-Submitted: no\r\n", "x").is_some());
        // Without an id, the same bytes are the same mail.
        let of = |text: &str| read(text.as_bytes(), "chat.example").unwrap().id;
        assert_eq!(of("From: ann@example.org\r\n\r\nx"), of("From: ann@example.org\r\n\r\nx"));
        assert_ne!(of("From: ann@example.org\r\n\r\nx"), of("From: ann@example.org\r\n\r\ny"));
    }

    #[test]
    fn a_message_cannot_end_its_mail_or_add_fields() {
        let text = ".\n..\nhello\u{e9}\n.";
        let message = Message {
            position: 7,
            at_ms: 1_790_000_000_000,
            name: "ann\r\nBcc: x@y <z>@irc".to_owned(),
            text: text.to_owned(),
        };
        let mail = String::from_utf8(write("talk", "ben@example.org", "chat.example", &message).unwrap()).unwrap();
        assert!(mail.ends_with("\r\n.\r\n") && mail.matches("\r\n.\r\n").count() == 1, "{mail}");
        assert!(mail.lines().all(|line| line.len() < 998 && !line.starts_with("Bcc")), "{mail}");
        let parsed = MessageParser::default()
            .parse(mail.trim_end_matches(".\r\n").replace("\r\n..", "\r\n.").as_bytes())
            .unwrap()
            .into_owned();
        assert_eq!(parsed.body_text(0).unwrap().trim_end(), text.replace('\n', "\r\n").trim_end());
        assert_eq!(parsed.subject(), Some("[talk] ."));
        assert_eq!(parsed.from().unwrap().first().unwrap().address.as_deref(), Some("talk@chat.example"));
        // Gateways and programs that answer by themselves know it.
        assert_eq!(read(mail.as_bytes(), "chat.example"), None);
    }
}
