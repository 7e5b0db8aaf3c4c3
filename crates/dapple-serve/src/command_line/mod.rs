//! Values of options as the `dapple` command's programs read them.

pub use self::address::{host_and_port, socket_addr};
pub use self::number::{number, seconds};

mod address;
mod number;
