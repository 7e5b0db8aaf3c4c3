//! Throttled sinks.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use dapple_flow::flow::{self, Queue};
use dapple_io::time::Instant;
use dapple_tower::throttle::{Class, Rate, Throttle, ThrottledSink};
use dapple_tower::{BoxError, Reason, Refused};
use futures_sink::Sink;

const SECOND: Duration = Duration::from_secs(1);

/// The cost of an item is its length, for any owner.
fn by_len(item: &Bytes) -> ((), u64) {
    ((), item.len() as u64)
}

/// The first byte names the owner.
fn by_owner(item: &Bytes) -> (u8, u64) {
    (item[0], item.len() as u64)
}

async fn send<S: Sink<Bytes, Error = BoxError> + Unpin>(sink: &mut S, item: &'static str) -> Result<(), BoxError> {
    poll_fn(|cx| Pin::new(&mut *sink).poll_ready(cx)).await?;
    Pin::new(&mut *sink).start_send(item.into())
}

async fn flush<S: Sink<Bytes, Error = BoxError> + Unpin>(sink: &mut S) -> Result<(), BoxError> {
    poll_fn(|cx| Pin::new(&mut *sink).poll_flush(cx)).await
}

#[dapple::test]
async fn writes_wait_for_the_rate() {
    let (sink, mut source) = flow::pipe().unwrap();
    let sink = ThrottledSink::new(sink, Throttle::bucket(Rate::per_second(10)).burst(10), by_len);
    let start = Instant::now();
    assert_eq!(sink.write("ten bytes.").await.unwrap(), 10);
    assert!(start.elapsed() < SECOND, "the burst");
    let done = Queue::new(4);
    sink.submit("five.", &done).await.unwrap();
    sink.submit("five!", &done).await.unwrap();
    assert!(start.elapsed() >= SECOND, "{:?}", start.elapsed());
    assert_eq!(done.pop().await.unwrap().count + done.pop().await.unwrap().count, 10);
    sink.get_ref().close().await.unwrap();
    let mut all = Vec::new();
    while let Some(bytes) = source.next().await {
        all.extend_from_slice(&bytes.unwrap());
    }
    assert_eq!(all, b"ten bytes.five.five!");
}

#[dapple::test]
async fn as_a_sink_it_holds_one_item_at_most_and_closes_behind_it() {
    let (sink, mut source) = flow::pipe().unwrap();
    let mut sink = ThrottledSink::new(sink, Throttle::bucket(Rate::per_second(1)).burst(1), by_len);
    let start = Instant::now();
    for item in ["a", "b", "c"] {
        send(&mut sink, item).await.unwrap();
    }
    assert!(start.elapsed() >= SECOND, "the second went before the third was taken");
    poll_fn(|cx| Pin::new(&mut sink).poll_close(cx)).await.unwrap();
    assert!(start.elapsed() >= 2 * SECOND, "{:?}", start.elapsed());
    let mut all = Vec::new();
    while let Some(bytes) = source.next().await {
        all.extend_from_slice(&bytes.unwrap());
    }
    assert_eq!(all, b"abc");
}

#[dapple::test]
async fn with_a_fair_throttle_no_key_waits_for_all_of_another() {
    let (sink, _source) = flow::pipe().unwrap();
    let throttle = Throttle::<u8>::fair(Rate::per_second(1)).burst(1);
    let sink = ThrottledSink::new(sink, throttle.clone(), by_owner);
    sink.write("0").await.unwrap();
    let start = Instant::now();
    let greedy: Vec<_> = (0..20)
        .map(|_| {
            let sink = sink.clone();
            dapple::spawn(async move { sink.write("a").await })
        })
        .collect();
    while throttle.waiting_len() < 20 {
        dapple_io::time::sleep(Duration::from_millis(1)).await;
    }
    sink.write("b").await.unwrap();
    assert!(start.elapsed() < 10 * SECOND, "{:?}", start.elapsed());
    assert!(greedy.iter().filter(|task| !task.is_finished()).count() >= 10);
    greedy.iter().for_each(|task| task.abort_handle().abort());
}

#[dapple::test]
async fn what_the_throttle_refuses_is_dropped_and_the_sink_goes_on() {
    let (sink, mut source) = flow::pipe().unwrap();
    let classes = [Class::new(b'a', 1)];
    let mut sink = ThrottledSink::new(sink, Throttle::classes(Rate::per_second(100), classes), by_owner);
    send(&mut sink, "unknown").await.unwrap();
    let error = flush(&mut sink).await.unwrap_err();
    assert_eq!(Refused::find(&*error).unwrap().reason, Reason::Rate);
    send(&mut sink, "a").await.unwrap();
    flush(&mut sink).await.unwrap();
    assert_eq!(source.next().await.unwrap().unwrap(), "a");
    let error = sink.write("unknown").await.unwrap_err();
    assert_eq!(Refused::find(&*error).unwrap().reason, Reason::Rate);
}

/// A waiter dropped from the queue holds up no other, and no part of its item arrives.
#[dapple::test]
async fn dropped_it_leaves_the_line() {
    let (sink, _source) = flow::pipe().unwrap();
    let throttle = Throttle::bucket(Rate::new(1, 3_600 * SECOND)).burst(1);
    let first = ThrottledSink::new(sink.clone(), throttle.clone(), by_len);
    first.write("a").await.unwrap();
    let mut second = first.clone();
    send(&mut second, "b").await.unwrap();
    let waits = waits_now(&mut second).await;
    assert!(waits && throttle.waiting_len() == 1);
    drop(second);
    assert_eq!((throttle.waiting_len(), sink.requests()), (0, 0));
}

/// Whether it waits.
async fn waits_now<S: Sink<Bytes, Error = BoxError> + Unpin>(sink: &mut S) -> bool {
    poll_fn(|cx| std::task::Poll::Ready(Pin::new(&mut *sink).poll_flush(cx).is_pending())).await
}
