//! Requests and responses, by each version.

use std::io::Write;

use bytes::Bytes;
use dapple_client::{Body, Client, Error, HeaderMap, HeaderName, HeaderValue, Request, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use crate::support::{Reply, Site, reply, run};

async fn handle(request: Request<dapple::serve::Body>) -> Reply {
    let field =
        |name| request.headers().get(name).map_or("-", |value: &HeaderValue| value.to_str().unwrap()).to_owned();
    match request.uri().path() {
        "/version" => reply(200, format!("{:?}", request.version())),
        "/fields" => reply(200, ["accept", "accept-encoding", "user-agent", "te"].map(field).join("; ")),
        "/json" => reply(200, r#"{"name":"a","count":3}"#),
        "/missing" => reply(404, "no such page"),
        "/trailers" => {
            let trailers: HeaderMap = [("x-sum".parse().unwrap(), HeaderValue::from_static("7"))].into_iter().collect();
            let frames = [Ok(Frame::data(Bytes::from("text"))), Ok(Frame::trailers(trailers))];
            let mut reply = http::Response::new(StreamBody::new(Pieces(frames.into_iter())).boxed_unsync());
            reply.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
            reply
        }
        "/gzip" if field("accept-encoding").contains("gzip") => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&[b'a'; 100_000]).unwrap();
            let mut reply = reply(200, encoder.finish().unwrap());
            reply.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
            reply
        }
        _ => {
            let method = request.method().to_string();
            let body = request.into_body().collect().await;
            match body {
                Ok(body) => {
                    let sum = body.trailers().and_then(|fields| fields.get("x-sum")).cloned();
                    let bytes = body.to_bytes();
                    let mut reply = reply(200, bytes);
                    reply.headers_mut().insert("x-method", HeaderValue::from_str(&method).unwrap());
                    reply.headers_mut().extend(sum.map(|sum| (HeaderName::from_static("x-sum"), sum)));
                    reply
                }
                Err(_) => reply(400, "the body did not come"),
            }
        }
    }
}

/// A client and a server of each kind, and the expected version.
fn all() -> Vec<(Client, Site, String, Version)> {
    let (plain, encrypted) = (Site::start(false, handle), Site::start(true, handle));
    let name = format!("https://localhost:{}", encrypted.addr.port());
    let builder = Client::builder().tls(encrypted.tls.clone());
    let h2c = Site::start(false, handle);
    vec![
        (builder.clone().build().unwrap(), plain.clone(), plain.url(""), Version::HTTP_11),
        (builder.clone().http2_prior_knowledge(true).build().unwrap(), h2c.clone(), h2c.url(""), Version::HTTP_2),
        (builder.build().unwrap(), encrypted, name, Version::HTTP_2),
    ]
}

#[test]
fn pages_arrive_over_one_reused_connection() {
    run(async {
        for (client, site, origin, version) in all() {
            for _ in 0..5 {
                let response = client.get(&format!("{origin}/version#here")).await.unwrap();
                assert_eq!((response.status().as_u16(), response.version()), (200, version));
                assert_eq!(response.text().await.unwrap(), format!("{version:?}"));
                let sent: Bytes = (0..300_000).map(|at| (at % 249) as u8).collect::<Vec<u8>>().into();
                let request = Request::put(format!("{origin}/echo")).body(sent.clone()).unwrap();
                let response = client.request(request).await.unwrap().error_for_status().unwrap();
                assert_eq!(response.headers()["x-method"], "PUT");
                assert!(response.bytes().await.unwrap() == sent);
            }
            assert_eq!(site.connections(), 1, "{version:?}");
            assert_eq!(client.connections().0, 1);
        }
    });
}

#[test]
fn bodies_are_sent_in_pieces_with_trailers() {
    run(async {
        for (client, _, origin, _) in all() {
            let trailers: HeaderMap = [("x-sum".parse().unwrap(), HeaderValue::from_static("9"))].into_iter().collect();
            let pieces = ["one ", "two"].map(|piece| Ok::<_, std::io::Error>(Frame::data(Bytes::from(piece))));
            let all = pieces.into_iter().chain([Ok(Frame::trailers(trailers))]);
            let body = Body::new(StreamBody::new(Pieces(all)));
            let request = Request::post(format!("{origin}/echo")).header("trailer", "x-sum").body(body).unwrap();
            let response = client.request(request).await.unwrap();
            assert_eq!(response.headers().get("x-sum").map(HeaderValue::as_bytes), Some(&b"9"[..]));
            assert_eq!(response.text().await.unwrap(), "one two");
            let failing = [Ok(Frame::data(Bytes::from("half"))), Err(std::io::Error::other("the disk is gone"))];
            let body = Body::new(StreamBody::new(Pieces(failing.into_iter())));
            let request = Request::post(format!("{origin}/echo")).body(body).unwrap();
            let error = client.request(request).await.unwrap_err();
            assert!(matches!(error, Error::RequestBody(_)), "{error}");
            assert!(error.to_string().contains("the disk is gone"), "{error}");
        }
    });
}

/// An iterator as a stream that is always ready.
struct Pieces<I>(I);

impl<I: Iterator + Unpin> futures_core::Stream for Pieces<I> {
    type Item = I::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<I::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}

#[test]
fn trailers_are_available_at_the_end_of_the_body() {
    run(async {
        for (client, _, origin, _) in all() {
            let request = Request::get(format!("{origin}/trailers")).header("te", "trailers").body("").unwrap();
            let mut response = client.request(request).await.unwrap();
            assert!(response.trailers().is_none());
            let mut text = Vec::new();
            while let Some(piece) = response.chunk().await.unwrap() {
                text.extend_from_slice(&piece);
            }
            assert_eq!(text, b"text");
            assert_eq!(response.trailers().unwrap()["x-sum"], "7");
        }
    });
}

#[test]
fn bodies_are_decompressed_unless_the_request_sets_accept_encoding() {
    run(async {
        for (client, _, origin, _) in all() {
            let response = client.get(&format!("{origin}/gzip")).await.unwrap();
            assert!(!response.headers().contains_key("content-encoding"));
            assert_eq!(response.bytes().await.unwrap(), [b'a'; 100_000][..]);
            let own = Request::get(format!("{origin}/gzip")).header("accept-encoding", "gzip").body("").unwrap();
            let response = client.request(own).await.unwrap();
            assert_eq!(response.headers()["content-encoding"], "gzip");
            assert!(response.bytes().await.unwrap().len() < 5_000);
            let fields = client.get(&format!("{origin}/fields")).await.unwrap().text().await.unwrap();
            assert_eq!(fields, format!("*/*; gzip, br, zstd; dapple/{}; -", env!("CARGO_PKG_VERSION")));
        }
    });
}

#[derive(serde::Deserialize, Debug, PartialEq)]
struct Item {
    name: String,
    count: u32,
}

#[test]
fn statuses_and_json_are_checked_on_request() {
    run(async {
        let (client, _, origin, _) = all().remove(0);
        let item: Item = client.get(&format!("{origin}/json")).await.unwrap().json().await.unwrap();
        assert_eq!(item, Item { name: "a".to_owned(), count: 3 });
        let no_json = client.get(&format!("{origin}/version")).await.unwrap().json::<Item>().await.unwrap_err();
        assert!(matches!(no_json, Error::Json(_)), "{no_json}");
        let missing = client.get(&format!("{origin}/missing")).await.unwrap();
        assert_eq!(missing.status(), 404);
        let error = missing.error_for_status().unwrap_err().to_string();
        assert!(error.contains("404") && error.contains(&origin), "{error}");
        let request = Request::head(format!("{origin}/json")).body(()).unwrap();
        let head = client.request(request).await.unwrap();
        assert_eq!(head.headers()["content-length"], "22");
        assert_eq!(head.bytes().await.unwrap().len(), 0);
        let connect = Request::connect(format!("{origin}/")).body(()).unwrap();
        assert!(matches!(client.request(connect).await, Err(Error::Unsupported(_))));
    });
}
