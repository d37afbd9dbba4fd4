//! Hosts under simulated time, people who sign, and short names for what they say.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use connector_store::domain::Table;
use connector_store::journal::{BoxFuture, RowQuery, Storage};
use connector_store::records::{
    KeyFuture, KeyUnavailable, MethodRegistry, PublicKey, RecordSigner, SigningKey,
};
use connector_store::testing::{FaultyStorage, SeededIds, SeededJitter, SimClock};
use connector_store::{
    Clock as _, ConnectorName, DocumentId, DocumentOwners, Error, Hlc, Json, MemoryJournal,
    OwnerDid, RecordDecision, Result, SignedRecord, Store, StoreBuilder,
};

/// A store on simulated time over a storage with faults.
pub struct Host {
    pub store: Store,
    pub clock: SimClock,
    pub faults: Arc<FaultyStorage>,
}

pub async fn host_on(
    journal: &MemoryJournal,
    change: impl FnOnce(StoreBuilder) -> StoreBuilder,
) -> Host {
    let clock = SimClock::default();
    let faults = Arc::new(FaultyStorage::new(Arc::new(journal.open().unwrap())));
    let builder = Store::builder()
        .storage(Arc::clone(&faults) as _)
        .clock(Arc::new(clock.clone()))
        .ids(Arc::new(SeededIds::new(1)))
        .jitter(Arc::new(SeededJitter::new(1)))
        .arbiters(2);
    let store = change(builder).open().await.unwrap();
    Host { store, clock, faults }
}

pub async fn host_with(change: impl FnOnce(StoreBuilder) -> StoreBuilder) -> Host {
    host_on(&MemoryJournal::new(), change).await
}

/// A host that takes everybody's records.
pub async fn host() -> Host {
    host_with(StoreBuilder::accept_foreign_owners).await
}

impl Host {
    /// The process ends and another begins on the same data.
    pub async fn reopen(
        self,
        journal: &MemoryJournal,
        change: impl FnOnce(StoreBuilder) -> StoreBuilder,
    ) -> Self {
        self.store.close().await.unwrap();
        drop(self);
        host_on(journal, change).await
    }

    pub async fn rows(&self, table: Table) -> usize {
        let order = table.spec().key.to_vec();
        let query = RowQuery { table, filters: Vec::new(), order, after: None, limit: 10_000 };
        self.faults.rows(&query).await.unwrap().len()
    }

    /// How many commands `future` sends to actors.
    pub async fn commands_of<T>(&self, future: impl Future<Output = T>) -> u64 {
        let before = self.store.stats().commands;
        future.await;
        self.store.stats().commands - before
    }

    /// Nothing that is stored is damaged, and rows are what the events say.
    pub async fn assert_sound(&self) {
        let report = self.store.verify().await.unwrap();
        assert!(report.is_sound(), "{:?}", report.damages);
    }
}

/// Somebody with a key of their own.
pub fn person(seed: u8) -> RecordSigner {
    RecordSigner::did_key(SigningKey::ed25519_from_seed([seed; 32]))
}

/// A key of the DID `did:web:ada.example`, and the id that it has there.
pub fn web_key(seed: u8, key_id: &str) -> RecordSigner {
    let key = SigningKey::ed25519_from_seed([seed; 32]);
    RecordSigner::with_key_id(key, WEB_DID, key_id).unwrap()
}

pub const WEB_DID: &str = "did:web:ada.example";

pub fn did(person: &RecordSigner) -> OwnerDid {
    OwnerDid::new(person.issuer()).unwrap()
}

pub fn document(name: impl std::fmt::Display) -> DocumentId {
    DocumentId::new(name.to_string()).unwrap()
}

pub fn folder() -> ConnectorName {
    ConnectorName::new("folder").unwrap()
}

pub fn json(text: &str) -> Json {
    Json::parse("json", text).unwrap()
}

/// A stamp so many milliseconds after the start of simulated time.
pub fn stamp(after_ms: i64) -> Hlc {
    let ms = SimClock::default().wall().as_millis() + after_ms;
    Hlc::parse(&format!("{ms:015}-00000000-node")).unwrap()
}

/// What `signer` says of an owner's record on a document, decided at a time.
pub fn said_for(
    signer: &RecordSigner,
    owner: &OwnerDid,
    on: &str,
    at: i64,
    value: Option<&str>,
) -> SignedRecord {
    let value = value.map(str::as_bytes);
    signer.sign(owner, &document(on), &stamp(at), &stamp(at), value).unwrap()
}

/// What somebody says of their own record.
pub fn said(person: &RecordSigner, on: &str, at: i64, value: &str) -> SignedRecord {
    said_for(person, &did(person), on, at, Some(value))
}

pub async fn put(store: &Store, record: &SignedRecord) -> Result<()> {
    store.document(&record.key.id).put_observation_copy(record).await
}

pub async fn decision(store: &Store, owner: &OwnerDid, on: &str) -> Option<RecordDecision> {
    store.document(&document(on)).observation_decision(owner).await.unwrap()
}

/// The value that was decided; none without a decision, empty when it is absent.
pub async fn decided(store: &Store, owner: &OwnerDid, on: &str) -> Option<String> {
    let decision = decision(store, owner, on).await?;
    let value = decision.payload.map(|value| String::from_utf8(value.to_vec()).unwrap());
    Some(value.unwrap_or_default())
}

/// The issuers of the copies of a decision, sorted.
pub async fn issuers(store: &Store, owner: &OwnerDid, on: &str) -> Vec<String> {
    let copies = decision(store, owner, on).await.map_or_else(Vec::new, |it| it.copies);
    let mut issuers: Vec<String> = copies.iter().map(issuer).collect();
    issuers.sort();
    issuers
}

fn issuer(record: &SignedRecord) -> String {
    let limits = connector_store::records::RecordLimits::default();
    connector_store::records::parse(record, &limits).unwrap().issuer().to_string()
}

pub fn code<T>(result: Result<T>) -> &'static str {
    result.err().map_or("ok", |error: Error| error.code())
}

pub fn all_sorted(people: &[&RecordSigner]) -> Vec<String> {
    let mut issuers: Vec<String> = people.iter().map(|it| it.issuer().to_owned()).collect();
    issuers.sort();
    issuers
}

/// Owners by the first letters of their documents' names: `a-1` is the first one's.
pub struct Owners(pub Vec<(&'static str, OwnerDid)>);

impl DocumentOwners for Owners {
    fn document_owner<'a>(
        &'a self,
        document: &'a DocumentId,
    ) -> BoxFuture<'a, Result<Option<OwnerDid>>> {
        let owner = self.0.iter().find(|(prefix, _)| document.as_str().starts_with(prefix));
        Box::pin(async move { Ok(owner.map(|(_, owner)| owner.clone())) })
    }
}

/// A registry whose keys a test changes, and which counts.
#[derive(Default)]
pub struct Registry {
    pub keys: std::sync::Mutex<Vec<(&'static str, PublicKey)>>,
    pub is_offline: AtomicBool,
    /// It does not answer.
    pub is_stuck: AtomicBool,
    pub asked: AtomicUsize,
    pub epoch: AtomicU64,
}

impl Registry {
    pub fn with(keys: &[(&'static str, u8)]) -> Arc<Self> {
        let registry = Arc::new(Self::default());
        registry.set(keys);
        registry
    }

    pub fn set(&self, keys: &[(&'static str, u8)]) {
        let key = |seed: u8| SigningKey::ed25519_from_seed([seed; 32]).public_key();
        *self.keys.lock().unwrap() = keys.iter().map(|(id, seed)| (*id, key(*seed))).collect();
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub fn set_offline(&self, is_offline: bool) {
        self.is_offline.store(is_offline, Ordering::SeqCst);
    }

    pub fn move_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

impl MethodRegistry for Registry {
    fn resolve<'a>(&'a self, did: &'a str, key_id: &'a str) -> KeyFuture<'a> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.is_stuck.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            if self.is_offline.load(Ordering::SeqCst) {
                return Err(KeyUnavailable);
            }
            let keys = self.keys.lock().unwrap();
            let key = keys.iter().find(|(id, _)| did == WEB_DID && *id == key_id);
            Ok(key.map(|(_, key)| key.clone()))
        })
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }
}

/// A failure instead of a hang.
pub async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), future).await.expect("the test hangs")
}
