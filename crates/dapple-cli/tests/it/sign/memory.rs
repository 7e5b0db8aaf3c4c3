//! Clients that send much and read nothing.

use std::io::Write;
use std::time::Instant;

use super::{Answer, Client, PATIENCE, Server, digest};

const MIB: usize = 1 << 20;

/// The peak memory of a server.
fn peak(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<usize>().unwrap() * 1024
}

fn is_signed(client: &mut Client, id: u64) {
    client.send(id, b"an honest task");
    let answer = client.answer();
    let Some(Answer::Signed { id: of, second, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!((of, second), (id, digest("two", b"an honest task")));
}

#[test]
fn large_tasks_that_never_end_take_no_more_than_the_budget_and_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--tasks-mib", "8", "--task-bytes-max", "1048576", "--frame-timeout-s", "0.5"];
    let server = Server::start("pipelined", folder.path(), &options);
    is_signed(&mut Client::connect(&server), 1);
    let before = peak(&server);
    let hostile: Vec<_> = (0..120)
        .map(|_| {
            let mut client = Client::connect(&server);
            std::thread::spawn(move || {
                let task = vec![7; MIB];
                // Two whole tasks, with answers that are never read, and one that lacks its last
                // byte.
                let whole = client.try_send(2, &task).and_then(|()| client.try_send(3, &task));
                let frame = [&(MIB as u32 + 9).to_be_bytes()[..], &[3; 9], &task[1..]].concat();
                // The server cuts it off at some point, or ends.
                let _ = whole.and_then(|()| client.0.write_all(&frame));
                client
            })
        })
        .collect();
    is_signed(&mut Client::connect(&server), 4);
    let hostile: Vec<Client> = hostile.into_iter().map(|sender| sender.join().unwrap()).collect();
    is_signed(&mut Client::connect(&server), 5);
    // 120 MiB without a bound: tasks within their budget, and some fifty KiB for each connection.
    let more = peak(&server) - before;
    assert!(more < 40 * MIB, "{} MiB more for {} clients", more / MIB, hostile.len());
}

#[test]
fn unread_answers_use_up_the_budget_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--tasks-mib", "1", "--in-flight-max", "65536", "--frame-timeout-s", "1"];
    let server = Server::start("wrapped", folder.path(), &options);
    let mut hostile = Client::connect(&server);
    hostile.0.set_write_timeout(Some(PATIENCE)).unwrap();
    let frames: Vec<u8> =
        (0..1_000_u64).flat_map(|id| [&[0, 0, 0, 10, 3][..], &id.to_be_bytes(), b"x"].concat()).collect();
    let before = peak(&server);
    let begin = Instant::now();
    // When all buffers are full the server stops reading, and then cuts the connection: that ends
    // the writing.
    while hostile.0.write_all(&frames).is_ok() {
        assert!(begin.elapsed() < PATIENCE * 4, "a client that takes no answers is served forever");
    }
    is_signed(&mut Client::connect(&server), 1);
    let more = peak(&server).saturating_sub(before);
    assert!(more < 32 * MIB, "{} MiB more", more / MIB);
}

#[test]
fn a_client_that_waits_for_memory_is_not_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    // One task of the largest size at a time.
    let options = ["--tasks-mib", "2", "--task-bytes-max", "1048576", "--frame-timeout-s", "2", "--sync"];
    let server = Server::start("replicated", folder.path(), &options);
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let mut client = Client::connect(&server);
            std::thread::spawn(move || {
                let body = vec![number as u8; MIB];
                for id in 0..3 {
                    client.send(id, &body);
                }
                for _ in 0..3 {
                    let answer = client.answer();
                    let Some(Answer::Signed { first, .. }) = answer else { panic!("{answer:?}") };
                    assert_eq!(first, digest("one", &body));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}
