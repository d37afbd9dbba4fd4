//! A client that keeps the store's rules: the half that reads. It lists with receipts, follows the
//! changes, asks before it deletes, and reads back what it wrote.
//!
//! The graph stands for the host's own database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use connector_store::testing::{
    Change, Cursor, Item, Next, Provider, ProviderError, SimClock, Version, Write,
};
use connector_store::{
    BeginReceipt, CandidateState, Clock, ConnectorRef, Digest, DocumentId, Error, Hlc, HlcClock,
    Json, MassDeleteGuard, MemoryJournal, ModelId, OperationRequest, Provenance, ReadWinner,
    ReceiptKind, Rfc3339, SourceId, Store, SweepCandidate, SweepOutcome, SyncProgress,
    Verification,
};

use super::{ACCOUNT, PAGE, SECOND, calendar, home, host, owner, title};

const LEASE: Duration = Duration::from_secs(600);

/// A mirrored entity.
#[derive(Clone, Debug)]
pub struct Document {
    pub source_id: SourceId,
    pub content: Json,
    /// The version that the provider has; none where the document is not there yet.
    pub base: Option<Version>,
    /// A local edit that is not written yet.
    pub edit: Option<(OperationRequest, Write)>,
    /// A write that is not read back yet.
    pub is_watched: bool,
    /// The user has deleted it.
    pub is_deleted: bool,
}

/// Why a round ended early. Nothing is lost by it: the next one does what is left.
#[derive(Debug)]
pub enum Failure {
    Store(Error),
    Provider(ProviderError),
    /// The credential leads to another account.
    OtherAccount,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        Self::Provider(error)
    }
}

pub struct Mirror {
    pub store: Store,
    pub provider: Provider,
    pub clock: SimClock,
    pub graph: BTreeMap<DocumentId, Document>,
    pub stamps: HlcClock,
    made: u32,
}

impl Mirror {
    /// A mirror with a store of its own, in memory.
    pub async fn new(provider: &Provider, clock: &SimClock) -> Self {
        let builder = Store::builder().clock(Arc::new(clock.clone())).arbiters(1);
        Self {
            store: builder.memory(&MemoryJournal::new()).open().await.unwrap(),
            provider: provider.clone(),
            clock: clock.clone(),
            graph: BTreeMap::new(),
            stamps: HlcClock::new("host-1", Duration::from_secs(60)).unwrap(),
            made: 0,
        }
    }

    /// One round: what is new at the provider, what was deleted there, what is to be written.
    pub async fn round(&mut self) -> Result<(), Failure> {
        let account = self.store.connector(&owner(), &calendar());
        let lease = account.acquire_lease(&host(), LEASE).await?;
        let connector = lease.session().connector();
        let read = self.read(&connector).await;
        // Also where reading failed: an edit does not wait for it.
        self.write_edits().await?;
        lease.release().await?;
        read
    }

    /// Rounds for a minute of simulated time, whatever the provider does meanwhile.
    pub async fn rounds(&mut self) {
        for _ in 0..10 {
            self.try_round().await;
            self.clock.advance(SECOND * 6);
        }
    }

    /// A round that may fail by the provider, or by a listing that proves nothing.
    pub async fn try_round(&mut self) {
        match self.round().await {
            Ok(()) | Err(Failure::Provider(_) | Failure::OtherAccount) => {}
            Err(Failure::Store(
                Error::ReceiptIncomplete { .. }
                | Error::ScopeChanged { .. }
                | Error::SweepTooLarge { .. },
            )) => {}
            Err(Failure::Store(error)) => panic!("{error}"),
        }
    }

    /// As if the client had never listed: the next round lists everything.
    pub async fn forget_cursor(&self) -> Result<(), Error> {
        self.save(&self.store.connector(&owner(), &calendar()), None).await
    }

    /// What the user sees: ids and titles.
    pub fn shown(&self) -> Vec<(String, Option<String>)> {
        let shown = self.graph.values().filter(|document| !document.is_deleted);
        let pairs = shown.map(|it| (it.source_id.as_str().to_owned(), title(&it.content)));
        pairs.collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub fn by_source(&self, source_id: &SourceId) -> Option<DocumentId> {
        let mut entries = self.graph.iter();
        entries.find(|(_, it)| it.source_id == *source_id).map(|(id, _)| id.clone())
    }

    pub fn new_id(&mut self) -> DocumentId {
        self.made += 1;
        DocumentId::new(format!("document-{}", self.made)).unwrap()
    }

    /// A stamp of the host's own clock.
    pub fn stamp(&mut self) -> Result<Hlc, Error> {
        self.stamps.now(self.clock.wall().as_millis())
    }

    async fn read(&mut self, connector: &ConnectorRef) -> Result<(), Failure> {
        let checkpoint = connector.sync_state().await?.and_then(|state| state.checkpoint);
        let cursor = checkpoint.and_then(|it| Some(Cursor::new(it.to_value().as_str()?)));
        let owes_sweep = !connector.owed_sweeps().await?.is_empty();
        match cursor {
            Some(cursor) if !owes_sweep => self.follow(connector, &cursor).await?,
            _ => self.list(connector).await?,
        }
        self.sweep(connector).await?;
        self.read_back().await
    }

    /// Lists everything, with a receipt that proves it.
    async fn list(&mut self, connector: &ConnectorRef) -> Result<(), Failure> {
        let begin = BeginReceipt {
            partition: home(),
            provenance: Provenance::new(ACCOUNT)?,
            model_id: ModelId::new("event")?,
            scope: "all".to_owned(),
            source_fetch_hlc: self.stamp()?,
            predicate: None,
            kind: ReceiptKind::Full,
            fingerprint: ACCOUNT.to_owned(),
        };
        let key = connector.begin_receipt(begin).await?.key();
        let (mut pages, mut cursor) = (0, None);
        let (total, sync) = loop {
            let stamp = self.stamp()?;
            let listing = match self.provider.list(&home(), cursor.as_ref(), PAGE) {
                Err(ProviderError::CursorExpired) => return self.cursor_lost(connector).await,
                listing => listing?,
            };
            let ids = listing.items.iter().map(|item| item.source_id.clone()).collect();
            // Before anything of the page is believed: it may be of another account.
            connector.extend_receipt(&key, pages, ids, self.provider.account()).await?;
            pages += 1;
            self.apply_page(listing.items, &stamp).await?;
            match listing.next {
                Next::Page(next) => cursor = Some(next),
                Next::Last { total, sync } => break (total, sync),
            }
        };
        connector.complete_receipt(&key, pages, total, ACCOUNT).await?;
        let at_provider = self.graph.iter().filter(|(_, it)| it.base.is_some());
        let known = at_provider.map(|(id, it)| (id.clone(), it.source_id.clone())).collect();
        connector.commit_receipt(&key, known, MassDeleteGuard::default()).await?;
        // The cursor moves after its rows.
        Ok(self.save(connector, Some(&sync)).await?)
    }

    /// Applies what has happened since the cursor.
    async fn follow(&mut self, connector: &ConnectorRef, cursor: &Cursor) -> Result<(), Failure> {
        let stamp = self.stamp()?;
        let changes = match self.provider.changes(&home(), cursor) {
            Err(ProviderError::CursorExpired) => return self.cursor_lost(connector).await,
            changes => changes?,
        };
        self.check_account()?;
        for change in changes.changes {
            match change {
                Change::Is(item) => self.apply(&item, &stamp).await?,
                Change::Gone(source_id) => self.gone(&source_id, &stamp).await?,
            }
        }
        Ok(self.save(connector, Some(&changes.sync)).await?)
    }

    /// From here on the partition owes a sweep, so the next round lists everything.
    async fn cursor_lost(&self, connector: &ConnectorRef) -> Result<(), Failure> {
        connector.cursor_lost(&home()).await?;
        Err(ProviderError::CursorExpired.into())
    }

    pub fn check_account(&self) -> Result<(), Failure> {
        if self.provider.account() == ACCOUNT { Ok(()) } else { Err(Failure::OtherAccount) }
    }

    async fn save(&self, connector: &ConnectorRef, cursor: Option<&Cursor>) -> Result<(), Error> {
        let text = cursor.map(|cursor| serde_json::Value::from(cursor.as_str()));
        let checkpoint = text.map(|text| Json::from_value("checkpoint", &text)).transpose()?;
        let (at, count) = (self.clock.wall(), i64::try_from(self.graph.len()).unwrap());
        let moved = connector.update_sync_progress(move |_| SyncProgress {
            checkpoint: checkpoint.clone(),
            recovery: None,
            last_synced_at: Rfc3339::from_timestamp(at),
            entity_count: count,
            error: None,
        });
        moved.await.map(|_| ())
    }

    async fn apply_page(&mut self, items: Vec<Item>, stamp: &Hlc) -> Result<(), Failure> {
        let mut seen = BTreeMap::new();
        for item in &items {
            *seen.entry(item.source_id.clone()).or_insert(0) += 1;
        }
        for item in items {
            // Of two entities with one id neither is believed, but what the provider shows by that id.
            if seen[&item.source_id] == 1 {
                self.apply(&item, stamp).await?;
            } else {
                self.look(&item.source_id).await?;
            }
        }
        Ok(())
    }

    /// Asks for one entity, and applies what is shown.
    async fn look(&mut self, source_id: &SourceId) -> Result<(), Failure> {
        let stamp = self.stamp()?;
        let answer = self.provider.get(&home(), source_id);
        self.check_account()?;
        match answer {
            Ok(item) => self.apply(&item, &stamp).await,
            Err(ProviderError::Gone) => self.gone(source_id, &stamp).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Takes what was fetched, where the store says that the source wins.
    async fn apply(&mut self, item: &Item, stamp: &Hlc) -> Result<(), Failure> {
        if title(&item.content).is_none() {
            // It is there, and that is all that can be said of it. What was mirrored of it stays.
            return Ok(());
        }
        let known = item.former.as_ref().and_then(|former| self.by_source(former));
        let known = self.by_source(&item.source_id).or(known);
        let id = known.unwrap_or_else(|| self.new_id());
        let handle = self.store.document(&id);
        let is_ours = self.graph.get(&id).is_some_and(|it| it.base.as_ref() == Some(&item.version));
        let digest = Digest::of(item.content.as_str().as_bytes());
        match handle.record_verification(stamp, Some(digest)).await? {
            Verification::Verified | Verification::NoWatch => {}
            // The version that our write was given: the provider has a spelling of its own.
            Verification::Mismatched { .. } if is_ours => handle.disarm_watch().await?,
            // The state before our write, or somebody's behind it. A later look tells.
            Verification::Mismatched { .. } | Verification::Stale => return Ok(()),
            Verification::Expired => handle.disarm_watch().await?,
        }
        if handle.read_winner(&owner(), stamp).await? != ReadWinner::Source {
            return Ok(());
        }
        let document = Document {
            source_id: item.source_id.clone(),
            content: item.content.clone(),
            base: Some(item.version.clone()),
            edit: None,
            is_watched: false,
            is_deleted: false,
        };
        self.graph.insert(id, document);
        Ok(())
    }

    /// The provider says that an entity is not there.
    async fn gone(&mut self, source_id: &SourceId, stamp: &Hlc) -> Result<(), Failure> {
        let Some(id) = self.by_source(source_id) else { return Ok(()) };
        if !self.is_awaited(&id, stamp).await? {
            self.delete(&id).await?;
        }
        Ok(())
    }

    /// Whether a write to the document may only not be shown yet.
    async fn is_awaited(&self, id: &DocumentId, stamp: &Hlc) -> Result<bool, Error> {
        let seen = self.store.document(id).record_verification(stamp, None).await?;
        Ok(matches!(seen, Verification::Mismatched { .. } | Verification::Stale))
    }

    /// Deletes a document, unless a local write to it is unfinished.
    async fn delete(&mut self, id: &DocumentId) -> Result<bool, Error> {
        let handle = self.store.document(id);
        match handle.begin_document_sweep().await {
            Err(Error::SweepUnfinishedOperation { .. }) => return Ok(false),
            begun => begun?,
        }
        self.graph.remove(id);
        handle.sweep_document_rows().await?;
        Ok(true)
    }

    /// Asks about what the last listing lacked.
    async fn sweep(&mut self, connector: &ConnectorRef) -> Result<(), Failure> {
        for candidate in connector.due_candidates(100).await? {
            let outcome = self.ask(&candidate).await?;
            let now = connector.record_sweep_outcome(&candidate.key(), outcome).await?;
            if outcome != SweepOutcome::Absent || now != Some(CandidateState::Confirmed) {
                continue;
            }
            if self.delete(&candidate.document_id).await? {
                connector.sweep_applied(&candidate.key()).await?;
            } else {
                let error = "a local write is unfinished";
                connector.record_sweep_apply_failure(&candidate.key(), error).await?;
            }
        }
        Ok(())
    }

    async fn ask(&mut self, candidate: &SweepCandidate) -> Result<SweepOutcome, Failure> {
        let stamp = self.stamp()?;
        let answer = self.provider.get(&home(), &candidate.source_id);
        if self.provider.account() != candidate.provenance.as_str() {
            return Ok(SweepOutcome::Unknown);
        }
        match answer {
            Ok(item) => {
                self.apply(&item, &stamp).await?;
                Ok(SweepOutcome::Present)
            }
            Err(ProviderError::Gone)
                if !self.is_awaited(&candidate.document_id, &stamp).await? =>
            {
                Ok(SweepOutcome::Absent)
            }
            Err(_) => Ok(SweepOutcome::Unknown),
        }
    }

    /// Looks at what was written, until it is shown.
    async fn read_back(&mut self) -> Result<(), Failure> {
        let watched = self.graph.values().filter(|it| it.is_watched);
        let watched: Vec<_> = watched.map(|it| it.source_id.clone()).collect();
        for source_id in watched {
            self.look(&source_id).await?;
        }
        Ok(())
    }
}
