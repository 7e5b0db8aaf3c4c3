//! Tasks beyond the limits are refused, and refused tasks are not in the log.

use super::{Answer, Client, Server, body, digest, log};

#[test]
fn excess_tasks_are_refused_with_a_time_and_not_logged() {
    for (variant, options) in [
        ("threaded", &["--threads", "1", "--sync"][..]),
        ("wrapped", &["--queue", "1", "--width", "1", "--sync"]),
        ("pipelined", &["--queue", "1"]),
        ("replicated", &["--queue", "1", "--width", "1", "--replicas", "1"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(variant, folder.path(), options);
        let mut client = Client::connect(&server);
        let (mut signed, mut refused, mut next) = (Vec::new(), 0, 0);
        while refused == 0 || signed.is_empty() {
            assert!(next < 100_000, "{variant}: nothing is refused");
            for id in next..next + 500 {
                client.send(id, &body(id));
            }
            next += 500;
            for _ in 0..500 {
                match client.answer() {
                    Some(Answer::Signed { id, sequence, first, .. }) => {
                        assert_eq!(first, digest("one", &body(id)));
                        signed.push((sequence, id));
                    }
                    Some(Answer::Refused { reason: 1 | 2, retry_after_ms, .. }) => {
                        assert!((1..=60_000).contains(&retry_after_ms));
                        refused += 1;
                    }
                    other => panic!("{variant}: {other:?}"),
                }
            }
        }
        signed.sort_unstable();
        let signed: Vec<u64> = signed.into_iter().map(|(_, id)| id).collect();
        assert_eq!(log(folder.path()).into_iter().map(|(id, _)| id).collect::<Vec<_>>(), signed, "{variant}");
    }
}

#[test]
fn a_full_log_is_reported_and_nothing_of_the_task_is_kept() {
    for variant in super::VARIANTS {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(variant, folder.path(), &["--log-max-mb", "0"]);
        let mut client = Client::connect(&server);
        client.send(5, &body(5));
        let Some(Answer::Failed { id: 5, code: 1, text }) = client.answer() else { panic!("{variant}") };
        assert!(text.contains("the log is full"), "{text}");
        assert_eq!(log(folder.path()), []);
    }
}

#[test]
fn connections_beyond_the_limit_get_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("wrapped", folder.path(), &["--connections", "1"]);
    let mut first = Client::connect(&server);
    let mut second = Client::connect_silent(&server);
    assert!(matches!(second.answer(), Some(Answer::Error { code: 4, .. })));
    first.send(1, b"");
    assert!(matches!(first.answer(), Some(Answer::Signed { id: 1, .. })));
}
