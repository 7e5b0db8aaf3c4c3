//! Properties of the parsers, on the bytes that fuzzing found worth keeping.

mod properties;

use std::path::Path;

#[test]
fn properties_hold_for_all_that_was_found() {
    for (name, property) in properties::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            if std::panic::catch_unwind(|| property(&bytes)).is_err() {
                panic!("{name} does not hold for {}", path.display());
            }
            count += 1;
        }
        assert!(count > 0, "there is nothing in {}", folder.display());
    }
}
