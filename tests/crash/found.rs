//! What is found in a store after its process was killed, and whether it is whole.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use connector_store::domain::{LeaseScope, Table, Value};
use connector_store::journal::{RowQuery, Storage};
use connector_store::{CandidateState, Error, Store};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use crate::names;
use crate::work::{Auth, DOCS, Doc, LeaseSeen, Receipt, Seen, Sync, recovery, text};

/// Everything of a task's keys. `consumed` are the authorizations that may have been consumed.
pub async fn seen(
    store: &Store,
    storage: &dyn Storage,
    task: usize,
    consumed: &BTreeSet<u64>,
) -> Seen {
    let lease = lease(storage, task).await;
    let mut docs = Vec::new();
    let begun = store.begun_sweeps(None, 10_000).await.unwrap();
    for doc in 0..DOCS {
        let id = names::document(task, doc);
        let trim = store.document(&id).entity_trim().await.unwrap();
        let trim = trim.map(|trim| {
            let n = number(trim.trimmed_fields.as_str());
            assert_eq!(trim.trimmed_fields.as_str(), text(n), "a torn trim");
            assert_eq!((trim.owner, trim.connector), (names::owner(task), names::connector()));
            n
        });
        docs.push(Doc { trim, sweep_begun: begun.iter().any(|begun| begun.document_id == id) });
    }
    let connector = store.connector(&names::owner(task), &names::connector());
    let receipt = connector.receipt(&names::partition(), &names::provenance()).await.unwrap();
    let candidates = connector.candidates(&names::partition(), None, 1_000).await.unwrap();
    let candidates = candidates
        .iter()
        .map(|it| (names::place(&it.document_id), it.state == CandidateState::Confirmed));
    let checkpoint = connector.sweep_checkpoint(&names::partition()).await.unwrap();
    Seen {
        docs,
        sync: sync(store, task, lease.as_ref()).await,
        lease,
        receipt: receipt.map(|receipt| Receipt {
            sequence: receipt.sequence,
            next_page: receipt.next_page,
            ids: receipt.ids,
            complete: receipt.complete,
            committed: receipt.committed_at.is_some(),
        }),
        candidates: candidates.collect(),
        checkpoint: checkpoint.map(|checkpoint| checkpoint.receipt_sequence),
        owed: !connector.owed_sweeps().await.unwrap().is_empty(),
        auths: auths(store, storage, task, consumed).await,
    }
}

fn number(text: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    value["n"].as_u64().unwrap()
}

/// The sync state, all of whose fields must be of one command.
async fn sync(store: &Store, task: usize, lease: Option<&LeaseSeen>) -> Option<Sync> {
    let connector = store.connector(&names::owner(task), &names::connector());
    let state = connector.sync_state().await.unwrap()?;
    let n = number(state.checkpoint.as_ref().unwrap().as_str());
    assert_eq!(state.checkpoint.unwrap().as_str(), text(n));
    assert_eq!(state.recovery.map(|it| it.as_str().to_owned()), recovery(n), "torn content");
    assert_eq!(state.error, names::state_input(n).error);
    let mirrored = state.lease_expires_at.map(connector_store::Timestamp::as_millis);
    assert_eq!(mirrored, lease.map(|lease| lease.expires_at), "the mirror of the lease");
    let status = state.status.as_str().to_owned();
    Some(Sync { n, count: state.entity_count, status, version: state.version })
}

async fn lease(storage: &dyn Storage, task: usize) -> Option<LeaseSeen> {
    let scope = LeaseScope::Sync { owner: names::owner(task), connector: names::connector() };
    let row = storage.row(&scope.row_key()).await.unwrap()?;
    let [_, Value::Text(holder), Value::Text(token), Value::Int(expires_at)] = &row.values[..]
    else {
        panic!("a lease's row")
    };
    assert_eq!(**holder, *names::holder(task).as_str());
    Some(LeaseSeen { token: token.to_string(), expires_at: *expires_at })
}

/// Pending ones are in their rows. A consumed one says so when it is consumed again.
async fn auths(
    store: &Store,
    storage: &dyn Storage,
    task: usize,
    consumed: &BTreeSet<u64>,
) -> BTreeMap<u64, Auth> {
    let mut auths = BTreeMap::new();
    let prefix = format!("state-{task}-");
    for row in rows(storage, Table::PendingAuth).await {
        let state = row[0].as_text().unwrap();
        if let Some(n) = state.strip_prefix(&prefix) {
            auths.insert(n.parse().unwrap(), Auth::Pending);
        }
    }
    for n in consumed {
        if auths.contains_key(n) {
            continue;
        }
        match store.consume_pending_auth(&names::auth_state(task, *n)).await {
            Err(Error::AlreadyConsumed) => _ = auths.insert(*n, Auth::Consumed),
            Err(Error::NotFound { .. }) => {}
            other => panic!("authorization {n} of task {task}: {other:?}"),
        }
    }
    auths
}

/// All rows of a table.
async fn rows(storage: &dyn Storage, table: Table) -> Vec<Vec<Value>> {
    let (order, mut all) = (table.spec().key.to_vec(), Vec::<Vec<Value>>::new());
    loop {
        let after = all.last().map(|last| order.iter().map(|&at| last[at].clone()).collect());
        let query =
            RowQuery { table, filters: Vec::new(), order: order.clone(), after, limit: 1_000 };
        let page = storage.rows(&query).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page.into_iter().map(|row| row.values));
    }
}

/// Events, heads, snapshots and rows agree, and rows made anew from the journal are the same.
pub async fn store_is_whole(store: &Store, storage: &dyn Storage) {
    let report = store.verify().await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    let before = all_rows(storage).await;
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!((rebuilt.written, rebuilt.removed), (0, 0), "{rebuilt:?}");
    assert!(rebuilt.lost.is_empty() && rebuilt.damages.is_empty(), "{rebuilt:?}");
    assert!(before == all_rows(storage).await, "rows differ after they were made anew");
}

async fn all_rows(storage: &dyn Storage) -> Vec<Vec<Vec<Value>>> {
    let mut tables = Vec::new();
    for table in Table::ALL {
        tables.push(rows(storage, table).await);
    }
    tables
}

/// What the engine says of the file, and of heads without their events.
pub async fn file_is_intact(database: &Path) {
    let options = SqliteConnectOptions::new().filename(database).read_only(true);
    let mut connection = options.connect().await.unwrap();
    assert_eq!(answer(&mut connection, "PRAGMA integrity_check").await, "ok");
    let heads = "SELECT CAST(COUNT(*) AS TEXT) FROM connector_stream AS s WHERE version IS NOT \
                 (SELECT MAX(stream_version) FROM connector_journal AS j WHERE j.stream = s.stream)";
    assert_eq!(answer(&mut connection, heads).await, "0", "heads without their newest event");
    let orphans = "SELECT CAST(COUNT(*) AS TEXT) FROM connector_journal \
                   WHERE stream NOT IN (SELECT stream FROM connector_stream)";
    assert_eq!(answer(&mut connection, orphans).await, "0", "events without a head");
    connection.close().await.unwrap();
}

async fn answer(connection: &mut SqliteConnection, sql: &'static str) -> String {
    sqlx::query(sql).fetch_one(connection).await.unwrap().get(0)
}
