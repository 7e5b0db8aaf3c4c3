//! Many bytes, in pieces of any size.

use std::sync::Arc;

use dapple_tls::rustls::version;
use proptest::prelude::*;

use super::{pair, pair_of, pattern, run, tls};

#[test]
fn large_transfers_arrive_whole() {
    for version in [&version::TLS13, &version::TLS12] {
        run(2, async move {
            let (acceptor, connector) = pair_of(version);
            let sent = Arc::new(pattern(8_000_000));
            let mut tasks = Vec::new();
            for _ in 0..4 {
                let (server, client) = tls(&acceptor, &connector, "localhost").await;
                let sending = sent.clone();
                tasks.push(dapple_sched::spawn(async move {
                    server.write_all(&sending).await.expect("a write");
                    server.shutdown().await.expect("an end");
                }));
                let expected = sent.clone();
                tasks.push(dapple_sched::spawn(async move {
                    let mut received = Vec::new();
                    let mut buf = vec![0; 50_000];
                    loop {
                        let count = client.read(&mut buf).await.expect("a read");
                        received.extend_from_slice(&buf[..count]);
                        if count == 0 {
                            break;
                        }
                    }
                    assert!(received == *expected, "other bytes came than were sent");
                }));
            }
            for task in tasks {
                task.await.expect("no panic");
            }
        });
    }
}

#[test]
fn a_reader_that_starts_late_loses_nothing() {
    run(2, async {
        let (acceptor, connector) = pair();
        let (server, client) = tls(&acceptor, &connector, "localhost").await;
        let sent = pattern(20_000_000);
        let expected = sent.clone();
        let writer = dapple_sched::spawn(async move {
            server.write_all(&sent).await.expect("a write");
            server
        });
        // The writer has to wait: the kernel does not hold this much.
        dapple_io::time::sleep(std::time::Duration::from_millis(50)).await;
        let mut received = vec![0; expected.len()];
        client.read_exact(&mut received).await.expect("a read");
        assert!(received == expected, "other bytes came than were sent");
        drop(writer.await.expect("no panic"));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_chunks_carry_the_same_bytes(
        writes in proptest::collection::vec(1..60_000_usize, 1..12),
        reads in proptest::collection::vec(1..40_000_usize, 1..6),
        is_old in any::<bool>(),
    ) {
        let version = if is_old { &version::TLS12 } else { &version::TLS13 };
        let (received, sent) = run(2, async move {
            let (acceptor, connector) = pair_of(version);
            let (server, client) = tls(&acceptor, &connector, "localhost").await;
            let sent = pattern(writes.iter().sum());
            let sending = sent.clone();
            let writer = dapple_sched::spawn(async move {
                let mut rest = &sending[..];
                for len in writes {
                    let (now, later) = rest.split_at(len);
                    client.write_all(now).await.expect("a write");
                    rest = later;
                }
                client.shutdown().await.expect("an end");
                client
            });
            let mut received = Vec::new();
            for len in reads.iter().cycle() {
                let mut buf = vec![0; *len];
                let count = server.read(&mut buf).await.expect("a read");
                received.extend_from_slice(&buf[..count]);
                if count == 0 {
                    break;
                }
            }
            drop(writer.await.expect("no panic"));
            (received, sent)
        });
        prop_assert!(received == sent, "{} bytes came of {}, or others", received.len(), sent.len());
    }
}
