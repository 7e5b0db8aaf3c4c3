//! Options from three sources: the command line, the environment, and one TOML file.
//!
//! An option is declared once, as a clap argument of its command. Its other names follow from that:
//! `--cache-mb 64` of `dapple serve` is `DAPPLE_SERVE_CACHE_MB=64` and, in the file,
//! `cache_mb = 64`. The command line wins over the environment, and the environment over the file.
//!
//! Values from the weaker sources become the argument's default before the command line is read, so
//! that clap reads all values in the same way. For `requires` and `required_if` such a value counts
//! as not given: after all sources are read, the command itself checks which options need each
//! other.

pub(crate) use self::load::{Loaded, load, load_again};
pub(crate) use self::problem::Problems;
pub(crate) use dapple_serve::command_line::{host_and_port, number, seconds, socket_addr};

mod environment;
mod file;
mod layer;
mod load;
mod nearest;
mod option;
mod problem;
mod sections;
mod show;

// The table has a column for `files`.
#[cfg(all(test, feature = "files"))]
mod limit_tests;
#[cfg(test)]
mod tests;
