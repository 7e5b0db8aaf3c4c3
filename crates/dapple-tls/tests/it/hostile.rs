//! Clients that are malicious or mistaken.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::time::Duration;

use dapple_io::net::TcpStream;
use dapple_tls::{Error, TlsAcceptor, TlsStream};
use proptest::prelude::*;

use super::{LIMIT, pair, run, tcp, tls};

/// The server's reaction to these bytes, after which the client sends no more.
async fn answer(acceptor: &TlsAcceptor, bytes: &[u8]) -> (Result<TlsStream, Error>, TcpStream) {
    let (server, client) = tcp().await;
    client.write_all(bytes).await.expect("a write");
    client.shutdown(Shutdown::Write).expect("an end");
    (acceptor.accept(server, LIMIT).await, client)
}

#[test]
fn http_is_told_apart_and_can_be_answered() {
    run(1, async {
        let (acceptor, _) = pair();
        let (server, client) = tcp().await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("a write");
        let (error, server) = acceptor.accept_or_return(server, LIMIT).await.expect_err("not TLS");
        let Error::NotTls { first_bytes } = error else { panic!("{error}") };
        assert_eq!(first_bytes, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        server.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("a write");
        let mut buf = [0; 12];
        client.read_exact(&mut buf).await.expect("a read");
        assert_eq!(&buf, b"HTTP/1.1 400");
    });
}

#[test]
fn silence_and_half_a_hello_end_at_the_limit() {
    run(1, async {
        let (acceptor, _) = pair();
        for bytes in [&b""[..], &[22], &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc]] {
            let (server, client) = tcp().await;
            client.write_all(bytes).await.expect("a write");
            let limit = Duration::from_millis(30);
            match acceptor.accept(server, limit).await {
                Err(Error::TimedOut(passed)) => assert_eq!(passed, limit),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn a_client_that_leaves_early_is_recognized() {
    run(1, async {
        let (acceptor, _) = pair();
        for bytes in [&b""[..], &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc]] {
            let (result, _client) = answer(&acceptor, bytes).await;
            assert!(matches!(result, Err(Error::Ended)), "{result:?}");
        }
    });
}

#[test]
fn a_client_that_resets_is_an_error_of_the_connection() {
    run(2, async {
        let (acceptor, connector) = pair();
        let (server, client) = tls(&acceptor, &connector, "localhost").await;
        server.write_all(b"never read").await.expect("a write");
        // Closed with unread bytes: the kernel resets the connection.
        client.connection().readable().await.expect("bytes");
        drop(client);
        let error = loop {
            match server.read(&mut [0; 10]).await {
                Ok(0) => panic!("an irregular end"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof), "{error}");
    });
}

#[test]
fn a_record_that_was_tampered_with_ends_reading_for_good() {
    run(1, async {
        let (acceptor, connector) = pair();
        let (server, client) = tls(&acceptor, &connector, "localhost").await;
        client.connection().write_all(&[23, 3, 3, 0, 20]).await.expect("a write");
        client.connection().write_all(&[0; 20]).await.expect("a write");
        for _ in 0..2 {
            assert_eq!(server.read(&mut [0; 10]).await.expect_err("tampered").kind(), ErrorKind::InvalidData);
        }
        // The client learns why.
        let error = client.read(&mut [0; 10]).await.expect_err("an alert");
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
        assert_eq!(server.write(b"more").await.expect_err("the stream is over").kind(), ErrorKind::InvalidData);
    });
}

#[test]
fn a_message_without_end_is_not_collected() {
    run(1, async {
        let (acceptor, _) = pair();
        // A hello of 16 MB, in full records.
        let mut bytes = Vec::new();
        for record in 0..64 {
            bytes.extend([22, 3, 1, 0x40, 0]);
            let mut contents = vec![0; 0x4000];
            if record == 0 {
                contents[..4].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
            }
            bytes.extend(contents);
        }
        let (server, client) = tcp().await;
        let writer = dapple_sched::spawn(async move {
            // The server may close it meanwhile.
            let _ = client.write_all(&bytes).await;
            client
        });
        let result = acceptor.accept(server, LIMIT).await;
        assert!(matches!(result, Err(Error::Protocol(_) | Error::Io(_))), "{result:?}");
        drop(writer.await.expect("no panic"));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn garbage_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300), looks_like_tls in any::<bool>()) {
        let mut bytes = bytes;
        if looks_like_tls {
            let len = u16::try_from(bytes.len()).expect("short").to_be_bytes();
            bytes.splice(0..0, [22, 3, 1, len[0], len[1], 1]);
        }
        run(1, async move {
            let (acceptor, _) = pair();
            let (result, _client) = answer(&acceptor, &bytes).await;
            assert!(result.is_err());
        });
    }
}
