//! One round: for every owner at once, the edits, each partition in turn, then the deletions.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use connector_store::records::{Hlc, HlcClock};
use connector_store::{
    ConnectorName, ConnectorRef, DocumentId, Holder, PartitionId, Rfc3339, Session, Store,
    SyncState, SyncStateInput, SyncStatus, Timestamp,
};

use tokio::time::Instant;

use crate::crash::Crash;
use crate::graph::Graph;
use crate::lease::HeldLease;
use crate::owners::Owner;
use crate::provider::{Folder, Skip};
use crate::report::{Report, with_causes};
use crate::stop::Stop;
use crate::summary::Counts;
use crate::{Failure, observe, partition, settle, sweep, tasks};

/// The longest error text that is kept in the sync state.
const MAX_ERROR_BYTES: usize = 1_000;

/// The name of the kind of source that this host mirrors.
pub fn connector() -> Result<ConnectorName, Failure> {
    Ok(ConnectorName::new("folder")?)
}

/// What every part of a round works with.
#[derive(Debug)]
pub struct Mirror {
    pub store: Store,
    pub graph: Graph,
    pub folder: Folder,
    pub holder: Holder,
    pub connector: ConnectorName,
    pub page_size: u32,
    pub allow_mass_delete: bool,
    pub clock: Mutex<HlcClock>,
    /// The wall clock when the host began, and when that was.
    pub opened: (Timestamp, Instant),
    pub crash: Crash,
    pub stop_before_write: bool,
    pub report: Arc<Report>,
    pub stop: Stop,
}

impl Mirror {
    /// A stamp for what is fetched from now on: above every stamp before it.
    ///
    /// The time is counted on from the beginning, as the store counts its own. A wall clock that is
    /// set forward meanwhile would give stamps that the store refuses, as those of a clock that is
    /// wrong.
    pub fn stamp(&self) -> Result<Hlc, Failure> {
        let (wall, begun) = self.opened;
        // A panic elsewhere leaves the clock as it was, so it can still be used.
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(clock.now(wall.plus(begun.elapsed()).as_millis())?)
    }
}

/// One owner's part of a round. Every command goes through the session, so none is carried out
/// once another process has the owner's lease.
#[derive(Clone, Debug)]
pub struct OwnerRun {
    pub mirror: Arc<Mirror>,
    pub owner: Owner,
    pub session: Session,
    pub connector: ConnectorRef,
    /// How many documents the owner had when the round began.
    pub documents: i64,
    /// The edits that are to be read back in this round, by document.
    pub watched: HashMap<DocumentId, i64>,
}

/// Mirrors the source for all owners. One that fails does not keep the others from being done.
pub async fn round(mirror: &Arc<Mirror>, owners: &[Owner]) -> Result<Counts, Failure> {
    // An edit belongs to the source it was made for: written to another one it would be lost there.
    if let Some(other) = mirror.graph.unwritten_elsewhere(mirror.folder.provenance()).await? {
        let advice = "run once more with that --source, or give this one a --store of its own";
        return Err(format!("an edit of {other} is not written yet: {advice}").into());
    }
    sweep::finish_begun(mirror).await?;
    let runs = owners.iter().map(|owner| {
        let (mirror, owner) = (Arc::clone(mirror), owner.clone());
        async move {
            let name = owner.name.clone();
            (name, sync_owner(mirror, owner).await)
        }
    });
    let mut counts =
        Counts { deferred: settle::of_others(mirror, owners).await?, ..Counts::default() };
    let mut failed = Vec::new();
    for (name, result) in tasks::at_once(owners.len(), runs).await? {
        match result {
            Ok(of_owner) => counts += of_owner,
            Err(failure) => failed.push(format!("{name}: {}", with_causes(failure.as_ref()))),
        }
    }
    if failed.is_empty() { Ok(counts) } else { Err(failed.join("; ").into()) }
}

async fn sync_owner(mirror: Arc<Mirror>, owner: Owner) -> Result<Counts, Failure> {
    let connector = mirror.store.connector(&owner.did, &mirror.connector);
    let held = HeldLease::take(&connector, &mirror.holder, &mirror.report, &mirror.stop).await?;
    let Some(held) = held else { return Ok(Counts::default()) };
    let session = held.session();
    let documents = mirror.graph.count(&owner.did).await?;
    let (connector, watched) = (session.connector(), HashMap::new());
    let mut run = OwnerRun { connector, session, mirror, owner, documents, watched };
    let result = run.whole().await;
    let ended = match &result {
        Ok(counts) => run.end(SyncStatus::Idle, refusal(counts)).await,
        Err(failure) => run.end(SyncStatus::Error, Some(with_causes(failure.as_ref()))).await,
    };
    let released = held.release().await;
    // The first failure is the cause of those that follow it.
    let counts = result?;
    ended.and(released)?;
    Ok(counts)
}

impl OwnerRun {
    async fn whole(&mut self) -> Result<Counts, Failure> {
        self.begin().await?;
        let mut counts = Counts::default();
        // Edits that were just made, and what an earlier run has left.
        observe::sign_due(self, &mut counts).await?;
        self.watched = settle::settle(self, &mut counts).await?;
        for partition in self.partitions(&mut counts).await? {
            if self.mirror.stop.requested() {
                return Ok(counts);
            }
            partition::mirror(self, &partition, &mut counts).await?;
        }
        sweep::apply_due(self, &mut counts).await?;
        Ok(counts)
    }

    /// The partitions on the disk, and those that are known and were on it: that a directory is
    /// missing must lead to the guard and not past it.
    async fn partitions(&self, counts: &mut Counts) -> Result<BTreeSet<PartitionId>, Failure> {
        let folder = self.mirror.folder.clone();
        let on_disk = tokio::task::spawn_blocking(move || folder.partitions()).await?;
        let on_disk = on_disk.map_err(|error| format!("the source cannot be read: {error}"))?;
        self.tell_skipped(&on_disk.skipped, counts);
        let mut partitions: BTreeSet<_> = on_disk.found.into_iter().collect();
        for known in self.mirror.graph.partitions(&self.owner.did).await? {
            if self.mirror.folder.has_vanished(&known) {
                partitions.insert(known);
            }
        }
        Ok(partitions)
    }

    /// Counts what is there but cannot be mirrored, and tells the user why.
    pub fn tell_skipped(&self, skipped: &[Skip], counts: &mut Counts) {
        for skip in skipped {
            self.mirror.report.skipped(&skip.path, &skip.reason);
            counts.skipped += 1;
        }
    }

    /// Says that the sync is under way. Where the last one was cut off, its checkpoint is still
    /// there. A folder has no cursor to go on from (what was listed before it may have changed
    /// since), so the walk begins again, and finds done what was done.
    async fn begin(&self) -> Result<(), Failure> {
        let state = self.connector.sync_state().await?;
        if let Some(checkpoint) = state.as_ref().and_then(|state| state.checkpoint.as_ref()) {
            let name = &self.owner.name;
            self.mirror.report.note(&format!("{name}: the last run ended early, at {checkpoint}"));
        }
        self.write(SyncStatus::Syncing, state.as_ref(), None).await
    }

    /// Says how the sync ended. Only a whole walk takes the checkpoint away.
    async fn end(&self, status: SyncStatus, error: Option<String>) -> Result<(), Failure> {
        let state = self.connector.sync_state().await?;
        self.write(status, state.as_ref(), error).await
    }

    async fn write(
        &self,
        status: SyncStatus,
        state: Option<&SyncState>,
        error: Option<String>,
    ) -> Result<(), Failure> {
        let whole = status == SyncStatus::Idle && !self.mirror.stop.requested();
        let input = SyncStateInput {
            checkpoint: state.filter(|_| !whole).and_then(|state| state.checkpoint.clone()),
            recovery: None,
            last_synced_at: match state {
                Some(state) if !whole => state.last_synced_at.clone(),
                _ => Rfc3339::from_timestamp(now()),
            },
            entity_count: self.mirror.graph.count(&self.owner.did).await?,
            status,
            error: error.map(shortened),
        };
        Ok(self.connector.set_sync_state(input).await?)
    }
}

/// A refused partition is a suspicion that should be seen later on, too.
fn refusal(counts: &Counts) -> Option<String> {
    let refused = counts.refused;
    (refused > 0).then(|| format!("the mass-delete guard refused {refused} partitions"))
}

fn shortened(mut text: String) -> String {
    let end = (0..=MAX_ERROR_BYTES.min(text.len())).rfind(|&at| text.is_char_boundary(at));
    text.truncate(end.unwrap_or_default());
    text
}

/// The wall clock. The store has its own, which a test can replace; a host's reading of it is only
/// ever shown to people.
#[expect(clippy::disallowed_methods, reason = "a program has no clock given to it")]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(0).plus(since)
}
