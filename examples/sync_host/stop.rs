//! Ctrl-C: the first one ends the run after the step it is at, the second one at once.

use std::time::Duration;

use tokio::sync::watch;

/// Says whether the user wants the run to end.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Listens for the signals from now on.
    pub fn on_signals() -> Self {
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            signal().await;
            sender.send_replace(true);
            signal().await;
            // Safe at any moment: what the store answered is on the disk, and the next run goes on
            // from there.
            std::process::exit(i32::from(crate::EXIT_INTERRUPTED));
        });
        Self(receiver)
    }

    /// The user asked for the end.
    pub fn requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for `duration`, but not past the user's wish to end.
    pub async fn sleep(&self, duration: Duration) {
        let mut receiver = self.0.clone();
        // A time-out is what is usually hoped for here, and the other end lives as long as the
        // program, so there is no result to look at.
        let _ = tokio::time::timeout(duration, receiver.wait_for(|stop| *stop)).await;
    }
}

/// Ctrl-C, or the signal by which a service manager ends a program.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
