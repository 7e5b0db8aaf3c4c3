//! One request, from the pick of an upstream to its answer, with retries.
//!
//! | what happened | the same request again |
//! |---|---|
//! | a kept connection had been closed meanwhile | at once, on a fresh one, if that is safe; the upstream is not blamed |
//! | no connection; the limit of requests there is reached | at another upstream |
//! | the connection ended, or the response was malformed | at another upstream, if that is safe |
//! | it took too long | no: the client has waited long enough |
//!
//! A retry is safe if no part of the request was sent, or if the method is idempotent and the part
//! of the body that was read is still there (RFC 9110, section 9.2.2); and never after an interim
//! response went to the client. All retries but those of the first row use up the budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dapple::stage::balance::Outcome;
use tracing::debug;

use super::failure::Failure;
use super::list::Pick;
use super::replay::Replay;
use super::source::Upstreams;
use super::upstream::{Answer, Missed, Outgoing, attempt};
use crate::http::{RequestBody, Served};

/// Asks one upstream after the other, until one answers or a retry would be wrong. Notes in
/// `served` which one answered.
pub(super) async fn exchange(
    reverse: &Upstreams,
    outgoing: &Outgoing,
    body: &mut RequestBody<'_>,
    served: &mut Served,
) -> Result<Answer, Failure> {
    let begun = Instant::now();
    let us = || u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    reverse.budget.deposit();
    let mut replay = Replay::new(body);
    let mut asked: Vec<Arc<str>> = Vec::new();
    let mut failure = None;
    loop {
        let pick = match next(reverse, outgoing, &asked) {
            Ok(pick) => pick,
            Err(none) => {
                served.head_us = us();
                return Err(failure.unwrap_or(none));
            }
        };
        let name = pick.key().clone();
        served.upstream = Some(name.clone());
        let (missed, may_repeat) = match ask(reverse, pick, outgoing, &mut replay, served).await {
            Ok(answer) => {
                served.head_us = us();
                return Ok(answer);
            }
            Err(missed) => missed,
        };
        if !may_repeat {
            served.head_us = us();
            return Err(missed);
        }
        failure = Some(missed);
        asked.push(name);
    }
}

/// Picks the next upstream.
fn next(reverse: &Upstreams, outgoing: &Outgoing, asked: &[Arc<str>]) -> Result<Pick, Failure> {
    if asked.len() > reverse.retries_max as usize {
        return Err(Failure::Busy);
    }
    let pick = match outgoing.upgrade {
        Some(_) => reverse.list.pick_for_upgrade(asked),
        None => reverse.list.pick(asked),
    };
    let pick = pick.map_err(Failure::NoneIn)?;
    if !asked.is_empty() {
        if !reverse.budget.withdraw() {
            return Err(Failure::Busy);
        }
        pick.value().counts.retries.fetch_add(1, Ordering::Relaxed);
    }
    Ok(pick)
}

/// Asks one upstream, and once more if a kept connection turns out to have been closed. An error
/// includes whether another upstream may get the request.
async fn ask(
    reverse: &Upstreams,
    pick: Pick,
    outgoing: &Outgoing,
    replay: &mut Replay<'_, '_>,
    served: &mut Served,
) -> Result<Answer, (Failure, bool)> {
    let upstream = pick.value().clone();
    let was_out = pick.is_trial();
    let (mut pick, mut fresh) = (Some(pick), None);
    let missed = loop {
        served.tries += 1;
        let missed = match attempt(&mut pick, outgoing, &mut RequestBody::new(&mut *replay), fresh).await {
            Ok(answer) => {
                if was_out {
                    reverse.list.tell(&upstream);
                }
                return Ok(answer);
            }
            Err(missed) => missed,
        };
        debug!(upstream = &*upstream.name, reason = %missed.failure, "an upstream did not answer");
        // Only once: a younger HTTP/2 connection may have been used, too.
        let is_stale = missed.is_kept && fresh.is_none() && matches!(missed.failure, Failure::Broken(_));
        if !is_stale || !may_repeat(&missed, outgoing, replay) {
            break missed;
        }
        fresh = Some(missed.begun);
        upstream.counts.retries.fetch_add(1, Ordering::Relaxed);
    };
    // The same failure on a fresh connection is no coincidence.
    let missed = Missed { is_kept: missed.is_kept && fresh.is_none(), ..missed };
    if let Some(pick) = &mut pick {
        note(reverse, pick, &missed);
    }
    let may_repeat = may_repeat(&missed, outgoing, replay);
    Err((missed.failure, may_repeat))
}

/// Whether the request may be sent again after this failure.
fn may_repeat(missed: &Missed, outgoing: &Outgoing, replay: &mut Replay<'_, '_>) -> bool {
    use Failure::{Broken, Busy, Certificate, ConnectTimeout, Framing, Tls, Unknown, Unreachable};
    let is_worth_it = matches!(
        missed.failure,
        Unknown(_) | Unreachable(_) | Certificate(_) | Tls(_) | ConnectTimeout | Busy | Broken(_) | Framing(_)
    );
    let is_safe = missed.is_unsent || outgoing.method.is_idempotent();
    let is_silent = outgoing.hints.as_ref().is_none_or(|hints| !hints.is_any());
    is_worth_it && is_safe && is_silent && replay.rewind()
}

/// Reports a failure of the upstream.
fn note(reverse: &Upstreams, pick: &mut Pick, missed: &Missed) {
    let outcome = match missed.failure {
        Failure::Client(_) | Failure::Idle => return,
        Failure::Busy => Outcome::Refused,
        Failure::Broken(_) if missed.is_kept => Outcome::Canceled,
        _ => Outcome::Failure,
    };
    if outcome == Outcome::Failure {
        pick.value().failed(missed.failure.to_string());
    }
    pick.value().counts.failures.fetch_add(1, Ordering::Relaxed);
    reverse.list.report(pick, outcome);
}
