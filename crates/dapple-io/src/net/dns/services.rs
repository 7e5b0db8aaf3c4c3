//! Queries for SRV records.

use std::io;

use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

use super::failure::Failure;
use super::{Counters, Resolver};
use crate::net::ServiceTarget;
use crate::net::host::Host;
use crate::time;

impl Resolver {
    /// Hosts and ports of a service, as [`services`](crate::net::services) says.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it resolves, it starts no more queries.
    ///
    /// # Errors
    ///
    /// As [`services`](crate::net::services).
    pub async fn services(&self, name: &str) -> io::Result<Vec<ServiceTarget>> {
        let wrong = |why: &dyn std::fmt::Display| {
            let text = format!("`{}` is not the name of a service: {why}", name.escape_debug());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let Host::Name(_) = Host::parse(name, 0)? else { return Err(wrong(&"it is an address")) };
        let mut full = Name::from_utf8(name).map_err(|error| wrong(&error))?;
        full.set_fqdn(true);
        let counters = &self.0.counters;
        Counters::count(&counters.lookups);
        let loaded = self.loaded().await?;
        let _permit = self.permit().await;
        Counters::count(&counters.asked);
        let asking = time::timeout(loaded.question_limit(), loaded.resolver.lookup(full, RecordType::SRV)).await;
        let failure = match asking {
            Ok(Ok(lookup)) if lookup.answers().iter().any(|record| srv_in(record).is_some()) => {
                return Ok(targets(lookup.answers()));
            }
            Ok(Ok(_)) => Failure::NoAddress,
            Ok(Err(error)) => Failure::from_net(&error),
            Err(_) => Failure::TimedOut,
        };
        if !failure.says_no() {
            Counters::count(&counters.failures);
        }
        Err(match failure {
            Failure::NoName | Failure::NoAddress => {
                let text = format!("no service is at `{name}` (name servers: {})", loaded.servers);
                io::Error::new(io::ErrorKind::NotFound, text)
            }
            other => other.error(name, &loaded.servers),
        })
    }
}

fn srv_in(record: &Record) -> Option<&SRV> {
    match &record.data {
        RData::SRV(srv) => Some(srv),
        _ => None,
    }
}

/// If the host is the root (`.`), the service is not offered.
fn targets(answers: &[Record]) -> Vec<ServiceTarget> {
    let offered = answers.iter().filter_map(srv_in).filter(|srv| !srv.target.is_root() && srv.port > 0);
    let mut targets: Vec<ServiceTarget> = offered
        .map(|srv| ServiceTarget {
            priority: srv.priority,
            weight: srv.weight,
            host: srv.target.to_ascii().trim_end_matches('.').to_owned(),
            port: srv.port,
        })
        .collect();
    targets.sort_unstable();
    targets.dedup();
    // Keeps those to be used first.
    targets.truncate(TARGETS_MAX);
    targets
}

/// The most records used of one answer.
const TARGETS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_those_are_left_out_that_are_to_be_used_last() {
        let record = |number: u16| {
            let srv = SRV::new(u16::MAX - number, 0, 1 + number, Name::from_ascii("a.test.").unwrap());
            Record::from_rdata(Name::root(), 0, RData::SRV(srv))
        };
        let records: Vec<Record> = (0..1_000).map(record).collect();
        let targets = targets(&records);
        assert_eq!(targets.len(), TARGETS_MAX);
        let ports: Vec<u16> = targets.iter().map(|target| target.port).collect();
        assert_eq!(ports, (745..=1_000).rev().collect::<Vec<u16>>());
    }
}
