//! Incomplete frames, oversized frames, and input of other protocols.

use std::io::Write;
use std::net::Shutdown;

use super::{Answer, Client, Server, VARIANTS, log};

#[test]
fn a_malformed_frame_ends_only_its_connection_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("pipelined", folder.path(), &["--frame-timeout-s", "0.5"]);
    let mut other = Client::connect(&server);
    let cases: [(&[u8], u8); 6] = [
        (b"\xff\xff\xff\xff", 2),
        (b"\0\0\0\0", 1),
        (b"\0\0\0\x01\x63", 1),
        (b"\0\0\0\x05\x03\0\0\0\0", 1),
        (b"\0\0\0\x07\x01DSGN\x01\x01", 1),
        (b"\0\0\x10\x09\x03\0\0\0", 5),
    ];
    for (bytes, expected) in cases {
        let mut client = Client::connect(&server);
        client.0.write_all(bytes).unwrap();
        let Some(Answer::Error { code, .. }) = client.answer() else { panic!("{bytes:?}") };
        assert_eq!(code, expected, "{bytes:?}");
        assert_eq!(client.answer(), None);
    }
    other.send(1, b"");
    assert!(matches!(other.answer(), Some(Answer::Signed { id: 1, .. })));
    assert_eq!(log(folder.path()).len(), 1);
}

#[test]
fn the_first_frame_decides_about_the_version() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("threaded", folder.path(), &[]);
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], 2),
        (b"\0\0\0\x07\x01HTTP\x01\x01", 1),
        (b"\0\0\0\x07\x01DSGN\x02\x09", 3),
        (b"\0\0\0\x09\x03\0\0\0\0\0\0\0\x01", 1),
    ] {
        let mut client = Client::connect_silent(&server);
        client.0.write_all(bytes).unwrap();
        let Some(Answer::Error { code, .. }) = client.answer() else { panic!("{bytes:?}") };
        assert_eq!(code, expected, "{bytes:?}");
    }
}

#[test]
fn a_client_that_ends_its_side_gets_its_answers_and_one_cut_within_a_frame_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("replicated", folder.path(), &["--sync"]);
    let mut client = Client::connect(&server);
    (0..20).for_each(|id| client.send(id, b"a task"));
    client.0.write_all(b"\0\0\0\x20\x03\0").unwrap();
    client.0.shutdown(Shutdown::Write).unwrap();
    let (mut signed, mut errors) = (0, 0);
    while let Some(answer) = client.answer() {
        match answer {
            Answer::Signed { .. } => signed += 1,
            Answer::Error { code: 1, .. } => errors += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((signed, errors), (20, 1));
    assert_eq!(log(folder.path()).len(), 20);
}

#[test]
fn accepted_tasks_are_answered_before_the_error() {
    for variant in VARIANTS {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(variant, folder.path(), &["--sync"]);
        let mut client = Client::connect(&server);
        (0..20).for_each(|id| client.send(id, b"a task"));
        client.0.write_all(b"\0\0\0\0").unwrap();
        for count in 0..20 {
            let answer = client.answer();
            assert!(matches!(answer, Some(Answer::Signed { .. })), "{variant}, after {count}: {answer:?}");
        }
        assert!(matches!(client.answer(), Some(Answer::Error { code: 1, .. })), "{variant}");
        assert_eq!(client.answer(), None, "{variant}");
    }
}
