//! Content codings, and which of them a client accepts (`Accept-Encoding`, RFC 9110, section
//! 12.5.3).

use crate::request::Fields;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Brotli (RFC 7932).
    Br,
    /// Zstandard (RFC 8878).
    Zstd,
    /// Gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// All codings; of equally preferred ones the earlier is sent, because it is shorter.
    pub const ALL: [Coding; 3] = [Coding::Br, Coding::Zstd, Coding::Gzip];

    /// Its name in header fields.
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Br => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// The extension of files with this coding.
    pub const fn ending(self) -> &'static str {
        match self {
            Coding::Br => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        }
    }
}

/// The accepted codings: a weight for each in thousandths, 0 for not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    codings: [u16; 3],
    identity: u16,
}

impl Accepted {
    /// The default without `Accept-Encoding`: no coding, which every client understands.
    pub const PLAIN: Accepted = Accepted { codings: [0; 3], identity: WEIGHT_MAX };

    /// The codings that a request accepts.
    pub fn of(fields: Fields<'_>) -> Accepted {
        let mut named: [Option<u16>; 4] = [None; 4];
        let mut others = None;
        let mut is_given = false;
        for value in fields.all("accept-encoding") {
            is_given = true;
            for (name, weight) in value.split(|byte| *byte == b',').filter_map(element) {
                match place(name) {
                    Some(place) => named[place] = Some(weight),
                    None if name == b"*" => others = Some(weight),
                    None => {}
                }
            }
        }
        if !is_given {
            return Accepted::PLAIN;
        }
        let of = |place: usize| named[place].or(others).unwrap_or(0);
        // Identity is always possible, unless it is refused.
        let identity = named[IDENTITY].or(others).unwrap_or(WEIGHT_LEAST);
        Accepted { codings: [of(0), of(1), of(2)], identity }
    }

    /// Whether any coding is accepted.
    pub fn any_coding(&self) -> bool {
        self.in_order().next().is_some()
    }

    /// Whether content without a coding is accepted.
    pub fn takes_plain(&self) -> bool {
        self.identity > 0
    }

    /// The codings preferred at least as much as none, best first.
    pub fn in_order(&self) -> impl Iterator<Item = Coding> + use<> {
        let mut left = self.codings;
        let least = self.identity.max(1);
        std::iter::from_fn(move || {
            let best = (0..left.len()).max_by_key(|place| (left[*place], std::cmp::Reverse(*place)))?;
            let weight = std::mem::take(&mut left[best]);
            (weight >= least).then(|| Coding::ALL[best])
        })
    }
}

/// Name and weight of an element of the list; `None` for a malformed one, which is skipped.
fn element(text: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = text.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().filter(|name| !name.is_empty())?;
    match (parts.next(), parts.next()) {
        (None, _) => Some((name, WEIGHT_MAX)),
        (Some(parameter), None) => Some((name, weight(parameter)?)),
        _ => None,
    }
}

/// `q=0.5`, with at most three digits (section 12.4.2).
fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', whole @ (b'0' | b'1'), rest @ ..] = parameter else {
        return None;
    };
    let digits = match rest {
        [] => &[],
        [b'.', digits @ ..] if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => digits,
        _ => return None,
    };
    let fraction = digits.iter().zip([100, 10, 1]).map(|(digit, worth)| u16::from(digit - b'0') * worth).sum::<u16>();
    let weight = u16::from(whole - b'0') * WEIGHT_MAX + fraction;
    (weight <= WEIGHT_MAX).then_some(weight)
}

fn place(name: &[u8]) -> Option<usize> {
    const NAMES: [(&[u8], usize); 5] =
        [(b"br", 0), (b"zstd", 1), (b"gzip", 2), (b"x-gzip", 2), (b"identity", IDENTITY)];
    NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, place)| *place)
}

const IDENTITY: usize = 3;
const WEIGHT_MAX: u16 = 1_000;

/// The weight of codings that are possible but not named.
const WEIGHT_LEAST: u16 = 1;

#[cfg(test)]
mod tests {
    use super::{Accepted, Coding};
    use crate::request::{Field, Fields};

    fn accepted(values: &[&str]) -> Accepted {
        let list: Vec<Field<'_>> =
            values.iter().map(|value| Field { name: "Accept-Encoding", value: value.as_bytes() }).collect();
        Accepted::of(Fields::new(&list))
    }

    fn order(values: &[&str]) -> Vec<Coding> {
        accepted(values).in_order().collect()
    }

    #[test]
    fn weights_decide_and_then_what_is_shorter() {
        use Coding::{Br, Gzip, Zstd};
        for (value, expected) in [
            ("gzip, deflate, br, zstd", &[Br, Zstd, Gzip][..]),
            ("gzip;q=1.0, br;q=0.9", &[Gzip, Br]),
            ("gzip;q=0.5,br;Q=0.501", &[Br, Gzip]),
            ("x-gzip", &[Gzip]),
            ("GZIP", &[Gzip]),
            ("*", &[Br, Zstd, Gzip]),
            ("*;q=0.1, br;q=0", &[Zstd, Gzip]),
            ("br;q=0, gzip;q=0.000", &[]),
            ("", &[]),
            ("identity", &[]),
            ("deflate, compress", &[]),
            // Prefers no coding.
            ("identity, gzip;q=0.5", &[]),
            ("identity;q=0.5, gzip;q=0.5", &[Gzip]),
            ("gzip;q=2, br;q=x, zstd;q=0.1234, gzip;level=9", &[]),
            ("br ; q=0.7 ,\tgzip", &[Gzip, Br]),
        ] {
            assert_eq!(order(&[value]), expected, "{value}");
        }
        assert_eq!(order(&["gzip", "br"]), [Br, Gzip]);
        assert_eq!(order(&[]), []);
    }

    #[test]
    fn no_coding_is_taken_unless_refused() {
        for value in ["", "gzip", "br;q=0", "*", "identity;q=0.001", "*;q=0, identity"] {
            assert!(accepted(&[value]).takes_plain(), "{value}");
        }
        for value in ["identity;q=0", "*;q=0", "gzip, *;q=0", "br, identity;q=0.0"] {
            assert!(!accepted(&[value]).takes_plain(), "{value}");
        }
        assert_eq!(accepted(&[]), Accepted::PLAIN);
    }
}
