//! Rules: which tracks a stream has, and in which order.

use serde::{Deserialize, Serialize};

use crate::library::Track;

/// The rules of a stream, as JSON has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rules {
    /// Words that a track must have in its path or its tags, all of them.
    pub(crate) with: Vec<String>,
    /// Words of which it may have none.
    pub(crate) without: Vec<String>,
    pub(crate) order: Order,
    /// The most tracks.
    pub(crate) most: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    #[default]
    Path,
    /// The last changed files first.
    Newest,
    /// An order by chance that is the same in each request, since a player that seeks makes several.
    Shuffled(u32),
}

impl Rules {
    /// Checks the rules.
    ///
    /// # Errors
    /// A sentence for the client.
    pub(crate) fn parse(text: &str) -> Result<Rules, String> {
        let rules: Rules = serde_json::from_str(text).map_err(|error| format!("these are no rules: {error}"))?;
        let mut words = rules.with.iter().chain(&rules.without);
        if words.clone().count() > WORDS_MAX || words.any(|word| word.is_empty() || word.len() > WORD_LEN_MAX) {
            return Err(format!("rules have at most {WORDS_MAX} words of 1 to {WORD_LEN_MAX} bytes"));
        }
        Ok(rules)
    }

    /// The places of the stream's tracks, in its order.
    pub(crate) fn chosen(&self, all: &[Track]) -> Vec<u32> {
        let lower = |words: &[String]| words.iter().map(|word| word.to_lowercase()).collect::<Vec<_>>();
        let (with, without) = (lower(&self.with), lower(&self.without));
        let has = |track: &Track| {
            with.iter().all(|word| track.words.contains(word)) && !without.iter().any(|word| track.words.contains(word))
        };
        let track = |place: &u32| &all[*place as usize];
        let mut chosen: Vec<u32> = (0..all.len() as u32).filter(|place| has(track(place))).collect();
        match self.order {
            Order::Path => {}
            Order::Newest => chosen.sort_by_key(|place| std::cmp::Reverse(track(place).modified_ns)),
            Order::Shuffled(seed) => chosen.sort_by_cached_key(|place| {
                let mut hash = crc32fast::Hasher::new_with_initial(seed);
                hash.update(track(place).path.as_bytes());
                // A checksum alone would keep the neighborhood of names that differ in their last letter.
                hash.finalize().wrapping_mul(0x9e37_79b9).rotate_left(15).wrapping_mul(0x85eb_ca6b)
            }),
        }
        chosen.truncate(self.most.unwrap_or(usize::MAX));
        chosen
    }
}

const WORDS_MAX: usize = 50;
const WORD_LEN_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(rules: &str) -> Vec<String> {
        let names = ["jazz/a.mp3", "jazz/b live.mp3", "rock/c.mp3", "rock/d.mp3", "rock/e.mp3"];
        let track = |(modified_ns, name)| Track::named(name, modified_ns);
        let all: Vec<Track> = (0..).zip(names).map(track).collect();
        let chosen = Rules::parse(rules).unwrap().chosen(&all);
        chosen.into_iter().map(|place| all[place as usize].path.clone()).collect()
    }

    #[test]
    fn rules_choose_and_order() {
        assert_eq!(paths(r#"{"with": ["JAZZ"], "without": ["live"]}"#), ["jazz/a.mp3"]);
        assert_eq!(paths(r#"{"order": "newest", "most": 2}"#), ["rock/e.mp3", "rock/d.mp3"]);
        let shuffled = |seed: u32| paths(&format!("{{\"order\": {{\"shuffled\": {seed}}}}}"));
        assert_eq!(shuffled(1), shuffled(1));
        assert!((2..20).any(|seed| shuffled(seed) != shuffled(1)));
        assert_eq!(shuffled(3).len(), 5);
    }

    #[test]
    fn wrong_rules_are_refused_with_a_sentence() {
        let refused = |text: &str| Rules::parse(text).unwrap_err();
        assert!(refused("{").starts_with("these are no rules: EOF"));
        assert!(refused(r#"{"wiht": []}"#).contains("expected one of `with`, `without`"));
        assert!(refused(r#"{"with": [""]}"#).contains("1 to 100 bytes"));
    }
}
