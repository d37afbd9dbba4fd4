//! Two hosts on one database, and beside them what the rules say they must hold.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use connector_store::domain::{Row, Table};
use connector_store::journal::{RowQuery, Storage};
use connector_store::testing::{Chances, FaultyStorage, SeededIds, SeededJitter, SimClock};
use connector_store::{
    BeginReceipt, CandidateKey, CandidateState, Clock, ConnectorName, ConnectorRef, DocumentId,
    DocumentRef, Error, Hlc, HlcClock, Holder, Json, Lease, MassDeleteGuard, MemoryJournal,
    ModelId, OwnerDid, PartitionId, PendingAuthRecord, Provenance, ReceiptKey, ReceiptKind, Result,
    Rfc3339, Secret, SourceId, Store, StreamKey, SweepOutcome, SyncProgress, SyncState,
    SyncStateInput, SyncStatus, Timestamp,
};

use operations::{HeldClaim, OperationModel, WatchModel};

const TTL: Duration = Duration::from_secs(1);
const DOCUMENTS: usize = 4;
const CONNECTORS: usize = 3;

/// What is done. Places are numbers of documents, connectors and authorizations.
#[derive(Clone, Debug)]
pub enum Op {
    SetTrim { at: usize, value: i64 },
    ClearTrim { at: usize },
    BeginSweep { at: usize },
    AbandonSweep { at: usize },
    Sweep { at: usize },
    Unit { first: usize, second: usize, value: i64 },
    SetSync { at: usize, value: i64, recovery: bool },
    Progress { at: usize },
    Burst { at: usize, count: usize },
    DeleteSync { at: usize },
    Acquire { at: usize, holder: usize },
    Renew { at: usize },
    Release { at: usize },
    Fenced { at: usize, to: usize },
    Enumerate { at: usize, kept: u8 },
    Candidate { at: usize, of: usize, what: u8 },
    Claim { id: usize, at: usize, holder: usize },
    Hold { which: usize, what: u8 },
    Arm { at: usize, stamp: i64 },
    Verify { at: usize, stamp: i64, right: bool },
    Disarm { at: usize },
    CreateAuth { at: usize, expires: i64 },
    ConsumeAuth { at: usize },
    ExpireAuths { cutoff: i64 },
    Advance { millis: i64 },
    Passivate,
    Rebuild,
    Restart,
}

#[derive(Default)]
struct DocumentModel {
    /// The owner's number and the value.
    trim: Option<(usize, i64)>,
    is_begun: bool,
    watch: Option<WatchModel>,
}

struct SyncModel {
    count: i64,
    version: i64,
    recovery: Option<i64>,
    status: SyncStatus,
    incarnation: Option<uuid::Uuid>,
}

#[derive(Default)]
struct ConnectorModel {
    sync: Option<SyncModel>,
    /// The holder's number, the number of the acquisition, the expiry.
    lease: Option<(usize, u64, Timestamp)>,
    acquired: u64,
    sequence: i64,
    candidates: BTreeMap<usize, CandidateState>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum AuthModel {
    Absent,
    Pending(i64),
    Consumed,
}

struct HeldLease {
    host: usize,
    acquired: u64,
    lease: Lease,
}

/// Where the hosts keep what they know.
#[derive(Clone)]
pub enum Place {
    Memory(MemoryJournal),
    /// The database of this URL.
    #[cfg(feature = "postgres")]
    Postgres(String),
}

impl Place {
    pub fn memory() -> Self {
        Self::Memory(MemoryJournal::shared(Arc::new(Timestamp::default)))
    }

    async fn open(&self) -> Arc<dyn Storage> {
        match self {
            Self::Memory(journal) => Arc::new(journal.open().unwrap()),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => {
                let options = connector_store::journal::PostgresOptions::new(url);
                let opened = connector_store::journal::PostgresStorage::open(options.readers(1));
                Arc::new(opened.await.unwrap())
            }
        }
    }
}

pub struct World {
    seed: u64,
    chances: Option<Chances>,
    place: Place,
    time: SimClock,
    /// The hosts' time, as long as it is simulated.
    clock: Option<SimClock>,
    storages: Vec<Arc<FaultyStorage>>,
    stores: Vec<Store>,
    leases: Vec<Vec<HeldLease>>,
    documents: Vec<DocumentModel>,
    connectors: Vec<ConnectorModel>,
    auths: Vec<AuthModel>,
    operations: BTreeMap<usize, OperationModel>,
    /// Claims that were given, and how many ever.
    held: Vec<HeldClaim>,
    claims: u64,
}

fn document(at: usize) -> DocumentId {
    DocumentId::new(format!("d{at}")).unwrap()
}

fn owner(at: usize) -> OwnerDid {
    OwnerDid::new(format!("did:web:o{at}")).unwrap()
}

fn folder() -> ConnectorName {
    ConnectorName::new("folder").unwrap()
}

fn json(value: i64) -> Json {
    Json::parse("json", &value.to_string()).unwrap()
}

fn number(json: &Json) -> i64 {
    json.as_str().parse().unwrap()
}

async fn set_trim(handle: &DocumentRef, by: usize, value: i64) -> Result<()> {
    handle.set_entity_trim(&owner(by), &folder(), json(value)).await
}

fn partition() -> PartitionId {
    PartitionId::new("p").unwrap()
}

fn lineage() -> Provenance {
    Provenance::new("l").unwrap()
}

fn hlc() -> Hlc {
    HlcClock::new("node", TTL).unwrap().now(1_750_000_000_000).unwrap()
}

fn source(at: usize) -> SourceId {
    SourceId::new(format!("s{at}")).unwrap()
}

fn pending(at: usize, expires: i64) -> PendingAuthRecord {
    PendingAuthRecord {
        state: Secret::new(format!("state-{at}")),
        code_verifier: Secret::new("verifier"),
        provider: "caldav".to_owned(),
        owner: owner(0),
        owner_wrappable_did: None,
        controller_wrappable_did: None,
        created_at: Timestamp::from_millis(1),
        redirect_url: "https://host.example/".to_owned(),
        scopes: vec!["calendar".to_owned()],
        is_incremental: true,
        expires_at: Timestamp::from_millis(expires),
    }
}

fn next(state: Option<&SyncState>) -> SyncProgress {
    SyncProgress {
        checkpoint: None,
        recovery: None,
        last_synced_at: Rfc3339::from_timestamp(Timestamp::default()),
        entity_count: state.map_or(1, |state| state.entity_count + 1),
        error: None,
    }
}

/// The call did what the model says, or failed and did nothing.
fn went_well<T>(result: Result<T>, expected: std::result::Result<(), &str>) -> Option<T> {
    match (result, expected) {
        (Ok(answer), Ok(())) => Some(answer),
        (Ok(_), Err(code)) => panic!("went well instead of {code}"),
        (Err(error), _) if error.is_retryable() => None,
        (Err(error), expected) => {
            assert_eq!(Err(error.code()), expected, "{error}");
            None
        }
    }
}

impl World {
    pub async fn new(place: Place, seed: u64, is_faulty: bool) -> Self {
        let chances = Chances {
            fail: 40,
            passing: 40,
            lose_acknowledgement: 40,
            lose_commit: 40,
            stall: 100,
            ..Chances::default()
        };
        let mut world = Self {
            seed,
            chances: is_faulty.then_some(chances),
            // What waits for an answer of a server waits for it in real time.
            clock: matches!(place, Place::Memory(_)).then(SimClock::default),
            place,
            time: SimClock::default(),
            storages: Vec::new(),
            stores: Vec::new(),
            leases: (0..CONNECTORS).map(|_| Vec::new()).collect(),
            documents: (0..DOCUMENTS).map(|_| DocumentModel::default()).collect(),
            connectors: (0..CONNECTORS).map(|_| ConnectorModel::default()).collect(),
            auths: vec![AuthModel::Absent; 4],
            operations: BTreeMap::new(),
            held: Vec::new(),
            claims: 0,
        };
        for _ in 0..2 {
            let (storage, store) = world.open().await;
            world.storages.push(storage);
            world.stores.push(store);
        }
        world
    }

    async fn open(&mut self) -> (Arc<FaultyStorage>, Store) {
        self.seed = self.seed.wrapping_add(1);
        let inner = self.place.open().await;
        let storage = match self.chances {
            Some(chances) => FaultyStorage::random(inner, self.seed, chances),
            None => FaultyStorage::new(inner),
        };
        let storage = Arc::new(storage.with_time(Arc::new(self.time.clone())));
        let mut builder = Store::builder()
            .storage(Arc::clone(&storage) as _)
            .ids(Arc::new(SeededIds::new(self.seed)))
            .jitter(Arc::new(SeededJitter::new(self.seed)))
            .snapshot_every_events(8)
            .arbiters(2);
        if let Some(clock) = &self.clock {
            builder = builder.clock(Arc::new(clock.clone()));
        }
        (storage, builder.open().await.unwrap())
    }

    /// Every row, by table and key.
    async fn all_rows(&self) -> Vec<Row> {
        let mut all = Vec::new();
        for table in Table::ALL {
            let (filters, order) = (Vec::new(), table.spec().key.to_vec());
            let query = RowQuery { table, filters, order, after: None, limit: 10_000 };
            all.extend(self.storages[0].rows(&query).await.unwrap());
        }
        all
    }

    /// Waits for a call while the hosts' time passes slowly, so that pauses between tries end.
    async fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let Some(clock) = &self.clock else {
            let limit = Duration::from_secs(120);
            return tokio::time::timeout(limit, future).await.expect("a call hangs");
        };
        let mut future = std::pin::pin!(future);
        let rest = || async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
                std::thread::yield_now();
            }
        };
        for _ in 0..25_000 {
            tokio::select! {
                biased;
                output = &mut future => return output,
                () = rest() => clock.advance(Duration::from_millis(1)),
            }
        }
        panic!("a call hangs");
    }

    fn document(&self, host: usize, at: usize) -> DocumentRef {
        self.stores[host].document(&document(at))
    }

    fn connector(&self, host: usize, at: usize) -> ConnectorRef {
        self.stores[host].connector(&owner(at), &folder())
    }

    pub async fn run(&mut self, host: usize, op: Op) {
        match op {
            Op::SetTrim { at, value } => {
                let by = usize::from(value % 2 == 1);
                let handle = self.document(host, at);
                let set = set_trim(&handle, by, value);
                if went_well(self.wait(set).await, Ok(())).is_some() {
                    self.trimmed(at, by, value);
                }
            }
            Op::ClearTrim { at } => {
                let handle = self.document(host, at);
                if went_well(self.wait(handle.clear_entity_trim()).await, Ok(())).is_some() {
                    self.documents[at].trim = None;
                }
            }
            Op::BeginSweep { at } => {
                let (handle, expected) = (self.document(host, at), self.sweepable(at));
                if went_well(self.wait(handle.begin_document_sweep()).await, expected).is_some() {
                    self.documents[at].is_begun = true;
                }
            }
            Op::AbandonSweep { at } => {
                let handle = self.document(host, at);
                if went_well(self.wait(handle.abandon_document_sweep()).await, Ok(())).is_some() {
                    self.documents[at].is_begun = false;
                }
            }
            Op::Sweep { at } => {
                let (handle, expected) = (self.document(host, at), self.sweepable(at));
                if went_well(self.wait(handle.sweep_document_rows()).await, expected).is_some() {
                    self.documents[at] = DocumentModel::default();
                    self.operations.retain(|_, operation| !operation.is_on(at));
                    for connector in &mut self.connectors {
                        connector.candidates.remove(&at);
                    }
                }
            }
            Op::Unit { first, second, value } => self.unit(host, first, second, value).await,
            Op::CreateAuth { at, expires } => {
                let expected = match self.auths[at] {
                    AuthModel::Absent => Ok(()),
                    _ => Err("CONNECTOR_ALREADY_EXISTS"),
                };
                let create = self.stores[host].create_pending_auth(pending(at, expires));
                if went_well(self.wait(create).await, expected).is_some() {
                    self.auths[at] = AuthModel::Pending(expires);
                }
            }
            Op::ConsumeAuth { at } => {
                let expected = match self.auths[at] {
                    AuthModel::Absent => Err("CONNECTOR_NOT_FOUND"),
                    AuthModel::Pending(_) => Ok(()),
                    AuthModel::Consumed => Err("CONNECTOR_ALREADY_CONSUMED"),
                };
                let state = Secret::new(format!("state-{at}"));
                let consume = self.stores[host].consume_pending_auth(&state);
                if let Some(record) = went_well(self.wait(consume).await, expected) {
                    let AuthModel::Pending(expires) = self.auths[at] else { unreachable!() };
                    assert_eq!(record, pending(at, expires));
                    self.auths[at] = AuthModel::Consumed;
                }
            }
            Op::ExpireAuths { cutoff } => {
                let cut = Timestamp::from_millis(cutoff);
                let store = self.stores[host].clone();
                self.insist(|| store.delete_expired_pending_auths(cut)).await.unwrap();
                for auth in &mut self.auths {
                    if matches!(auth, AuthModel::Pending(expires) if *expires < cutoff) {
                        *auth = AuthModel::Absent;
                    }
                }
            }
            Op::Advance { millis } => {
                self.time.advance(Duration::from_millis(millis.unsigned_abs()));
            }
            Op::Passivate => self.stores[host].passivate_all(),
            Op::Rebuild => drop(self.stores[host].rebuild().await.unwrap()),
            Op::Restart => {
                self.wait(self.stores[host].close()).await.unwrap();
                let (storage, store) = self.open().await;
                self.storages[host] = storage;
                self.stores[host] = store;
                for leases in &mut self.leases {
                    leases.retain(|held| held.host != host);
                }
                self.held.retain(|held| held.host != host);
            }
            op @ (Op::Claim { .. }
            | Op::Hold { .. }
            | Op::Arm { .. }
            | Op::Verify { .. }
            | Op::Disarm { .. }) => self.run_on_operation(host, op).await,
            op => self.run_on_connector(host, op).await,
        }
    }

    fn trimmed(&mut self, at: usize, by: usize, value: i64) {
        let by = self.documents[at].trim.map_or(by, |(first, _)| first);
        self.documents[at].trim = Some((by, value));
    }

    async fn unit(&mut self, host: usize, first: usize, second: usize, value: i64) {
        let store = self.stores[host].clone();
        let both = async {
            let keys = [first, second].map(|at| StreamKey::Document(document(at)));
            let unit = store.unit_of_work(keys).await?;
            for at in [first, second] {
                let handle = unit.document(&document(at));
                handle.set_entity_trim(&owner(0), &folder(), json(value)).await?;
            }
            unit.commit().await
        };
        if went_well(self.wait(both).await, Ok(())).is_some() {
            self.trimmed(first, 0, value);
            self.trimmed(second, 0, value);
        }
    }

    /// Calls again until it is not a passing failure.
    async fn insist<T, F: Future<Output = Result<T>>>(&self, call: impl Fn() -> F) -> Result<T> {
        loop {
            match self.wait(call()).await {
                Err(error) if error.is_retryable() => {}
                result => return result,
            }
        }
    }
}

#[path = "connectors.rs"]
mod connectors;

#[path = "operations.rs"]
mod operations;
