//! Digests and log are right, with each variant.

use super::{Answer, Client, Server, VARIANTS, body, digest, log};

#[test]
fn digests_are_right_and_the_log_has_exactly_the_acknowledged_tasks_in_order() {
    for variant in VARIANTS {
        for sync in [&[][..], &["--sync"]] {
            let folder = tempfile::tempdir().unwrap();
            let server = Server::start(variant, folder.path(), sync);
            let mut clients = [Client::connect(&server), Client::connect(&server)];
            for id in 0..100 {
                clients[(id % 2) as usize].send(id, &body(id));
            }
            let mut logged = vec![None; 100];
            for (number, client) in clients.iter_mut().enumerate() {
                for _ in 0..50 {
                    let Some(Answer::Signed { id, sequence, first, second }) = client.answer() else {
                        panic!("{variant}: not signed")
                    };
                    assert_eq!(id % 2, number as u64);
                    assert_eq!((first, second), (digest("one", &body(id)), digest("two", &body(id))), "{variant}");
                    let place = &mut logged[sequence as usize - 1];
                    assert_eq!(place.replace((id, first)), None, "{variant}: two tasks in one place");
                }
            }
            let logged: Vec<_> = logged.into_iter().map(Option::unwrap).collect();
            assert_eq!(log(folder.path()), logged, "{variant}");
        }
    }
}

#[test]
fn tasks_of_any_size_up_to_the_limit_are_signed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("pipelined", folder.path(), &["--task-bytes-max", "100000"]);
    let mut client = Client::connect(&server);
    for len in [0, 1, 63, 64, 99_999, 100_000] {
        let body = vec![7; len];
        client.send(len as u64, &body);
        let Some(Answer::Signed { id, first, second, .. }) = client.answer() else { panic!("{len}") };
        assert_eq!((id, first, second), (len as u64, digest("one", &body), digest("two", &body)));
    }
    client.send(9, &vec![7; 100_001]);
    assert!(matches!(client.answer(), Some(Answer::Error { code: 2, .. })));
    assert_eq!(client.answer(), None);
    assert_eq!(log(folder.path()).len(), 6);
}

#[test]
fn a_log_is_continued_and_an_incomplete_record_at_its_end_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    for round in 1..=3_u64 {
        let mut server = Server::start("wrapped", folder.path(), &[]);
        let mut client = Client::connect(&server);
        client.send(round, b"x");
        assert!(matches!(client.answer(), Some(Answer::Signed { sequence, .. }) if sequence == round));
        drop(client);
        server.terminate();
        assert!(server.wait().success());
        let path = folder.path().join("log");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend_from_slice(b"DSIGLOG1 and half of a record");
        std::fs::write(&path, &bytes).unwrap();
    }
    let server = Server::start("threaded", folder.path(), &[]);
    assert_eq!(log(folder.path()).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3]);
    drop(server);
}

#[test]
fn a_drawing_has_the_stages() {
    for (variant, names) in [
        ("wrapped", &["sign"][..]),
        ("pipelined", &["first digest", "log", "second digest"]),
        ("replicated", &["sign 0", "sign 1", "first digest 1", "log", "second digest 1"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.svg");
        let _server = Server::start(variant, folder.path(), &["--graph", file.to_str().unwrap()]);
        let drawing = std::fs::read_to_string(file).unwrap();
        assert!(drawing.starts_with("<svg"));
        for name in names {
            assert!(drawing.contains(name), "{variant}: {name} in\n{drawing}");
        }
    }
}
