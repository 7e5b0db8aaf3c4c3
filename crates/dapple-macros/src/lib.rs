//! The attributes `#[dapple::main]` and `#[dapple::test]`.
//!
//! Use them through the crate `dapple`, which re-exports them; the code that they write names `::dapple`.
//!
//! Parsed by hand from the token stream: what is looked for is two words (`async fn`) and one block, and `syn` would
//! add more to the build of every program on Dapple than these two attributes are worth.

#![forbid(unsafe_code)]

use proc_macro::TokenStream;

mod expand;
mod options;

/// Runs an `async fn main` on a runtime that this attribute starts.
///
/// The body runs on the main thread; what it spawns runs on the workers. When it returns, the runtime stops at once:
/// await the `JoinHandle` of whatever must be finished first.
///
/// `workers = N` sets the number of workers; left out, it is what CPU affinity and the cgroup's quota allow.
///
/// ```ignore
/// #[dapple::main(workers = 2)]
/// async fn main() -> std::io::Result<()> {
///     dapple::spawn(async { println!("on a worker, in a color of its own") }).await.ok();
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(options, item, expand::Kind::Main)
}

/// Runs an `async fn` as a test on a runtime of its own.
///
/// Takes the same options as `#[dapple::main]`; left out, the test has two workers, so that what must not depend on
/// running alone is not tested on one worker only.
///
/// ```ignore
/// #[dapple::test]
/// async fn sleeps() {
///     dapple::time::sleep(std::time::Duration::from_millis(1)).await;
/// }
/// ```
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(options, item, expand::Kind::Test)
}
