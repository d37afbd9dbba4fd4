//! An actor system on the caller's thread, which tells when nothing on it can go on.
//!
//! One thread, one queue: what runs on it runs in the same order each time. It knows no time.

use std::sync::Arc;

use actix_rt::{System, SystemRunner};
use tokio::sync::Notify;

/// See the module.
pub(crate) struct ThreadSystem {
    runner: SystemRunner,
    is_stuck: Arc<Notify>,
}

impl ThreadSystem {
    /// `when_idle` is called whenever nothing can go on; it wakes something, or says that it can't.
    pub(crate) fn new(
        when_idle: impl Fn() -> bool + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let is_stuck = Arc::new(Notify::new());
        let stuck = Arc::clone(&is_stuck);
        let park = move || {
            if !when_idle() {
                stuck.notify_waiters();
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().on_thread_park(park).build()?;
        Ok(Self { runner: System::with_tokio_rt(|| runtime), is_stuck })
    }

    /// What a future comes to; none if nothing can go on before.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        self.runner.block_on(async {
            tokio::select! {
                biased;
                output = future => Some(output),
                () = self.is_stuck.notified() => None,
            }
        })
    }
}
