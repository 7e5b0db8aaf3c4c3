//! The meaning of an answer that is an error.

use http::StatusCode;
use serde_json::Value;

use crate::error::{Error, Reason};

/// The meaning of a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// etcd refuses the request permanently, and did not apply it.
    Final(Error),
    /// etcd did not apply it, because the token is no longer valid.
    Token(String),
    /// This client has too many calls waiting.
    Busy,
    /// Another member may answer.
    Elsewhere {
        why: String,
        /// The request may have been applied.
        is_open: bool,
    },
}

impl Failure {
    pub(crate) fn unsent(why: String) -> Failure {
        Failure::Elsewhere { why, is_open: false }
    }

    pub(crate) fn open(why: String) -> Failure {
        Failure::Elsewhere { why, is_open: true }
    }

    /// Reads the body of an answer with an error status.
    pub(crate) fn of_answer(status: StatusCode, body: &[u8]) -> Failure {
        let Ok(answer) = serde_json::from_slice::<Value>(body) else {
            let why = format!("{status} without JSON; is this an etcd from 3.4 on?");
            return match status.is_client_error() {
                true => Failure::Final(Error::not_applied(Reason::Malformed, why)),
                false => Failure::open(why),
            };
        };
        Failure::of_json(&answer, status.as_str())
    }

    /// Reads an error in JSON, in the forms of all versions: `{"error":"…","code":N}`, `{"code":N,"message":"…"}`, and those of streams with
    /// `grpc_code`.
    pub(crate) fn of_json(answer: &Value, otherwise: &str) -> Failure {
        let inner = answer.get("error").filter(|error| error.is_object()).unwrap_or(answer);
        let text = |name: &str| inner.get(name).and_then(Value::as_str);
        let message = text("message").or_else(|| text("error")).unwrap_or(otherwise);
        let code = inner.get("code").or_else(|| inner.get("grpc_code")).and_then(Value::as_i64);
        Failure::of(code.unwrap_or(UNKNOWN), message)
    }

    /// Sorts an error by its gRPC code and etcd's text, which is the only difference between some
    /// of them.
    pub(crate) fn of(code: i64, message: &str) -> Failure {
        let why = message.to_owned();
        let has = |part: &str| message.contains(part);
        if has("invalid auth token") || has("revision of auth store is old") || has("user name is empty") {
            return Failure::Token(why);
        }
        let refused = |reason| Failure::Final(Error::not_applied(reason, message));
        match code {
            _ if has("has been compacted") => refused(Reason::Compacted { revision: 0 }),
            _ if has("future revision") => refused(Reason::FutureRevision),
            _ if has("database space exceeded") => refused(Reason::NoSpace),
            _ if has("request is too large") || has("too many operations") || has("larger than max") => {
                refused(Reason::TooLarge)
            }
            _ if has("lease not found") => refused(Reason::NoLease),
            _ if has("authentication failed") => refused(Reason::Denied),
            // The member has no leader, or refuses for overload or its own state: it has proposed nothing.
            _ if has("no leader") || has("not leader") || has("too many requests") || has("not capable") => {
                Failure::unsent(why)
            }
            PERMISSION_DENIED | UNAUTHENTICATED => refused(Reason::Denied),
            INVALID_ARGUMENT | UNIMPLEMENTED => refused(Reason::Malformed),
            NOT_FOUND | ALREADY_EXISTS | FAILED_PRECONDITION | OUT_OF_RANGE => refused(Reason::Other),
            // Time-outs, a stopping member, and unknown errors.
            _ => Failure::open(why),
        }
    }
}

// The codes of gRPC.
const UNKNOWN: i64 = 2;
const INVALID_ARGUMENT: i64 = 3;
const NOT_FOUND: i64 = 5;
const ALREADY_EXISTS: i64 = 6;
const PERMISSION_DENIED: i64 = 7;
const FAILED_PRECONDITION: i64 = 9;
const OUT_OF_RANGE: i64 = 11;
const UNIMPLEMENTED: i64 = 12;
const UNAUTHENTICATED: i64 = 16;

#[cfg(test)]
mod tests {
    use super::Failure;
    use crate::error::{Error, Reason};
    use http::StatusCode;

    fn reason(failure: &Failure) -> Option<Reason> {
        match failure {
            Failure::Final(error) => error.reason(),
            Failure::Token(_) | Failure::Busy | Failure::Elsewhere { .. } => None,
        }
    }

    #[test]
    fn errors_of_all_versions_are_sorted() {
        let of = |body: &str| Failure::of_answer(StatusCode::BAD_REQUEST, body.as_bytes());
        for (body, expected) in [
            (
                r#"{"error":"etcdserver: key is not provided","code":3,"message":"etcdserver: key is not provided"}"#,
                Reason::Malformed,
            ),
            (r#"{"code":3,"message":"etcdserver: request is too large","details":[]}"#, Reason::TooLarge),
            (r#"{"error":{"grpc_code":7,"http_code":403,"message":"etcdserver: permission denied"}}"#, Reason::Denied),
            (r#"{"error":{"code":5,"message":"etcdserver: requested lease not found"}}"#, Reason::NoLease),
            (
                r#"{"code":11,"message":"etcdserver: mvcc: required revision has been compacted"}"#,
                Reason::Compacted { revision: 0 },
            ),
            (r#"{"code":8,"message":"etcdserver: mvcc: database space exceeded"}"#, Reason::NoSpace),
            ("404 page not found", Reason::Malformed),
        ] {
            assert_eq!(reason(&of(body)), Some(expected), "{body}");
        }
        assert!(matches!(of(r#"{"code":16,"message":"etcdserver: invalid auth token"}"#), Failure::Token(_)));
    }

    #[test]
    fn only_what_surely_was_not_proposed_counts_as_not_applied() {
        for (code, message, is_open) in [
            (14, "etcdserver: no leader", false),
            (8, "etcdserver: too many requests", false),
            (14, "etcdserver: request timed out", true),
            (14, "etcdserver: request timed out, possibly due to previous leader failure", true),
            (14, "etcdserver: leader changed", true),
            (14, "etcdserver: server stopped", true),
            (13, "anything", true),
        ] {
            assert_eq!(
                Failure::of(code, message),
                Failure::Elsewhere { why: message.to_owned(), is_open },
                "{message}"
            );
        }
        let busy = Failure::of_answer(StatusCode::BAD_GATEWAY, b"<html>");
        assert!(matches!(busy, Failure::Elsewhere { is_open: true, .. }));
        let error = Error::not_applied(Reason::Denied, "x");
        assert_eq!(Failure::of(7, "x"), Failure::Final(error));
    }
}
