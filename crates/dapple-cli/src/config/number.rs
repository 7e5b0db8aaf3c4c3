//! Numbers with a range, and errors that tell it.

use std::ops::RangeInclusive;

/// A parser of numbers in `range`, for clap.
pub(crate) fn number<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| {
        let number =
            text.parse::<u64>().ok().filter(|number| range.contains(number)).and_then(|number| number.try_into().ok());
        number.ok_or_else(|| {
            format!("{text} is not possible here; write a number from {} to {}", range.start(), range.end())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn the_range_is_told() {
        assert_eq!(number::<u16>(0..=65_535)("80"), Ok(80));
        for bad in ["", "-1", "65536", "8o", "1.5", "99999999999999999999999"] {
            let message = number::<u16>(0..=65_535)(bad).unwrap_err();
            assert!(message.ends_with("write a number from 0 to 65535"), "{message}");
        }
    }
}
