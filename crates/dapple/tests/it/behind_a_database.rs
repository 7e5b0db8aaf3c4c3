//! `examples/behind_a_database.rs`: the scarce resource is elsewhere. The clock stands still, so
//! that times are exact.

#[path = "../../../../examples/behind_a_database.rs"]
#[allow(dead_code, reason = "the program around it runs as a process")]
mod example;

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use dapple::stage::Reason;
use dapple::time::{Instant, interval};

use self::example::{Database, REPLY_MAX, rows};
use crate::examples::Example;

/// The number of requests that the database's pool serves in a second.
const CAPACITY: usize = 200;
/// The time to find the width.
const WARM_UP: usize = 2;
const SECS: usize = 20;

/// Offers this many requests a second; returns the latencies of those that got a row, and the
/// number of refused ones.
macro_rules! offer {
    ($per_second:expr, $ask:expr) => {{
        let mut ticks = interval(Duration::from_secs(1) / u32::try_from($per_second).unwrap());
        let mut asked = Vec::new();
        for id in 0..$per_second * SECS {
            ticks.tick().await;
            let asking = $ask(u64::try_from(id).unwrap());
            asked.push(dapple::spawn(async move {
                let begin = Instant::now();
                (asking.await, begin.elapsed())
            }));
        }
        let mut all = Vec::new();
        for asked in asked {
            all.push(asked.await.unwrap());
        }
        all
    }};
}

#[dapple::test]
async fn without_a_stage_almost_no_request_is_in_time() {
    let database = Arc::new(Database::new());
    let replies = offer!(5 * CAPACITY, |id| {
        let database = database.clone();
        async move { database.row(id).await }
    });
    assert!(replies.iter().all(|(reply, _)| reply.is_ok()));
    let in_time = replies.iter().filter(|(_, took)| *took <= REPLY_MAX).count();
    assert!(in_time * 20 < CAPACITY * SECS, "{in_time}");
}

#[dapple::test]
async fn with_it_accepted_requests_are_in_time_and_others_are_refused_soon() {
    let rows = rows(Arc::new(Database::new()));
    let replies = offer!(5 * CAPACITY, |id| rows.ask(id).now());
    let mut served: Vec<Duration> = Vec::new();
    let (mut refused_at_once, mut refused) = (0, 0);
    for (reply, took) in replies {
        assert!(took <= REPLY_MAX + Duration::from_millis(5), "{took:?}");
        match reply {
            Ok(row) => {
                assert!(row.starts_with("row "));
                served.push(took);
            }
            Err(error) => {
                refused += 1;
                let reason = error.refused().map(|refused| &refused.reason);
                refused_at_once += usize::from(took.is_zero() && matches!(reason, Some(Reason::Delay { .. })));
            }
        }
    }
    let width = rows.stats().width;
    println!("{} of {}, {refused_at_once} of {refused} at once, width {width}", served.len(), CAPACITY * SECS);
    assert!(served.len() * 100 >= CAPACITY * SECS * 80, "{} of {}", served.len(), CAPACITY * SECS);
    assert!(refused_at_once * 100 >= refused * 95, "{refused_at_once} of {refused}");
    assert!(width <= 16, "four are enough, and the width stays near that: {width}");
}

#[dapple::test]
async fn no_request_is_refused_below_capacity() {
    let rows = rows(Arc::new(Database::new()));
    let mut replies = offer!(CAPACITY / 2, |id| rows.ask(id).now()).into_iter();
    let late = replies.by_ref().take(CAPACITY / 2 * WARM_UP).filter(|(reply, _)| reply.is_err()).count();
    println!("{late} were refused before the width was found");
    for (reply, took) in replies {
        assert!(reply.is_ok() && took <= REPLY_MAX, "{reply:?} after {took:?}");
    }
}

#[test]
fn the_program_answers() {
    let server = Example::start("behind_a_database");
    let mut client = server.connect();
    client.write_all(b"GET /17 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("row 17\n"), "{reply}");
}
