//! Short names for the data of the tests, and stores on simulated time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use connector_store::testing::{SeededIds, SeededJitter, SimClock};
use connector_store::{
    Claim, ClaimedOperation, Clock, ConnectorName, Digest, DocumentId, Error, Hlc, Holder, Json,
    MemoryJournal, OperationId, OperationKind, OperationRequest, OwnerDid, Result, SourceId, Store,
    StoreBuilder, StreamKey, WatchExpectation, WatchReason,
};

pub const SECOND: Duration = Duration::from_secs(1);
pub const MILLI: Duration = Duration::from_millis(1);
/// How long a claim holds.
pub const TTL: Duration = Duration::from_secs(10);

pub fn owner() -> OwnerDid {
    OwnerDid::new("did:web:owner-1").unwrap()
}

pub fn folder() -> ConnectorName {
    ConnectorName::new("folder").unwrap()
}

pub fn document(name: impl std::fmt::Display) -> DocumentId {
    DocumentId::new(name.to_string()).unwrap()
}

pub fn operation(name: impl std::fmt::Display) -> OperationId {
    OperationId::new(name.to_string()).unwrap()
}

pub fn holder(name: &str) -> Holder {
    Holder::new(name).unwrap()
}

pub fn source(name: impl std::fmt::Display) -> SourceId {
    SourceId::new(name.to_string()).unwrap()
}

pub fn stamp(millis: i64) -> Hlc {
    Hlc::parse(&format!("{millis:015}-00000000-node")).unwrap()
}

pub fn json(value: impl std::fmt::Display) -> Json {
    Json::parse("json", &value.to_string()).unwrap()
}

pub fn document_key(name: &str) -> StreamKey {
    StreamKey::Document(document(name))
}

pub fn request(name: impl std::fmt::Display) -> OperationRequest {
    OperationRequest {
        operation_id: operation(name),
        owner: owner(),
        connector: folder(),
        op: OperationKind::Create,
        version: stamp(1_000),
        request_digest: Digest::of(b"the request"),
        visibility_delay: Duration::ZERO,
    }
}

pub fn expectation() -> WatchExpectation {
    WatchExpectation {
        reason: WatchReason::Write,
        expected_digest: Some(Digest::of(b"the value")),
        written_hlc: stamp(1_000),
        deadline: SECOND * 60,
    }
}

/// A store's set-up on `clock`.
pub fn builder(clock: &SimClock, seed: u64) -> StoreBuilder {
    Store::builder()
        .clock(Arc::new(clock.clone()))
        .ids(Arc::new(SeededIds::new(seed)))
        .jitter(Arc::new(SeededJitter::new(seed)))
        .arbiters(1)
}

/// A store of its own in memory.
pub async fn store() -> (Store, SimClock, MemoryJournal) {
    let (clock, journal) = (SimClock::default(), MemoryJournal::new());
    let store = builder(&clock, 1).memory(&journal).open().await.unwrap();
    (store, clock, journal)
}

/// Two hosts' stores on one database, whose time is `clock`'s. So is the hosts'.
pub async fn two_stores() -> (Store, Store, SimClock, MemoryJournal) {
    let clock = SimClock::default();
    let journal = shared_journal(&clock);
    let one = builder(&clock, 1).memory(&journal).open().await.unwrap();
    let other = builder(&clock, 2).memory(&journal).open().await.unwrap();
    (one, other, clock, journal)
}

pub fn shared_journal(clock: &SimClock) -> MemoryJournal {
    let database = clock.clone();
    MemoryJournal::shared(Arc::new(move || database.wall()))
}

pub async fn claim(store: &Store, on: &str, request: &OperationRequest, by: &str) -> Result<Claim> {
    store.document(&document(on)).claim_operation(request, &holder(by), TTL).await
}

/// A claim that may be sent.
pub async fn attempt(store: &Store, on: &str, name: &str, by: &str) -> ClaimedOperation {
    match claim(store, on, &request(name), by).await.unwrap() {
        Claim::Attempt(claimed) => claimed,
        other => panic!("expected an attempt, got {other:?}"),
    }
}

/// A claim that must be reconciled.
pub async fn reconcile(store: &Store, on: &str, name: &str, by: &str) -> ClaimedOperation {
    match claim(store, on, &request(name), by).await.unwrap() {
        Claim::Reconcile(claimed) => claimed,
        other => panic!("expected to reconcile, got {other:?}"),
    }
}

/// An operation that is committed, without a watch.
pub async fn committed(store: &Store, on: &str, name: &str) {
    let claimed = attempt(store, on, name, "host").await;
    claimed.finalize_committed(&source(on), Some("v1"), None).await.unwrap();
}

pub fn code<T>(result: Result<T>) -> &'static str {
    result.err().map_or("ok", |error: Error| error.code())
}

/// Nothing that is stored is damaged, and rows are what the events say.
pub async fn assert_sound(store: &Store) {
    let report = store.verify().await.unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
}

/// A failure instead of a hang.
pub async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), future).await.expect("the test hangs")
}
