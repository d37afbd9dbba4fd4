//! Backup of a live store, and opening a copy that was restored from one.
//!
//! That nothing is sent twice is shown in `provider_writes`.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use connector_store::domain::{Fence, FencingToken, LeaseScope, Row, Table};
use connector_store::journal::{
    Append, AppendOutcome, RowQuery, SqliteOptions, SqliteStorage, Storage,
};
use connector_store::testing::{FaultyStorage, SimClock, Stage};
use connector_store::{
    Claim, Clock as _, ConnectorName, Digest, DocumentId, Error, EventFilter, FeedCursor, FeedItem,
    Hlc, Holder, Json, MemoryJournal, OperationId, OperationKind, OperationPhase, OperationRequest,
    OperationState, OwnerDid, Result, Store, StoreBuilder, Work,
};
use uuid::Uuid;

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(60);
/// Unfinished operations of the store that is backed up.
const OPERATIONS: usize = 5;

fn owner() -> OwnerDid {
    OwnerDid::new("did:web:o").unwrap()
}

fn folder() -> ConnectorName {
    ConnectorName::new("folder").unwrap()
}

fn document(name: impl std::fmt::Display) -> DocumentId {
    DocumentId::new(name.to_string()).unwrap()
}

fn holder(name: &str) -> Holder {
    Holder::new(name).unwrap()
}

fn request(name: &str) -> OperationRequest {
    OperationRequest {
        operation_id: OperationId::new(name).unwrap(),
        owner: owner(),
        connector: folder(),
        op: OperationKind::Update,
        version: Hlc::parse("000000000001000-00000000-node").unwrap(),
        request_digest: Digest::of(b"request"),
        visibility_delay: Duration::ZERO,
    }
}

async fn claim(store: &Store, name: &str, by: &str) -> Result<Claim> {
    store.document(&document(name)).claim_operation(&request(name), &holder(by), TTL).await
}

async fn set_trim(store: &Store, name: impl std::fmt::Display, value: u32) -> Result<()> {
    let json = Json::parse("json", &value.to_string()).unwrap();
    store.document(&document(name)).set_entity_trim(&owner(), &folder(), json).await
}

async fn trim(store: &Store, name: impl std::fmt::Display) -> Option<u32> {
    let trim = store.document(&document(name)).entity_trim().await.unwrap()?;
    trim.trimmed_fields.as_str().parse().ok()
}

fn field<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    match result {
        Err(Error::InvalidInput { field, .. }) => field,
        other => panic!("{other:?}"),
    }
}

async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), future).await.expect("the test hangs")
}

async fn assert_sound(store: &Store) {
    let report = store.verify().await.unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!((rebuilt.written, rebuilt.removed), (0, 0), "{rebuilt:?}");
}

/// A place for a store and its copies.
struct Place {
    directory: tempfile::TempDir,
    clock: SimClock,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), clock: SimClock::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn on(&self, name: &str) -> StoreBuilder {
        let clock = Arc::new(self.clock.clone());
        Store::builder().clock(clock).arbiters(1).sqlite(self.path(name))
    }

    async fn storage(&self, name: &str) -> SqliteStorage {
        let options = SqliteOptions::new(self.path(name), self.clock.wall());
        SqliteStorage::open(options).await.unwrap()
    }

    /// A store with a sync lease and operations of every unfinished kind, and its copy, `copy.db`.
    async fn backed_up(&self) -> Store {
        let store = self.on("live.db").open().await.unwrap();
        store.connector(&owner(), &folder()).acquire_lease(&holder("a"), TTL).await.unwrap();
        for number in 0..OPERATIONS {
            let name = format!("op-{number}");
            let Claim::Attempt(claimed) = claim(&store, &name, "a").await.unwrap() else {
                panic!("{name}")
            };
            match number {
                0 => {}
                1 => claimed.release().await.unwrap(),
                2 => drop(claimed.mark_send_started().await.unwrap()),
                3 => claimed.record_unknown().await.unwrap(),
                _ => {
                    claimed.record_unknown().await.unwrap();
                    claimed.begin_reconcile_read().await.unwrap();
                }
            }
        }
        store.backup(self.path("copy.db")).await.unwrap();
        store
    }
}

async fn rows(storage: &dyn Storage, table: Table) -> Vec<Row> {
    let order = table.spec().key.to_vec();
    let query = RowQuery { table, filters: Vec::new(), order, after: None, limit: 1_000 };
    storage.rows(&query).await.unwrap()
}

/// Every operation is to be asked for and nothing is leased, in states, rows and due work.
async fn assert_restored(store: &Store) {
    for number in 0..OPERATIONS {
        let id = OperationId::new(format!("op-{number}")).unwrap();
        let operation = store.operation(&id).await.unwrap().unwrap().operation;
        let OperationPhase::ReconcileOnly { read_at: None, .. } = operation.phase else {
            panic!("{operation:?}")
        };
        assert_eq!(operation.lease, None);
    }
    let (mut due, mut operations) = (store.due_work(), 0);
    while let Some(next) = due.next_ready().await.unwrap() {
        assert!(matches!(next.work, Work::Operation { .. }), "{next:?}");
        operations += 1;
    }
    assert_eq!(operations, OPERATIONS, "each may be claimed at once");
    assert_sound(store).await;
}

#[tokio::test]
async fn everything_that_was_answered_before_a_backup_is_in_it_while_writers_go_on() {
    let place = Place::new();
    let store = place.on("live.db").open().await.unwrap();
    let answered: Vec<_> = (0..4).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let writers = answered.iter().enumerate().map(|(writer, answered)| {
        let (store, answered) = (store.clone(), Arc::clone(answered));
        tokio::spawn(async move {
            for value in 1..=150 {
                set_trim(&store, format!("{writer}"), value).await.unwrap();
                answered.store(value as usize, Ordering::Release);
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut before = Vec::new();
    for copy in 0..4 {
        let known: Vec<_> = answered.iter().map(|count| count.load(Ordering::Acquire)).collect();
        store.backup(place.path(&format!("{copy}.db"))).await.unwrap();
        before.push(known);
    }
    for writer in writers {
        bounded(writer).await.unwrap();
    }
    store.close().await.unwrap();
    for (copy, known) in before.into_iter().enumerate() {
        let restored = place.on(&format!("{copy}.db")).open_restored().await.unwrap();
        for (writer, known) in known.into_iter().enumerate() {
            let found = trim(&restored, writer).await.unwrap_or(0);
            assert!(found as usize >= known, "{found} of {known} in copy {copy}");
        }
        assert_sound(&restored).await;
        restored.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_backup_is_refused_where_something_is_and_where_there_is_no_file() {
    let place = Place::new();
    let store = place.on("live.db").open().await.unwrap();
    store.backup(place.path("copy.db")).await.unwrap();
    assert_eq!(field(store.backup(place.path("copy.db")).await), "path");
    store.close().await.unwrap();
    assert!(matches!(store.backup(place.path("late.db")).await, Err(Error::Closed)));
    let memory = Store::builder().memory(&MemoryJournal::new()).open().await.unwrap();
    assert_eq!(field(memory.backup(place.path("memory.db")).await), "place");
    assert!(!place.path("memory.db").exists() && !place.path("late.db").exists());
}

#[tokio::test]
async fn nothing_is_opened_as_restored_where_no_store_is() {
    let place = Place::new();
    assert_eq!(field(place.on("none.db").open_restored().await.map(drop)), "path");
    assert!(!place.path("none.db").exists());
}

#[tokio::test]
async fn leases_and_claims_of_the_past_are_void_and_can_be_taken_at_once() {
    let place = Place::new();
    place.backed_up().await.close().await.unwrap();
    let restored = place.on("copy.db").open_restored().await.unwrap();
    assert_restored(&restored).await;
    let connector = restored.connector(&owner(), &folder());
    connector.acquire_lease(&holder("b"), TTL).await.unwrap();
    for number in 0..OPERATIONS {
        let claimed = claim(&restored, &format!("op-{number}"), "b").await.unwrap();
        assert!(matches!(claimed, Claim::Reconcile(_)), "{claimed:?}");
    }
    restored.close().await.unwrap();
}

/// Two lives of a store give the same numbers of versions, so the generation must tell them apart.
#[tokio::test]
async fn a_token_of_the_lost_future_is_refused() {
    let place = Place::new();
    place.backed_up().await.close().await.unwrap();
    let scope = LeaseScope::Sync { owner: owner(), connector: folder() };
    let of_the_past = place.storage("live.db").await.generation();
    place.clock.advance(SECOND);
    let store = place.on("copy.db").open_restored().await.unwrap();
    let connector = store.connector(&owner(), &folder());
    connector.acquire_lease(&holder("b"), TTL).await.unwrap();
    store.close().await.unwrap();
    let storage = place.storage("copy.db").await;
    assert_eq!(storage.generation(), place.clock.wall().as_millis());
    let versions = 1..10;
    let mut is_current = Vec::new();
    for generation in [of_the_past, storage.generation()] {
        for version in versions.clone() {
            let fence = Fence { scope: scope.clone(), token: FencingToken { generation, version } };
            let append = Append {
                command_id: Uuid::from_u128(1),
                record: None,
                parts: Vec::new(),
                fences: vec![fence],
                absent: Vec::new(),
            };
            let outcomes = storage.append(&[append], place.clock.wall()).await.unwrap();
            if matches!(outcomes[..], [AppendOutcome::Committed { .. }]) {
                is_current.push((generation, version));
            }
        }
    }
    // Acquired in the past at 1, voided at 2, acquired anew at 3.
    assert_eq!(is_current, [(storage.generation(), 3)]);
}

#[tokio::test]
async fn opened_as_restored_once_more_a_store_begins_a_generation_and_nothing_else_changes() {
    let place = Place::new();
    place.backed_up().await.close().await.unwrap();
    place.on("copy.db").open_restored().await.unwrap().close().await.unwrap();
    let all = async |storage: &SqliteStorage| {
        let mut all = Vec::new();
        for table in Table::ALL {
            all.extend(rows(storage, table).await);
        }
        (all, storage.last_position().await.unwrap())
    };
    let storage = place.storage("copy.db").await;
    let (first, before) = (storage.generation(), all(&storage).await);
    storage.close().await.unwrap();
    place.on("copy.db").open_restored().await.unwrap().close().await.unwrap();
    let storage = place.storage("copy.db").await;
    assert_eq!(storage.generation(), first + 1);
    assert!(!storage.is_restoring());
    assert_eq!(all(&storage).await, before);
    assert!(rows(&storage, Table::Lease).await.is_empty());
}

/// Opens `copy` as restored on a storage that is cut off after so many commits. Whether it opened.
async fn open_and_die(place: &Place, copy: &str, commits: usize) -> bool {
    let storage = Arc::new(FaultyStorage::new(Arc::new(place.storage(copy).await)));
    let (left, dying) = (AtomicUsize::new(commits), Arc::downgrade(&storage));
    storage.observe(move |stage, _| {
        let is_last = match stage {
            Stage::BeforeCommit => commits == 0,
            Stage::AfterCommit => left.fetch_sub(1, Ordering::AcqRel) == 1,
        };
        if let Some(storage) = dying.upgrade().filter(|_| is_last) {
            storage.set_offline(true);
        }
    });
    let clock = Arc::new(place.clock.clone());
    let builder = Store::builder().clock(clock).arbiters(1).storage(storage);
    match bounded(builder.open_restored()).await {
        Ok(store) => {
            store.close().await.unwrap();
            true
        }
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            false
        }
    }
}

#[tokio::test]
async fn a_restore_that_was_cut_short_anywhere_is_finished_by_the_next_open() {
    let place = Place::new();
    place.backed_up().await.close().await.unwrap();
    let mut commits = 0;
    loop {
        let copy = format!("{commits}.db");
        std::fs::copy(place.path("copy.db"), place.path(&copy)).unwrap();
        let has_opened = open_and_die(&place, &copy, commits).await;
        let storage = place.storage(&copy).await;
        let generation = storage.generation();
        assert_eq!(storage.is_restoring(), !has_opened, "after {commits} commits");
        storage.close().await.unwrap();
        if has_opened {
            break;
        }
        place.clock.advance(SECOND);
        let builder = place.on(&copy);
        // A second one that is cut short begins anew, and is finished as well.
        let store = if commits.is_multiple_of(2) {
            builder.open().await.unwrap()
        } else {
            assert!(!open_and_die(&place, &copy, 1).await);
            builder.open().await.unwrap()
        };
        assert_restored(&store).await;
        store.close().await.unwrap();
        let storage = place.storage(&copy).await;
        assert!(!storage.is_restoring());
        assert_eq!(storage.generation() > generation, !commits.is_multiple_of(2));
        storage.close().await.unwrap();
        commits += 1;
    }
    // One for each operation, one for the lease of the sync; the end is behind them.
    assert_eq!(commits, OPERATIONS + 2);
}

#[tokio::test]
async fn a_store_that_is_being_restored_is_opened_by_nobody_who_can_not_finish_that() {
    let place = Place::new();
    place.backed_up().await.close().await.unwrap();
    assert!(!open_and_die(&place, "copy.db", 0).await);
    let storage = Arc::new(FaultyStorage::new(Arc::new(place.storage("copy.db").await)));
    storage.next_append(connector_store::testing::Fault::Fail(Error::storage(
        connector_store::StorageFault::Full,
        "no room",
    )));
    let builder = Store::builder().storage(storage).clock(Arc::new(place.clock.clone()));
    assert!(matches!(builder.open().await, Err(Error::Storage { .. })));
    let store = place.on("copy.db").open().await.unwrap();
    assert_restored(&store).await;
    store.close().await.unwrap();
}

async fn all(feed: &mut connector_store::EventStream) -> Vec<FeedItem> {
    let mut items = Vec::new();
    while let Some(item) = feed.next_ready().await.unwrap() {
        items.push(item);
    }
    items
}

fn cursor(item: &FeedItem) -> FeedCursor {
    match item {
        FeedItem::Event { cursor, .. } | FeedItem::Restored { cursor } => *cursor,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_reader_from_before_the_restore_is_told_and_then_given_everything() {
    let place = Place::new();
    let live = place.backed_up().await;
    let mut feed = live.events(FeedCursor::START, EventFilter::default());
    let in_the_backup = all(&mut feed).await.len();
    for value in 0..20 {
        set_trim(&live, "future", value).await.unwrap();
    }
    let of_the_future: Vec<_> = all(&mut feed).await.iter().map(cursor).collect();
    live.close().await.unwrap();
    place.clock.advance(SECOND);
    let restored = place.on("copy.db").open_restored().await.unwrap();
    let storage_generation = restored.events(FeedCursor::START, EventFilter::default()).cursor();
    let everything = all(&mut restored.events(FeedCursor::START, EventFilter::default())).await;
    assert!(everything.len() > in_the_backup);
    assert!(everything.iter().all(|item| matches!(item, FeedItem::Event { .. })));
    let positions: Vec<_> = everything.iter().map(cursor).collect();
    for after in of_the_future {
        let kept = after.to_string().parse().unwrap();
        let items = all(&mut restored.events(kept, EventFilter::default())).await;
        let FeedItem::Restored { cursor: start } = items[0] else { panic!("{:?}", items[0]) };
        assert_eq!(start, storage_generation);
        assert_eq!(items[1..].iter().map(cursor).collect::<Vec<_>>(), positions);
    }
    let known = positions[in_the_backup - 1];
    let items = all(&mut restored.events(known, EventFilter::default())).await;
    assert_eq!(items.iter().map(cursor).collect::<Vec<_>>(), positions[in_the_backup..]);
    restored.close().await.unwrap();
}

/// A copy that was put in place and not opened as restored has the generation of the store that it
/// was copied from; its positions tell.
#[tokio::test]
async fn a_reader_that_is_ahead_of_the_store_is_told() {
    let place = Place::new();
    let live = place.backed_up().await;
    set_trim(&live, "future", 1).await.unwrap();
    let mut feed = live.events(FeedCursor::START, EventFilter::default());
    let newest = cursor(all(&mut feed).await.last().unwrap());
    assert!(all(&mut live.events(newest, EventFilter::default())).await.is_empty());
    live.close().await.unwrap();
    let copy = place.on("copy.db").open().await.unwrap();
    let items = all(&mut copy.events(newest, EventFilter::default())).await;
    assert!(matches!(items[0], FeedItem::Restored { cursor } if cursor.position == 0));
    assert!(items.len() > 1);
    copy.close().await.unwrap();
}

#[test]
fn the_text_of_a_cursor_is_exact() {
    let cursor = FeedCursor { generation: i64::MAX, position: 7 };
    assert_eq!(cursor.to_string().parse::<FeedCursor>().unwrap(), cursor);
    assert_eq!("0-0".parse::<FeedCursor>().unwrap(), FeedCursor::START);
    for bad in
        ["", "-", "7", "1-", "-1", "1--1", "-1-1", "01-1", "1-+1", "1-1 ", "1-9223372036854775808"]
    {
        assert_eq!(field(bad.parse::<FeedCursor>()), "cursor", "{bad}");
    }
}

#[tokio::test]
async fn unfinished_operations_beyond_one_page_are_all_restored() {
    const MANY: usize = 1_201;
    let place = Place::new();
    let store = place.on("live.db").open().await.unwrap();
    let claims = (0..MANY).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { claim(&store, &format!("many-{number}"), "a").await.map(drop) })
    });
    for claim in claims.collect::<Vec<_>>() {
        bounded(claim).await.unwrap().unwrap();
    }
    store.backup(place.path("copy.db")).await.unwrap();
    store.close().await.unwrap();
    let restored = place.on("copy.db").open_restored().await.unwrap();
    let states = vec![OperationState::Attempted];
    let filter = connector_store::OperationFilter { states, ..Default::default() };
    assert!(restored.tracked_operations(&filter, None, 10).await.unwrap().is_empty());
    restored.close().await.unwrap();
    let storage = place.storage("copy.db").await;
    assert!(rows(&storage, Table::Lease).await.is_empty());
    assert_eq!(storage.last_position().await.unwrap(), 3 * i64::try_from(MANY).unwrap());
}
