//! The server's log.

use std::convert::Infallible;
use std::fmt::{Debug, Write};
use std::sync::Mutex;

use dapple::serve::Body;
use http::{Request, Response};
use tower::service_fn;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use crate::support::{ask, connect};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Log;

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("dapple_serve")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        LINES.lock().unwrap().push(message.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The text is tokio's.
#[test]
fn a_handler_without_a_tokio_runtime_is_logged_with_advice() {
    tracing::subscriber::set_global_default(Log).unwrap();
    let runtime = dapple::builder().workers(1).build().unwrap();
    let addr = runtime.block_on(async {
        let listener = dapple::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let service = service_fn(async |request: Request<Body>| -> Result<Response<String>, Infallible> {
            match request.uri().path() {
                "/" => panic!("there is no reactor running, must be called from the context of a Tokio 1.x runtime"),
                _ => Ok(Response::new("hello".to_owned())),
            }
        });
        dapple::spawn(async move { dapple::serve(listener, service).await });
        addr
    });
    let mut client = connect(addr);
    assert!(ask(&mut client, "/").0.starts_with("HTTP/1.1 500"));
    assert_eq!(ask(&mut client, "/hello").1, "hello");
    // Other tests log as well.
    let lines = LINES.lock().unwrap().clone();
    let line = lines.iter().find(|line| line.contains("tokio"));
    let line = line.unwrap_or_else(|| panic!("the log says what to do: {lines:?}"));
    assert!(line.contains("a handler panicked") && line.contains("dapple::builder().tokio()"), "{line}");
}
