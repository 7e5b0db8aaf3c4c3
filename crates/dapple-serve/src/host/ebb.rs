//! Returns memory to the system after a load.

use std::sync::Arc;
use std::time::Duration;

use dapple_io::blocking::spawn_blocking;
use dapple_io::process::give_back_memory;
use dapple_io::time::sleep;

use super::admission::Admission;

/// Checks once a second whether half of the connections have ended, and then makes the allocator
/// return their memory to the system. By itself the allocator keeps it for connections that may
/// never come. Runs as long as the server.
pub async fn give_back(admission: Arc<Admission>) {
    let mut most = 0;
    loop {
        sleep(LOOK_EVERY).await;
        let open = admission.open();
        // A load may come and go between two checks.
        most = admission.take_most().max(most);
        if has_gone(most, open) {
            most = open;
            // A full pool means that there is load.
            let _ = spawn_blocking(give_back_memory).await;
        }
    }
}

/// Whether a load has ended, so that a scan of all memory is worth its cost.
fn has_gone(most: usize, open: usize) -> bool {
    most >= LOAD_MIN && open <= most / 2
}

/// Fewer connections leave too little memory to return.
const LOAD_MIN: usize = 16;

const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::has_gone;

    #[test]
    fn a_load_has_gone_when_half_of_it_has() {
        assert!(has_gone(1_000, 500) && has_gone(16, 0));
        assert!(!has_gone(1_000, 501) && !has_gone(15, 0));
    }
}
