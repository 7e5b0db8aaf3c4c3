//! Answers of a server that many requests need.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use dapple_io::time::Instant;
use dapple_sched::Colored;

/// Answers that are good for some time, and after that until there are others. Clones are the same ones.
///
/// ```
/// use std::time::Duration;
/// use dapple_client::relay::Memo;
///
/// # let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
/// # runtime.block_on(async {
/// let memo = Memo::new(Duration::ZERO, 100);
/// assert_eq!(memo.get("a", async { Err::<u32, _>("away") }).await, Err("away"));
/// assert_eq!(memo.get("a", async { Ok::<u32, &str>(1) }).await, Ok(1));
/// // Too old, but better than nothing.
/// assert_eq!(memo.get("a", async { Err("away") }).await, Ok(1));
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Memo<V: Send + 'static> {
    fresh_for: Duration,
    len_max: usize,
    known: Colored<BTreeMap<String, (V, Instant)>>,
}

impl<V: Clone + Send + 'static> Memo<V> {
    /// Creates an empty one, for at most `len_max` answers: beyond that it forgets all, and begins anew.
    #[must_use]
    pub fn new(fresh_for: Duration, len_max: usize) -> Memo<V> {
        Memo { fresh_for, len_max, known: Colored::new(BTreeMap::new()) }
    }

    /// The answer by this key: the known one while it is fresh, or that of `ask`. If `ask` fails, the known one counts, and is
    /// fresh again.
    ///
    /// # Cancel safety
    /// As `ask`.
    ///
    /// # Errors
    /// Those of `ask`, if there is no answer by this key.
    pub async fn get<E>(&self, key: &str, ask: impl Future<Output = Result<V, E>>) -> Result<V, E> {
        let (key, name) = (key.to_owned(), key.to_owned());
        let answer = match self.known.with(move |known| known.get(&name).cloned()).await {
            Some((answer, at)) if at.elapsed() < self.fresh_for => return Ok(answer),
            Some((old, _)) => ask.await.unwrap_or(old),
            None => ask.await?,
        };
        let (noted, len_max) = (answer.clone(), self.len_max);
        let note = move |known: &mut BTreeMap<_, _>| {
            if known.len() >= len_max {
                known.clear();
            }
            known.insert(key, (noted, Instant::now()));
        };
        self.known.with(note).await;
        Ok(answer)
    }
}
