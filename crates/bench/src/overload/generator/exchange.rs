//! The requests, and the check of replies.

use super::reply::Reply;
use crate::overload::clients::Clients;
use crate::overload::record::{Failure, Outcome};

/// The outcome of a request of that cost with this reply.
pub(super) fn judge(cost_us: u32, reply: &Reply, body: &[u8]) -> Outcome {
    match reply.status {
        200 if is_right(cost_us, body) => Outcome::Right,
        200 => Outcome::Failed(Failure::WrongBody),
        503 => Outcome::Refused { retry_after: reply.retry_after },
        status => Outcome::Failed(Failure::Status(status)),
    }
}

/// A right reply begins with the burned microseconds: the requested number, or somewhat more if the
/// server reports the time that it really took.
fn is_right(cost_us: u32, body: &[u8]) -> bool {
    let digits = body.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let burned_us = std::str::from_utf8(&body[..digits]).ok().and_then(|text| text.parse::<u64>().ok());
    let cost_us = u64::from(cost_us);
    burned_us.is_some_and(|burned_us| (cost_us..=cost_us * 2 + BURNED_MORE_US_MAX).contains(&burned_us))
}

/// The request of that cost, as these clients send it.
pub(super) fn request_of(cost_us: u32, keeps: bool, clients: &Clients) -> Vec<u8> {
    let close = if keeps { "" } else { "connection: close\r\n" };
    let Clients { path, head, .. } = clients;
    let agent = "user-agent: dapple-overload\r\n";
    format!("GET {path}?us={cost_us} HTTP/1.1\r\nhost: 127.0.0.1\r\n{agent}{head}{close}\r\n").into_bytes()
}

/// How much longer than requested a server may burn, because of its clock.
const BURNED_MORE_US_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::clients::{ALIKE, CLASSES};

    #[test]
    fn requests_name_their_clients() {
        let text = |keeps, clients| String::from_utf8(request_of(5_000, keeps, clients)).expect("it is text");
        let agent = "user-agent: dapple-overload\r\n";
        let plain = format!("GET /?us=5000 HTTP/1.1\r\nhost: 127.0.0.1\r\n{agent}");
        assert_eq!(text(true, &ALIKE[0]), format!("{plain}\r\n"));
        assert_eq!(text(false, &CLASSES[1]), format!("{plain}x-class: high\r\nconnection: close\r\n\r\n"));
        assert!(text(true, &CLASSES[0]).starts_with("GET /healthz?us=5000 HTTP/1.1\r\n"));
    }

    #[test]
    fn right_replies_name_what_was_burned() {
        for right in ["5000\n", "5003 us burned", "9000"] {
            assert!(is_right(5_000, right.as_bytes()), "{right}");
        }
        for wrong in ["", "ok", "4999\n", "50000\n", "-5000", "99999999999999999999999"] {
            assert!(!is_right(5_000, wrong.as_bytes()), "{wrong}");
        }
    }
}
