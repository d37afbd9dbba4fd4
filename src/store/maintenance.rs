//! What keeps a store well: verification, rebuilding of the read tables, retention, counters.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Store;
use crate::base::{Result, StreamKey, StreamKind, StreamName, Timestamp};
use crate::domain::auth::PendingAuth;
use crate::journal::{
    Expected, HistoryCut, RebuildReport, Storage, VerifyReport, load_state, rebuild, verify,
};

/// Streams that retention treats in one transaction.
const STREAMS_PER_CUT: u32 = 200;
/// Streams that retention looks at, at once.
const STREAMS_PER_PAGE: u32 = 1_000;
/// How long the outcome of a caller's command id is kept.
pub(super) const COMMAND_MEMORY: Duration = Duration::from_secs(24 * 3_600);

/// Counters since the store opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Commands that were sent to actors, reads included.
    pub commands: u64,
    /// Events that were written.
    pub events: u64,
    /// Transactions in which they were written.
    pub batches: u64,
    /// Appends that were written: one for each command or unit of work that changed something.
    pub appends: u64,
    /// Keys in memory now.
    pub active_keys: usize,
}

/// What retention has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionReport {
    /// Events behind snapshots.
    pub events: u64,
    /// Streams of finished authorizations.
    pub authorizations: u64,
    /// Outcomes of callers' command ids.
    pub commands: u64,
}

impl Store {
    /// Counters since the store opened.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let counters = &self.env().counters;
        StoreStats {
            commands: counters.commands.load(Ordering::Relaxed),
            events: counters.events.load(Ordering::Relaxed),
            batches: counters.batches.load(Ordering::Relaxed),
            appends: counters.appends.load(Ordering::Relaxed),
            active_keys: self.directories().active_keys(),
        }
    }

    /// Passivates every key that is in memory: each is loaded anew by its next command.
    pub fn passivate_all(&self) {
        self.directories().passivate_all();
    }

    /// Looks for damage: changed, missing or swapped events, a cut tail, bad snapshots, rows that
    /// differ from their state, row-only content that differs from its digest. It names what it
    /// finds and changes nothing. To be run on a store that is at rest.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn verify(&self) -> Result<VerifyReport> {
        self.env().check_open()?;
        verify(self.storage()).await
    }

    /// Writes the read tables anew from the journal, row for row. Row-only content is carried over
    /// where it is what the journal says. To be run on a store that is at rest.
    ///
    /// # Errors
    /// Storage errors; what was written before stays.
    pub async fn rebuild(&self) -> Result<RebuildReport> {
        self.env().check_open()?;
        rebuild(self.storage()).await
    }

    /// Removes events that are older than `age` and behind their stream's snapshot, and the streams
    /// of authorizations that were finished before. State, rows and later loads stay as they are.
    ///
    /// # Errors
    /// Storage errors; what was removed before stays removed.
    pub async fn apply_retention(&self, age: Duration) -> Result<RetentionReport> {
        self.env().check_open()?;
        let now = self.now().await?;
        let before =
            |age: Duration| now.plus_millis(-i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        let storage = self.storage();
        let mut report = RetentionReport::default();
        loop {
            let cut = HistoryCut { recorded_before: before(age), limit: STREAMS_PER_CUT };
            match storage.cut_history(cut).await? {
                0 => break,
                events => report.events += events,
            }
        }
        report.authorizations = self.drop_finished_auths(storage, before(age)).await?;
        report.commands = storage.drop_commands(before(COMMAND_MEMORY)).await?;
        self.env().clean_storage();
        Ok(report)
    }

    async fn drop_finished_auths(&self, storage: &dyn Storage, before: Timestamp) -> Result<u64> {
        let (mut dropped, mut after) = (0, None::<StreamName>);
        loop {
            let page = storage.streams(after.as_deref(), STREAMS_PER_PAGE).await?.streams;
            let Some((last, ..)) = page.last() else { return Ok(dropped) };
            after = Some(StreamName::clone(last));
            let mut finished = Vec::new();
            for (name, kind, head) in page {
                if kind != StreamKind::Auth.number() {
                    continue;
                }
                let newest = storage.stream_events(&name).await?.pop();
                let is_old = newest.is_some_and(|event| event.recorded_at < before);
                if is_old && is_finished(storage, &name).await? {
                    let (version, command_id) = (head.version, head.command_id);
                    finished.push((name, Expected { version, command_id }));
                }
            }
            dropped += storage.drop_streams(&finished).await?;
            // An actor in memory still knows what its stream held.
            let names = finished.iter().map(|(name, _)| name);
            for key in names.filter_map(|name| StreamKey::from_stream_name(name)) {
                self.directories().passivate_auth(&key);
            }
        }
    }
}

async fn is_finished(storage: &dyn Storage, name: &str) -> Result<bool> {
    let Some(key) = StreamKey::from_stream_name(name) else { return Ok(false) };
    let loaded = load_state::<PendingAuth>(storage, &key).await?;
    Ok(loaded.state.is_finished())
}

/// Pause between two rounds of housekeeping.
const HOUSEKEEPING_PAUSE: Duration = Duration::from_secs(3_600);

impl Store {
    /// Forgets old outcomes of command ids, and applies retention where an age was given, for as
    /// long as the store lives.
    pub(super) fn keep_house(&self, retention: Option<Duration>) {
        let runtime = std::sync::Arc::downgrade(&self.runtime);
        let owner_rule = self.owner_rule.clone();
        let time = self.env().time.clone();
        self.runtime.spawn(async move {
            loop {
                time.sleep(HOUSEKEEPING_PAUSE).await;
                let Some(runtime) = runtime.upgrade() else { return };
                let store = Self { runtime, owner_rule: owner_rule.clone() };
                if let Err(error) = store.clean_up(retention).await {
                    tracing::warn!(%error, "housekeeping failed");
                }
            }
        });
    }

    async fn clean_up(&self, retention: Option<Duration>) -> Result<()> {
        match retention {
            Some(age) => self.apply_retention(age).await.map(|_| ()),
            None => {
                let memory = i64::try_from(COMMAND_MEMORY.as_millis()).unwrap_or(i64::MAX);
                let before = self.now().await?.plus_millis(-memory);
                self.storage().drop_commands(before).await.map(|_| ())
            }
        }
    }
}
