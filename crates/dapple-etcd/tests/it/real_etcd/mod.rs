//! The promises of the client, with a real etcd.

mod leases;
mod outages;
mod records;
mod users;
mod watches;
