//! Conversations with a real ngircd, and a person with ii.

use crate::networks::{Ii, Ngircd};
use crate::programs::{Gateway, has, until};

const PROGRAMS: [(&str, &str); 3] = [("curl", "curl"), ("ngircd", "ngircd"), ("ii", "ii")];

#[test]
fn a_channel_and_the_archive_have_the_same_messages() {
    if !has(&PROGRAMS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut server = Ngircd::start(folder.path());
    let gateway = Gateway::start(folder.path(), &[]);
    assert_eq!(gateway.put("talk", r##"{"irc:#Talk": null}"##), 201);
    let irc = gateway.network("sanctio-irc", &[&server.address()]);
    let ann = Ii::start(folder.path(), &server, "ann");
    gateway.wait_for_leg("irc:#talk");
    assert_eq!(gateway.say("ben", "one\nQUIT :two\r\nthree"), 200);
    ann.wait_for("three");
    ann.say("four");
    until("the archive has no `four`", || (gateway.archive("").len() == 2).then_some(()));
    assert_eq!(gateway.archive(""), ["ben@web: one\nQUIT :two\nthree", "ann@irc: four"]);
    // A text cannot end the line that it is in, and nothing comes back to where it was said.
    let heard = ["<sanctio> <ben@web> one", "<sanctio> <ben@web> QUIT :two", "<sanctio> <ben@web> three", "<ann> four"];
    assert_eq!(ann.heard(), heard);
    // A server that was away gets what was said meanwhile, once: the message waits for the channel.
    server.stop();
    assert_eq!(gateway.say("ben", "while it was away"), 200);
    server.start_again();
    let ann = Ii::start(folder.path(), &server, "ann");
    assert_eq!(gateway.say("ben", "again"), 200);
    ann.wait_for("again");
    let count = |text: &str| ann.heard().iter().filter(|line| line.contains(text)).count();
    assert!(count("while it was away") <= 1 && count("again") == 1, "{:?}", ann.heard());
    assert!(irc.end() && gateway.end());
}

#[test]
fn a_conversation_moves_to_another_channel_and_ends() {
    if !has(&PROGRAMS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Ngircd::start(folder.path());
    let gateway = Gateway::start(folder.path(), &[]);
    // Its name is in use: it takes another one.
    let other = Ii::start(folder.path(), &server, "sanctio");
    let _irc = gateway.network("sanctio-irc", &[&server.address()]);
    assert_eq!(gateway.put("talk", r##"{"irc:#talk": null}"##), 201);
    other.wait_for("sanctio_(");
    assert_eq!(gateway.put("talk", r##"{"irc:#elsewhere": null}"##), 204);
    other.wait_for("sanctio_(~sanctio@127.0.0.1) has left");
    assert_eq!(gateway.put("talk", r##"{"irc:#elsewhere": null, "irc:#talk": null}"##), 204);
    until("it does not come back", || {
        other.say("hello");
        (gateway.archive("").first()? == "sanctio@irc: hello").then_some(())
    });
    assert_eq!(gateway.put("talk", "null"), 204);
    until("it does not leave", || (other.count("has left") == 2).then_some(()));
}
