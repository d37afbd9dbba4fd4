//! The rules of the sync state: a progress update never overwrites a state that was deleted and
//! created anew.

use uuid::Uuid;

use super::command::{ConnectorReply, ProgressGuard, SyncProgress, SyncStateInput, SyncStatus};
use super::event::ConnectorEvent;
use super::rows::{Naming, RECOVERY_COLUMN};
use super::state::{Connector, SyncRecord};
use super::view::SyncState;
use crate::base::limits::MAX_ERROR_TEXT_BYTES;
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Error, Json, Result, check_nul};
use crate::domain::{ContentRef, Context, Decision, Value};

impl Connector {
    /// The sync state, or none.
    #[must_use]
    pub fn sync_state(&self) -> Option<SyncState> {
        self.sync.as_ref().map(|sync| SyncState {
            checkpoint: sync.checkpoint.clone(),
            recovery: self.recovery.clone(),
            last_synced_at: sync.last_synced_at.clone(),
            entity_count: sync.entity_count,
            status: sync.status,
            error: sync.error.clone(),
            lease_expires_at: self.lease.as_ref().map(|lease| lease.expires_at),
            version: sync.version,
            incarnation: sync.incarnation,
        })
    }

    /// Creates or replaces. Version, incarnation and lease of a standing state stay.
    pub(super) fn set_sync_state(
        &self,
        naming: &Naming<'_>,
        input: &SyncStateInput,
        context: &Context,
    ) -> Result<Decision<Self>> {
        check_count(input.entity_count)?;
        check_error(input.error.as_deref())?;
        let (version, incarnation) = match &self.sync {
            Some(sync) => (sync.version, sync.incarnation),
            None => (0, context.id),
        };
        let record = SyncRecord {
            checkpoint: input.checkpoint.clone(),
            recovery: content_of(input.recovery.as_ref()),
            last_synced_at: input.last_synced_at.clone(),
            entity_count: input.entity_count,
            status: input.status,
            error: input.error.clone(),
            version,
            incarnation,
        };
        let event = ConnectorEvent::SyncStateSet(record);
        let reply = ConnectorReply::Done;
        Ok(with_recovery(naming, input.recovery.as_ref(), reply, event))
    }

    /// Moves a standing state on by one version, or creates it idle. The status stays.
    pub(super) fn update_sync_progress(
        &self,
        naming: &Naming<'_>,
        update: &SyncProgress,
        guard: Option<ProgressGuard>,
        context: &Context,
    ) -> Result<Decision<Self>> {
        check_count(update.entity_count)?;
        check_error(update.error.as_deref())?;
        let standing = self.sync.as_ref().map(|sync| (sync.version, sync.incarnation));
        let is_other = |guard| {
            let guarded = guarded(guard);
            guarded != standing
                && !(is_planted(PlantedBug::IncarnationIgnored)
                    && guarded.map(|at| at.0) == standing.map(|at| at.0))
        };
        if guard.is_some_and(is_other) {
            return Ok(Decision::unchanged(ConnectorReply::ProgressConflict));
        }
        let (version, incarnation, status) = match &self.sync {
            Some(sync) => (next_version(sync.version)?, sync.incarnation, sync.status),
            None => (0, context.id, SyncStatus::Idle),
        };
        let record = SyncRecord {
            checkpoint: update.checkpoint.clone(),
            recovery: content_of(update.recovery.as_ref()),
            last_synced_at: update.last_synced_at.clone(),
            entity_count: update.entity_count,
            status,
            error: update.error.clone(),
            version,
            incarnation,
        };
        let event = ConnectorEvent::SyncProgressUpdated(record);
        let reply = ConnectorReply::Progress { version, incarnation };
        Ok(with_recovery(naming, update.recovery.as_ref(), reply, event))
    }

    /// Removes it; removing nothing is fine.
    pub(super) fn delete_sync_state(&self) -> Decision<Self> {
        let events = self.sync.iter().map(|_| ConnectorEvent::SyncStateDeleted).collect();
        Decision::events(ConnectorReply::Done, events)
    }
}

fn guarded(guard: ProgressGuard) -> Option<(i64, Uuid)> {
    match guard {
        ProgressGuard::Absent => None,
        ProgressGuard::At { version, incarnation } => Some((version, incarnation)),
    }
}

fn next_version(version: i64) -> Result<i64> {
    version.checked_add(1).ok_or_else(|| Error::invalid("version", "expected a version below 2^63"))
}

fn content_of(recovery: Option<&Json>) -> Option<ContentRef> {
    recovery.map(|json| ContentRef::of(json.as_str()))
}

fn with_recovery(
    naming: &Naming<'_>,
    recovery: Option<&Json>,
    reply: ConnectorReply,
    event: ConnectorEvent,
) -> Decision<Connector> {
    let mut decision = Decision::events(reply, vec![event]);
    if let Some(json) = recovery {
        let key = naming.sync_state();
        decision.content.push((key, RECOVERY_COLUMN, Value::Text(json.shared())));
    }
    decision
}

fn check_count(count: i64) -> Result<()> {
    if count < 0 {
        return Err(Error::invalid("entity_count", format!("expected 0 or more, got {count}")));
    }
    Ok(())
}

/// Refuses an error text that is too long, or that a database cannot hold.
pub(super) fn check_error(error: Option<&str>) -> Result<()> {
    let bytes = error.map_or(0, str::len);
    if bytes > MAX_ERROR_TEXT_BYTES {
        let reason = format!("expected at most {MAX_ERROR_TEXT_BYTES} bytes, got {bytes}");
        return Err(Error::invalid("error", reason));
    }
    check_nul("error", error.unwrap_or_default())
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
