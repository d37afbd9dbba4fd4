//! The end of a process, seen by its storage: what was under way is written or not, and no call is
//! answered any more.

use std::future::pending;

use super::FaultyStorage;
use crate::base::Timestamp;
use crate::journal::Append;

impl FaultyStorage {
    /// The host that this storage belongs to is killed, as by `kill -9`; others that share the
    /// journal live on, and the journal can be opened anew.
    ///
    /// A batch that waits to be written (a stalled append) is written or not, as the seed says, before
    /// this returns; one that the storage has begun is ended. Nothing is written later, and every call
    /// from now on, as well as those under way, never answers. So drop the store of the host, and do
    /// not close it.
    ///
    /// The loss of power takes no more than this: a batch is shown to readers and acknowledged once it is
    /// synced, and what is not synced is the batch under way, which stays whole or not at all. A store
    /// that acknowledged before [`append`](crate::journal::Storage::append) answered would lose what it
    /// acknowledged.
    pub async fn kill(&self) {
        let mut is_killed = self.is_killed.write().await;
        if std::mem::replace(&mut *is_killed, true) {
            return;
        }
        if let Some((batch, now)) = self.surviving() {
            // Whatever came of it, nobody is there to hear.
            let _ = self.write(&batch, now, false).await;
        }
        // As the system closes the files of a process that is gone, with their locks.
        let _ = self.inner.close().await;
    }

    /// The batch that waits to be written, if the seed lets it reach the storage.
    fn surviving(&self) -> Option<(Vec<Append>, Timestamp)> {
        let mut script = self.script();
        script.under_way.take().filter(|_| script.seeded.below(2) == 0)
    }

    /// Makes a call, unless the process is gone: then it never answers.
    pub(super) async fn alive<T>(&self, call: impl Future<Output = T>) -> T {
        let is_killed = self.is_killed.read().await;
        if *is_killed {
            drop(is_killed);
            return pending().await;
        }
        call.await
    }
}
