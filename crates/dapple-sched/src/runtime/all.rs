//! All runtimes of the process.

use std::sync::Weak;

use super::{Handle, running};

impl Handle {
    /// The runtimes of this process that have not shut down, oldest first; not those from before a
    /// `fork`. For tools that inspect a whole process.
    ///
    /// ```
    /// use dapple_sched::{Handle, Runtime};
    ///
    /// let runtime = Runtime::builder().workers(3).build()?;
    /// assert!(Handle::all().iter().any(|handle| handle.workers() == 3));
    /// # drop(runtime);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn all() -> Vec<Handle> {
        let shared = running().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        shared.into_iter().filter(|shared| !shared.is_left_behind()).map(|shared| Handle { shared }).collect()
    }
}
