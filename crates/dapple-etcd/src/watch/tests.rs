use super::{Event, Place, Step, Watching};
use crate::answer::Failure;
use crate::error::Reason;
use crate::wire::{Streamed, WatchReply};
use serde_json::{Value, json};

fn place(revision: i64) -> Place {
    Place { watching: Watching::new("k").since(revision), returned: 0, seen: 0 }
}

/// A message with changes at these revisions, all puts; the key says which change of its revision each is.
fn message(changes: &[(i64, &str)], fragment: bool) -> Streamed<WatchReply> {
    let events: Vec<Value> = changes
        .iter()
        .map(|(revision, key)| json!({"kv": {"key": base64_of(key), "mod_revision": revision.to_string()}}))
        .collect();
    serde_json::from_value(json!({"result": {"header": {"revision": "99"}, "events": events, "fragment": fragment}}))
        .unwrap()
}

fn base64_of(text: &str) -> Value {
    serde_json::to_value(crate::wire::Base64(text.to_owned().into())).unwrap()
}

fn take(place: &mut Place, message: Streamed<WatchReply>) -> Vec<(i64, String)> {
    match place.take(message) {
        Ok(Step::Events(events)) => {
            let name = |event: &Event| String::from_utf8_lossy(event.key()).into_owned();
            events.iter().map(|event| (event.revision(), name(event))).collect()
        }
        Ok(Step::Nothing) => Vec::new(),
        Ok(Step::Created) | Err(_) => panic!("no changes"),
    }
}

#[test]
fn a_watch_goes_on_behind_the_last_change() {
    let mut place = place(3);
    assert_eq!(take(&mut place, message(&[(3, "a"), (3, "b"), (7, "c")], false)).len(), 3);
    assert_eq!((place.watching.start_revision, place.returned), (8, 0));
}

#[test]
fn a_revision_that_was_cut_in_two_comes_once() {
    let mut place = place(3);
    assert_eq!(take(&mut place, message(&[(4, "a"), (5, "a"), (5, "b")], true)).len(), 3);
    // The rest comes as the next fragment …
    let mut went_on = place.clone();
    assert_eq!((place.watching.start_revision, place.returned), (5, 2));
    assert_eq!(take(&mut went_on, message(&[(5, "c"), (6, "a")], false)), [(5, "c".to_owned()), (6, "a".to_owned())]);
    assert_eq!(went_on.watching.start_revision, 7);
    // … or, after a lost connection, the whole revision again.
    place.reopened();
    assert_eq!(take(&mut place, message(&[(5, "a"), (5, "b"), (5, "c")], true)), [(5, "c".to_owned())]);
    place.reopened();
    let rest = take(&mut place, message(&[(5, "a"), (5, "b"), (5, "c"), (5, "d"), (6, "a")], false));
    assert_eq!(rest, [(5, "d".to_owned()), (6, "a".to_owned())]);
    assert_eq!((place.watching.start_revision, place.returned), (7, 0));
}

#[test]
fn progress_moves_the_place_and_never_back() {
    let progress = |revision: &str| {
        serde_json::from_value::<Streamed<WatchReply>>(json!({"result": {"header": {"revision": revision}}})).unwrap()
    };
    let mut place = place(3);
    assert!(matches!(place.take(progress("20")), Ok(Step::Nothing)));
    assert_eq!(place.watching.start_revision, 21);
    assert!(matches!(place.take(progress("9")), Ok(Step::Nothing)));
    assert_eq!(place.watching.start_revision, 21);
}

#[test]
fn a_watch_from_now_on_has_its_place_when_it_is_created() {
    let created = json!({"result": {"header": {"revision": "41"}, "created": true}});
    let mut place = Place { watching: Watching::new("k"), returned: 0, seen: 0 };
    assert!(matches!(place.take(serde_json::from_value(created).unwrap()), Ok(Step::Created)));
    assert_eq!(place.watching.start_revision, 42);
}

#[test]
fn forgotten_changes_are_an_error_and_an_outage_is_none() {
    let take = |message: Value| place(1).take(serde_json::from_value(message).unwrap());
    let Err(Failure::Final(error)) = take(json!({"result": {"canceled": true, "compact_revision": "7"}})) else {
        panic!("forgotten changes were passed over")
    };
    assert_eq!(error.reason(), Some(Reason::Compacted { revision: 7 }));
    let denied = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
    let denied = take(json!({"result": {"canceled": true, "cancel_reason": denied}}));
    assert!(matches!(denied, Err(Failure::Final(error)) if error.reason() == Some(Reason::Denied)));
    let old = take(json!({"result": {"canceled": true, "cancel_reason": "etcdserver: invalid auth token"}}));
    assert!(matches!(old, Err(Failure::Token(_))));
    let leaderless = json!({"error": {"code": 14, "message": "etcdserver: no leader"}});
    assert!(matches!(take(leaderless), Err(Failure::Elsewhere { .. })));
}
