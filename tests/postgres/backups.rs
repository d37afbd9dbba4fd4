//! A backup of a database that several hosts write to, and a database that is filled from one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use connector_store::testing::TestPgBouncer;
use connector_store::{
    Claim, Digest, Error, EventFilter, FeedCursor, FeedItem, Hlc, OperationId, OperationKind,
    OperationRequest, OperationState, Result, StorageFault, Store,
};

use crate::common::*;
use crate::world::World;

const TTL: Duration = Duration::from_secs(60);
const TABLES: &str = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";

/// A folder for backups.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.0.path()).unwrap().count()
    }
}

fn field<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    match result {
        Err(Error::InvalidInput { field, .. }) => field,
        other => panic!("{other:?}"),
    }
}

fn is_damaged<T: std::fmt::Debug>(result: Result<T>) -> bool {
    match result {
        Err(Error::Storage { fault, .. }) => fault == StorageFault::Damaged,
        Err(Error::InvalidInput { field, .. }) => field == "path",
        other => panic!("{other:?}"),
    }
}

async fn restore(world: &World, backup: &Path) -> Result<Store> {
    bounded(world.builder().postgres(world.url()).restore_backup(backup)).await
}

async fn claim(store: &Store, name: &str) -> Result<Claim> {
    let request = OperationRequest {
        operation_id: OperationId::new(name).unwrap(),
        owner: owner("o"),
        connector: folder(),
        op: OperationKind::Update,
        version: Hlc::parse("000000000001000-00000000-node").unwrap(),
        request_digest: Digest::of(b"request"),
        visibility_delay: Duration::ZERO,
    };
    store.document(&document(name)).claim_operation(&request, &holder("a"), TTL).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_any_host_was_answered_before_a_backup_is_in_it_and_nothing_is_sent_twice() {
    let (Some(world), Some(place)) = (World::new(), World::new()) else { return };
    let (hosts, folder) = (world.hosts().await, Folder::new());
    let Claim::Attempt(sent) = claim(&hosts[0].store, "sent").await.unwrap() else { panic!() };
    sent.mark_send_started().await.unwrap();
    let Claim::Attempt(_) = claim(&hosts[1].store, "claimed").await.unwrap() else { panic!() };
    let record = pending_auth("state", 4_000_000_000_000);
    hosts[0].store.create_pending_auth(record.clone()).await.unwrap();
    let answered: Vec<_> = (0..4).map(|_| Arc::new(AtomicI64::new(0))).collect();
    let writers = answered.iter().enumerate().map(|(writer, answered)| {
        let (store, answered) = (hosts[writer % 2].store.clone(), Arc::clone(answered));
        tokio::spawn(async move {
            for value in 1..=60 {
                set_trim(&store.document(&document(writer)), value).await.unwrap();
                answered.store(value, Ordering::Release);
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    bounded(until(|| answered.iter().all(|count| count.load(Ordering::Acquire) > 10))).await;
    let known: Vec<_> = answered.iter().map(|count| count.load(Ordering::Acquire)).collect();
    hosts[1].store.backup(folder.path("copy")).await.unwrap();
    for writer in writers {
        bounded(writer).await.unwrap();
    }
    assert_eq!(folder.files(), 1);
    // Of the lost future.
    let Claim::Attempt(lost) = claim(&hosts[0].store, "lost").await.unwrap() else { panic!() };
    lost.mark_send_started().await.unwrap();
    let generation = hosts[0].store.events(FeedCursor::START, EventFilter::default()).cursor();

    let restored = restore(&place, &folder.path("copy")).await.unwrap();
    for (writer, known) in known.into_iter().enumerate() {
        let found = trim(&restored.document(&document(writer))).await.unwrap_or(0);
        assert!(found >= known, "{found} of {known} of writer {writer}");
    }
    let states = vec![OperationState::Attempted];
    let filter = connector_store::OperationFilter { states, ..Default::default() };
    assert!(restored.tracked_operations(&filter, None, 10).await.unwrap().is_empty());
    for name in ["sent", "claimed", "lost"] {
        let claimed = claim(&restored, name).await.unwrap();
        assert!(matches!(claimed, Claim::Reconcile(_)), "{name}: {claimed:?}");
    }
    assert_eq!(restored.consume_pending_auth(&record.state).await.unwrap(), record);
    assert_sound(&restored).await;
    let rebuilt = restored.rebuild().await.unwrap();
    assert_eq!((rebuilt.written, rebuilt.removed), (0, 0), "{rebuilt:?}");
    let mut feed = restored.events(FeedCursor::START, EventFilter::default());
    assert!(feed.cursor().generation > generation.generation);
    let mut events = 0;
    while let Some(item) = bounded(feed.next_ready()).await.unwrap() {
        assert!(matches!(item, FeedItem::Event { .. } | FeedItem::Swept { .. }), "{item:?}");
        events += 1;
    }
    assert_eq!(events, place.events());
    restored.close().await.unwrap();
    let again = place.builder().postgres(place.url()).open().await.unwrap();
    assert_sound(&again).await;
    again.close().await.unwrap();
}

/// Rows as they are in the database, and what the next position and the next stream would be.
fn contents(world: &World) -> (String, String) {
    let next = "SELECT nextval('connector_journal_position'), \
                nextval(pg_get_serial_sequence('connector_stream', 'stream'))";
    (world.dump(), world.server.sql(&world.database, next).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_every_row_of_every_table_and_gives_no_position_again() {
    let (Some(world), Some(place)) = (World::new(), World::new()) else { return };
    let (host, folder) = (world.host().await, Folder::new());
    // Larger than a piece of the file.
    for name in 0..3 {
        let payload = format!("\"{}\"", "x".repeat(900 * 1024));
        let handle = host.store.document(&document(name));
        handle.set_entity_trim(&owner("o"), &crate::common::folder(), json(payload)).await.unwrap();
    }
    count_up(&connector(&host.store, "o")).await.unwrap();
    set_trim(&host.store.document(&document("gone")), 1).await.unwrap();
    host.store.backup(folder.path("copy")).await.unwrap();
    host.store.close().await.unwrap();
    restore(&place, &folder.path("copy")).await.unwrap().close().await.unwrap();
    let lineage = "UPDATE connector_meta SET value = 0 \
                   WHERE key IN ('generation', 'restored_at', 'restoring'); \
                   UPDATE connector_journal SET horizon = '0'";
    for database in [&world, &place] {
        database.server.sql(&database.database, lineage).unwrap();
    }
    let (of_the_store, of_the_copy) = (contents(&world), contents(&place));
    assert_eq!(of_the_store.1, of_the_copy.1);
    // Too long to be printed.
    assert!(of_the_store.0 == of_the_copy.0, "the rows differ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_is_damaged_or_cut_off_fills_nothing() {
    let (Some(world), Some(place)) = (World::new(), World::new()) else { return };
    let (host, folder) = (world.host().await, Folder::new());
    count_up(&connector(&host.store, "o")).await.unwrap();
    let path = folder.path("copy");
    host.store.backup(&path).await.unwrap();
    let whole = std::fs::read(&path).unwrap();
    let bad = folder.path("bad");
    let places: BTreeSet<usize> =
        (0..24).map(|at| at * whole.len() / 24).chain([whole.len() - 1, 0, 24, 25]).collect();
    for at in places {
        let mut changed = whole.clone();
        changed[at] ^= 0x41;
        for bytes in [&changed[..], &whole[..at]] {
            std::fs::write(&bad, bytes).unwrap();
            assert!(is_damaged(restore(&place, &bad).await), "at {at}");
        }
    }
    let mut longer = whole.clone();
    longer.push(0);
    std::fs::write(&bad, &longer).unwrap();
    assert!(is_damaged(restore(&place, &bad).await));
    assert_eq!(field(restore(&place, &folder.path("none")).await), "path");
    assert_eq!(place.number(TABLES), 0);
    restore(&place, &path).await.unwrap().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_a_store_is_not_filled_and_an_empty_one_is_not_opened_as_restored() {
    let (Some(world), Some(place)) = (World::new(), World::new()) else { return };
    let (host, folder) = (world.host().await, Folder::new());
    count_up(&connector(&host.store, "o")).await.unwrap();
    host.store.backup(folder.path("copy")).await.unwrap();
    assert_eq!(field(host.store.backup(folder.path("copy")).await), "path");
    let before = world.dump();
    assert_eq!(field(restore(&world, &folder.path("copy")).await), "database");
    assert_eq!(world.dump(), before);
    let opened = world.builder().postgres(place.url()).open_restored().await;
    assert_eq!(field(opened), "database");
    assert_eq!(place.number(TABLES), 0);
    let memory = connector_store::MemoryJournal::new();
    let opened = Store::builder().memory(&memory).restore_backup(folder.path("copy")).await;
    assert_eq!(field(opened), "place");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_filled_is_used_by_nobody_before_its_restore_has_ended() {
    let (Some(world), Some(place)) = (World::new(), World::new()) else { return };
    let (host, folder) = (world.host().await, Folder::new());
    let Claim::Attempt(_) = claim(&host.store, "claimed").await.unwrap() else { panic!() };
    host.store.backup(folder.path("copy")).await.unwrap();
    // The host dies once the database is filled.
    let options = connector_store::journal::PostgresOptions::new(place.url());
    let filled = connector_store::journal::PostgresStorage::restore(options, folder.path("copy"));
    bounded(filled).await.unwrap();
    let store = place.builder().postgres(place.url()).open().await.unwrap();
    let claimed = claim(&store, "claimed").await.unwrap();
    assert!(matches!(claimed, Claim::Reconcile(_)), "{claimed:?}");
    assert_eq!(place.number("SELECT value FROM connector_meta WHERE key = 'restoring'"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_of_the_time_before_a_restore_writes_nothing_any_more() {
    let Some(world) = World::new() else { return };
    let host = world.host().await;
    count_up(&connector(&host.store, "o")).await.unwrap();
    let restored = world.builder().postgres(world.url()).open_restored().await.unwrap();
    let events = world.events();
    let refused = count_up(&connector(&host.store, "o")).await;
    assert!(is_damaged(refused));
    assert_eq!(world.events(), events);
    count_up(&connector(&restored, "o")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_go_through_a_pooler() {
    let (Some(world), Some(place)) = (World::new(), World::new()) else { return };
    let pooler = |world: &World| TestPgBouncer::start(&world.server, 3).unwrap();
    let (Some(from), Some(to)) = (pooler(&world), pooler(&place)) else { return };
    let folder = Folder::new();
    let store = world.builder().postgres(from.url(&world.database)).open().await.unwrap();
    count_up(&connector(&store, "o")).await.unwrap();
    store.backup(folder.path("copy")).await.unwrap();
    let builder = place.builder().postgres(to.url(&place.database));
    let restored = bounded(builder.restore_backup(folder.path("copy"))).await.unwrap();
    assert_eq!(count(&connector(&restored, "o")).await, 1);
}
