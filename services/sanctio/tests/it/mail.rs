//! Conversations by mail: curl sends, and a server of aiosmtpd takes what the gateway sends.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use crate::networks::{MailServer, Mailbox, has_python};
use crate::programs::{Gateway, has};

const CURL: [(&str, &str); 1] = [("curl", "curl")];

#[test]
fn members_write_and_get_mails() {
    if !has(&CURL) || !has_python("aiosmtpd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut server = MailServer::start(folder.path());
    let gateway = Gateway::start(folder.path(), &[]);
    assert_eq!(gateway.put("talk", r#"{"mail:ann@example.org": "en", "mail:Ben@example.org": "de"}"#), 201);
    let mail = Mailbox::start(&gateway, &server);
    gateway.wait_for_leg("mail:ann@example.org");
    gateway.wait_for_leg("mail:ben@example.org");
    let hello = "From: Ann Smith <ann@example.org>\nMessage-ID: <1@x>\nSubject: Hi\n\nHello, world!\n.\n-- \nAnn\n";
    // A client that got no answer sends the same mail again.
    assert_eq!([0; 2].map(|_| mail.send("ann@example.org", "TALK@chat.example", hello)), [true; 2]);
    assert_eq!(gateway.archive(""), ["Ann Smith@mail: Hello, world!\n."]);
    // The other member gets it in the own language, and the author does not get it.
    let to_ben = server.wait_for("ben@example.org", 1).remove(0);
    assert!(to_ben.contains("Hallo, Welt!\n.\n") && to_ben.contains("Subject: [talk] Hallo, Welt!"), "{to_ben}");
    assert!(to_ben.contains("From: \"Ann Smith@mail\" <talk@chat.example>"), "{to_ben}");
    let one = "Subject: one\n\n> quoted\nReply\n";
    assert!(mail.send("ben@example.org", "talk@chat.example", one));
    assert!(server.wait_for("ann@example.org", 1)[0].contains("\nReply\n"));
    // Mails of programs go nowhere, also those of the gateway.
    assert!(mail.send(
        "ann@example.org",
        "talk@chat.example",
        "Auto-Submitted: auto-replied\nSubject: x\n\nI am away\n"
    ));
    assert!(mail.send("ben@example.org", "talk@chat.example", &to_ben));
    // A server that is away gets them later, each once.
    server.stop();
    assert_eq!((gateway.say("cal", "three"), gateway.say("cal", "four")), (200, 200));
    server.start_again();
    let all = server.wait_for("ann@example.org", 3);
    assert!(
        all.len() == 3 && all.iter().any(|mail| mail.contains("three")) && all.iter().any(|mail| mail.contains("four"))
    );
    assert_eq!(gateway.archive("").len(), 4);
    // A member that the server refuses does not hold up others, nor later messages.
    assert_eq!(gateway.put("talk", r#"{"mail:no one@example.org": null}"#), 422);
    assert!(mail.process.end() && gateway.end());
}

#[test]
fn strangers_and_hostile_clients_are_refused() {
    if !has(&CURL) || !has_python("aiosmtpd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = MailServer::start(folder.path());
    let mut gateway = Some(Gateway::start(folder.path(), &[]));
    let put = |gateway: &Option<Gateway>| gateway.as_ref().unwrap().put("talk", r#"{"mail:ann@example.org": null}"#);
    assert_eq!(put(&gateway), 201);
    let mail = Mailbox::start(gateway.as_ref().unwrap(), &server);
    let mut client = mail.client();
    let mut ask = |text: &str| client.ask(text);
    assert!(ask("").starts_with("220 chat.example") && ask("EHLO x\r\n").starts_with("250 SIZE 1048576"));
    assert!(ask("DATA\r\n").starts_with("503") && ask("RCPT TO:<talk@chat.example>\r\n").starts_with("503"));
    assert!(ask("MAIL FROM:<ann@example.org> SIZE=9999999\r\n").starts_with("552"));
    assert!(ask("MAIL FROM:<eve@example.org>\r\n").starts_with("250"));
    assert!(ask("RCPT TO:<talk@chat.example>\r\n").starts_with("550 5.7.1 only members"));
    // The return path of a notice that a mail was not delivered.
    assert!(ask("MAIL FROM:<>\r\n").starts_with("250") && ask("RCPT TO:<talk@chat.example>\r\n").starts_with("550"));
    assert!(ask("MAIL FROM:<ann@example.org>\r\n").starts_with("250"));
    assert!(
        ask("RCPT TO:<ben@example.org>\r\n").starts_with("550 5.7.1")
            && ask("RCPT TO:<x@chat.example>\r\n").starts_with("550 5.1.1")
    );
    // In one piece, as pipelining allows; only the right line ends end a mail, so that nothing is behind it.
    let smuggled = "RCPT TO:<talk@chat.example>\r\nDATA\r\nSubject: x\r\n\r\none\n.\nMAIL FROM:<eve@example.org>\n.\r\ntwo\r\n..three\r\n.\r\nNOOP\r\n";
    assert!(
        ask(smuggled).starts_with("250")
            && ask("").starts_with("354")
            && ask("").starts_with("250")
            && ask("").starts_with("250")
    );
    let archive = gateway.as_ref().unwrap().archive("");
    assert_eq!(archive, ["ann@mail: one\n.\nMAIL FROM:<eve@example.org>\n.\ntwo\n.three"]);
    let mut long = mail.client();
    long.ask("");
    let text = format!(
        "MAIL FROM:<ann@example.org>\r\nRCPT TO:<talk@chat.example>\r\nDATA\r\n{}\r\n.\r\n",
        "x\r\n".repeat(400_000)
    );
    long.ask(&text);
    assert!((0..3).map(|_| long.ask("")).any(|reply| reply.starts_with("552")), "a mail that is too long");
    let mut odd = mail.client();
    odd.ask("");
    assert!((0..30).any(|_| odd.ask("HAX\r\n").starts_with("421")));
    let mut line = mail.client();
    line.ask("");
    // The gateway may close it before all is sent.
    let _ = line.stream.write_all("x".repeat(100_000).as_bytes());
    assert_eq!(line.ask(""), "", "a line without an end");
    // Without the hub, a mail waits at its client.
    drop(gateway.take());
    assert!(
        ask("MAIL FROM:<ann@example.org>\r\n").starts_with("250")
            && ask("RCPT TO:<talk@chat.example>\r\n").starts_with("451")
    );
}

/// A client of SMTP that says what it likes.
pub(crate) struct Client {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
}

impl Mailbox {
    pub(crate) fn client(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        Client { lines: BufReader::new(stream.try_clone().unwrap()), stream }
    }
}

impl Client {
    /// The last line of the next reply; nothing at the end.
    fn ask(&mut self, text: &str) -> String {
        self.stream.write_all(text.as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap_or(0) == 0 {
                return String::new();
            }
            if line.as_bytes().get(3) != Some(&b'-') {
                return line;
            }
        }
    }
}
