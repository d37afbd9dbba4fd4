//! What an adopted database holds, and that it is a store like any other.

use std::path::Path;
use std::sync::Arc;

use connector_store::records::AnySigner;
use connector_store::{
    BeginReceipt, CandidateKey, CandidateState, CommitResult, ConnectorName, DocumentId, Error,
    Json, MassDeleteGuard, ModelId, ObservationRepair, OwnerDid, PartitionId, Provenance,
    ReceiptKind, Rfc3339, Secret, SourceId, Store, SweepOutcome, SyncProgress, SyncState,
    SyncStatus, Timestamp,
};

use crate::seed::{
    OWNER, TABLES, base, change, copies, dump, newest, number, owner_of, person, place, put_copy,
    said, stamp, tool,
};

const EVENTS: &str = "SELECT count(*) FROM connector_journal";

async fn open(path: &Path) -> Store {
    let builder =
        Store::builder().sqlite(path).accept_foreign_owners().signer_policy(Arc::new(AnySigner));
    builder.open().await.unwrap()
}

fn owner() -> OwnerDid {
    OwnerDid::new(OWNER).unwrap()
}

fn caldav() -> ConnectorName {
    ConnectorName::new("caldav").unwrap()
}

fn document(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

fn partition(name: &str) -> PartitionId {
    PartitionId::new(name).unwrap()
}

fn account(number: u32) -> Provenance {
    Provenance::new(format!("account-{number}")).unwrap()
}

fn source(name: &str) -> SourceId {
    SourceId::new(name).unwrap()
}

fn known(names: &[(&str, &str)]) -> Vec<(DocumentId, SourceId)> {
    names.iter().map(|(name, id)| (document(name), source(id))).collect()
}

async fn assert_sound(store: &Store) {
    let report = store.verify().await.unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!((rebuilt.written, rebuilt.removed), (0, 0), "{rebuilt:?}");
    assert!(rebuilt.lost.is_empty() && rebuilt.damages.is_empty(), "{rebuilt:?}");
}

/// The rows without what adoption sets: nobody is known to hold a sync, and every sync state has an
/// incarnation.
fn without_what_is_set(rows: &[String]) -> Vec<String> {
    let blank = |row: &String| {
        let words = row.split(' ').map(|word| match word.split_once('=') {
            Some((name @ ("lease_expires_at" | "incarnation"), _)) => name,
            _ => word,
        });
        words.collect::<Vec<&str>>().join(" ")
    };
    let mut rows: Vec<String> = rows.iter().map(blank).collect();
    rows.sort();
    rows
}

fn count(rows: &[String]) -> i64 {
    i64::try_from(rows.len()).unwrap()
}

#[tokio::test]
async fn every_row_is_there_and_has_one_event_of_its_own() {
    for is_newest in [false, true] {
        let (_directory, path) = place();
        if is_newest {
            newest(&path).await;
        } else {
            base(&path).await;
        }
        let before = dump(&path).await;
        assert_eq!(before.len(), if is_newest { 23 } else { 5 });
        let store = open(&path).await;
        assert_sound(&store).await;
        store.close().await.unwrap();
        let after = dump(&path).await;
        assert_eq!(without_what_is_set(&after), without_what_is_set(&before));
        assert_eq!(number(&path, EVENTS).await, count(&before));
        // What had an incarnation keeps it, what had none has another one each.
        let incarnations = "SELECT count(DISTINCT incarnation) FROM kubun_connector_sync_state";
        assert_eq!(number(&path, incarnations).await, 3);
        assert!(after.iter().any(|row| row.contains("6f9619ff-8b86-4d11-b42d-00c04fc964ff")));
        let leased = "SELECT count(lease_expires_at) FROM kubun_connector_sync_state";
        assert_eq!(number(&path, leased).await, 0);
        // Nothing but the tables of the store has changed.
        assert_eq!(number(&path, "SELECT count(*) FROM failing").await, 1);
        assert_eq!(number(&path, "SELECT count(*) FROM graph").await, 1);
        let aside = "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%adopted%'";
        assert_eq!(number(&path, aside).await, 0);
    }
}

#[tokio::test]
async fn a_second_open_changes_nothing() {
    let (_directory, path) = place();
    newest(&path).await;
    open(&path).await.close().await.unwrap();
    let (rows, events) = (dump(&path).await, number(&path, EVENTS).await);
    let store = open(&path).await;
    assert_sound(&store).await;
    store.close().await.unwrap();
    assert_eq!((dump(&path).await, number(&path, EVENTS).await), (rows, events));
}

#[tokio::test]
async fn tables_without_rows_become_an_empty_store() {
    let (_directory, path) = place();
    newest(&path).await;
    for table in TABLES {
        change(&path, &format!("delete from {table}")).await;
    }
    let store = open(&path).await;
    assert_sound(&store).await;
    store.close().await.unwrap();
    assert_eq!(number(&path, EVENTS).await, 0);
}

fn progress(state: SyncState) -> SyncProgress {
    SyncProgress {
        checkpoint: Some(Json::parse("checkpoint", "2").unwrap()),
        recovery: state.recovery,
        last_synced_at: Rfc3339::parse("2026-02-01T00:00:00Z").unwrap(),
        entity_count: state.entity_count,
        error: None,
    }
}

#[tokio::test]
async fn an_adopted_sync_goes_on() {
    let (_directory, path) = place();
    newest(&path).await;
    let store = open(&path).await;
    let connector = store.connector(&owner(), &caldav());
    let state = connector.sync_state().await.unwrap().unwrap();
    assert_eq!(state.checkpoint.as_ref().unwrap().as_str(), r#"{"token": 9007199254740993}"#);
    assert_eq!(state.recovery.as_ref().unwrap().as_str(), r#" [ {"raw":"\u00e9"} ]"#);
    assert_eq!((state.version, state.status), (41, SyncStatus::Syncing));
    assert_eq!((state.entity_count, state.lease_expires_at), (9_007_199_254_740_993, None));
    let of = |state: Option<SyncState>| async move { progress(state.unwrap()) };
    let moved = connector.update_sync_progress_with(Some(0), of).await.unwrap();
    assert_eq!((moved.version, moved.incarnation), (42, state.incarnation));
    // One that had no incarnation can be moved on too.
    let other = store.connector(&OwnerDid::new("did:web:other").unwrap(), &caldav());
    other.update_sync_progress_with(Some(0), of).await.unwrap();
    let states = store.sync_states(&caldav(), None, 10).await.unwrap();
    let versions: Vec<i64> = states.iter().map(|entry| entry.state.version).collect();
    assert_eq!(versions, [1, 42]);
    assert_sound(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn an_adopted_authorization_is_consumed_once() {
    let (_directory, path) = place();
    newest(&path).await;
    let store = open(&path).await;
    let state = Secret::new("secret state");
    let record = store.consume_pending_auth(&state).await.unwrap();
    assert_eq!(record.code_verifier.expose(), "secret verifier");
    assert_eq!((record.scopes.join(" ").as_str(), record.is_incremental), ("read write", true));
    assert!(matches!(store.consume_pending_auth(&state).await, Err(Error::AlreadyConsumed)));
    let removed = store.delete_expired_pending_auths(Timestamp::from_millis(1)).await.unwrap();
    assert_eq!(removed, 1);
    assert_sound(&store).await;
    store.close().await.unwrap();
    let secrets = "SELECT count(*) FROM connector_journal WHERE instr(payload, 'secret')";
    assert_eq!(number(&path, secrets).await, 0);
}

#[tokio::test]
async fn adopted_copies_decide_as_far_as_their_signatures_are_right() {
    let (_directory, path) = place();
    newest(&path).await;
    let store = open(&path).await;
    let (ada, bob) = (owner_of(&person(1)), owner_of(&person(2)));
    let on = store.document(&document("d1"));
    let decision = on.observation_decision(&ada).await.unwrap().unwrap();
    assert_eq!(decision.payload.as_deref(), Some(&b"value \0 \xff"[..]));
    let mut found: Vec<_> = decision.copies.iter().map(|copy| copy.op_hash).collect();
    let mut given: Vec<_> = copies()[..2].iter().map(|copy| copy.op_hash).collect();
    found.sort_unstable();
    given.sort_unstable();
    assert_eq!(found, given);
    assert!(on.observation_decision(&bob).await.unwrap().is_none(), "a forged copy counted");
    let gone = store.document(&document("gone")).observation_decision(&ada).await.unwrap();
    assert_eq!(gone.unwrap().payload, None);
    // A newer one takes their place.
    let at = stamp(1_767_225_600_001);
    let newer = person(1).sign(&ada, &document("d1"), &at, &at, Some(b"new")).unwrap();
    on.put_observation_copy(&newer).await.unwrap();
    let decision = on.observation_decision(&ada).await.unwrap().unwrap();
    assert_eq!((decision.payload.as_deref(), decision.copies.len()), (Some(&b"new"[..]), 1));
    assert_sound(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_reader_of_repairs_misses_none_that_is_written_after_the_adopted_ones() {
    let (_directory, path) = place();
    newest(&path).await;
    let store = open(&path).await;
    let all = store.repairs_written_since(None, 10).await.unwrap();
    let at: Vec<i64> = all.iter().map(|repair| repair.written_at.as_millis()).collect();
    assert_eq!(at, [7, 9_999_999_999_999]);
    let last = all.last().unwrap();
    let repair = ObservationRepair { present: true, ..last.repair.clone() };
    // The store's time is earlier than what was adopted.
    store.document(&document("new")).put_repair(&repair).await.unwrap();
    let after = Some((last.written_at, &last.document_id));
    let more = store.repairs_written_since(after, 10).await.unwrap();
    assert_eq!(more.len(), 1, "{more:?}");
    assert_sound(&store).await;
    store.close().await.unwrap();
    change(&path, "DELETE FROM kubun_connector_observation_repair").await;
    let store = open(&path).await;
    assert_eq!(store.rebuild().await.unwrap().written, 3);
    let again = store.repairs_written_since(None, 10).await.unwrap();
    assert_eq!(again, [all, more].concat(), "a rebuilt row has another time");
    store.close().await.unwrap();
}

#[tokio::test]
async fn an_adopted_document_is_swept_with_all_that_it_has() {
    let (_directory, path) = place();
    newest(&path).await;
    let store = open(&path).await;
    let on = store.document(&document("d1"));
    assert!(on.has_document_connector_work().await.unwrap());
    let trim = on.entity_trim().await.unwrap().unwrap();
    assert_eq!(trim.trimmed_fields.as_str(), r#"["body", 9007199254740993]"#);
    on.sweep_document_rows().await.unwrap();
    assert!(!on.has_document_connector_work().await.unwrap());
    assert_sound(&store).await;
    store.close().await.unwrap();
    let left = dump(&path).await;
    let is_of_d1 = |row: &&String| row.contains("document_id='d1'") || row.contains(" id='d1'");
    assert_eq!(left.iter().filter(is_of_d1).count(), 0, "{left:?}");
}

fn begin(name: &str, provenance: Provenance) -> BeginReceipt {
    BeginReceipt {
        partition: partition(name),
        provenance,
        model_id: ModelId::new("event").unwrap(),
        scope: "all".to_owned(),
        source_fetch_hlc: stamp(1),
        predicate: None,
        kind: ReceiptKind::Full,
        fingerprint: "now".to_owned(),
    }
}

#[tokio::test]
async fn the_next_receipt_of_an_adopted_lineage_follows_the_last_one() {
    let (_directory, path) = place();
    newest(&path).await;
    let store = open(&path).await;
    let connector = store.connector(&owner(), &caldav());
    let last = connector.receipt(&partition("work"), &account(1)).await.unwrap().unwrap();
    assert_eq!((last.sequence, last.committed_at), (7, Some(Timestamp::from_millis(11))));
    let guard = MassDeleteGuard::default();
    let again = connector.commit_receipt(&last.key(), known(&[]), guard).await.unwrap();
    assert_eq!(again, CommitResult::default());

    let next = connector.begin_receipt(begin("work", account(1))).await.unwrap();
    assert_eq!(next.sequence, 8);
    let ids = vec![source("/a.ics"), source("/d.ics")];
    connector.extend_receipt(&next.key(), 0, ids, "now").await.unwrap();
    connector.complete_receipt(&next.key(), 1, Some(2), "now").await.unwrap();
    let known = known(&[("a", "/a.ics"), ("d1", "/c.ics"), ("d2", "/d.ics"), ("d3", "/e.ics")]);
    let result = connector.commit_receipt(&next.key(), known, guard).await.unwrap();
    // The dead one is missing again, the pending one stays as it is, the confirmed one is there.
    assert_eq!((result.missing, result.candidates, result.withdrawn), (2, 1, 1));
    let standing = connector.candidates(&partition("work"), None, 10).await.unwrap();
    let left: Vec<_> = standing.iter().map(|it| (it.document_id.as_str(), it.attempts)).collect();
    assert_eq!(left, [("d1", 2), ("d3", 0)]);
    assert_sound(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn adopted_candidates_hold_the_checkpoint_until_they_are_done() {
    let (_directory, path) = place();
    newest(&path).await;
    let store = open(&path).await;
    let connector = store.connector(&owner(), &caldav());
    let at = async || {
        let checkpoint = connector.sweep_checkpoint(&partition("work")).await.unwrap().unwrap();
        checkpoint.receipt_sequence
    };
    let key = |name: &str, id: &str| CandidateKey {
        partition: partition("work"),
        provenance: account(1),
        document_id: document(name),
        source_id: source(id),
    };
    assert_eq!(at().await, 6);
    let (first, second) = (key("d1", "/c.ics"), key("d2", "/d.ics"));
    let confirmed = connector.record_sweep_outcome(&first, SweepOutcome::Absent).await.unwrap();
    assert_eq!(confirmed, Some(CandidateState::Confirmed));
    connector.sweep_applied(&first).await.unwrap();
    assert_eq!(at().await, 6);
    // The fifth failure counts those from before.
    for expected in [CandidateState::Confirmed, CandidateState::Dead] {
        let state = connector.record_sweep_apply_failure(&second, "locked").await.unwrap();
        assert_eq!(state, Some(expected));
    }
    assert_eq!(at().await, 7);
    assert_sound(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_receipt_that_was_complete_is_committed_by_its_list() {
    let (_directory, path) = place();
    newest(&path).await;
    let store = open(&path).await;
    let connector = store.connector(&owner(), &caldav());
    let receipt = connector.receipt(&partition("home"), &account(1)).await.unwrap().unwrap();
    assert!(receipt.complete && receipt.committed_at.is_none());
    let known = known(&[("kept", "/é\""), ("lost", "/x.ics")]);
    let guard = MassDeleteGuard::default();
    let planned = connector.plan_receipt(&receipt.key(), known.clone(), guard).await.unwrap();
    assert_eq!((planned.known, planned.missing), (2, 1));
    let result = connector.commit_receipt(&receipt.key(), known, guard).await.unwrap();
    assert_eq!(result, planned);
    let lost = connector.candidates(&partition("home"), None, 10).await.unwrap();
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].document_id.as_str(), lost[0].provenance.as_str()), ("lost", "account-1"));
    // The older lineage is over, and begins a new era.
    let older = connector.receipt(&partition("home"), &account(0)).await.unwrap().unwrap();
    assert_eq!(older.sequence, 9);
    let next = connector.begin_receipt(begin("home", account(0))).await.unwrap();
    assert_eq!(next.sequence, 10);
    assert_sound(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_receipt_that_was_open_can_only_be_begun_anew() {
    let (_directory, path) = place();
    newest(&path).await;
    let store = open(&path).await;
    let connector = store.connector(&owner(), &caldav());
    let open = connector.receipt(&partition("open"), &account(1)).await.unwrap().unwrap();
    let key = open.key();
    for fingerprint in ["", "now"] {
        let extended = connector.extend_receipt(&key, 0, vec![source("/a.ics")], fingerprint).await;
        assert!(extended.is_err(), "{fingerprint:?}");
        let completed = connector.complete_receipt(&key, 0, None, fingerprint).await;
        assert!(completed.is_err(), "{fingerprint:?}");
    }
    let committed = connector.commit_receipt(&key, known(&[]), MassDeleteGuard::default()).await;
    assert!(matches!(committed, Err(Error::ReceiptIncomplete { .. })), "{committed:?}");
    let next = connector.begin_receipt(begin("open", account(1))).await.unwrap();
    assert_eq!((next.sequence, next.next_page), (2, 0));
    assert_sound(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn many_streams_are_adopted_by_pages() {
    let (_directory, path) = place();
    newest(&path).await;
    let many = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 300) ";
    for (table, values) in [
        ("entity_trim", "'many-' || n, 'did:web:owner', 'c', '[]', n"),
        (
            "sync_state",
            "'c', 'did:web:' || n, NULL, '2026-01-31T08:00:00Z', 0, 'idle', NULL, NULL, NULL, 0, NULL",
        ),
        (
            "pending_auth",
            "'state-' || n, 'v', 'p', 'did:web:o', NULL, NULL, 0, 'app:/', '[]', 0, 0",
        ),
        (
            "sweep_candidate",
            "'did:web:owner', 'caldav', 'work', 'account-1', 'many-' || n, '/' || n, 'event', \
             'pending', 0, 0, NULL, 0, 0",
        ),
    ] {
        let sql = format!("INSERT INTO kubun_connector_{table} {many} SELECT {values} FROM n");
        change(&path, &sql).await;
    }
    let copy = said(&person(3), &owner_of(&person(3)), "many-7", Some(b"x"));
    put_copy(&mut tool(&path).await, &copy).await;
    let before = dump(&path).await;
    let store = open(&path).await;
    assert_sound(&store).await;
    store.close().await.unwrap();
    assert_eq!(without_what_is_set(&dump(&path).await), without_what_is_set(&before));
    assert_eq!(number(&path, EVENTS).await, count(&before));
}
