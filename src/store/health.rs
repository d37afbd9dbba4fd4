//! Whether a host gets its work done, told by what is left undone and since when.
//!
//! No stored status is asked: a status may say that all is well while nothing moves.

use std::time::Duration;

use super::Store;
use super::due::{DueWork, Work, work};
use crate::base::{Result, Timestamp};
use crate::domain::{DueRow, DueSource};
use crate::journal::DuePage;

/// Most items of one list: enough to see what is wrong, whatever the backlog.
const MAX_LISTED: u32 = 100;

/// Evidence of what is not done. See [`Store::health`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// When it was looked at.
    pub at: Timestamp,
    /// Work whose time passed by more than the grace ago, and that is still not done.
    pub overdue: Evidence<DueWork>,
    /// Work that will not go on by itself.
    pub stuck: Evidence<StuckWork>,
    /// Operations that have ended without a write. The host was told so when it ended them, so they
    /// are no sign of ill health; they are listed until their document is swept.
    pub dead_operations: Evidence<StuckWork>,
}

/// Some of what was found, and how much there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence<T> {
    /// How much there is.
    pub count: u64,
    /// Up to a hundred of it, oldest first.
    pub oldest: Vec<T>,
}

/// Work that does not go on, and since when.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StuckWork {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: StuckReason,
    /// What.
    pub work: Work,
}

/// Why work does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StuckReason {
    /// A sweep candidate could not be applied too often; since it last changed.
    DeadCandidate,
    /// It is not known for longer than the grace whether a write was made; since it was sent.
    UnknownOutcome,
    /// An enumeration was begun longer than the grace ago, and not committed.
    OpenReceipt,
    /// A write will never be made; since the operation ended.
    DeadOperation,
}

impl Health {
    /// Nothing is overdue and nothing is stuck.
    #[must_use]
    pub const fn is_healthy(&self) -> bool {
        self.overdue.count == 0 && self.stuck.count == 0
    }
}

impl Store {
    /// What is overdue by more than `grace`, dead or stuck, each with its key and since when.
    ///
    /// `grace` is how long work may take: a few times what a healthy host needs. A host is healthy
    /// only by this evidence, not by the status that a sync state holds.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn health(&self, grace: Duration) -> Result<Health> {
        const LASTING: &[DueSource] = &[DueSource::UnknownOutcome, DueSource::OpenReceipt];
        let at = self.now().await?;
        let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
        let until = at.plus_millis(grace_ms.saturating_neg());
        let overdue = self.evidence(DueSource::WAITING, until, |row| {
            Ok(DueWork { due_at: row.due_at, work: work(row)? })
        });
        let overdue = overdue.await?;
        let mut stuck = self.evidence(&[DueSource::DeadCandidate], at, stuck_work).await?;
        let lasting = self.evidence(LASTING, until, stuck_work).await?;
        stuck.count += lasting.count;
        stuck.oldest.extend(lasting.oldest);
        stuck.oldest.sort();
        stuck.oldest.truncate(usize::try_from(MAX_LISTED).unwrap_or(usize::MAX));
        let dead_operations = self.evidence(&[DueSource::DeadOperation], at, stuck_work).await?;
        Ok(Health { at, overdue, stuck, dead_operations })
    }

    async fn evidence<T>(
        &self,
        sources: &'static [DueSource],
        until: Timestamp,
        read: fn(&DueRow) -> Result<T>,
    ) -> Result<Evidence<T>> {
        let page = DuePage { sources, until, after: None, limit: MAX_LISTED };
        let rows = self.due_page(&page).await?;
        let oldest = rows.iter().map(read).collect::<Result<Vec<T>>>()?;
        let listed = u64::try_from(oldest.len()).unwrap_or(u64::MAX);
        let count = if listed < u64::from(MAX_LISTED) {
            listed
        } else {
            let counted = self.storage().count_due(sources, until);
            self.env().answer_in_time(counted).await?.max(listed)
        };
        Ok(Evidence { count, oldest })
    }
}

fn stuck_work(row: &DueRow) -> Result<StuckWork> {
    let reason = match row.source {
        DueSource::DeadCandidate => StuckReason::DeadCandidate,
        DueSource::OpenReceipt => StuckReason::OpenReceipt,
        DueSource::DeadOperation => StuckReason::DeadOperation,
        _ => StuckReason::UnknownOutcome,
    };
    Ok(StuckWork { since: row.due_at, reason, work: work(row)? })
}
