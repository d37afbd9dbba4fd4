//! A host's store on some storage, in time that the test moves, and short names for what it holds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use connector_store::domain::{Row, Table};
use connector_store::journal::{RowQuery, SqliteOptions, SqliteStorage, Storage};
use connector_store::testing::SimClock;
use connector_store::{
    BeginReceipt, Claim, ClaimedOperation, Clock as _, ConnectorName, Digest, DocumentId, Hlc,
    Holder, Json, Lease, MassDeleteGuard, MemoryJournal, ModelId, OperationId, OperationKind,
    OperationRequest, OwnerDid, PartitionId, Provenance, ReceiptKey, ReceiptKind, Rfc3339,
    SourceId, Store, SyncStateInput, SyncStatus, Synchronous, Timestamp, WatchExpectation,
    WatchReason,
};

pub const SECOND: Duration = Duration::from_secs(1);

enum Place {
    Memory(MemoryJournal),
    Sqlite(tempfile::TempDir),
}

/// A store, its storage and its clock.
pub struct World {
    pub store: Store,
    pub storage: Arc<dyn Storage>,
    pub clock: SimClock,
    place: Place,
}

impl World {
    async fn open(place: Place, clock: SimClock) -> Self {
        let storage: Arc<dyn Storage> = match &place {
            Place::Memory(journal) => Arc::new(journal.open().unwrap()),
            Place::Sqlite(directory) => {
                let path: PathBuf = directory.path().join("store.db");
                // Nothing here cuts the power.
                let options = SqliteOptions::new(path, clock.wall());
                let options = options.synchronous(Synchronous::Normal);
                Arc::new(SqliteStorage::open(options).await.unwrap())
            }
        };
        let builder = Store::builder().storage(Arc::clone(&storage));
        let store = builder.clock(Arc::new(clock.clone())).open().await.unwrap();
        Self { store, storage, clock, place }
    }

    pub async fn memory() -> Self {
        Self::open(Place::Memory(MemoryJournal::new()), SimClock::default()).await
    }

    pub async fn sqlite() -> Self {
        Self::open(Place::Sqlite(tempfile::tempdir().unwrap()), SimClock::default()).await
    }

    /// The process ends and another begins on the same data.
    pub async fn reopen(self) -> Self {
        self.store.close().await.unwrap();
        let Self { store, storage, clock, place } = self;
        drop((store, storage));
        Self::open(place, clock).await
    }

    pub async fn rows(&self, table: Table) -> Vec<Row> {
        let order = table.spec().key.to_vec();
        let query = RowQuery { table, filters: Vec::new(), order, after: None, limit: 10_000 };
        self.storage.rows(&query).await.unwrap()
    }

    pub fn now(&self) -> Timestamp {
        self.clock.wall()
    }
}

/// Runs a test on each kind of storage.
pub async fn on_every_storage(test: impl AsyncFn(World)) {
    test(World::memory().await).await;
    test(World::sqlite().await).await;
}

/// An owner's connector, with everything that its rows are named by.
#[derive(Clone, Debug)]
pub struct Account {
    pub owner: OwnerDid,
    pub connector: ConnectorName,
}

pub fn account(owner: &str, connector: &str) -> Account {
    let owner = OwnerDid::new(format!("did:web:{owner}")).unwrap();
    Account { owner, connector: ConnectorName::new(connector).unwrap() }
}

pub fn document(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

pub fn source(name: &str) -> SourceId {
    SourceId::new(name).unwrap()
}

pub fn operation_id(name: &str) -> OperationId {
    OperationId::new(name).unwrap()
}

pub fn holder() -> Holder {
    Holder::new("host-1").unwrap()
}

pub fn hlc() -> Hlc {
    Hlc::parse("001767225600000-00000000-host").unwrap()
}

pub fn json(text: &str) -> Json {
    Json::parse("json", text).unwrap()
}

pub fn partition() -> PartitionId {
    PartitionId::new("p").unwrap()
}

pub fn expectation(deadline: Duration) -> WatchExpectation {
    WatchExpectation {
        reason: WatchReason::Write,
        expected_digest: Some(Digest::of(b"written")),
        written_hlc: hlc(),
        deadline,
    }
}

pub fn request(account: &Account, name: &str) -> OperationRequest {
    OperationRequest {
        operation_id: operation_id(name),
        owner: account.owner.clone(),
        connector: account.connector.clone(),
        op: OperationKind::Update,
        version: hlc(),
        request_digest: Digest::of(name.as_bytes()),
        visibility_delay: Duration::ZERO,
    }
}

pub fn state(text: &str) -> SyncStateInput {
    SyncStateInput {
        checkpoint: Some(json(text)),
        recovery: Some(json(text)),
        last_synced_at: Rfc3339::from_timestamp(Timestamp::from_millis(1)),
        entity_count: 1,
        status: SyncStatus::Idle,
        error: None,
    }
}

impl World {
    pub async fn lease(&self, account: &Account, ttl: Duration) -> Lease {
        let connector = self.store.connector(&account.owner, &account.connector);
        connector.acquire_lease(&holder(), ttl).await.unwrap()
    }

    /// Claims an operation that nothing was sent for.
    pub async fn claim(&self, account: &Account, name: &str, on: &str) -> ClaimedOperation {
        let request = request(account, name);
        let document = self.store.document(&document(on));
        match document.claim_operation(&request, &holder(), 10 * SECOND).await.unwrap() {
            Claim::Attempt(claimed) | Claim::Reconcile(claimed) => claimed,
            Claim::Finished(record) => panic!("{record:?}"),
        }
    }

    /// Begins an enumeration of one page.
    pub async fn enumerate(&self, account: &Account, listed: &[&str]) -> ReceiptKey {
        self.enumerate_under(account, "v", listed).await
    }

    /// The same under a lineage of this name.
    pub async fn enumerate_under(
        &self,
        account: &Account,
        lineage: &str,
        listed: &[&str],
    ) -> ReceiptKey {
        let connector = self.store.connector(&account.owner, &account.connector);
        let begin = BeginReceipt {
            partition: partition(),
            provenance: Provenance::new(lineage).unwrap(),
            model_id: ModelId::new("event").unwrap(),
            scope: "calendar".to_owned(),
            source_fetch_hlc: hlc(),
            predicate: None,
            kind: ReceiptKind::Full,
            fingerprint: "f".to_owned(),
        };
        let key = connector.begin_receipt(begin).await.unwrap().key();
        let ids = listed.iter().map(|name| source(name)).collect();
        connector.extend_receipt(&key, 0, ids, "f").await.unwrap();
        key
    }

    /// An enumeration that lists none of these documents but one, so that the others are candidates.
    pub async fn candidates(&self, account: &Account, documents: &[&str]) {
        let key = self.enumerate(account, &["kept"]).await;
        let connector = self.store.connector(&account.owner, &account.connector);
        connector.complete_receipt(&key, 1, None, "f").await.unwrap();
        let known = documents.iter().map(|name| (document(name), source(name))).collect();
        let guard = MassDeleteGuard { allow_mass_delete: true, ..MassDeleteGuard::default() };
        connector.commit_receipt(&key, known, guard).await.unwrap();
    }
}
