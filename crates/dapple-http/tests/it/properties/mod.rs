//! Properties for any bytes at all. The fuzz targets in `fuzz/` search for bytes that break them;
//! the tests replay the corpus.

mod cache;
mod chunked;
mod differential;
mod fields;
mod head;

/// A property: panics if it does not hold.
pub(crate) type Property = fn(&[u8]);

/// All properties, by the name of their target and of the folder of its corpus.
pub(crate) const ALL: &[(&str, Property)] = &[
    ("head", head::head),
    ("chunked", chunked::chunked),
    ("differential", differential::differential),
    ("range", fields::range),
    ("conditional", fields::conditional),
    ("coding", fields::coding),
    ("cache", cache::cache),
];
