//! Numbers with a fraction, with the digits that Redis prints.
//!
//! Redis adds in the processor's extended precision: 64 bits of mantissa, 17 decimals in the text.
//! Other types have other last digits, which clients would see.

/// `(-1)^is_negative * mantissa * 2^exponent`; the highest bit of the mantissa is set, unless it is 0.
#[derive(Clone, Copy, Debug)]
struct Extended {
    is_negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// The sum of two numbers, as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sum {
    Text(String),
    /// One of the two words is no number.
    NoNumber,
    /// The sum is infinite.
    Infinite,
}

/// Adds two numbers that are given as text. Beyond 38 digits, 18 decimals or 2^64, the last digits may be others than
/// those of Redis.
pub(super) fn add(left: &[u8], right: &[u8]) -> Sum {
    let (Some(left_value), Some(right_value)) = (plain(left), plain(right)) else { return Sum::NoNumber };
    if !(left_value + right_value).is_finite() {
        return Sum::Infinite;
    }
    let exact = parse(left).zip(parse(right)).and_then(|(left, right)| left.plus(right).text());
    Sum::Text(exact.unwrap_or_else(|| trim(format!("{:.17}", left_value + right_value))))
}

/// The value of a word that is a number for Redis, at this type's precision.
pub(super) fn plain(word: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(word).ok()?;
    let value: f64 = text.parse().ok()?;
    (!value.is_nan()).then_some(value)
}

/// Reads decimal digits with a fraction and an exponent; `None` if that needs longer arithmetic.
fn parse(word: &[u8]) -> Option<Extended> {
    let text = std::str::from_utf8(word).ok()?;
    let (text, power) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (is_negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut digits: u128 = 0;
    for byte in whole.bytes().chain(fraction.bytes()) {
        digits =
            digits.checked_mul(10)?.checked_add(u128::from(byte.checked_sub(b'0').filter(|digit| *digit < 10)?))?;
    }
    let decimals = i32::try_from(fraction.len()).ok()?.checked_sub(power)?;
    if decimals < 0 {
        digits = digits.checked_mul(10_u128.checked_pow(decimals.unsigned_abs())?)?;
    }
    let divisor = 10_u128.pow(u32::try_from(decimals.max(0)).ok().filter(|decimals| *decimals <= 18)?);
    if digits == 0 {
        return Some(Extended { is_negative, mantissa: 0, exponent: 0 });
    }
    let shift = digits.leading_zeros();
    let (quotient, rest) = ((digits << shift) / divisor, (digits << shift) % divisor);
    Some(Extended::round(is_negative, quotient, rest != 0, -shift.cast_signed()))
}

impl Extended {
    /// Rounds to the nearest, and to the even one of two. `has_more`: there are bits below those of `bits`.
    fn round(is_negative: bool, bits: u128, has_more: bool, exponent: i32) -> Extended {
        let excess = 64_i32 - bits.leading_zeros().cast_signed();
        if bits == 0 {
            return Extended { is_negative: false, mantissa: 0, exponent: 0 };
        }
        if excess <= 0 {
            let mantissa = (bits << excess.unsigned_abs()) as u64;
            return Extended { is_negative, mantissa, exponent: exponent + excess };
        }
        let (kept, cut) = (bits >> excess, bits & ((1 << excess) - 1));
        let half = 1_u128 << (excess - 1);
        let is_up = cut > half || (cut == half && (has_more || kept & 1 == 1));
        let kept = kept + u128::from(is_up);
        let carry = i32::from(kept >> 64 != 0);
        Extended { is_negative, mantissa: (kept >> carry) as u64, exponent: exponent + excess + carry }
    }

    fn plus(self, other: Extended) -> Extended {
        if self.mantissa == 0 || other.mantissa == 0 {
            return if self.mantissa == 0 { other } else { self };
        }
        let (large, small) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let distance = (large.exponent - small.exponent).unsigned_abs();
        // Two bits are free above the larger one; what is shifted out only decides the rounding.
        const LIFT: u32 = 62;
        let left = u128::from(large.mantissa) << LIFT;
        let right = if distance < 126 { (u128::from(small.mantissa) << LIFT) >> distance } else { 0 };
        let has_more = distance > LIFT;
        let exponent = large.exponent - LIFT.cast_signed();
        if large.is_negative == small.is_negative {
            return Extended::round(large.is_negative, left + right, has_more, exponent);
        }
        let is_negative = if left >= right { large.is_negative } else { small.is_negative };
        Extended::round(is_negative, left.abs_diff(right), has_more, exponent)
    }

    /// 17 decimals without zeros at the end; `None` for numbers of 2^64 and more.
    fn text(self) -> Option<String> {
        const DECIMALS: u128 = 10_u128.pow(17);
        let down = u32::try_from(-self.exponent).ok()?;
        // Fewer than 121 bits.
        let scaled = u128::from(self.mantissa) * DECIMALS;
        let rounded = if down >= 128 {
            0
        } else {
            let (kept, cut) = (scaled >> down, scaled & ((1 << down) - 1));
            let half = if down == 0 { u128::MAX } else { 1 << (down - 1) };
            kept + u128::from(cut > half || (cut == half && kept & 1 == 1))
        };
        let sign = if self.is_negative && rounded != 0 { "-" } else { "" };
        Some(trim(format!("{sign}{}.{:017}", rounded / DECIMALS, rounded % DECIMALS)))
    }
}

fn trim(text: String) -> String {
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Sum, add};

    /// The sums are those of Redis 7.0.15.
    #[test]
    fn sums_have_the_digits_of_redis() {
        for (left, right, sum) in [
            ("10.5", "0.1", "10.6"),
            ("10.6", "-5", "5.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("5200", "0.1", "5200.10000000000000009"),
            ("3000", "0.1", "3000.10000000000000009"),
            ("3000.10000000000000009", "0.2", "3000.30000000000000004"),
            ("0.1", "0.2", "0.3"),
            ("123456789.123456789", "1", "123456790.12345678899873747"),
            ("1e20", "0.5", "100000000000000000000"),
            ("-0.5", "0.5", "0"),
            ("1e-18", "0", "0"),
            ("1.5e-17", "0", "0.00000000000000002"),
            ("9007199254740993", "0.3", "9007199254740993.2998046875"),
        ] {
            assert_eq!(add(left.as_bytes(), right.as_bytes()), Sum::Text(sum.to_owned()), "{left} + {right}");
        }
        for word in ["abc", "nan", " 1", "1 ", ""] {
            assert_eq!(add(b"1", word.as_bytes()), Sum::NoNumber, "{word}");
        }
        assert_eq!(add(b"1", b"inf"), Sum::Infinite);
    }
}
