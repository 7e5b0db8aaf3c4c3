//! How stages are put together.

pub mod commit;
mod flights;
