use proptest::prelude::*;

use super::{GAP_MAX, RANGES_MAX, Wanted, wanted};

#[test]
fn parts_of_ten_bytes() {
    for (range, part) in [
        ("bytes=0-0", 0..1),
        ("bytes=2-5", 2..6),
        ("bytes=2-", 2..10),
        ("bytes=-3", 7..10),
        ("bytes=-99", 0..10),
        ("bytes=9-99999999999999999999999", 9..10),
        ("bytes=0-18446744073709551615", 0..10),
        ("BYTES=2-5", 2..6),
        ("bytes= 2-5 ", 2..6),
        ("bytes=,,2-5,", 2..6),
        // Of several parts, the existing ones.
        ("bytes=2-5,20-", 2..6),
        ("bytes=-0,1-1", 1..2),
        // So close that one part is shorter.
        ("bytes=0-1,4-5", 0..6),
        ("bytes=4-5,0-1", 0..6),
        ("bytes=0-9,0-9", 0..10),
    ] {
        assert_eq!(wanted(range.as_bytes(), 10), Wanted::One(part), "{range}");
    }
}

#[test]
fn parts_that_are_not_there() {
    for range in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99999999999999999999-", "bytes=10-,-0,11-12"] {
        assert_eq!(wanted(range.as_bytes(), 10), Wanted::Outside, "{range}");
    }
    assert_eq!(wanted(b"bytes=0-", 0), Wanted::Outside);
    assert_eq!(wanted(b"bytes=-5", 0), Wanted::Whole, "all of nothing");
}

#[test]
fn what_is_not_understood_is_ignored() {
    for range in [
        "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=5-2",
        "bytes=+1-2",
        "bytes=a-b",
        "lines=1-2",
        "bytes=1",
        "bytes=1-2,x",
        "bytes=5-2,1-2",
        "bytes =1-2",
        "bytes=1 -2",
        "bytes=1--2",
        "bytes=\u{e9}-",
    ] {
        assert_eq!(wanted(range.as_bytes(), 10), Wanted::Whole, "{range}");
    }
    assert_eq!(wanted(b"bytes=\xff-", 10), Wanted::Whole);
}

#[test]
fn several_parts_keep_their_order() {
    let several = |range: &str| wanted(range.as_bytes(), 10_000);
    assert_eq!(several("bytes=0-9,1000-1009"), Wanted::Several(vec![0..10, 1_000..1_010]));
    assert_eq!(several("bytes=-10, 5000-5009 ,0-9"), Wanted::Several(vec![9_990..10_000, 5_000..5_010, 0..10]));
    // The third joins the first two, in the place of the first.
    assert_eq!(several("bytes=1000-1099,3000-3099,1050-1249,5000-"), {
        Wanted::Several(vec![1_000..1_250, 3_000..3_100, 5_000..10_000])
    });
    assert_eq!(several("bytes=0-9,200-209,10-199"), Wanted::One(0..210));
}

#[test]
fn a_request_for_too_much_gets_all_once() {
    let many: Vec<String> = (0..=RANGES_MAX).map(|part| format!("{}-{}", part * 1_000, part * 1_000)).collect();
    assert_eq!(wanted(format!("bytes={}", many.join(",")).as_bytes(), 1 << 20), Wanted::Whole);
    let at_most = wanted(format!("bytes={}", many[1..].join(",")).as_bytes(), 1 << 20);
    assert!(matches!(at_most, Wanted::Several(parts) if parts.len() == RANGES_MAX));
    assert_eq!(wanted(b"bytes=0-,0-,0-,0-", 10_000), Wanted::Whole);
}

/// The requested bytes, computed byte by byte as in the RFC, if the value is valid at all.
fn naive(specs: &[(Option<u64>, Option<u64>)], len: u64) -> Option<Vec<bool>> {
    let mut asked = vec![false; len as usize];
    for spec in specs {
        for at in 0..len {
            asked[at as usize] |= match *spec {
                (Some(first), Some(last)) if first > last => return None,
                (Some(first), Some(last)) => (first..=last).contains(&at),
                (Some(first), None) => first <= at,
                (None, Some(count)) => at >= len.saturating_sub(count),
                (None, None) => return None,
            };
        }
    }
    Some(asked)
}

proptest! {
    #[test]
    fn all_that_was_asked_for_and_little_more(
        specs in prop::collection::vec((prop::option::of(0..600u64), prop::option::of(0..600u64)), 1..8),
        len in 0..500u64,
    ) {
        let text: Vec<String> = specs.iter().map(|(first, last)| {
            let write = |number: &Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
            format!("{}-{}", write(first), write(last))
        }).collect();
        let found = wanted(format!("bytes={}", text.join(",")).as_bytes(), len);
        let Some(asked) = naive(&specs, len) else {
            prop_assert_eq!(found, Wanted::Whole);
            return Ok(());
        };
        let parts = match found {
            Wanted::Whole => return Ok(()),
            Wanted::Outside => {
                prop_assert!(!asked.contains(&true));
                return Ok(());
            }
            Wanted::One(part) => vec![part],
            Wanted::Several(parts) => {
                prop_assert!(parts.len() > 1);
                parts
            }
        };
        let mut sent = vec![0; len as usize];
        for part in &parts {
            prop_assert!(part.start < part.end && part.end <= len);
            // Both ends were requested: a part does not extend beyond them.
            prop_assert!(asked[part.start as usize] && asked[part.end as usize - 1]);
            for at in part.clone() {
                sent[at as usize] += 1;
            }
        }
        for (at, asked) in asked.iter().enumerate() {
            prop_assert!(sent[at] <= 1 && (!asked || sent[at] == 1));
        }
        let mut sorted = parts;
        sorted.sort_by_key(|part| part.start);
        prop_assert!(sorted.windows(2).all(|pair| pair[1].start - pair[0].end > GAP_MAX));
        // Bytes sent without a request are short gaps.
        let unasked: Vec<bool> = (0..len as usize).map(|at| sent[at] == 1 && !asked[at]).collect();
        prop_assert!(unasked.split(|unasked| !unasked).all(|gap| gap.len() as u64 <= GAP_MAX));
    }

    #[test]
    fn nothing_makes_it_fail(value in prop::collection::vec(any::<u8>(), 0..40), len in any::<u64>()) {
        let _ = wanted(&value, len);
        let _ = wanted(&[b"bytes=", &value[..]].concat(), len);
    }
}
