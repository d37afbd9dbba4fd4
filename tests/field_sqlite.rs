//! Faults that people who run such stores have met, on SQLite files and through the whole store:
//! onlookers, failing commits, logs cut short, flipped bytes, large numbers, empty listings, lost
//! cursors, two spellings of one name.
#![cfg(feature = "sqlite")]
// A test that cannot go on should stop.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use connector_store::journal::{SqliteOptions, SqliteStorage};
use connector_store::testing::{Chances, Fault, FaultyStorage};
use connector_store::{
    BeginReceipt, ConnectorName, ConnectorRef, DocumentId, Error, ErrorClass, Hlc, Json,
    MassDeleteGuard, MemoryJournal, ModelId, OwnerDid, PartitionId, Provenance, ReceiptKey,
    ReceiptKind, Rfc3339, SourceId, StorageFault, Store, StreamKey, SyncProgress, SyncStateInput,
    SyncStatus, Timestamp,
};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use uuid::Uuid;

fn owner() -> OwnerDid {
    OwnerDid::new("did:web:owner").unwrap()
}

fn folder() -> ConnectorName {
    ConnectorName::new("folder").unwrap()
}

fn document(name: impl std::fmt::Display) -> DocumentId {
    DocumentId::new(name.to_string()).unwrap()
}

fn json(text: &str) -> Json {
    Json::parse("json", text).unwrap()
}

async fn open(path: &Path) -> Store {
    Store::builder().sqlite(path).open().await.unwrap()
}

/// A store whose SQLite storage fails as it is told to.
async fn open_faulty(
    path: &Path,
    wrap: impl FnOnce(Arc<SqliteStorage>) -> FaultyStorage,
) -> (Store, Arc<FaultyStorage>) {
    let options = SqliteOptions::new(path, Timestamp::from_millis(1));
    let faulty = Arc::new(wrap(Arc::new(SqliteStorage::open(options).await.unwrap())));
    let store = Store::builder().storage(Arc::clone(&faulty) as _).open().await.unwrap();
    (store, faulty)
}

async fn set_trim(store: &Store, name: &str, text: &str) -> Result<(), Error> {
    store.document(&document(name)).set_entity_trim(&owner(), &folder(), json(text)).await
}

async fn trim(store: &Store, name: &str) -> Option<String> {
    let trim = store.document(&document(name)).entity_trim().await.unwrap();
    trim.map(|trim| trim.trimmed_fields.as_str().to_owned())
}

async fn assert_sound(store: &Store) {
    let report = store.verify().await.unwrap();
    assert!(report.is_sound(), "{report:?}");
}

fn input(checkpoint: &str, entity_count: i64) -> SyncStateInput {
    SyncStateInput {
        checkpoint: Some(json(checkpoint)),
        recovery: Some(json(checkpoint)),
        last_synced_at: Rfc3339::from_timestamp(Timestamp::from_millis(1)),
        entity_count,
        status: SyncStatus::Idle,
        error: None,
    }
}

fn progress(checkpoint: &str, entity_count: i64) -> SyncProgress {
    let SyncStateInput { checkpoint, recovery, last_synced_at, error, .. } = input(checkpoint, 0);
    SyncProgress { checkpoint, recovery, last_synced_at, entity_count, error }
}

async fn count(connection: &mut SqliteConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(connection).await.unwrap()
}

/// A tool that only reads sees rows and events that agree while the store writes; a second store
/// does not get the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_onlooker_sees_whole_commits_and_a_second_store_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path).await;
    set_trim(&store, "first", "1").await.unwrap();
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for n in 0..200 {
                set_trim(&store, &format!("document {n}"), "1").await.unwrap();
            }
        }
    });
    let options = SqliteConnectOptions::new().filename(&path).read_only(true);
    let mut onlooker = options.connect().await.unwrap();
    let mut looks = 0;
    while looks < 20 || !writer.is_finished() {
        let mut look = onlooker.begin().await.unwrap();
        let trims = count(&mut look, "SELECT COUNT(*) FROM kubun_connector_entity_trim").await;
        let events = count(&mut look, "SELECT COUNT(*) FROM connector_journal").await;
        look.rollback().await.unwrap();
        assert_eq!(trims, events);
        looks += 1;
    }
    writer.await.unwrap();
    let second = Store::builder().sqlite(&path).open().await;
    assert!(matches!(second, Err(Error::StoreInUse { .. })), "{second:?}");
    onlooker.close().await.unwrap();
    store.close().await.unwrap();
    open(&path).await.close().await.unwrap();
}

/// Commits that fail in every way: what was acknowledged is there after reopening, what was said to
/// have failed is not and never comes back, and rows agree with events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_fail_lose_nothing_acknowledged_and_leave_nothing_refused() {
    let directory = tempfile::tempdir().unwrap();
    let chances = Chances {
        fail: 150,
        passing: 100,
        lose_acknowledgement: 150,
        lose_commit: 150,
        stall: 50,
        ..Chances::default()
    };
    let (mut acknowledged, mut refused) = (0, 0);
    for seed in 0..6_u64 {
        let path = directory.path().join(format!("{seed}.db"));
        let (store, faulty) =
            open_faulty(&path, |inner| FaultyStorage::random(inner, seed, chances)).await;
        let mut tasks = Vec::new();
        for task in 0..8 {
            let store = store.clone();
            tasks.push(tokio::spawn(async move {
                let mut results = Vec::new();
                for n in 0..12 {
                    let name = format!("{task}-{n}");
                    results.push((set_trim(&store, &name, "[1]").await, name));
                }
                results
            }));
        }
        let mut results = Vec::new();
        for task in tasks {
            results.extend(task.await.unwrap());
        }
        assert!(faulty.faults_done() > 0);
        faulty.heal();
        set_trim(&store, "healed", "[1]").await.unwrap();
        store.close().await.unwrap();
        let store = open(&path).await;
        assert_sound(&store).await;
        assert!(trim(&store, "healed").await.is_some());
        for (result, name) in results {
            let is_there = trim(&store, &name).await.is_some();
            match result {
                Ok(()) => {
                    assert!(is_there, "{name} was acknowledged");
                    acknowledged += 1;
                }
                Err(error) if error.class() == ErrorClass::Unknown => {}
                Err(error) => {
                    assert!(error.is_retryable(), "{error:?}");
                    assert!(!is_there, "{name} was refused: {error}");
                    refused += 1;
                }
            }
        }
        store.close().await.unwrap();
    }
    assert!(acknowledged > 0 && refused > 0, "{acknowledged} acknowledged, {refused} refused");
}

/// The files of a store as a loss of power may leave them.
struct Files {
    database: Vec<u8>,
    log: Vec<u8>,
}

impl Files {
    fn read(path: &Path) -> Self {
        let log = std::fs::read(path.with_extension("db-wal")).unwrap_or_default();
        Self { database: std::fs::read(path).unwrap(), log }
    }

    fn lay(&self, directory: &Path) -> std::path::PathBuf {
        let path = directory.join("store.db");
        let _ = std::fs::remove_file(path.with_extension("db-shm"));
        std::fs::write(&path, &self.database).unwrap();
        std::fs::write(path.with_extension("db-wal"), &self.log).unwrap();
        path
    }
}

/// A store with four acknowledged trims and a fifth behind them: its files before and after the
/// fifth.
async fn files_around_a_commit() -> (Files, Files) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path).await;
    for n in 0..4 {
        set_trim(&store, &n.to_string(), &n.to_string()).await.unwrap();
    }
    let before = Files::read(&path);
    set_trim(&store, "4", "4").await.unwrap();
    let after = Files::read(&path);
    store.close().await.unwrap();
    assert_eq!(before.database, after.database, "the commit went to the log");
    assert!(before.log.len() < after.log.len());
    (before, after)
}

/// What was acknowledged is there. Says whether the commit behind it is too.
async fn assert_acknowledged(files: &Files, what: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&files.lay(directory.path())).await;
    let report = store.verify().await.unwrap();
    assert!(report.is_sound(), "{what}: {report:?}");
    for n in 0..4 {
        assert_eq!(trim(&store, &n.to_string()).await, Some(n.to_string()), "{what}");
    }
    let last = trim(&store, "4").await;
    assert!(last.is_none() || last.as_deref() == Some("4"), "{what}: {last:?}");
    store.close().await.unwrap();
    last.is_some()
}

#[tokio::test]
async fn a_log_cut_or_damaged_behind_the_last_answer_loses_no_answer() {
    let (before, after) = files_around_a_commit().await;
    let (start, end) = (before.log.len(), after.log.len());
    for cut in (start..=end).filter(|at| [start, end].contains(at) || at % 512 == 0) {
        let files = Files { database: after.database.clone(), log: after.log[..cut].to_vec() };
        let is_whole = assert_acknowledged(&files, &format!("cut at {cut}")).await;
        assert_eq!(is_whole, cut == end, "cut at {cut} of {end}");
    }
    for flip in (start..end).step_by(997) {
        let mut log = after.log.clone();
        log[flip] ^= 0x40;
        let files = Files { database: after.database.clone(), log };
        let is_whole = assert_acknowledged(&files, &format!("flipped at {flip}")).await;
        assert!(!is_whole, "a damaged commit was taken, flipped at {flip}");
    }
}

/// Of a byte that flips in the file itself: the store refuses the file, or a command, or `verify`
/// names the damage, or nothing that was written is changed. Never a wrong answer in silence.
#[tokio::test]
async fn a_flipped_byte_in_the_file_is_never_read_as_something_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path).await;
    let mut expected = BTreeMap::new();
    for n in 0..40 {
        let text = format!("\"{}\"", "x".repeat(40 + n));
        set_trim(&store, &n.to_string(), &text).await.unwrap();
        expected.insert(n.to_string(), text);
    }
    store.close().await.unwrap();
    let database = std::fs::read(&path).unwrap();
    let (mut noticed, mut harmless) = (0, 0);
    for flip in (0..database.len()).step_by(database.len() / 90) {
        let mut files = Files { database: database.clone(), log: Vec::new() };
        files.database[flip] ^= 0x10;
        let directory = tempfile::tempdir().unwrap();
        let Ok(store) = Store::builder().sqlite(files.lay(directory.path())).open().await else {
            noticed += 1;
            continue;
        };
        match store.verify().await {
            Ok(report) if report.is_sound() => {
                for (name, text) in &expected {
                    assert_eq!(trim(&store, name).await.as_ref(), Some(text), "flip at {flip}");
                }
                harmless += 1;
            }
            Ok(_) | Err(_) => noticed += 1,
        }
        let _ = store.close().await;
    }
    assert!(noticed > 0 && harmless > 0, "{noticed} noticed, {harmless} harmless");
}

/// Numbers that a 64-bit float cannot hold come back as they were given, on both backends, from
/// events and from snapshots; what no reader could read is refused.
#[tokio::test]
async fn numbers_come_back_to_the_last_digit_or_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for snapshot_every_events in [1, 1_000] {
        let path = directory.path().join(format!("{snapshot_every_events}.db"));
        let stores =
            [Store::builder().memory(&MemoryJournal::new()), Store::builder().sqlite(path)];
        for builder in stores {
            let builder = builder.snapshot_every_events(snapshot_every_events);
            let store = builder.open().await.unwrap();
            numbers(&store).await;
            assert_sound(&store).await;
            store.close().await.unwrap();
        }
    }
    for text in ["1e400", "-1e400", "NaN", "Infinity", "-Infinity", "01", "+1", "0x1"] {
        let refused = Json::parse("checkpoint", text);
        assert!(matches!(refused, Err(Error::InvalidInput { field: "checkpoint", .. })), "{text}");
    }
}

async fn numbers(store: &Store) {
    let connector = store.connector(&owner(), &folder());
    let texts = [
        "9007199254740993",
        "-0.0",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "1e308",
        "5e-324",
        "0.1000000000000000055511151231257827021181583404541015625",
        "{\"a\":[9007199254740993,-0.0]}",
    ];
    for text in texts {
        connector.set_sync_state(input(text, i64::MAX)).await.unwrap();
        store.passivate_all();
        let state = connector.sync_state().await.unwrap().unwrap();
        assert_eq!(state.checkpoint.unwrap().as_str(), text);
        assert_eq!(state.recovery.unwrap().as_str(), text);
        assert_eq!(state.entity_count, i64::MAX);
        set_trim(store, "numbers", text).await.unwrap();
        store.passivate_all();
        assert_eq!(trim(store, "numbers").await.as_deref(), Some(text));
    }
    let before = connector.sync_state().await.unwrap();
    for entity_count in [-1, i64::MIN] {
        let set = connector.set_sync_state(input("1", entity_count)).await;
        let moved = connector.update_sync_progress(move |_| progress("1", entity_count)).await;
        for refused in [set, moved.map(|_| ())] {
            let is_named =
                matches!(refused, Err(Error::InvalidInput { field: "entity_count", .. }));
            assert!(is_named, "{refused:?}");
        }
    }
    assert_eq!(connector.sync_state().await.unwrap(), before);
}

/// The cursor moves with its rows in one commit or not at all; where they are written one after the
/// other, rows go first, and a second run ends in the same state.
#[tokio::test]
async fn a_cursor_never_moves_before_its_rows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let (store, faulty) = open_faulty(&path, |inner| FaultyStorage::new(inner)).await;
    let connector = store.connector(&owner(), &folder());
    connector.set_sync_state(input("0", 0)).await.unwrap();
    let failure = || Fault::Fail(Error::storage(StorageFault::Full, "no room"));

    faulty.next_append(failure());
    let failed = page_in_one_unit(&store, 1).await;
    assert!(failed.unwrap_err().is_retryable());
    assert_eq!(page(&store).await, (None, None, "0".to_owned()));
    faulty.next_append(Fault::LoseAcknowledgement);
    page_in_one_unit(&store, 1).await.unwrap();
    assert_eq!(page(&store).await, (Some("1".into()), Some("1".into()), "1".to_owned()));

    for lost in 0..3 {
        (0..lost).for_each(|_| faulty.next_append(Fault::None));
        faulty.next_append(failure());
        assert!(page_by_steps(&store, 2).await.is_err());
        store.passivate_all();
        let (.., cursor) = page(&store).await;
        assert_eq!(cursor, "1", "the cursor moved though step {lost} failed");
    }
    page_by_steps(&store, 2).await.unwrap();
    store.close().await.unwrap();

    let store = open(&path).await;
    assert_eq!(page(&store).await, (Some("2".into()), Some("2".into()), "2".to_owned()));
    assert_sound(&store).await;
    store.close().await.unwrap();
}

async fn page_in_one_unit(store: &Store, n: i64) -> Result<(), Error> {
    let keys = [
        StreamKey::Document(document("a")),
        StreamKey::Document(document("b")),
        StreamKey::Connector(owner(), folder()),
    ];
    let (unit, text) = (store.unit_of_work(keys).await?, n.to_string());
    for name in ["a", "b"] {
        unit.document(&document(name)).set_entity_trim(&owner(), &folder(), json(&text)).await?;
    }
    unit.connector(&owner(), &folder()).update_sync_progress(move |_| progress(&text, n)).await?;
    unit.commit().await
}

async fn page_by_steps(store: &Store, n: i64) -> Result<(), Error> {
    let text = n.to_string();
    set_trim(store, "a", &text).await?;
    set_trim(store, "b", &text).await?;
    let connector = store.connector(&owner(), &folder());
    connector.update_sync_progress(move |_| progress(&text, n)).await.map(|_| ())
}

async fn page(store: &Store) -> (Option<String>, Option<String>, String) {
    let state = store.connector(&owner(), &folder()).sync_state().await.unwrap().unwrap();
    let cursor = state.checkpoint.unwrap().as_str().to_owned();
    (trim(store, "a").await, trim(store, "b").await, cursor)
}

fn partition() -> PartitionId {
    PartitionId::new("inbox").unwrap()
}

/// Enumerates the partition whole, in pages, and gives the complete receipt.
async fn enumerate(
    connector: &ConnectorRef,
    ids: &[SourceId],
    expected_count: Option<u64>,
) -> ReceiptKey {
    let begin = BeginReceipt {
        partition: partition(),
        provenance: Provenance::new("account 1").unwrap(),
        model_id: ModelId::new("file").unwrap(),
        scope: "all".to_owned(),
        source_fetch_hlc: Hlc::parse("001767225600000-00000000-node-a").unwrap(),
        predicate: None,
        kind: ReceiptKind::Full,
        fingerprint: "f".to_owned(),
    };
    let receipt = connector.begin_receipt(begin).await.unwrap();
    let (partition, provenance) = (receipt.partition, receipt.provenance);
    let key = ReceiptKey { partition, provenance, sequence: receipt.sequence };
    let mut pages: Vec<&[SourceId]> = ids.chunks(300).collect();
    if pages.is_empty() {
        pages.push(&[]);
    }
    let mut next = 0;
    for page in pages {
        connector.extend_receipt(&key, next, page.to_vec(), "f").await.unwrap();
        next += 1;
    }
    connector.complete_receipt(&key, next, expected_count, "f").await.unwrap();
    key
}

fn known(count: usize) -> Vec<(DocumentId, SourceId)> {
    (0..count).map(|n| (document(n), SourceId::new(format!("file {n}")).unwrap())).collect()
}

fn ids(known: &[(DocumentId, SourceId)]) -> Vec<SourceId> {
    known.iter().map(|(_, source)| source.clone()).collect()
}

async fn candidates(connector: &ConnectorRef) -> Vec<DocumentId> {
    let candidates = connector.candidates(&partition(), None, 10_000).await.unwrap();
    candidates.into_iter().map(|candidate| candidate.document_id).collect()
}

/// A provider that answers with an empty list deletes nothing, whatever it says, until a person
/// does.
#[tokio::test]
async fn an_empty_listing_of_a_thousand_deletes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let known = known(1_000);
    let mut store = open(&path).await;
    for (document, _) in known.iter().take(5) {
        let handle = store.document(document);
        handle.set_entity_trim(&owner(), &folder(), json("1")).await.unwrap();
    }
    for provider_word in [None, Some(0)] {
        let connector = store.connector(&owner(), &folder());
        let key = enumerate(&connector, &[], provider_word).await;
        store.close().await.unwrap();
        store = open(&path).await;
        let connector = store.connector(&owner(), &folder());
        let guard = MassDeleteGuard::default();
        for refused in [
            connector.plan_receipt(&key, known.clone(), guard).await,
            connector.commit_receipt(&key, known.clone(), guard).await,
        ] {
            let is_refused = matches!(
                refused,
                Err(Error::SweepTooLarge { candidates: 1_000, known: 1_000, .. })
            );
            assert!(is_refused, "{refused:?}");
        }
        assert!(candidates(&connector).await.is_empty());
        assert!(connector.due_candidates(10).await.unwrap().is_empty());
        assert_eq!(connector.sweep_checkpoint(&partition()).await.unwrap(), None);
        assert!(trim(&store, "0").await.is_some());
    }
    // The next listing is whole again: nothing is left of the empty ones.
    let connector = store.connector(&owner(), &folder());
    let key = enumerate(&connector, &ids(&known), Some(1_000)).await;
    let result = connector.commit_receipt(&key, known.clone(), MassDeleteGuard::default()).await;
    assert_eq!(result.unwrap().candidates, 0);
    let key = enumerate(&connector, &[], Some(0)).await;
    let guard = MassDeleteGuard { allow_mass_delete: true, ..MassDeleteGuard::default() };
    let result = connector.commit_receipt(&key, known.clone(), guard).await.unwrap();
    assert_eq!(result.candidates, 1_000);
    assert_sound(&store).await;
    store.close().await.unwrap();
}

/// After a lost cursor no tombstones come, so the partition owes a sweep, also over a restart, until
/// an enumeration that began after the loss is committed; it finds what was deleted in between.
#[tokio::test]
async fn a_lost_cursor_owes_a_sweep_that_finds_the_deletions_of_the_gap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let known = known(1_000);
    let guard = MassDeleteGuard::default();
    let store = open(&path).await;
    let connector = store.connector(&owner(), &folder());
    let begun_before = enumerate(&connector, &ids(&known), None).await;
    connector.cursor_lost(&partition()).await.unwrap();
    connector.commit_receipt(&begun_before, known.clone(), guard).await.unwrap();
    let owed = connector.owed_sweeps().await.unwrap();
    assert_eq!(owed.len(), 1, "a receipt from before the loss settles nothing");
    connector.cursor_lost(&partition()).await.unwrap();
    store.close().await.unwrap();

    let store = open(&path).await;
    let connector = store.connector(&owner(), &folder());
    assert_eq!(connector.owed_sweeps().await.unwrap()[0].partition, partition());
    let left: Vec<_> =
        known.iter().filter(|(id, _)| !["7", "500"].contains(&id.as_str())).cloned().collect();
    let key = enumerate(&connector, &ids(&left), Some(998)).await;
    assert_eq!(connector.owed_sweeps().await.unwrap().len(), 1, "not committed yet");
    let result = connector.commit_receipt(&key, known, guard).await.unwrap();
    assert_eq!((result.candidates, result.missing), (2, 2));
    assert!(connector.owed_sweeps().await.unwrap().is_empty());
    assert_eq!(candidates(&connector).await, [document("500"), document("7")]);
    assert_sound(&store).await;
    store.close().await.unwrap();
}

/// Names are bytes: of two spellings of one letter neither stands for the other, and neither is
/// gone because the other is there.
#[tokio::test]
async fn two_spellings_of_a_letter_are_two_names_for_ever() {
    let (composed, decomposed) = ("\u{e4}.txt", "a\u{308}.txt");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path).await;
    set_trim(&store, composed, "1").await.unwrap();
    assert_eq!(trim(&store, decomposed).await, None);
    set_trim(&store, decomposed, "2").await.unwrap();
    let pair = |name| (document(name), SourceId::new(name).unwrap());
    let known = vec![pair(composed), pair(decomposed)];
    let connector = store.connector(&owner(), &folder());
    let key = enumerate(&connector, &ids(&known), Some(2)).await;
    let guard = MassDeleteGuard::default();
    let result = connector.commit_receipt(&key, known.clone(), guard).await.unwrap();
    assert_eq!(result.candidates, 0);
    let key = enumerate(&connector, &ids(&known[..1]), Some(1)).await;
    connector.commit_receipt(&key, known, guard).await.unwrap();
    assert_eq!(candidates(&connector).await, [document(decomposed)]);
    store.document(&document(decomposed)).sweep_document_rows().await.unwrap();
    store.close().await.unwrap();

    let store = open(&path).await;
    assert_eq!(trim(&store, composed).await.as_deref(), Some("1"));
    assert_eq!(trim(&store, decomposed).await, None);
    assert_sound(&store).await;
    store.close().await.unwrap();
}

/// Who has an answer may repeat its command id at once: the id is not under way any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_id_may_be_repeated_as_soon_as_it_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("store.db")).await;
    for n in 0..300_u128 {
        let handle = store.document(&document(n % 4)).with_command_id(Uuid::from_u128(n));
        for _ in 0..2 {
            handle.set_entity_trim(&owner(), &folder(), json("1")).await.unwrap();
        }
    }
    assert_eq!(store.stats().events, 300);
    store.close().await.unwrap();
}
