//! Properties of files that claim to be recordings. A fuzz target searches for texts that break them; the tests replay its
//! corpus, and change whole recordings by chance.

use std::io::Write;

use dapple_insight::{Change, Recording, Waterfall};

/// A property: panics if it does not hold.
pub(crate) type Property = fn(&[u8]);

/// All properties, by the name of their target.
pub(crate) const ALL: &[(&str, Property)] = &[("recording", recording)];

/// A text is refused with a sentence, or is a recording: it comes back when it is saved, and has a report.
fn recording(text: &[u8]) {
    let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    file.write_all(text).expect("to memory");
    let loaded = match Recording::load(&file.finish().expect("to memory")[..]) {
        Ok(loaded) => loaded,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut saved = Vec::new();
    loaded.save(&mut saved).expect("to memory");
    assert_eq!(Recording::load(&saved[..]).expect("it was saved"), loaded);
    // Each worker costs memory here, and says nothing more.
    if loaded.workers() > 64 {
        return;
    }
    let snapshot = loaded.snapshot();
    let text = snapshot.to_string();
    assert!(text.starts_with(&snapshot.verdict.to_string()));
    let json = serde_json::to_string(&snapshot).expect("numbers and names");
    assert!(serde_json::from_str::<dapple_insight::Snapshot>(&json).is_ok(), "{json}");
    assert!(!snapshot.html().contains("</script><"));
    for family in snapshot.families.iter().take(3) {
        let family = || family.name.clone();
        let changes = [
            Change::Faster { family: family(), times: 2.0 },
            Change::Split { family: family(), parts: 3 },
            Change::Readable { family: family() },
        ];
        assert!(loaded.predict(2, &changes).speedup >= 0.0);
    }
    loaded.write_perfetto(std::io::sink()).expect("nothing fails there");
    loaded.write_folded(std::io::sink()).expect("nothing fails there");
    if let Some(waterfall) = Waterfall::of(&[loaded.clone(), loaded], None) {
        assert!(waterfall.to_string().starts_with("trace "));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn properties_hold_for_all_that_was_found() {
        crate::replay::all(super::ALL);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// Rows of small numbers, in any order: most are accepted.
        #[test]
        fn rows_of_any_kind_make_no_analysis_fail(
            rows in proptest::collection::vec((0..7_u8, 0..9_u64, 0..9_u64, 0..5_u64, -1..3_i32, 0..2_u32, 0..90_u64, 0..90_u64), 0..60),
            workers in 1..4_usize,
        ) {
            let mut text = format!(
                "{{\"dapple_recording\":2,\"workers\":{workers},\"elapsed_ns\":100,\"lost\":0,\"requests\":[{{\"trace\":\"{:032x}\",\"span\":1,\
                 \"parent\":2,\"callback\":3,\"began_ns\":5,\"ended_ns\":80}}],\
                 \"lines\":[{{\"file\":\"a.rs\",\"line\":1}},{{\"file\":\"b.rs\",\"line\":2,\"label\":\"b\"}}]}}\n",
                7
            );
            let rows: Vec<_> = rows.into_iter().map(|row| (row.0, row.1, row.2, row.3, row.4, row.5, row.6.min(row.7), row.7)).collect();
            rows.iter().for_each(|row| text += &(serde_json::to_string(row).unwrap() + "\n"));
            text += &format!("{{\"events\":{}}}\n", rows.len());
            super::recording(text.as_bytes());
        }
    }
}
