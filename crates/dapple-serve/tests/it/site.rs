//! The site that the servers of these tests serve.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dapple::serve::{Body, BoxError, Peer};
use dapple::stage::{Reason, Refused, Stage};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Frame};
use hyper::rt::{Read, ReadBuf, Write};
use hyper::upgrade::Upgraded;

pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// The service; the path selects what it does.
pub(crate) async fn site(mut request: Request<Body>) -> Result<Reply, BoxError> {
    let number = request.uri().query().and_then(|query| query.parse::<u64>().ok()).unwrap_or(0);
    if request.method() == Method::CONNECT {
        let upgraded = hyper::upgrade::on(&mut request);
        drop(dapple::spawn(async move { shout(upgraded.await.expect("the test asks for it")).await }));
        return Ok(text(""));
    }
    match request.uri().path() {
        "/hello" | "/health" => Ok(text("hello")),
        "/peer" => Ok(text(format!("{:?}", request.extensions().get::<Peer>()))),
        "/panic" => panic!("on purpose"),
        "/panic-in-body" => Ok(Response::new(Endless::Panics.map_err(BoxError::from).boxed_unsync())),
        "/error" => Err(io::Error::other("on purpose").into()),
        "/refuse" => Err(Box::new(Refused::new(Reason::Rate, Duration::from_millis(2_500)))),
        "/refuse-by-stage" => {
            let stage = Stage::builder("refuses")
                .admission(|_, _| Err(Refused::new(Reason::Rate, Duration::from_millis(2_500))))
                .wrap_fn(async |number: u64| Ok::<_, io::Error>(number.to_string()));
            Ok(text(stage.ask(number).now().await?))
        }
        "/refuse-by-stages" => {
            let inner = Stage::builder("refuses")
                .admission(|_, _| Err(Refused::new(Reason::Rate, Duration::from_millis(2_500))))
                .wrap_fn(async |number: u64| Ok::<_, io::Error>(number.to_string()));
            let first = Stage::builder("first").wrap_sync(|number: u64| number);
            let outer = Stage::builder("around a pipeline").wrap(first.then(Stage::builder("around").wrap(inner)));
            Ok(text(outer.ask(number).now().await?))
        }
        "/read" => Ok(match request.into_body().collect().await {
            Ok(body) => text(format!("{} bytes", body.to_bytes().len())),
            Err(error) => with(StatusCode::IM_A_TEAPOT, format!("{error}")),
        }),
        "/late" => {
            let ms = number;
            dapple::time::sleep(Duration::from_millis(ms)).await;
            let body = request.into_body().collect().await?;
            Ok(text(format!("{} bytes after {ms} ms", body.to_bytes().len())))
        }
        "/work" => {
            let body = request.into_body().collect().await?;
            spin(number);
            Ok(text(format!("{} bytes", body.to_bytes().len())))
        }
        "/echo" => Ok(Response::new(request.into_body().boxed_unsync())),
        "/zeros" => Ok(Response::new(Endless::Zeros.map_err(BoxError::from).boxed_unsync())),
        "/sleep" => {
            dapple::time::sleep(Duration::from_millis(number)).await;
            Ok(text("awake"))
        }
        "/upgrade" => {
            let upgraded = hyper::upgrade::on(&mut request);
            drop(dapple::spawn(async move { shout(upgraded.await.expect("the test asks for it")).await }));
            switched()
        }
        "/talk" => {
            let upgraded = hyper::upgrade::on(&mut request);
            drop(dapple::spawn(async move { talk(upgraded.await.expect("the test asks for it"), number == 1).await }));
            switched()
        }
        "/hold" => {
            let upgraded = hyper::upgrade::on(&mut request);
            drop(dapple::spawn(async move {
                let _upgraded = upgraded.await.expect("the test asks for it");
                std::future::pending::<()>().await;
            }));
            switched()
        }
        "/never" => std::future::pending().await,
        "/spin" => {
            spin(number);
            Ok(text("spun"))
        }
        _ => Ok(with(StatusCode::NOT_FOUND, "nothing is here")),
    }
}

/// Another protocol: echoes input in capitals.
async fn shout(mut upgraded: Upgraded) -> io::Result<()> {
    loop {
        let mut space = [0; 1024];
        let mut read = ReadBuf::new(&mut space);
        poll_fn(|cx| Pin::new(&mut upgraded).poll_read(cx, read.unfilled())).await?;
        let text = read.filled().to_ascii_uppercase();
        if text.is_empty() {
            return poll_fn(|cx| Pin::new(&mut upgraded).poll_shutdown(cx)).await;
        }
        let len = poll_fn(|cx| Pin::new(&mut upgraded).poll_write(cx, &text)).await?;
        assert_eq!(len, text.len(), "so few bytes have room");
    }
}

/// How many tasks have waited in `talk`, each counted once.
pub(crate) static BLOCKED: AtomicUsize = AtomicUsize::new(0);

/// Another protocol, in which the client only reads.
async fn talk(mut upgraded: Upgraded, is_vectored: bool) -> io::Result<()> {
    let zeros = [0; 16 << 10];
    let mut was_blocked = false;
    loop {
        poll_fn(|cx| {
            let polled = match is_vectored {
                true => Pin::new(&mut upgraded).poll_write_vectored(cx, &[io::IoSlice::new(&zeros)]),
                false => Pin::new(&mut upgraded).poll_write(cx, &zeros),
            };
            if polled.is_pending() && !std::mem::replace(&mut was_blocked, true) {
                BLOCKED.fetch_add(1, Ordering::Relaxed);
            }
            polled
        })
        .await?;
    }
}

fn switched() -> Result<Reply, BoxError> {
    let mut response = with(StatusCode::SWITCHING_PROTOCOLS, "");
    response.headers_mut().insert("connection", "upgrade".parse()?);
    response.headers_mut().insert("upgrade", "shout".parse()?);
    Ok(response)
}

fn spin(us: u64) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_micros(us) {
        std::hint::spin_loop();
    }
}

fn text(text: impl Into<Bytes>) -> Reply {
    with(StatusCode::OK, text)
}

fn with(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    let mut response = Response::new(Full::new(text.into()).map_err(BoxError::from).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// Bodies that never end by themselves.
enum Endless {
    Zeros,
    /// After the first piece.
    Panics,
    Panicking,
}

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match *self {
            Endless::Zeros => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 16 << 10]))))),
            Endless::Panics => {
                *self = Endless::Panicking;
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"a piece")))))
            }
            Endless::Panicking => panic!("on purpose"),
        }
    }
}
