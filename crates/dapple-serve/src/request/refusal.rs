//! The reply to a refused request, in the form of its protocol.

use std::sync::Arc;

use dapple_tower::{Reason, Refused};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::caught::caught;
use super::panicked;
use super::reply::{Reply, plain};

/// A user's own reply.
pub(crate) type OnRefusal = Arc<dyn Fn(&Refused) -> Response<String> + Send + Sync>;

/// How to refuse one request.
#[derive(Clone)]
pub(crate) struct Words {
    own: Option<OnRefusal>,
    is_grpc: bool,
}

impl Words {
    pub(crate) fn new(own: Option<OnRefusal>, parts: &Parts) -> Words {
        let kind = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        Words { own, is_grpc: kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) }
    }

    pub(super) fn say<B>(&self, refused: &Refused) -> Response<Reply<B>> {
        match &self.own {
            Some(own) => caught(|| own(refused))
                .map_or_else(|panic| panicked(&panic), |said| explained(said, refused).map(Reply::said)),
            None if self.is_grpc => grpc(refused),
            None => http(refused).map(Reply::said),
        }
    }
}

fn http(refused: &Refused) -> Response<String> {
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, format!("{refused}\n"));
    // The field has whole seconds, and zero would invite the client to retry at once.
    let seconds = refused.retry_after.as_secs().saturating_add(u64::from(refused.retry_after.subsec_nanos() > 0));
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    explained(response, refused)
}

/// Adds the reason in a field for programs, unless the reply has that field, or is not an HTTP
/// error.
fn explained<B>(mut response: Response<B>, refused: &Refused) -> Response<B> {
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    if is_error && let Ok(reason) = HeaderValue::try_from(refused.reason.to_string()) {
        response.headers_mut().entry(REFUSED_REASON).or_insert(reason);
    }
    response
}

/// A reply that is all trailers, and says when to retry in the form of gRPC (gRFC A6).
fn grpc<B>(refused: &Refused) -> Response<Reply<B>> {
    let mut response = Response::new(Reply::said(""));
    let code = if refused.reason == Reason::Deadline { DEADLINE_EXCEEDED } else { UNAVAILABLE };
    let pushback_ms = u64::try_from(refused.retry_after.as_millis()).unwrap_or(u64::MAX);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static(code));
    headers.insert("grpc-retry-pushback-ms", HeaderValue::from(pushback_ms.max(1)));
    if let Ok(message) = HeaderValue::from_str(&encoded_message(&refused.to_string())) {
        headers.insert("grpc-message", message);
    }
    response
}

/// A message in gRPC's encoding: printable ASCII, everything else and the percent sign encoded.
fn encoded_message(text: &str) -> String {
    utf8_percent_encode(text, NOT_IN_A_GRPC_MESSAGE).to_string()
}

const NOT_IN_A_GRPC_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');
const REFUSED_REASON: HeaderName = HeaderName::from_static("refused-reason");
const UNAVAILABLE: &str = "14";
const DEADLINE_EXCEEDED: &str = "4";

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use dapple_tower::{Reason, Refused};
    use http::header::{HeaderName, RETRY_AFTER};
    use http::request::Parts;
    use http::{Request, Response, StatusCode};

    use super::{OnRefusal, Reply, Words, encoded_message};

    fn parts(kind: &str) -> Parts {
        Request::builder().header("content-type", kind).body(()).unwrap().into_parts().0
    }

    fn refusal(own: Option<OnRefusal>, kind: &str, reason: Reason, ms: u64) -> Response<Reply<String>> {
        Words::new(own, &parts(kind)).say(&Refused::new(reason, Duration::from_millis(ms)))
    }

    #[test]
    fn retry_after_has_whole_seconds_and_is_never_zero() {
        for (retry_after_ms, says) in [(0, "1"), (1, "1"), (1_000, "1"), (1_001, "2"), (60_000, "60")] {
            let response = refusal(None, "text/plain", Reason::Class, retry_after_ms);
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.headers()[RETRY_AFTER], says);
        }
        let never = Words::new(None, &parts("text/plain")).say::<String>(&Refused::new(Reason::Class, Duration::MAX));
        assert_eq!(never.headers()[RETRY_AFTER], u64::MAX.to_string());
    }

    #[test]
    fn grpc_clients_get_grpc_statuses() {
        let response = refusal(None, "application/grpc+proto", Reason::Rate, 250);
        let field = |name: &'static str| response.headers()[HeaderName::from_static(name)].to_str().unwrap();
        assert_eq!((response.status(), field("grpc-status")), (StatusCode::OK, "14"));
        assert_eq!(field("grpc-retry-pushback-ms"), "250");
        assert_eq!(field("grpc-message"), "refused: the rate limit is reached");
        assert_eq!(refusal(None, "application/grpc", Reason::Deadline, 0).headers()["grpc-status"], "4");
    }

    #[test]
    fn programs_can_set_their_own_reply() {
        let own: OnRefusal = Arc::new(|refused| {
            let mut response = Response::new(format!("{{\"error\":\"{}\"}}", refused.reason));
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response
        });
        let response = refusal(Some(own), "application/grpc", Reason::Rate, 1);
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()["refused-reason"], "the rate limit is reached");
        let quiet: OnRefusal =
            Arc::new(|_| Response::builder().status(503).header("refused-reason", "load").body(String::new()).unwrap());
        assert_eq!(refusal(Some(quiet), "text/plain", Reason::Rate, 1).headers()["refused-reason"], "load");
        let other: OnRefusal = Arc::new(|_| Response::new("{}".to_owned()));
        assert!(!refusal(Some(other), "text/plain", Reason::Rate, 1).headers().contains_key("refused-reason"));
    }

    #[test]
    fn messages_are_ascii() {
        assert_eq!(encoded_message("100 % naïve\n"), "100 %25 na%C3%AFve%0A");
    }
}
