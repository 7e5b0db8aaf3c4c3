//! The offer that a server makes to admission control for each request.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use dapple_io::time::sleep;
use dapple_sched::environment::{self, RandomState};
use dapple_tower::Refused;
use dapple_tower::admission::{Admission, Class, Config, Offer};
use http::request::Parts;
use tracing::warn;

use crate::pace::Pace;
use dapple_io::net::Peer;

/// A program's own description of each request.
pub(crate) type Describe = Arc<dyn Fn(&Parts, &Peer, Offer) -> Offer + Send + Sync>;

/// The admission control that a server uses.
#[derive(Clone)]
pub(crate) enum Choice {
    /// One of its own.
    Own(Config),
    /// One shared with other servers.
    Shared(Admission),
    None,
}

/// Decides which requests are served.
pub(crate) struct Gate {
    admission: Option<Admission>,
    describe: Vec<Describe>,
    pace: Pace,
    /// The first refusal is logged.
    refused: Once,
    /// Has a seed of its own, so that clients cannot choose names that collide.
    hasher: RandomState,
}

impl Gate {
    /// Creates a gate. Call this in the runtime that serves.
    pub(crate) fn new(choice: Choice, describe: Vec<Describe>) -> Gate {
        let admission = match choice {
            Choice::Own(config) => Some(Admission::new(config)),
            Choice::Shared(admission) => Some(admission),
            Choice::None => None,
        };
        let workers = dapple_sched::Handle::try_current().map_or(1, |handle| handle.workers());
        Gate { admission, describe, pace: Pace::new(workers), refused: Once::new(), hasher: RandomState::default() }
    }

    pub(crate) fn admission(&self) -> Option<&Admission> {
        self.admission.as_ref()
    }

    /// Whether the time that a request waited before it was read matters.
    pub(crate) fn is_busy(&self) -> bool {
        self.admission.as_ref().is_some_and(Admission::is_busy)
    }

    /// Logs a refusal of admission control, if it is the first of this server.
    pub(crate) fn note(&self, refused: &Refused) {
        self.refused.call_once(|| {
            warn!(
                "admission control has refused its first request with 503: {refused}. It is on in every server; \
                 `target_delay`, `admission` and `no_admission` of `dapple::serve` change it"
            );
        });
    }

    /// Waits before a refusal when clients retry at once: see [`Pace`]. Cancel safe.
    pub(crate) async fn pace(&self) {
        if let Some(wait) = self.pace_wait() {
            sleep(wait).await;
        }
    }

    /// How long [`Gate::pace`] waits before the next refusal.
    pub(crate) fn pace_wait(&self) -> Option<Duration> {
        self.pace.wait(environment::now())
    }

    /// The offer for one request.
    pub(crate) fn offer(&self, parts: &Parts, peer: &Peer, arrived: Instant) -> Offer {
        let path = parts.uri.path_and_query();
        let offer = Offer::arrived(arrived)
            .class(class(parts.uri.path()))
            .client(self.hasher.hash_one(peer.network()))
            .kind(self.hasher.hash_one((&parts.method, path)));
        let offer = match parts.headers.get(GRPC_TIMEOUT).and_then(|value| grpc_timeout(value.to_str().ok()?)) {
            Some(timeout) => offer.deadline(arrived + timeout),
            None => offer,
        };
        self.describe.iter().fold(offer, |offer, describe| describe(parts, peer, offer))
    }
}

/// Health checks must be answered even under overload; otherwise the server would be restarted.
fn class(path: &str) -> Class {
    if VITAL.contains(&path) { Class::VITAL } else { Class::NORMAL }
}

/// Parses gRPC's notation: up to eight digits and a unit. Ignores deadlines beyond an hour.
fn grpc_timeout(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    let timeout = match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    };
    (timeout <= GRPC_TIMEOUT_MAX).then_some(timeout)
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("admission", &self.admission).finish_non_exhaustive()
    }
}

/// Paths of health checks, by custom and by gRPC's health protocol.
const VITAL: [&str; 8] = [
    "/health",
    "/healthz",
    "/ready",
    "/readyz",
    "/live",
    "/livez",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
];

const GRPC_TIMEOUT: &str = "grpc-timeout";
const GRPC_TIMEOUT_MAX: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use dapple_tower::admission::{Class, Offer};
    use http::Request;
    use http::request::Parts;

    use super::{Choice, Gate, grpc_timeout};
    use dapple_io::net::Peer;

    fn parts(method: &str, uri: &str) -> Parts {
        Request::builder().method(method).uri(uri).body(()).unwrap().into_parts().0
    }

    fn peer(addr: &str) -> Peer {
        Peer::Tcp(addr.parse().unwrap())
    }

    #[test]
    fn kinds_are_methods_and_whole_targets_and_clients_are_networks() {
        let gate = Gate::new(Choice::None, Vec::new());
        let now = Instant::now();
        let offer = |method, uri, from| gate.offer(&parts(method, uri), &peer(from), now);
        let first = offer("GET", "/?us=1", "192.0.2.1:1");
        assert_eq!(first.arrived, now);
        assert_eq!(first.kind, offer("GET", "/?us=1", "192.0.2.2:1").kind);
        assert_ne!(first.kind, offer("GET", "/?us=2", "192.0.2.1:1").kind);
        assert_ne!(first.kind, offer("PUT", "/?us=1", "192.0.2.1:1").kind);
        assert_eq!(first.client, offer("PUT", "/", "192.0.2.1:99").client);
        assert_ne!(first.client, offer("GET", "/?us=1", "192.0.2.2:1").client);
        assert_eq!((first.class, offer("GET", "/healthz?x", "192.0.2.1:1").class), (Class::NORMAL, Class::VITAL));
        assert_eq!(offer("GET", "/health/y", "192.0.2.1:1").class, Class::NORMAL);
    }

    #[test]
    fn descriptions_by_users_take_precedence() {
        let low = |parts: &Parts, _: &Peer, offer: Offer| match parts.uri.path() {
            "/report" => offer.class(Class::LOW),
            _ => offer,
        };
        let tenant = |parts: &Parts, _: &Peer, offer: Offer| offer.client(parts.headers.len() as u64);
        let gate = Gate::new(Choice::None, vec![Arc::new(low), Arc::new(tenant)]);
        let offer = gate.offer(&parts("GET", "/report"), &Peer::Unix, Instant::now());
        assert_eq!((offer.class, offer.client), (Class::LOW, 0));
        assert_eq!(gate.offer(&parts("GET", "/health"), &Peer::Unix, Instant::now()).class, Class::VITAL);
    }

    #[test]
    fn deadlines_of_grpc_are_read() {
        for (text, expected) in [
            ("100m", Some(Duration::from_millis(100))),
            ("1S", Some(Duration::from_secs(1))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("1H", Some(Duration::from_secs(3_600))),
            ("99999999H", None),
            ("123456789u", None),
            ("-1S", None),
            ("+1S", None),
            ("S", None),
            ("", None),
            ("1", None),
            ("1é", None),
        ] {
            assert_eq!(grpc_timeout(text), expected, "{text:?}");
        }
        let gate = Gate::new(Choice::None, Vec::new());
        let mut parts = parts("POST", "/a.B/C");
        parts.headers.insert("grpc-timeout", "250m".parse().unwrap());
        let now = Instant::now();
        assert_eq!(gate.offer(&parts, &Peer::Unix, now).deadline, Some(now + Duration::from_millis(250)));
    }
}
