//! Admission for look-ups that need the disk because the page cache cannot answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dapple::stage::Refused;
use dapple::stage::admission::{self, AdmissionStats, Admitted, Offer};

use super::library::Before;
use super::loading::Loading;
use super::pages::{Content, Page};
use crate::server::client_key;

/// Admission to the disk.
#[derive(Debug)]
pub(crate) struct Looks {
    admission: admission::Admission,
    served_stale: AtomicU64,
}

impl Looks {
    /// Refuses a look-up that would take longer than the target, including all work before it.
    pub(crate) fn new(target_delay: Duration) -> Looks {
        let mut config = admission::Config::with_target_delay(target_delay);
        config.processors = Some(AT_ONCE);
        Looks { admission: admission::Admission::new(config), served_stale: AtomicU64::new(0) }
    }

    /// Asks for a place for one look-up.
    pub(crate) fn offer(&self, client: IpAddr) -> Result<Admitted, Refused> {
        self.admission.offer(Offer::now().client(client_key(client)))
    }

    pub(crate) fn stats(&self) -> AdmissionStats {
        self.admission.stats()
    }

    /// How often there was no time for a look-up, and the page in memory was sent unchecked.
    pub(crate) fn served_stale(&self) -> u64 {
        self.served_stale.load(Ordering::Relaxed)
    }
}

/// Looks up when its turn comes. If the look-up is dropped while it waits, all waiting requests get
/// an answer.
pub(crate) async fn run(
    looks: &Looks,
    place: Admitted,
    loading: Loading,
    cached: Option<Arc<Page>>,
    before: Before,
    now_ms: u64,
) {
    // Held outside the future that admission drops, because its owner has to answer the waiting
    // requests.
    let mut rest = Some((loading, cached, before));
    let look = async {
        if let Some((loading, cached, before)) = rest.take() {
            loading.run(cached, before, now_ms).await;
        }
    };
    let outcome = place.run_whole(|| look).await;
    if let (Err(refused), Some((loading, cached, _))) = (outcome, rest) {
        refuse(looks, loading, cached, refused).await;
    }
}

/// Answers the requests that wait for a refused look-up: with the page in memory, or with the
/// reason.
pub(crate) async fn refuse(looks: &Looks, loading: Loading, cached: Option<Arc<Page>>, refused: Refused) -> Content {
    let content = match cached {
        Some(page) => {
            looks.served_stale.fetch_add(1, Ordering::Relaxed);
            Content::Page(page)
        }
        None => Content::Busy(Arc::new(refused)),
    };
    loading.answer(content).await
}

/// How many look-ups a disk, or the pool, does at a time. More would only wait there.
const AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use dapple::stage::admission::Admitted;
    use dapple::stage::{Reason, Refused};

    use super::{AT_ONCE, Looks};

    /// Look-ups that are known to take about 5 ms each, with a target of 100 ms.
    async fn learned() -> (Looks, IpAddr) {
        let (looks, client) = (Looks::new(Duration::from_millis(100)), IpAddr::from([192, 0, 2, 1]));
        for _ in 0..20 {
            let look = || dapple::time::sleep(Duration::from_millis(5));
            looks.offer(client).expect("no other look-up runs").run_whole(look).await.expect("it is not dropped");
        }
        (looks, client)
    }

    /// Uses the real clock, because admission measures the cost of look-ups.
    #[dapple::test(clock = "real")]
    async fn excess_look_ups_are_refused_and_others_have_their_share() {
        let (looks, client) = learned().await;
        let (mut places, refused) = fill(&looks, client);
        assert!(matches!(refused.reason, Reason::Delay { .. }), "{refused}");
        assert!(places.len() > AT_ONCE, "{} at a time", places.len());
        assert!(places.len() < 20 * AT_ONCE, "{} in 100 ms", places.len());
        let mut others = Vec::new();
        // If this thread stalled after the refusal, there is room again; then fill it once more.
        while looks.stats().dropped == 0 {
            assert!(others.len() < 100, "nobody makes room");
            let other = IpAddr::from([192, 0, 2, 2 + others.len() as u8]);
            places.extend(fill(&looks, client).0);
            others.push(looks.offer(other).expect("the client with most makes room"));
        }
        let mine = places.pop().expect("there are many");
        let outcome = mine.run_whole(|| async {}).await.expect_err("the newest made room");
        assert!(matches!(outcome.reason, Reason::Share { .. }), "{outcome}");
        drop((places, others));
        assert_eq!((looks.stats().waiting, looks.stats().in_service), (0, 0));
        assert!(looks.offer(client).is_ok(), "there is room again");
    }

    /// Takes places until one is refused.
    fn fill(looks: &Looks, client: IpAddr) -> (Vec<Admitted>, Refused) {
        let mut places = Vec::new();
        loop {
            match looks.offer(client) {
                Ok(place) => places.push(place),
                Err(refused) => return (places, refused),
            }
        }
    }
}
