//! Handles signals from a server's start to the end of its accepting.

use std::time::Instant;

use dapple_sched::environment;

use super::end::end_at_once_on;
use super::gate::Gate;
use super::manager::Manager;
use super::signals::{Command, Signals};
use super::stage::Ending;
use super::upgrade::{Event, Upgrade};

/// Handles signals until one says to stop or another process has taken over. Returns which of these
/// happened, and when; the next signal to stop ends the process at once.
///
/// `reload` reads again all that can change while the server runs. Other code reopens the logs.
pub async fn watch(
    mut signals: Signals,
    mut upgrade: Upgrade,
    manager: &Manager,
    gate: &Gate,
    mut reload: impl AsyncFnMut(),
) -> (Ending, Instant) {
    let ending = loop {
        match upgrade.unless(signals.next()).await {
            Event::Command(Command::Stop) => break Ending::Stop,
            Event::Command(Command::Upgrade) => upgrade.begin(gate.sockets()),
            Event::Command(Command::Reload) => {
                manager.reloading();
                reload().await;
                manager.ready();
            }
            Event::Command(Command::Reopen) => {}
            Event::Replaced(process) => {
                manager.replaced_by(process);
                break Ending::HandOver;
            }
        }
    };
    if ending == Ending::Stop {
        manager.stopping();
        upgrade.cancel();
    }
    let begin = environment::now();
    end_at_once_on(signals);
    (ending, begin)
}
