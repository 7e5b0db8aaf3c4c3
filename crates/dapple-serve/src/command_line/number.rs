//! Numbers with a range, and errors that tell it.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A parser of numbers in `range`, for clap.
pub fn number<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| {
        let example = (*range.start()).max(1).min(*range.end()).to_string();
        let number = number_or_advice(text, &range, &example)?;
        number.try_into().map_err(|_| format!("{number} is too large here; write a smaller number, such as {example}"))
    }
}

/// Seconds, with an optional fraction after a point.
pub fn seconds(text: &str) -> Result<Duration, String> {
    seconds_or_advice(text, &(Duration::from_millis(1)..=Duration::from_secs(86_400)), "10 or 0.5")
}

/// A number in `range`, or the valid values.
pub(super) fn number_or_advice(text: &str, range: &RangeInclusive<u64>, example: &str) -> Result<u64, String> {
    let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        format!("{text} is not possible here; write a number from {least} to {most}, for example {example}")
    })
}

/// Seconds in `range`, or the valid values.
pub(super) fn seconds_or_advice(
    text: &str,
    range: &RangeInclusive<Duration>,
    example: &str,
) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|seconds| range.contains(seconds)).ok_or_else(|| {
        let (least, most) = (range.start().as_secs_f64(), range.end().as_secs_f64());
        format!("{text} is not possible here; write seconds from {least} to {most}, for example {example}")
    })
}

#[cfg(test)]
mod tests {
    use super::{number, seconds};
    use std::time::Duration;

    #[test]
    fn the_range_is_told() {
        assert_eq!(number::<u16>(0..=65_535)("80"), Ok(80));
        for bad in ["", "-1", "65536", "8o", "1.5", "99999999999999999999999"] {
            let message = number::<u16>(0..=65_535)(bad).unwrap_err();
            assert!(message.ends_with("write a number from 0 to 65535, for example 1"), "{message}");
        }
    }

    #[test]
    fn seconds_may_have_a_part() {
        assert_eq!(seconds("10"), Ok(Duration::from_secs(10)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["", "0", "-1", "x", "1e9", "nan", "inf"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
