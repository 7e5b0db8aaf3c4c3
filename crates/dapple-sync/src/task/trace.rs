//! The place of the running code in a trace over several programs: W3C Trace Context.
//!
//! | where | what happens to `traceparent` |
//! |---|---|
//! | a server gets a request | [`traced`] runs the handler in the sender's context; while `dapple-insight` records, in a part of its own |
//! | a client sends one, and the handler has named none | it sends [`TraceContext::current`] |
//! | a recording | has begin and end of each request, with the sender's part, so that reports of two machines fit together |
//!
//! Not observed, and without a header, a request costs a comparison. The header alone decides nothing but what is sent on:
//! clients outside cannot make a program record. `tracestate` passes through proxies, and is not read.

use std::fmt;
use std::future::Future;
use std::num::{NonZeroU64, NonZeroU128};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use dapple_sched::environment::{now, random};
use dapple_sched::{RequestNote, is_observed, note_request, running_callback};
use pin_project_lite::pin_project;

crate::task_local! {
    static CONTEXT: TraceContext;
}

/// A part of a trace: the value of a header `traceparent`.
///
/// ```
/// use dapple_sync::task::TraceContext;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context = TraceContext::parse(text.as_bytes()).unwrap();
/// assert_eq!(context.to_string(), text);
/// assert_eq!(TraceContext::parse(b"00-0-0-01"), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TraceContext {
    trace_id: NonZeroU128,
    span_id: NonZeroU64,
    flags: u8,
}

impl TraceContext {
    /// The name of the header.
    pub const HEADER: &'static str = "traceparent";

    /// The value of a header; `None` if it is malformed, which means to begin a new trace. Of versions to come, the
    /// fields of this one count.
    pub fn parse(value: &[u8]) -> Option<TraceContext> {
        let (known, rest) = value.split_at_checked(LEN)?;
        let version = hex(&known[..2])?;
        if known[2] != b'-' || known[35] != b'-' || known[52] != b'-' || version == 0xff {
            return None;
        }
        if !(rest.is_empty() || (version != 0 && rest[0] == b'-')) {
            return None;
        }
        let (trace_id, span_id) = (NonZeroU128::new(hex(&known[3..35])?)?, hex(&known[36..52])?);
        let span_id = NonZeroU64::new(u64::try_from(span_id).ok()?)?;
        let flags = u8::try_from(hex(&known[53..])?).ok()?;
        Some(TraceContext { trace_id, span_id, flags: flags & SAMPLED })
    }

    /// That of the running code: inside [`traced`].
    pub fn current() -> Option<TraceContext> {
        CONTEXT.try_get().ok()
    }

    /// The trace.
    pub fn trace_id(&self) -> u128 {
        self.trace_id.get()
    }

    /// The part of it.
    pub fn span_id(&self) -> u64 {
        self.span_id.get()
    }

    /// A new part below this one, or of a new trace.
    fn part_of(parent: Option<TraceContext>) -> TraceContext {
        // 0 is no valid number.
        let span_id = NonZeroU64::new(random()).unwrap_or(NonZeroU64::MIN);
        let new_trace =
            || NonZeroU128::new(u128::from(random()) << 64 | u128::from(random())).unwrap_or(NonZeroU128::MIN);
        TraceContext {
            trace_id: parent.map_or_else(new_trace, |parent| parent.trace_id),
            span_id,
            flags: parent.map_or(SAMPLED, |parent| parent.flags),
        }
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

/// Lower-case hexadecimal digits, at most 32.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// Runs the handler of a request that came with this context. The code inside has it as [`TraceContext::current`]; tasks
/// that it spawns do not inherit it. Cancel safe as the future: a request that is dropped ends then.
///
/// ```
/// use dapple_sync::task::{TraceContext, traced};
///
/// let sender = TraceContext::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
/// let inside = dapple_sched::block_on(traced(sender, async { TraceContext::current() }));
/// assert_eq!(inside.unwrap().trace_id(), sender.unwrap().trace_id());
/// assert_eq!(TraceContext::current(), None);
/// ```
pub fn traced<F: Future>(sender: Option<TraceContext>, future: F) -> Traced<F> {
    let begun = is_observed().then(|| Begun {
        parent_id: sender.map_or(0, |sender| sender.span_id()),
        first: running_callback(),
        started: now(),
    });
    let context = if begun.is_some() { Some(TraceContext::part_of(sender)) } else { sender };
    Traced { future, context, begun }
}

/// An observed request.
struct Begun {
    parent_id: u64,
    first: u64,
    started: Instant,
}

pin_project! {
    /// The future of [`traced`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct Traced<F> {
        #[pin]
        future: F,
        context: Option<TraceContext>,
        begun: Option<Begun>,
    }

    impl<F> PinnedDrop for Traced<F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            end(*this.context, this.begun);
        }
    }
}

impl<F: Future> Future for Traced<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let poll = match *this.context {
            None => this.future.poll(cx),
            Some(context) => CONTEXT.sync_scope(context, || this.future.poll(cx)),
        };
        if poll.is_ready() {
            end(*this.context, this.begun);
        }
        poll
    }
}

impl<F> fmt::Debug for Traced<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traced").field("context", &self.context).finish_non_exhaustive()
    }
}

fn end(context: Option<TraceContext>, begun: &mut Option<Begun>) {
    if let (Some(context), Some(Begun { parent_id, first, started })) = (context, begun.take()) {
        note_request(RequestNote {
            trace_id: context.trace_id(),
            span_id: context.span_id(),
            parent_id,
            first,
            started,
        });
    }
}

/// The length of a header of version 0.
const LEN: usize = 55;

const SAMPLED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_headers_are_no_context() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(TraceContext::parse(good.as_bytes()).is_some());
        for later in [
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert!(TraceContext::parse(later.as_bytes()).is_some(), "{later}");
        }
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-\u{e4}",
        ] {
            assert_eq!(TraceContext::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
