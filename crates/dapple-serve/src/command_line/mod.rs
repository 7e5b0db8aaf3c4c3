//! Options as the `dapple` command's programs have them: the table of `limits`, and the values of others.

pub use self::address::{host_and_port, socket_addr};
pub use self::limit::{LimitOption, Unit};
pub use self::number::{number, seconds};
#[cfg(feature = "clap")]
pub use self::rows::{LimitArgs, Rows};

mod address;
mod limit;
pub mod limits;
mod number;
#[cfg(feature = "clap")]
mod rows;
