//! Conversations with a real prosody, and a person with slixmpp.

use std::process::Command;

use crate::networks::{Person, Prosody, has_python};
use crate::programs::{Gateway, has, until};

const PROGRAMS: [(&str, &str); 2] = [("curl", "curl"), ("prosody", "prosody")];

#[test]
fn a_room_and_the_archive_have_the_same_messages() {
    if !has(&PROGRAMS) || !has_python("slixmpp") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut server = Prosody::start(folder.path());
    let gateway = Gateway::start(folder.path(), &[]);
    assert_eq!(gateway.put("talk", r#"{"xmpp:talk@rooms.localhost": null}"#), 201);
    let args = server.args();
    let xmpp = gateway.network("sanctio-xmpp", &args.each_ref().map(String::as_str));
    gateway.wait_for_leg("xmpp:talk@rooms.localhost");
    assert_eq!(gateway.say("ben", "before"), 200);
    server.wait_for_room();
    let mut ann = Person::start(&server, "ann");
    assert_eq!(gateway.say("ben", "one </body>\n<two>&"), 200);
    ann.wait_for("sanctio: <ben@web> one </body>\\n<two>&");
    ann.say("three & <four>\\nfive");
    until("the archive has no `three`", || (gateway.archive("").len() == 3).then_some(()));
    assert_eq!(gateway.archive("")[1..], ["ben@web: one </body>\n<two>&", "ann@xmpp: three & <four>\nfive"]);
    let own = ann.heard().iter().filter(|line| line.contains("three")).count();
    assert_eq!(own, 1, "{:?}", ann.heard());
    // The history of the room is no news, for a server that comes back and a gateway that does.
    server.stop();
    drop(ann);
    assert_eq!(gateway.say("ben", "while it was away"), 200);
    server.start_again();
    let mut ann = Person::start(&server, "ann");
    assert_eq!(gateway.say("ben", "again"), 200);
    ann.wait_for("again");
    assert!(xmpp.end());
    let xmpp = gateway.network("sanctio-xmpp", &args.each_ref().map(String::as_str));
    assert_eq!(gateway.say("ben", "for the second"), 200);
    ann.wait_for("for the second");
    ann.say("last");
    until("the archive has no `last`", || (gateway.archive("").last()? == "ann@xmpp: last").then_some(()));
    assert_eq!(gateway.archive("").len(), 7);
    assert!(xmpp.end() && gateway.end());
}

#[test]
fn the_name_of_no_component_is_said() {
    if !has(&PROGRAMS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Prosody::start(folder.path());
    let gateway = Gateway::start(folder.path(), &[]);
    let mut args = server.args();
    args[1] = "--component=other.localhost".to_owned();
    let mut command = Command::new(crate::programs::program("sanctio-xmpp"));
    let output = command.args(["--hub", &gateway.base]).args(args).stderr(std::process::Stdio::piped());
    let mut process = crate::programs::Process::start(output);
    let stderr = process.0.stderr.take().unwrap();
    let line = std::io::BufRead::lines(std::io::BufReader::new(stderr)).next().unwrap().unwrap();
    assert!(line.contains(": host unknown") && line.contains("next attempt in"), "{line}");
}
