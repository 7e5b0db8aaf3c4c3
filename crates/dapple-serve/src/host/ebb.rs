//! Memory goes back to the system when a load has gone.

use std::sync::Arc;
use std::time::Duration;

use dapple_io::blocking::spawn_blocking;
use dapple_io::process::give_back_memory;
use dapple_io::time::sleep;

use super::admission::Admission;

/// Looks once a second whether half of the connections have ended, for as long as the server runs, and has the allocator give back what
/// they leave. By itself it keeps that for the next ones, which may never come.
pub async fn give_back(admission: Arc<Admission>) {
    let mut most = 0;
    loop {
        sleep(LOOK_EVERY).await;
        let open = admission.open();
        // A load may come and go between two looks.
        most = admission.take_most().max(most);
        if has_gone(most, open) {
            most = open;
            // Where the pool is full, there is a load.
            let _ = spawn_blocking(give_back_memory).await;
        }
    }
}

/// Whether it is worth the look at all of the memory.
fn has_gone(most: usize, open: usize) -> bool {
    most >= LOAD_MIN && open <= most / 2
}

/// Fewer connections leave too little to look for.
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
