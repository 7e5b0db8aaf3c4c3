//! A throttled sink.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dapple_flow::flow::{self, Completion, Device, Encode, Written};
use futures_sink::Sink;
use pin_project_lite::pin_project;

use super::grant::Grant;
use super::key::Key;
use super::shared::Throttle;
use super::until::UntilReady;
use crate::BoxError;

pin_project! {
    /// Passes items to a sink at the rate of a [`Throttle`]: each queues by its key and cost, and
    /// then waits for the sink.
    ///
    /// It wraps any `futures_sink::Sink`, and is one itself: sinks of [`dapple_flow::flow`],
    /// channels, framed streams, WebSockets. Around a sink of `flow` it also has
    /// [`write`](Self::write) and [`submit`](Self::submit). Any throttle works: a token bucket, a
    /// fair one, one of classes; all holders of its clones share the rate.
    ///
    /// As a `futures_sink::Sink` it holds at most one item, which waits its turn; it is ready again
    /// when the item is in the sink. An item that the throttle refuses ([`Refused`](crate::Refused)
    /// in the error) is dropped, and the sink continues with others. Dropping the sink gives up its
    /// position in the queue and its item: flush or close it before.
    ///
    /// The throttles of Gribble's dissertation (chapter 10), on a sink.
    ///
    /// ```
    /// use dapple_flow::flow;
    /// use dapple_tower::throttle::{Rate, Throttle, ThrottledSink};
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let (sink, mut source) = flow::pipe()?;
    ///     // A byte costs 1; all writers share a million of them a second.
    ///     let throttle = Throttle::bucket(Rate::per_second(1_000_000));
    ///     let sink = ThrottledSink::new(sink, throttle, |item: &bytes::Bytes| ((), item.len() as u64));
    ///     assert_eq!(sink.write("hello").await?, 5);
    ///     assert_eq!(source.next().await.expect("something came")?, "hello");
    ///     Ok::<(), dapple_tower::BoxError>(())
    /// })?;
    /// # Ok::<(), dapple_tower::BoxError>(())
    /// ```
    pub struct ThrottledSink<S, K: Key, F, T> {
        #[pin]
        inner: S,
        throttle: Throttle<K>,
        describe: F,
        held: Option<Held<K, T>>,
    }
}

/// An item in transit.
struct Held<K: Key, T> {
    item: T,
    turn: Turn<K>,
}

enum Turn<K: Key> {
    InLine(UntilReady<K>),
    /// It waits for the sink; dropping it gives the grant back.
    MayGo(Grant<K>),
}

impl<S, K: Key, F, T> ThrottledSink<S, K, F, T>
where
    F: Fn(&T) -> (K, u64),
{
    /// `describe` returns the key of an item, and its cost.
    pub fn new(inner: S, throttle: Throttle<K>, describe: F) -> ThrottledSink<S, K, F, T> {
        ThrottledSink { inner, throttle, describe, held: None }
    }

    /// The inner sink. Items sent there directly bypass the throttle.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The throttle; its clones are the same one.
    pub fn throttle(&self) -> &Throttle<K> {
        &self.throttle
    }
}

impl<D: Device, C: Encode, K: Key, F> ThrottledSink<flow::Sink<D, C>, K, F, C::Item>
where
    F: Fn(&C::Item) -> (K, u64),
{
    /// Waits its turn, writes an item, and waits until the device has it; returns its bytes.
    ///
    /// Cancel safe: an item is written whole or not at all. If dropped while it is queued or waits
    /// for room, the item is not written; if dropped later, it is.
    ///
    /// # Errors
    ///
    /// [`Refused`](crate::Refused) from the throttle; the errors of [`flow::Sink::write`].
    pub async fn write(&self, item: impl Into<C::Item>) -> Result<usize, BoxError> {
        let item = item.into();
        self.turn(&item).await?;
        Ok(self.inner.write(item).await?)
    }

    /// Waits its turn and for room, until the sink accepts the item: the first phase of a write.
    /// `to` gets the end of the second.
    ///
    /// Cancel safe: if dropped before it resolves, the sink has accepted nothing, and the item is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`Refused`](crate::Refused) from the throttle; the errors of [`flow::Sink::submit`].
    pub async fn submit(&self, item: impl Into<C::Item>, to: impl Into<Completion<Written>>) -> Result<(), BoxError> {
        let (item, to) = (item.into(), to.into());
        self.turn(&item).await?;
        self.inner.submit(item, to).await.map_err(|error| error.to_string().into())
    }

    fn turn(&self, item: &C::Item) -> UntilReady<K> {
        let (key, cost) = (self.describe)(item);
        self.throttle.until_ready(&key, cost)
    }
}

impl<S, K: Key, F, T> ThrottledSink<S, K, F, T>
where
    S: Sink<T, Error: Into<BoxError>>,
{
    /// Ready when no item is held.
    fn poll_held(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let mut this = self.project();
        let Some(held) = this.held else { return Poll::Ready(Ok(())) };
        if let Turn::InLine(waits) = &mut held.turn {
            match ready!(Grant::poll(waits, cx)) {
                Ok(grant) => held.turn = Turn::MayGo(grant),
                Err(refused) => {
                    *this.held = None;
                    return Poll::Ready(Err(refused.into()));
                }
            }
        }
        let room = ready!(this.inner.as_mut().poll_ready(cx));
        // A failed sink takes nothing any more.
        let Some(Held { item, turn }) = this.held.take() else { return Poll::Ready(Ok(())) };
        room.map_err(Into::into)?;
        if let Turn::MayGo(grant) = turn {
            grant.spend();
        }
        Poll::Ready(this.inner.start_send(item).map_err(Into::into))
    }
}

impl<S, K: Key, F, T> Sink<T> for ThrottledSink<S, K, F, T>
where
    S: Sink<T, Error: Into<BoxError>>,
    F: Fn(&T) -> (K, u64),
{
    type Error = BoxError;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.poll_held(cx)
    }

    fn start_send(self: Pin<&mut Self>, item: T) -> Result<(), BoxError> {
        let this = self.project();
        assert!(this.held.is_none(), "the sink is not ready: await `poll_ready` before each item");
        let (key, cost) = (this.describe)(&item);
        *this.held = Some(Held { item, turn: Turn::InLine(this.throttle.until_ready(&key, cost)) });
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        ready!(self.as_mut().poll_held(cx))?;
        self.project().inner.poll_flush(cx).map_err(Into::into)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        ready!(self.as_mut().poll_held(cx))?;
        self.project().inner.poll_close(cx).map_err(Into::into)
    }
}

/// A clone for another writer, without an item.
impl<S: Clone, K: Key, F: Clone, T> Clone for ThrottledSink<S, K, F, T> {
    fn clone(&self) -> Self {
        let (inner, describe) = (self.inner.clone(), self.describe.clone());
        ThrottledSink { inner, throttle: self.throttle.clone(), describe, held: None }
    }
}

impl<S: fmt::Debug, K: Key, F, T> fmt::Debug for ThrottledSink<S, K, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledSink")
            .field("inner", &self.inner)
            .field("holds", &self.held.is_some())
            .finish_non_exhaustive()
    }
}
