//! Decides which connections make room for a newcomer when all places are taken. Pure: the caller
//! passes in the connections.
//!
//! Slots are shared by max-min fairness: the client with the most makes room for the client with
//! the least.
//!
//! ```text
//!               a newcomer, and no place is free
//!                          │
//!      some are idle ─────┴───── none is idle
//!            │                        │
//!   idle connections end,     the newcomer's client would have at most half as many as the one with most
//!   of the client with most      │ no                             │ yes: it has a claim
//!   connections first            ▼                                ▼
//!                         waits, and is then       some of that client's are asked to end with their reply,
//!                         turned away              the newest first; after a moment one is cut
//! ```

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::Duration;

use dapple_io::time::Instant;
use dapple_sched::environment::HashMap;

/// One client; all connections of a Unix socket are one client.
pub type Client = Option<IpAddr>;

/// A connection that has a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) key: usize,
    pub(crate) client: Client,
    pub(crate) standing: Standing,
    /// The time since when it is in this state.
    pub(crate) since: Instant,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Idle: it has no work for the server.
    Resting,
    /// A request is open or may be in transit, or the connection speaks another protocol.
    Busy,
    /// It has been asked to end.
    Asked,
    /// It is closing, or has been cut. Only the connection decides when it ends: a handler of
    /// another protocol may ignore orders.
    Ending,
}

/// The connections that close to make room.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GiveWay {
    /// Idle connections, which end at once.
    pub(crate) at_once: Vec<usize>,
    /// Connections that end after their open requests.
    pub(crate) soon: Vec<usize>,
}

/// Whether a client with `own` connections has a claim to one of a client with `most`. Afterwards
/// the other client still has at least as many, so two clients never keep taking the same place
/// from each other.
pub(crate) fn has_claim(own: usize, most: usize) -> bool {
    most >= 2 * (own + 1)
}

/// The client with the most connections, and their number.
pub(crate) fn richest(counts: &HashMap<Client, usize>) -> Option<(Client, usize)> {
    counts.iter().map(|(client, count)| (*client, *count)).max_by_key(|(_, count)| *count)
}

/// Chooses the connections that make room for `newcomer`. Chooses several at a time, because it
/// visits all.
pub(crate) fn give_way(
    held: &[Held],
    counts: &HashMap<Client, usize>,
    newcomer: Client,
    some: usize,
    now: Instant,
) -> GiveWay {
    let count = |client: &Client| counts.get(client).copied().unwrap_or(0);
    let (own, Some((richest, most))) = (count(&newcomer), richest(counts)) else { return GiveWay::default() };
    let has_claim = has_claim(own, most);
    // A connection that pauses briefly between two requests is not ended for clients with more
    // connections, nor for those with a claim to another place.
    let may_end = |held: &&Held| {
        let count = count(&held.client);
        held.standing == Standing::Resting
            && (now.saturating_duration_since(held.since) >= PAUSE || count == most || count >= own && !has_claim)
    };
    let resting = held.iter().filter(may_end).collect();
    let at_once = first(resting, some, |held| (Reverse(count(&held.client)), held.since));
    if !at_once.is_empty() {
        return GiveWay { at_once, soon: Vec::new() };
    }
    if !has_claim {
        return GiveWay::default();
    }
    let asked = held.iter().filter(|held| held.standing == Standing::Asked && held.client == richest).count();
    let busy = held.iter().filter(|held| held.standing == Standing::Busy && held.client == richest).collect();
    // At most as many as would be fair if all newcomers were one client.
    let some = some.min((most - own) / 2).saturating_sub(asked);
    GiveWay { at_once: Vec::new(), soon: first(busy, some, |held| Reverse(held.since)) }
}

/// The keys of the first `count` connections in this order.
fn first<K: Ord>(mut held: Vec<&Held>, count: usize, order: impl Fn(&Held) -> K) -> Vec<usize> {
    let count = count.min(held.len());
    if count == 0 {
        return Vec::new();
    }
    held.select_nth_unstable_by_key(count - 1, |held| order(held));
    held[..count].iter().map(|held| held.key).collect()
}

/// A pause between two requests that is shorter than this does not make the connection idle for
/// clients with more connections.
const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dapple_io::time::Instant;
    use dapple_sched::environment::HashMap;

    use super::{Client, GiveWay, Held, Standing, give_way, has_claim, richest};

    const SECOND: Duration = Duration::from_secs(1);

    fn client(number: u8) -> Client {
        Some([192, 0, 2, number].into())
    }

    /// Connections that began one second apart, and the time one second after the last.
    fn all(of: &[(u8, Standing)]) -> (Vec<Held>, HashMap<Client, usize>, Instant) {
        let begin = Instant::from_std(std::time::Instant::now());
        let mut counts = HashMap::default();
        let held = (0..).zip(of).map(|(key, &(number, standing))| {
            *counts.entry(client(number)).or_default() += 1;
            Held { key, client: client(number), standing, since: begin + SECOND * u32::try_from(key).unwrap() }
        });
        (held.collect(), counts, begin + SECOND * u32::try_from(of.len()).unwrap())
    }

    fn asked(of: &[(u8, Standing)], newcomer: u8, some: usize) -> GiveWay {
        let (held, counts, now) = all(of);
        let mut asked = give_way(&held, &counts, client(newcomer), some, now);
        asked.at_once.sort_unstable();
        asked.soon.sort_unstable();
        asked
    }

    fn at_once(keys: impl Into<Vec<usize>>) -> GiveWay {
        GiveWay { at_once: keys.into(), soon: Vec::new() }
    }

    fn soon(keys: impl Into<Vec<usize>>) -> GiveWay {
        GiveWay { at_once: Vec::new(), soon: keys.into() }
    }

    use Standing::{Asked, Busy, Ending, Resting};

    #[test]
    fn idle_connections_of_the_client_with_most_go_first() {
        let of = [(1, Resting), (2, Resting), (2, Busy), (2, Resting)];
        assert_eq!(asked(&of, 3, 1), at_once([1]));
        assert_eq!(asked(&of, 3, 2), at_once([1, 3]));
        assert_eq!(asked(&of, 3, 9), at_once([0, 1, 3]));
    }

    #[test]
    fn a_short_pause_is_safe_from_a_client_with_more() {
        let (mut held, counts, now) = all(&[(1, Busy), (1, Busy), (2, Resting)]);
        held[2].since = now;
        assert_eq!(give_way(&held, &counts, client(1), 1, now), GiveWay::default());
        assert_eq!(give_way(&held, &counts, client(3), 1, now), soon([1]), "the client with more goes first");
        for newcomer in 1..=3 {
            assert_eq!(
                give_way(&held, &counts, client(newcomer), 1, now + SECOND),
                at_once([2]),
                "the pause may be \
                short"
            );
        }
        let (mut held, counts, now) = all(&[(1, Busy), (2, Resting)]);
        held[1].since = now;
        assert_eq!(
            give_way(&held, &counts, client(3), 1, now),
            at_once([1]),
            "no client has more, so the pause \
            counts as idle"
        );
    }

    #[test]
    fn without_idle_connections_the_client_with_most_gives_way_to_the_client_with_least() {
        let of = [(1, Busy), (1, Busy), (1, Busy), (1, Busy), (2, Busy)];
        assert_eq!(asked(&of, 3, 1), soon([3]), "the newest");
        assert_eq!(asked(&of, 3, 9), soon([2, 3]), "only until both have the same number");
        assert_eq!(asked(&of, 2, 9), soon([3]));
        assert_eq!(asked(&of, 1, 9), GiveWay::default(), "not to itself");
    }

    #[test]
    fn a_connection_is_asked_only_once() {
        let of = [(1, Busy), (1, Busy), (1, Asked), (1, Asked)];
        assert_eq!(asked(&of, 2, 2), GiveWay::default());
        assert_eq!(asked(&[(1, Busy), (1, Busy), (1, Busy), (1, Asked)], 2, 2), soon([2]));
    }

    #[test]
    fn a_cut_connection_that_stays_does_not_keep_others_from_being_asked() {
        let of = [(1, Busy), (1, Busy), (1, Busy), (1, Ending)];
        assert_eq!(asked(&of, 2, 1), soon([2]));
    }

    /// If clients return again and again, they end with even shares, and the exchange of places
    /// stops.
    #[test]
    fn places_are_not_taken_in_turns() {
        let places = 100;
        let mut counts = HashMap::from_iter([(client(1), places)]);
        let mut moves = 0;
        loop {
            let (giver, most) = richest(&counts).unwrap();
            let own = |number: u8| counts.get(&client(number)).copied().unwrap_or(0);
            let Some(newcomer) = (1..=5).find(|&number| has_claim(own(number), most)) else { break };
            *counts.get_mut(&giver).unwrap() -= 1;
            *counts.entry(client(newcomer)).or_default() += 1;
            moves += 1;
            assert!(moves <= places, "the exchange never ends: {counts:?}");
        }
        assert_eq!(counts.values().sum::<usize>(), places);
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(counts.len() == 5 && *most < 2 * (least + 1), "{counts:?}");
    }
}
