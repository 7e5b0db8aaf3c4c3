//! The names of the protocol: paths, headers, and outcomes. `docs/remote.md` describes it for other
//! languages.

use std::time::Duration;

use dapple_tower::{Reason, Refused};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};

/// The path of a stage is this prefix and its name.
pub(crate) const STAGES: &str = "/stages/";
/// The path that lists the host's stages.
pub(crate) const LIST: &str = "/stages";
/// The path that answers 200 if requests are taken, 503 if not.
pub(crate) const HEALTH: &str = "/health";
/// The path that is answered when the host is about to end: then its client sends nothing more on
/// this connection.
pub(crate) const STOPPING: &str = "/stopping";

/// The schema that the sender assumes.
pub(crate) const SCHEMA: &str = "dapple-schema";
/// How long the sender still waits, in milliseconds.
pub(crate) const TIME_LEFT: &str = "dapple-time-left-ms";
/// How the request ended, on every reply of a host.
pub(crate) const OUTCOME: &str = "dapple-outcome";

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Done,
    Refused,
    Failed,
    Panicked,
    TimedOut,
    NotFound,
    Mismatch,
    Malformed,
    TooLarge,
}

impl Outcome {
    pub(crate) const ALL: [Outcome; 9] = [
        Outcome::Done,
        Outcome::Refused,
        Outcome::Failed,
        Outcome::Panicked,
        Outcome::TimedOut,
        Outcome::NotFound,
        Outcome::Mismatch,
        Outcome::Malformed,
        Outcome::TooLarge,
    ];

    /// Its value in the header.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
            Outcome::Panicked => "panicked",
            Outcome::TimedOut => "timed-out",
            Outcome::NotFound => "not-found",
            Outcome::Mismatch => "mismatch",
            Outcome::Malformed => "malformed",
            Outcome::TooLarge => "too-large",
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Outcome::Done => StatusCode::OK,
            Outcome::Refused => StatusCode::SERVICE_UNAVAILABLE,
            Outcome::Failed | Outcome::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Outcome::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Outcome::NotFound => StatusCode::NOT_FOUND,
            Outcome::Mismatch => StatusCode::CONFLICT,
            Outcome::Malformed => StatusCode::BAD_REQUEST,
            Outcome::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }

    pub(crate) fn of(headers: &HeaderMap) -> Option<Outcome> {
        let word = headers.get(OUTCOME)?.to_str().ok()?;
        Outcome::ALL.into_iter().find(|outcome| outcome.word() == word)
    }
}

/// The body of every reply that does not come from a handler. JSON, whatever the request's
/// encoding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Problem {
    pub(crate) outcome: Outcome,
    pub(crate) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
}

impl Problem {
    pub(crate) fn new(outcome: Outcome, message: impl Into<String>) -> Problem {
        Problem { outcome, message: message.into(), reason: None, retry_after_ms: None }
    }

    pub(crate) fn refused(refused: &Refused) -> Problem {
        Problem {
            reason: serde_json::to_value(&refused.reason).ok(),
            retry_after_ms: Some(u64::try_from(refused.retry_after.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)),
            ..Problem::new(Outcome::Refused, refused.to_string())
        }
    }

    /// The refusal in this problem. A reason unknown to this version becomes the plainest one.
    pub(crate) fn as_refused(&self) -> Refused {
        let reason = self.reason.clone().and_then(|reason| serde_json::from_value(reason).ok());
        let retry_after = Duration::from_millis(self.retry_after_ms.unwrap_or(0));
        Refused::new(reason.unwrap_or(Reason::Unavailable), retry_after)
    }
}

/// The value of `Retry-After`, in whole seconds. One second if nothing is known.
pub(crate) fn retry_after_s(retry_after: Duration) -> u64 {
    retry_after.as_secs().saturating_add(u64::from(retry_after.subsec_nanos() > 0)).max(1)
}

/// How long the sender waits. `Err` if the value is not a number.
pub(crate) fn time_left(headers: &HeaderMap) -> Result<Option<Duration>, String> {
    let Some(value) = headers.get(TIME_LEFT) else { return Ok(None) };
    let number = value.to_str().ok().filter(|text| text.len() <= 12).and_then(|text| text.parse().ok());
    match number {
        Some(ms) => Ok(Some(Duration::from_millis(ms))),
        None => Err(format!("`{TIME_LEFT}` has to be a number of milliseconds, of twelve digits at most")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Problem, TIME_LEFT, retry_after_s, time_left};
    use dapple_tower::{Reason, Refused};
    use http::{HeaderMap, HeaderValue};
    use std::time::Duration;

    #[test]
    fn refusals_survive_encoding() {
        let reasons = [
            Reason::Delay { predicted: Duration::from_micros(1500), target: Duration::from_millis(1) },
            Reason::Full { len: 7 },
            Reason::Busy,
            Reason::Share { len: 1 },
            Reason::Class,
            Reason::Deadline,
            Reason::Rate,
            Reason::Memory,
            Reason::Unavailable,
            Reason::Stopping,
        ];
        for reason in reasons {
            let refused = Refused::new(reason, Duration::from_millis(1500));
            let text = serde_json::to_string(&Problem::refused(&refused)).unwrap();
            let back: Problem = serde_json::from_str(&text).unwrap();
            assert_eq!(back.as_refused(), refused, "{text}");
        }
    }

    #[test]
    fn a_reason_from_a_later_version_is_understood_as_a_refusal() {
        let text = r#"{"outcome":"refused","message":"m","reason":{"moon":3},"retry_after_ms":20,"new":1}"#;
        let problem: Problem = serde_json::from_str(text).unwrap();
        assert_eq!(problem.as_refused(), Refused::new(Reason::Unavailable, Duration::from_millis(20)));
    }

    #[test]
    fn an_outcome_has_the_same_name_in_header_and_body() {
        for outcome in Outcome::ALL {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.word());
        }
    }

    #[test]
    fn retry_after_has_whole_seconds_and_is_never_zero() {
        let of_ms = |ms| retry_after_s(Duration::from_millis(ms));
        assert_eq!([of_ms(0), of_ms(1), of_ms(1000), of_ms(1001)], [1, 1, 1, 2]);
        assert_eq!(retry_after_s(Duration::MAX), u64::MAX);
    }

    #[test]
    fn the_time_left_is_a_number_or_an_error() {
        let read = |text: &'static str| {
            time_left(&HeaderMap::from_iter([(TIME_LEFT.parse().unwrap(), HeaderValue::from_static(text))]))
        };
        assert_eq!(time_left(&HeaderMap::new()), Ok(None));
        assert_eq!(read("250"), Ok(Some(Duration::from_millis(250))));
        for hostile in ["", "-1", "1e9", "9999999999999", "1.5"] {
            assert!(read(hostile).is_err(), "{hostile}");
        }
    }
}
