//! An HTTP/2 client that sends many requests at a time, and checks each answer.

use std::time::Duration;

use bytes::Bytes;
use dapple::hyper_rt::{Executor, Timer};
use dapple::time::timeout;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{Builder, SendRequest};

use super::Target;
use super::site::{Site, Want};
use super::target::Connected;
use soak::Dice;

type Sender = SendRequest<Empty<Bytes>>;

/// Concurrent requests on one connection, each of which must be answered correctly.
pub(crate) fn be_good_by_http2(target: &Target, site: &Site, dice: &mut Dice) -> Result<(), String> {
    for _ in 0..TRIES_MAX {
        let wants: Vec<Want> = (0..=dice.roll(12)).map(|_| site.want(dice)).collect();
        let waited = dapple::wait(timeout(PATIENCE, ask_all(target.clone(), wants)));
        match waited.map_err(|_| "good requests by HTTP/2 are stuck".to_owned())?? {
            Goes::On => return Ok(()),
            Goes::Away => {}
        }
    }
    Err(format!("of {TRIES_MAX} connections of HTTP/2, one after the other, none took all requests"))
}

/// The result of a connection's requests.
enum Goes {
    On,
    /// The server takes no more requests.
    Away,
}

async fn ask_all(target: Target, wants: Vec<Want>) -> Result<Goes, String> {
    let sender = begin(&target).await.map_err(|error| format!("a good client cannot connect by HTTP/2: {error}"))?;
    let asking: Vec<_> = wants.into_iter().map(|want| dapple::spawn(ask(sender.clone(), want))).collect();
    drop(sender);
    let mut goes = Goes::On;
    for answer in asking {
        if let Goes::Away = answer.await.map_err(|error| error.to_string())?? {
            goes = Goes::Away;
        }
    }
    Ok(goes)
}

async fn begin(target: &Target) -> Result<Sender, String> {
    let mut builder = Builder::new(Executor::new());
    builder.timer(Timer::new());
    let text = |error: hyper::Error| error.to_string();
    match target.connect().await.map_err(|error| error.to_string())? {
        Connected::Plain(stream) => {
            let (sender, connection) = builder.handshake(stream).await.map_err(text)?;
            drop(dapple::spawn(connection));
            Ok(sender)
        }
        Connected::Tls(stream) => {
            let (sender, connection) = builder.handshake(*stream).await.map_err(text)?;
            drop(dapple::spawn(connection));
            Ok(sender)
        }
    }
}

async fn ask(mut sender: Sender, want: Want) -> Result<Goes, String> {
    let mut request = Request::builder().method(want.method).uri(format!("http://a/{}", want.name));
    if let Some((name, value)) = &want.field {
        request = request.header(*name, value);
    }
    let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
    let wrong = |what: String| format!("a good request for {} by HTTP/2: {what}", want.name);
    let response = match sender.send_request(request).await {
        Ok(response) => response,
        Err(error) if is_farewell(&error) => return Ok(Goes::Away),
        Err(error) => return Err(wrong(format!("{error:?}"))),
    };
    if response.status() != want.status {
        return Err(wrong(format!("{} expected, got {}", want.status, response.status())));
    }
    let body = response.into_body().collect().await.map_err(|error| wrong(format!("{error:?}")))?;
    if body.to_bytes() == want.body { Ok(Goes::On) } else { Err(wrong("the bytes are wrong".to_owned())) }
}

/// Whether the server ended the connection regularly, without a begun answer. hyper gives the
/// reason only as text.
fn is_farewell(error: &hyper::Error) -> bool {
    let words = format!("{error:?}");
    error.is_canceled() || error.is_closed() || words.contains("NO_ERROR") || words.contains("REFUSED_STREAM")
}

/// Successive processes may end the connection, but not every time.
const TRIES_MAX: usize = 5;

/// A request that takes this long is stuck.
const PATIENCE: Duration = Duration::from_secs(60);
