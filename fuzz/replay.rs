//! Replays the fuzzing corpus; the tests of several crates include this file.

use std::panic::catch_unwind;
use std::path::Path;

/// A property: panics if it does not hold.
type Property = fn(&[u8]);

/// Calls each property with all files of its target's corpus.
///
/// # Panics
///
/// If a property does not hold, or a target has no corpus.
pub(crate) fn all(properties: &[(&str, Property)]) {
    for (name, property) in properties {
        // Every crate is two folders below the root.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            assert!(catch_unwind(|| property(&bytes)).is_ok(), "{name} does not hold for {}", path.display());
            count += 1;
        }
        assert!(count > 0, "there is nothing in {}", folder.display());
    }
}
