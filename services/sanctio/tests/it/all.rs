//! One conversation in all networks, and what kills do to it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::networks::{Ii, MailServer, Mailbox, Ngircd, Person, Prosody, free_port, has_python};
use crate::programs::{Gateway, Process, has, until};

const PROGRAMS: [(&str, &str); 4] = [("curl", "curl"), ("ngircd", "ngircd"), ("ii", "ii"), ("prosody", "prosody")];
const LEGS: [&str; 3] = ["irc:#talk", "xmpp:talk@rooms.localhost", "mail:cal@example.org"];

/// The programs of the gateway, with a server of each network and a person in it.
struct All {
    gateway: Option<Gateway>,
    hub: String,
    irc: Option<Process>,
    xmpp: Option<Process>,
    mail: Option<Mailbox>,
    ngircd: Ngircd,
    prosody: Prosody,
    mails: MailServer,
    on_irc: Ii,
    on_xmpp: Person,
    folder: tempfile::TempDir,
    mail_address: String,
}

impl All {
    fn start() -> All {
        let folder = tempfile::tempdir().unwrap();
        let (ngircd, prosody) = (Ngircd::start(folder.path()), Prosody::start(folder.path()));
        let mails = MailServer::start(folder.path());
        let (hub, mail_address) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
        let gateway = Gateway::start(folder.path(), &["--listen", &hub]);
        let legs: BTreeMap<&str, Option<&str>> = LEGS.iter().map(|leg| (*leg, None)).collect();
        assert_eq!(gateway.put("talk", &serde_json::to_string(&legs).unwrap()), 201);
        let xmpp = gateway.network("sanctio-xmpp", &prosody.args().each_ref().map(String::as_str));
        let irc = gateway.network("sanctio-irc", &[&ngircd.address()]);
        let mail = Mailbox::start_at(&gateway, &mails, &mail_address);
        for leg in LEGS {
            gateway.wait_for_leg(leg);
        }
        let on_irc = Ii::start(folder.path(), &ngircd, "ann");
        prosody.wait_for_room();
        let on_xmpp = Person::start(&prosody, "ben");
        let (gateway, irc, xmpp, mail) = (Some(gateway), Some(irc), Some(xmpp), Some(mail));
        All { gateway, hub, irc, xmpp, mail, ngircd, prosody, mails, on_irc, on_xmpp, folder, mail_address }
    }

    fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().unwrap()
    }

    /// Kills one of the four programs, and starts it again.
    fn kill(&mut self, which: usize) {
        match which % 4 {
            0 => {
                self.gateway = None;
                self.gateway = Some(Gateway::start(self.folder.path(), &["--listen", &self.hub]));
            }
            1 => {
                self.irc = None;
                self.irc = Some(self.gateway().network("sanctio-irc", &[&self.ngircd.address()]));
            }
            2 => {
                self.xmpp = None;
                let args = self.prosody.args();
                self.xmpp = Some(self.gateway().network("sanctio-xmpp", &args.each_ref().map(String::as_str)));
            }
            _ => {
                self.mail = None;
                self.mail = Some(Mailbox::start_at(self.gateway(), &self.mails, &self.mail_address));
            }
        }
    }

    /// How often each network has shown a text.
    fn shown(&self, text: &str) -> [usize; 3] {
        let count = |lines: &[String]| lines.iter().filter(|line| line.contains(text)).count();
        [count(&self.on_irc.heard()), count(&self.on_xmpp.heard()), count(&self.mails.mails("cal@example.org"))]
    }
}

#[test]
fn one_conversation_is_on_all_networks() {
    if !has(&PROGRAMS) || !has_python("slixmpp") || !has_python("aiosmtpd") {
        return;
    }
    let mut all = All::start();
    assert_eq!(all.gateway().say("dan", "from the web."), 200);
    all.on_irc.say("from IRC.");
    all.on_xmpp.say("from XMPP.");
    let mail = "From: cal@example.org\nSubject: x\n\nfrom a mail.\n";
    assert!(all.mail.as_ref().unwrap().send("cal@example.org", "talk@chat.example", mail));
    let messages = ["dan@web: from the web.", "ann@irc: from IRC.", "ben@xmpp: from XMPP.", "cal@mail: from a mail."];
    for (text, shown) in
        [("from the web.", [1, 1, 1]), ("from IRC.", [1, 1, 1]), ("from XMPP.", [1, 1, 1]), ("from a mail.", [1, 1, 0])]
    {
        until(&format!("{text} is not on all networks"), || (all.shown(text) == shown).then_some(()));
    }
    let mut archive = all.gateway().archive("");
    archive.sort();
    let mut expected = messages.map(str::to_owned);
    expected.sort();
    assert_eq!(archive, expected);
    // The names are those of the people, and the network's own messages have no gateway's name.
    all.on_irc.wait_for("<sanctio> <ben@xmpp> from XMPP.");
    all.on_xmpp.wait_for("sanctio: <ann@irc> from IRC.");
    assert!(
        all.mails.mails("cal@example.org").iter().any(|mail| mail.contains("From: \"ann@irc\" <talk@chat.example>"))
    );
    let All { gateway, irc, xmpp, mail, .. } = all;
    assert!(irc.unwrap().end() && xmpp.unwrap().end() && mail.unwrap().process.end() && gateway.unwrap().end());
}

#[test]
fn no_kill_repeats_a_message_or_loses_it_from_the_archive() {
    if !has(&PROGRAMS) || !has_python("slixmpp") || !has_python("aiosmtpd") {
        return;
    }
    let mut all = All::start();
    let (hub, mail_address) = (format!("http://{}", all.hub), all.mail_address.clone());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let is_running = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    // Each client says a message until it gets an answer, with the same id.
    let web = || {
        let mut said = Vec::new();
        while is_running() {
            let text = format!("web message {}.", said.len());
            let body = serde_json::json!({ "name": "dan", "text": text, "id": said.len().to_string() }).to_string();
            until("the web does not take a message", || {
                let mut curl = std::process::Command::new("curl");
                curl.args([
                    "--silent",
                    "--fail",
                    "--max-time",
                    "5",
                    "--json",
                    &body,
                    &format!("{hub}/talks/talk/messages"),
                ]);
                curl.output().unwrap().status.success().then_some(())
            });
            said.push(text);
        }
        said
    };
    let mail = || {
        let mut said = Vec::new();
        while is_running() {
            let text = format!("mail message {}.", said.len());
            let mail = format!("From: cal@example.org\nMessage-ID: <{}@x>\n\n{text}\n", said.len());
            until("no mail is taken", || {
                Mailbox::send_to(&mail_address, "cal@example.org", "talk@chat.example", &mail).then_some(())
            });
            said.push(text);
        }
        said
    };
    let (of_web, of_mail) = std::thread::scope(|scope| {
        let (web, mail) = (scope.spawn(web), scope.spawn(mail));
        for round in 0..16 {
            all.on_irc.say(&format!("irc message {round}."));
            all.on_xmpp.say(&format!("xmpp message {round}."));
            // At any point of the messages on their way.
            std::thread::sleep(Duration::from_millis(round as u64 * 37 % 101));
            all.kill(round);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        (web.join().unwrap(), mail.join().unwrap())
    });
    // One that is said when all is quiet comes to each network, after all before it.
    assert_eq!(all.gateway().say("dan", "the last one."), 200);
    until("the last one does not come", || (all.shown("the last one.") == [1; 3]).then_some(()));
    let archive = all.gateway().archive("");
    let count = |text: &str| archive.iter().filter(|line| line.ends_with(text)).count();
    let mut lost = 0;
    for text in of_web.iter().chain(&of_mail) {
        assert_eq!(count(text), 1, "{text} was acknowledged");
        let shown = all.shown(text);
        let wanted = if text.starts_with("mail") { [1, 1, 0] } else { [1; 3] };
        assert!(shown.iter().zip(wanted).all(|(shown, wanted)| *shown <= wanted), "{text} is shown {shown:?}");
        lost += wanted.iter().sum::<usize>() - shown.iter().sum::<usize>();
    }
    for text in (0..16).flat_map(|round| ["irc", "xmpp"].map(|network| format!("{network} message {round}."))) {
        assert!(count(&text) <= 1, "{text}");
        // The network itself has one of them.
        assert!(all.shown(&text).iter().all(|shown| *shown <= 1), "{text} is shown {:?}", all.shown(&text));
    }
    let all_of = 3 * of_web.len() + 2 * of_mail.len();
    eprintln!("{} messages, {lost} of {all_of} deliveries lost by 16 kills", archive.len());
    // Each kill costs what was claimed at that moment: one message of each leg of the program.
    assert!(lost <= 16 * 3, "{lost}");
}
