//! Short runs of `bench proxy`, if the program was built next to the bench.

mod cli;

use cli::{fails_naming, rows};

#[test]
fn one_cache_beside_two() {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_bench")).with_file_name("dapple");
    if !program.is_file() {
        eprintln!("left out: {} was not built", program.display());
        return;
    }
    let rows = rows(&["proxy", "--secs", "0.5", "--connections", "8", "--cache-mb", "16"]);
    assert_eq!(rows.len(), 4, "one worker, two, two copies, serial: {rows:#?}");
    for row in rows {
        let hits = row["hit_percent"].as_f64().expect("a number");
        assert!((1.0..=100.0).contains(&hits) && row["errors"] == 0, "{row}");
    }
}

#[test]
fn a_peer_that_takes_no_part_is_named() {
    fails_naming(&["proxy", "--peer", "nginx"], "takes no part");
}
