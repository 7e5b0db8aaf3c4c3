//! What has to hold for any bytes that come from outside: paths, configurations, lists of networks, responses of servers, frames, and
//! what is written of them. Fuzz targets look for bytes for which it does not; those that were worth keeping are played again here.

mod config;
mod escapes;
mod networks;
mod paths;
mod sign;
mod upstream;

#[allow(dead_code, unreachable_pub, reason = "of these files, their pure part is wanted")]
#[path = "../../../../dapple-sign/src/frame.rs"]
mod frame;
#[allow(dead_code, unreachable_pub, reason = "of these files, their pure part is wanted")]
#[path = "../../../src/serve/path.rs"]
mod path;
#[allow(dead_code, unreachable_pub, reason = "of these files, their pure part is wanted")]
#[path = "../../../src/serve/pattern.rs"]
mod pattern;
#[allow(dead_code, unreachable_pub, reason = "of these files, their pure part is wanted")]
#[path = "../../../src/serve/rules/mod.rs"]
mod rules;

/// A property: panics where it does not hold.
pub(crate) type Property = fn(&[u8]);

/// All properties, by the name of their target.
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
    fn properties_hold_for_all_that_was_found() {
        crate::replay::all(super::ALL);
    }
}
