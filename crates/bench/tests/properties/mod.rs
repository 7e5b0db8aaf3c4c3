//! Properties that hold for any bytes from a server to the load generator. A fuzz target searches
//! for counterexamples; the saved ones are replayed here.

#[allow(dead_code, reason = "of these files, what reads is wanted")]
#[path = "../../src/load/body.rs"]
mod body;
#[allow(dead_code, reason = "of these files, what reads is wanted")]
#[path = "../../src/load/problem.rs"]
mod problem;
#[path = "../../src/load/response.rs"]
mod response;

use self::body::Body;
use self::problem::Problem;
use self::response::{Progress, Reader};

/// A property: panics if it does not hold.
pub(crate) type Property = fn(&[u8]);

/// All properties, by the name of their target.
pub(crate) const ALL: &[(&str, Property)] = &[("response", read)];

/// A response is the same in one piece and in many, and has one length, which is that of its body.
///
/// The first byte is the length of the pieces; its highest bit asks for a certain body.
fn read(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let body = (first & 0x80 != 0).then(|| Body::whole(b"hello".to_vec()));
    let step = usize::from(first & 0x7f) + 1;
    let mut reader = Reader::default();
    let whole = reader.feed(bytes, body.as_ref());
    if let Ok(progress) = &whole {
        let is_whole = *progress != Progress::Partial;
        is_as_told(bytes, reader.taken(), is_whole);
    }
    let mut reader = Reader::default();
    let (mut last, mut fed, mut taken) = (Ok(Progress::Partial), 0, 0);
    for piece in bytes.chunks(step) {
        last = reader.feed(piece, body.as_ref());
        (fed, taken) = (fed + piece.len(), taken + reader.taken());
        if !matches!(last, Ok(Progress::Partial)) {
            break;
        }
    }
    match (&whole, &last) {
        (Ok(one), Ok(other)) => {
            assert_eq!(one, other);
            is_as_told(bytes, taken, *one != Progress::Partial);
        }
        // Bytes after the last one show only if they arrive in the same piece.
        (Err(Problem::Malformed(_)), Ok(Progress::Whole { .. })) => {
            assert!(fed < bytes.len());
            is_as_told(&bytes[..fed], taken, true);
        }
        (Err(_), Err(_)) => {}
        (one, other) => panic!("{one:?} in one piece, {other:?} in pieces"),
    }
}

/// The one length of a complete response is that of the bytes after its head.
fn is_as_told(bytes: &[u8], taken: u64, is_whole: bool) {
    assert!(taken <= bytes.len() as u64);
    if !is_whole {
        return;
    }
    let (head, body) = bytes.split_at(bytes.len() - taken as usize);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let lens: Vec<&str> =
        fields.clone().filter(|(name, _)| *name == "content-length").map(|(_, len)| len.trim()).collect();
    let [len] = lens[..] else { panic!("the lengths {lens:?} were taken for one") };
    assert!(len.bytes().all(|byte| byte.is_ascii_digit()) && len.parse() == Ok(body.len()), "{len}");
    assert!(fields.clone().all(|(name, _)| name != "transfer-encoding"));
    assert!(head.trim_start().starts_with("http/1.") && head.contains(" 200"));
}

#[cfg(test)]
mod tests {
    #[test]
    fn properties_hold_for_all_that_was_found() {
        crate::replay::all(super::ALL);
    }
}
