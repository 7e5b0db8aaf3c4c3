//! More connections than there is room for.

use std::io::Write;

use crate::support::{ask, connect, end, eventually, get, outside, rest};

#[test]
fn those_that_rest_longest_make_room() {
    let (runtime, server) = outside!(server => server.connections_max(3));
    let mut clients: Vec<_> = (0..3).map(|_| connect(server.addr)).collect();
    for client in &mut clients {
        assert_eq!(ask(client, "/hello").1, "hello");
    }
    // It rests least of the three now.
    assert_eq!(ask(&mut clients[0], "/hello").1, "hello");
    let mut newcomer = connect(server.addr);
    assert_eq!(ask(&mut newcomer, "/hello").1, "hello");
    assert_eq!(rest(&mut clients[1]), "", "it has rested longest");
    assert_eq!(ask(&mut clients[0], "/hello").1, "hello");
    assert_eq!(ask(&mut clients[2], "/hello").1, "hello");
    assert_eq!(server.handle.turned_away(), 0);
    drop((clients, newcomer));
    end(runtime, server);
}

#[test]
fn where_nobody_rests_newcomers_are_told_to_come_again() {
    let (runtime, server) = outside!(server => server.connections_max(2));
    let mut busy: Vec<_> = (0..2).map(|_| connect(server.addr)).collect();
    for client in &mut busy {
        client.write_all(get("/never").as_bytes()).unwrap();
    }
    eventually("they are busy", || server.handle.requests() == 2);
    for _ in 0..3 {
        let mut newcomer = connect(server.addr);
        let reply = rest(&mut newcomer);
        assert!(reply.starts_with("HTTP/1.1 503 ") && reply.contains("retry-after: 1"), "{reply}");
    }
    assert_eq!(server.handle.turned_away(), 3);
    busy.pop();
    eventually("one is gone", || server.handle.connections() == 1);
    assert_eq!(ask(&mut connect(server.addr), "/hello").1, "hello");
    drop(busy);
    end(runtime, server);
}

#[test]
fn a_limit_beyond_what_descriptors_allow_is_that() {
    let (runtime, server) = outside!(server => server.connections_max(usize::MAX));
    assert!((1..=100_000).contains(&server.handle.connections_max()), "{}", server.handle.connections_max());
    end(runtime, server);
}
