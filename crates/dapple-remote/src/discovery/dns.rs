//! Hosts by a DNS name.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use dapple_io::net::{resolve, services};
use dapple_io::time::sleep;
use dapple_sync::task::{First, race};

use super::members::Publisher;

/// All addresses of a host, each with this port.
pub(super) async fn hosts(host: String, port: u16) -> io::Result<Vec<String>> {
    let addresses = resolve(host.trim_matches(['[', ']'])).await?;
    Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, port).to_string()).collect())
}

/// The addresses of a service, only those of the best priority. Targets are full names, marked by
/// the dot at the end, so the domains of a search list do not apply.
pub(super) async fn targets(name: String) -> io::Result<Vec<String>> {
    let targets = services(&name).await?;
    let first = targets.first().map(|target| target.priority);
    let used = targets.into_iter().take_while(|target| Some(target.priority) == first);
    Ok(used.map(|target| format!("{}.:{}", target.host, target.port)).collect())
}

/// Looks a name up at intervals, until the publisher has no readers.
pub(super) async fn look_up<F>(name: String, ask: impl Fn(String) -> F, every: Duration, mut publisher: Publisher)
where
    F: Future<Output = io::Result<Vec<String>>>,
{
    let mut is_told = false;
    while !publisher.is_forsaken() {
        match race(publisher.forsaken(), ask(name.clone())).await {
            First::Left(()) => return,
            First::Right(answer) => {
                if let Some(addresses) = addresses(answer, &name, &mut is_told) {
                    publisher.set(addresses).await;
                }
            }
        }
        if let First::Left(()) = race(publisher.forsaken(), sleep(every)).await {
            return;
        }
    }
}

/// The addresses in an answer; `None` if the answer says nothing, so that the list stays.
fn addresses(answer: io::Result<Vec<String>>, name: &str, is_told: &mut bool) -> Option<Vec<String>> {
    let (addresses, error) = match answer {
        Ok(addresses) => {
            *is_told = false;
            return Some(addresses);
        }
        // This is an authoritative answer.
        Err(error) if error.kind() == io::ErrorKind::NotFound => (Some(Vec::new()), error),
        Err(error) => (None, error),
    };
    if !std::mem::replace(is_told, true) {
        tracing::warn!(name, %error, "cannot look up hosts of a stage; trying again");
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::addresses;
    use std::io;

    #[test]
    fn a_failed_look_up_changes_nothing_and_no_such_name_is_an_answer() {
        let mut is_told = false;
        let timed_out = addresses(Err(io::ErrorKind::TimedOut.into()), "a", &mut is_told);
        assert_eq!((timed_out, is_told), (None, true));
        assert_eq!(addresses(Err(io::ErrorKind::NotFound.into()), "a", &mut is_told), Some(Vec::new()));
        let known = addresses(Ok(vec!["127.0.0.1:7000".to_owned()]), "a", &mut is_told);
        assert_eq!((known.map(|known| known.len()), is_told), (Some(1), false));
    }
}
