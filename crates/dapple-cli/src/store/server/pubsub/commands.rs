//! The commands on channels.

use bytes::Bytes;

use super::super::Service;
use super::super::commands::{Answer, count};
use super::super::glob;
use super::super::reply::Reply;
use super::super::session::{Session, wrong_number};
use super::{Broker, Kind, Subscriber};

/// The most subscriptions of a client, and the most bytes of a name.
const SUBSCRIPTIONS_MAX: usize = 10_000;
const NAME_LEN_MAX: usize = 4 << 10;

/// Runs `SUBSCRIBE`, `UNSUBSCRIBE`, `PSUBSCRIBE` or `PUNSUBSCRIBE`: a reply for each name.
pub(in super::super) async fn run(session: &mut Session<'_>, name: &str, args: &[Bytes]) -> Answer {
    let kind = if name.starts_with('P') { Kind::Pattern } else { Kind::Channel };
    if !name.ends_with("UNSUBSCRIBE") {
        return subscribe(session, kind, args).await;
    }
    Ok(match &mut session.subscriber {
        None => {
            let name = |given: &Bytes| gone(kind, Some(given.clone()), 0);
            let replies = args.iter().map(name).collect();
            Reply::Several(if args.is_empty() { vec![gone(kind, None, 0)] } else { replies })
        }
        Some(subscriber) => unsubscribe(subscriber, kind, args).await,
    })
}

async fn subscribe(session: &mut Session<'_>, kind: Kind, names: &[Bytes]) -> Answer {
    let service = session.context.service;
    let subscriber = session.subscriber.get_or_insert_with(|| service.broker.subscriber(session.client.id));
    if names.iter().any(|name| name.len() > NAME_LEN_MAX) {
        return Err(Reply::Error(format!("ERR a channel's name has at most {NAME_LEN_MAX} bytes")));
    }
    if subscriber.count() + names.len() > SUBSCRIPTIONS_MAX {
        return Err(Reply::Error(format!("ERR a client has at most {SUBSCRIPTIONS_MAX} subscriptions")));
    }
    if !subscriber.may_keep(names) {
        return Err(Reply::no_memory());
    }
    let word = if kind == Kind::Channel { "subscribe" } else { "psubscribe" };
    let (mut added, mut replies) = (Vec::new(), Vec::new());
    for name in names {
        // A part of the request would keep all of it in memory.
        let kept = Bytes::copy_from_slice(name);
        if subscriber.own(kind).insert(kept.clone()) {
            added.push(kept);
        }
        replies.push(Reply::Push(vec![Reply::text(word), Reply::Bulk(name.clone()), count(subscriber.count() as u64)]));
    }
    subscriber.add(kind, added).await;
    Ok(Reply::Several(replies))
}

async fn unsubscribe(subscriber: &mut Subscriber, kind: Kind, names: &[Bytes]) -> Reply {
    let names: Vec<Bytes> = match names {
        [] => subscriber.own(kind).iter().cloned().collect(),
        names => names.to_vec(),
    };
    let mut confirmed = Vec::new();
    if names.is_empty() {
        confirmed.push(gone(kind, None, subscriber.count()));
    }
    for name in &names {
        subscriber.own(kind).remove(name);
        confirmed.push(gone(kind, Some(name.clone()), subscriber.count()));
    }
    subscriber.remove(kind, names).await;
    // Messages that were published before go out before the confirmation.
    let mut replies: Vec<Reply> =
        std::iter::from_fn(|| subscriber.try_next()).map(|message| message.into_reply()).collect();
    replies.append(&mut confirmed);
    Reply::Several(replies)
}

/// The reply for a subscription that has ended.
fn gone(kind: Kind, name: Option<Bytes>, left: usize) -> Reply {
    let word = if kind == Kind::Channel { "unsubscribe" } else { "punsubscribe" };
    Reply::Push(vec![Reply::text(word), Reply::bulk(name), count(left as u64)])
}

/// Runs `PUBLISH`.
pub(in super::super) async fn publish(service: &Service, channel: &[u8], payload: &[u8]) -> Answer {
    let len_max = service.broker.waiting_max() / 2;
    if channel.len() > NAME_LEN_MAX || payload.len() > len_max {
        let text = format!("ERR a channel's name has at most {NAME_LEN_MAX} bytes, a message {len_max}");
        return Err(Reply::Error(text));
    }
    Ok(count(service.broker.publish(channel, payload).await))
}

/// Runs `PUBSUB`.
pub(in super::super) async fn about(broker: &Broker, args: &[Bytes]) -> Answer {
    let [word, rest @ ..] = args else { return Err(Reply::syntax()) };
    match (word.to_ascii_uppercase().as_slice(), rest) {
        (b"CHANNELS", [] | [_]) => {
            rest.iter().try_for_each(|pattern| glob::check(pattern))?;
            let names = broker.channels(rest.first().cloned()).await;
            Ok(Reply::List(names.into_iter().map(Reply::Bulk).collect()))
        }
        (b"NUMSUB", names) => {
            let counts = broker.subscribers(names).await;
            let pairs = names.iter().zip(counts);
            Ok(Reply::List(pairs.flat_map(|(name, of)| [Reply::Bulk(name.clone()), count(of as u64)]).collect()))
        }
        (b"NUMPAT", []) => Ok(count(broker.names().await.1 as u64)),
        (b"NUMPAT", _) => Err(wrong_number("pubsub|numpat")),
        (b"CHANNELS", _) => {
            let text = "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.";
            Err(Reply::Error(text.to_owned()))
        }
        _ => Err(Reply::unknown_subcommand("PUBSUB", word)),
    }
}
