//! Hosts by a name in the DNS.

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

/// Where a service is offered; only those that are to be used first. Targets are full names, which the dot at the end says: the domains of
/// a search list are not for them.
pub(super) async fn targets(name: String) -> io::Result<Vec<String>> {
    let targets = services(&name).await?;
    let first = targets.first().map(|target| target.priority);
    let used = targets.into_iter().take_while(|target| Some(target.priority) == first);
    Ok(used.map(|target| format!("{}.:{}", target.host, target.port)).collect())
}

/// Looks a name up again and again, until nobody wants to know.
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

/// What an answer says about who is there; `None` where it says nothing, so that all stays as it is.
fn addresses(answer: io::Result<Vec<String>>, name: &str, is_told: &mut bool) -> Option<Vec<String>> {
    let (addresses, error) = match answer {
        Ok(addresses) => {
            *is_told = false;
            return Some(addresses);
        }
        // Somebody who knows has said so.
        Err(error) if error.kind() == io::ErrorKind::NotFound => (Some(Vec::new()), error),
        Err(error) => (None, error),
    };
    if !std::mem::replace(is_told, true) {
        tracing::warn!(name, %error, "hosts of a stage cannot be looked up; it is tried again");
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::addresses;
    use std::io;

    #[test]
    fn no_answer_changes_nothing_and_no_such_name_is_an_answer() {
        let mut is_told = false;
        let timed_out = addresses(Err(io::ErrorKind::TimedOut.into()), "a", &mut is_told);
        assert_eq!((timed_out, is_told), (None, true));
        assert_eq!(addresses(Err(io::ErrorKind::NotFound.into()), "a", &mut is_told), Some(Vec::new()));
        let known = addresses(Ok(vec!["127.0.0.1:7000".to_owned()]), "a", &mut is_told);
        assert_eq!((known.map(|known| known.len()), is_told), (Some(1), false));
    }
}
