//! The clients and the servers of the soak.

mod certificates;
mod good;
mod hostile;
mod http2;
mod server;
mod site;
mod target;

pub(crate) use certificates::Authority;
pub(crate) use good::{Kept, be_good};
pub(crate) use hostile::be_hostile;
pub(crate) use http2::be_good_by_http2;
pub(crate) use server::{Footprint, Server};
pub(crate) use site::Site;
pub(crate) use target::Target;
