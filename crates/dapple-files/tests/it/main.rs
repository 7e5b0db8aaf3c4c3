//! The behavior of the file service.

mod attacks;
mod audit;
mod conflicts;
mod leases;
mod leftovers;
mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod served;
mod tree;
mod webdav;

use dapple::Runtime;
use dapple_files::TreePath;

fn runtime() -> Runtime {
    dapple::builder().workers(2).build().expect("a runtime")
}

fn path(text: &str) -> TreePath {
    TreePath::parse(text).expect("a path")
}
