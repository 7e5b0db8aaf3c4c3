//! Servers that break the rules.

use dapple_client::{Client, Error, Request};

use crate::support::{After, run, scripted};

/// The outcome of a request to such a server.
async fn outcome(client: &Client, reply: &'static str, after: After) -> Result<bytes::Bytes, Error> {
    client.get(&scripted(vec![(vec![reply], after)])).await?.bytes().await
}

#[test]
fn an_incomplete_response_is_an_error() {
    run(async {
        let client = Client::new().unwrap();
        for reply in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n123",
        ] {
            let error = outcome(&client, reply, After::Close).await.unwrap_err();
            assert!(matches!(error, Error::Broken(_)), "{reply:?}: {error}");
        }
        // Without a length, the end of the connection is that of the body.
        let body = outcome(&client, "HTTP/1.1 200 OK\r\n\r\n12345", After::Close).await.unwrap();
        assert_eq!(body, "12345");
    });
}

#[test]
fn an_ambiguous_response_is_an_error() {
    run(async {
        let client = Client::new().unwrap();
        for reply in [
            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n123456",
            "HTTP/1.1 200 OK\r\ncontent-length: 0x5\r\n\r\n12345",
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        ] {
            let error = outcome(&client, reply, After::Hold).await.unwrap_err();
            assert!(matches!(error, Error::Malformed(_)), "{reply:?}: {error}");
        }
    });
}

#[test]
fn heads_and_bodies_without_end_meet_a_limit() {
    run(async {
        let client = Client::builder().body_bytes_max(100_000).build().unwrap();
        let error = outcome(&client, "HTTP/1.1 200 OK\r\n", After::Endless("x: y\r\n")).await.unwrap_err();
        assert!(matches!(error, Error::Malformed(_)), "{error}");
        let endless = After::Endless("x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy");
        let error = outcome(&client, "HTTP/1.1 200 OK\r\n", endless).await.unwrap_err();
        assert!(matches!(error, Error::Malformed(_)), "{error}");
        let error = outcome(&client, "HTTP/1.1 200 OK\r\n\r\n", After::Endless("12345")).await.unwrap_err();
        assert!(matches!(error, Error::BodyTooLarge { max: 100_000 }), "{error}");
        // Read piece by piece, only time is limited.
        let client = Client::builder().timeout(std::time::Duration::from_millis(100)).build().unwrap();
        let url = scripted(vec![(vec!["HTTP/1.1 200 OK\r\n\r\n"], After::Endless("12345"))]);
        let reading = async {
            let mut response = client.get(&url).await?;
            while response.chunk().await?.is_some() {}
            Ok::<_, Error>(())
        };
        let error = reading.await.unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        let said = "HTTP/1.1 200 OK\r\ncontent-length: 100001\r\n\r\n";
        let client = Client::builder().body_bytes_max(100_000).build().unwrap();
        let error = outcome(&client, said, After::Hold).await.unwrap_err();
        assert!(matches!(error, Error::BodyTooLarge { .. }), "{error}");
    });
}

const PAGE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npage";

#[test]
fn a_just_closed_connection_is_replaced_if_that_is_safe() {
    run(async {
        let scripts = || vec![(vec![PAGE], After::CloseWhenAsked), (vec![PAGE], After::Close)];
        let client = Client::new().unwrap();
        let url = scripted(scripts());
        for _ in 0..2 {
            assert_eq!(client.get(&url).await.unwrap().text().await.unwrap(), "page");
        }
        // The server may have worked on what it has read.
        let url = scripted(scripts());
        assert_eq!(client.get(&url).await.unwrap().text().await.unwrap(), "page");
        let post = Request::post(&url).body("an order").unwrap();
        let error = client.request(post).await.unwrap_err();
        assert!(matches!(error, Error::Broken(_)), "{error}");
        // A connection that has ended earlier is not even tried.
        let url = scripted(vec![(vec![PAGE], After::Close), (vec![PAGE], After::Close)]);
        for _ in 0..2 {
            let post = Request::post(&url).body("an order").unwrap();
            let response = client.request(post).await;
            match response {
                Ok(response) => assert_eq!(response.text().await.unwrap(), "page"),
                Err(error) => assert!(matches!(error, Error::Broken(_)), "the end was on its way: {error}"),
            }
        }
    });
}
