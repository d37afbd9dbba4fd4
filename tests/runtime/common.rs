//! Hosts under simulated time, and short names for the data of the tests.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use connector_store::journal::Storage as _;
use connector_store::testing::{FaultyStorage, SeededIds, SeededJitter, SimClock};
use connector_store::{
    Clock, ConnectorName, ConnectorRef, DocumentId, DocumentRef, Error, Holder, Json,
    MemoryJournal, OwnerDid, PendingAuthRecord, ProgressVersion, Result, Rfc3339, Secret, Store,
    StoreBuilder, StreamKey, SyncProgress, SyncState, Timestamp,
};

pub const SECOND: Duration = Duration::from_secs(1);
/// The default hold limit of a unit of work.
pub const HOLD_LIMIT: Duration = Duration::from_secs(5);
/// The default time of a command.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// A store on simulated time over a storage with faults.
pub struct Host {
    pub store: Store,
    pub clock: SimClock,
    pub faults: Arc<FaultyStorage>,
    pub journal: MemoryJournal,
}

pub fn setup(journal: &MemoryJournal, seed: u64) -> (StoreBuilder, SimClock, Arc<FaultyStorage>) {
    let clock = SimClock::default();
    let storage = Arc::new(journal.open().unwrap());
    let is_shared = storage.is_shared();
    let faults = FaultyStorage::new(storage);
    // As on a server.
    let faults = Arc::new(if is_shared { faults.in_two_steps(journal, true) } else { faults });
    let builder = Store::builder()
        .storage(Arc::clone(&faults) as _)
        .clock(Arc::new(clock.clone()))
        .ids(Arc::new(SeededIds::new(seed)))
        .jitter(Arc::new(SeededJitter::new(seed)))
        .arbiters(2);
    (builder, clock, faults)
}

/// A host of its own, with changed bounds.
pub async fn host_with(change: impl FnOnce(StoreBuilder) -> StoreBuilder) -> Host {
    host_on(&MemoryJournal::new(), 1, change).await
}

pub async fn host() -> Host {
    host_with(|builder| builder).await
}

pub async fn host_on(
    journal: &MemoryJournal,
    seed: u64,
    change: impl FnOnce(StoreBuilder) -> StoreBuilder,
) -> Host {
    let (builder, clock, faults) = setup(journal, seed);
    let store = change(builder).open().await.unwrap();
    Host { store, clock, faults, journal: journal.clone() }
}

/// Two hosts on one database, and the database's clock.
pub async fn two_hosts() -> (Host, Host, SimClock) {
    let time = SimClock::default();
    let wall = time.clone();
    let journal = MemoryJournal::shared(Arc::new(move || wall.wall()));
    let first = host_on(&journal, 1, |builder| builder).await;
    let second = host_on(&journal, 2, |builder| builder).await;
    (first, second, time)
}

pub fn owner(name: &str) -> OwnerDid {
    OwnerDid::new(format!("did:web:{name}")).unwrap()
}

pub fn folder() -> ConnectorName {
    ConnectorName::new("folder").unwrap()
}

pub fn document(name: impl std::fmt::Display) -> DocumentId {
    DocumentId::new(name.to_string()).unwrap()
}

pub fn document_key(name: &str) -> StreamKey {
    StreamKey::Document(document(name))
}

pub fn holder(name: &str) -> Holder {
    Holder::new(name).unwrap()
}

pub fn json(value: impl std::fmt::Display) -> Json {
    Json::parse("json", &value.to_string()).unwrap()
}

pub fn connector(store: &Store, name: &str) -> ConnectorRef {
    store.connector(&owner(name), &folder())
}

pub async fn set_trim(handle: &DocumentRef, value: i64) -> Result<()> {
    handle.set_entity_trim(&owner("o"), &folder(), json(value)).await
}

pub async fn trim(handle: &DocumentRef) -> Option<i64> {
    let trim = handle.entity_trim().await.unwrap()?;
    trim.trimmed_fields.as_str().parse().ok()
}

pub fn counted(state: Option<&SyncState>) -> SyncProgress {
    SyncProgress {
        checkpoint: Some(json(state.map_or(1, |state| state.entity_count + 1))),
        recovery: None,
        last_synced_at: Rfc3339::from_timestamp(Timestamp::default()),
        entity_count: state.map_or(1, |state| state.entity_count + 1),
        error: None,
    }
}

/// Adds one to the entity count, and gives the version.
pub async fn count_up(handle: &ConnectorRef) -> Result<ProgressVersion> {
    handle.update_sync_progress(counted).await
}

pub async fn count(handle: &ConnectorRef) -> i64 {
    handle.sync_state().await.unwrap().map_or(0, |state| state.entity_count)
}

pub fn pending_auth(state: &str, expires_at: i64) -> PendingAuthRecord {
    PendingAuthRecord {
        state: Secret::new(state),
        code_verifier: Secret::new(format!("verifier-of-{state}")),
        provider: "caldav".to_owned(),
        owner: owner("o"),
        owner_wrappable_did: None,
        controller_wrappable_did: None,
        created_at: Timestamp::from_millis(1),
        redirect_url: "https://host.example/callback".to_owned(),
        scopes: vec!["calendar".to_owned()],
        is_incremental: false,
        expires_at: Timestamp::from_millis(expires_at),
    }
}

/// Gives way until it is so.
pub async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
}

/// Polls other tasks and the store's threads for a while; for what must *not* happen.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
}

/// Lets time pass slowly until it is done, so that pauses between tries end.
pub async fn ticking<T>(clock: &SimClock, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        tokio::select! {
            biased;
            output = &mut future => return output,
            () = settle() => clock.advance(Duration::from_millis(1)),
        }
    }
}

/// A failure instead of a hang.
pub async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), future).await.expect("the test hangs")
}

/// Nothing that is stored is damaged, and rows are what the events say.
pub async fn assert_sound(store: &Store) {
    let report = store.verify().await.unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
}

pub fn code<T>(result: Result<T>) -> &'static str {
    result.err().map_or("ok", |error: Error| error.code())
}
