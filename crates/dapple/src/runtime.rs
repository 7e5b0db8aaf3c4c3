//! More about runtimes and tasks: builders, drivers, errors.

#[doc(inline)]
pub use dapple_io::{Config, Connection, EpollDriver};
#[doc(inline)]
pub use dapple_sched::{
    AbortHandle, Builder, Driver, EnterGuard, JoinError, PanicInfo, ShutdownReport, ThreadContext, YieldNow, on_worker,
    spawn_balanced,
};
