//! One program for all fuzz targets; the variable `DAPPLE_FUZZ_TARGET` selects one. The tests
//! replay the same properties on the corpus.

#![no_main]

#[path = "../crates/dapple-http/tests/it/properties/mod.rs"]
mod http_properties;
#[path = "../crates/dapple-files/tests/it/properties.rs"]
mod file_properties;
#[path = "../crates/dapple-insight/tests/it/properties.rs"]
mod recording_properties;
#[path = "../crates/bench/tests/properties/mod.rs"]
mod load_properties;
#[path = "../crates/dapple-net/tests/it/properties.rs"]
mod packet_properties;
#[path = "../crates/dapple-cli/tests/it/properties/mod.rs"]
mod serve_properties;
#[path = "../crates/dapple-tls/tests/it/properties.rs"]
mod tls_properties;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static PROPERTY: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let target = std::env::var("DAPPLE_FUZZ_TARGET").unwrap_or_default();
    let own = [http_properties::ALL, serve_properties::ALL, tls_properties::ALL, load_properties::ALL, packet_properties::ALL, file_properties::ALL, dapple_files::fuzz::ALL, recording_properties::ALL];
    let mut all = own.into_iter().flatten();
    let found = all.find(|(name, _)| *name == target);
    found.unwrap_or_else(|| panic!("DAPPLE_FUZZ_TARGET={target:?} names no target")).1
});

fuzz_target!(|data: &[u8]| (*PROPERTY)(data));
