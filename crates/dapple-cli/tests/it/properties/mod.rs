//! Properties that hold for any bytes from outside: paths, configurations, lists of networks,
//! responses of servers, frames, and the text made of them. Fuzz targets search for
//! counterexamples; the tests replay the saved ones.

mod config;
mod escapes;
mod networks;
mod paths;
mod sign;
mod upstream;

#[allow(dead_code, unreachable_pub, reason = "only the pure part of this file is used")]
#[path = "../../../../dapple-sign/src/frame.rs"]
mod frame;
#[allow(dead_code, unreachable_pub, reason = "only the pure part of this file is used")]
#[path = "../../../src/serve/path.rs"]
mod path;
#[allow(dead_code, unreachable_pub, reason = "only the pure part of this file is used")]
#[path = "../../../src/serve/pattern.rs"]
mod pattern;
#[allow(dead_code, unreachable_pub, reason = "only the pure part of this file is used")]
#[path = "../../../src/serve/rules/mod.rs"]
mod rules;

/// A property: panics if it does not hold.
pub(crate) type Property = fn(&[u8]);

/// All properties, with the names of their targets.
pub(crate) const ALL: &[(&str, Property)] = &[
    ("site_path", paths::site_path),
    ("pattern", paths::pattern_fits),
    ("config", config::config),
    ("networks", networks::networks),
    ("escapes", escapes::escapes),
    ("upstream", upstream::upstream),
    ("sign_frames", sign::sign_frames),
];

#[cfg(test)]
mod tests {
    #[test]
    fn properties_hold_for_the_corpus() {
        crate::replay::all(super::ALL);
    }
}
