//! What has to hold for any bytes at all. The fuzz targets in `fuzz/` look for bytes for which it does not; those that they found worth
//! keeping are played again by the tests.

mod cache;
mod chunked;
mod differential;
mod fields;
mod head;

/// A property: panics where it does not hold.
pub(crate) type Property = fn(&[u8]);

/// All properties, by the name of their target and of the folder with what was found for it.
pub(crate) const ALL: &[(&str, Property)] = &[
    ("head", head::head),
    ("chunked", chunked::chunked),
    ("differential", differential::differential),
    ("range", fields::range),
    ("conditional", fields::conditional),
    ("coding", fields::coding),
    ("cache", cache::cache),
];
