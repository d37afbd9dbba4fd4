//! Live sessions and other calls while a connection is forgotten.

use std::sync::Arc;

use connector_store::domain::{ColumnType, Row, RowChange, Table, Value};
use connector_store::journal::{Append, MemoryJournal, Part, Storage};
use connector_store::testing::{Fault, FaultyStorage, Gate};
use connector_store::{
    Claim, ConnectorName, Error, OwnerDid, Store, StreamKey, StreamKind, WatchIdentity,
};

use super::world::{
    Account, SECOND, account, document, expectation, holder, json, request, source, state,
};

fn is_forgotten<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::ConnectionForgotten { .. }))
}

fn is_lost<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::LeaseLost { .. }))
}

/// A store on a memory whose writing a test can stop.
async fn open() -> (Store, Arc<FaultyStorage>) {
    let journal = MemoryJournal::new();
    let faulty = Arc::new(FaultyStorage::new(Arc::new(journal.open().unwrap())));
    let store = Store::builder().storage(Arc::clone(&faulty) as _).open().await.unwrap();
    (store, faulty)
}

#[tokio::test]
async fn behind_the_mark_sessions_are_lost_and_everything_else_is_refused() {
    let (store, faulty) = open().await;
    let Account { owner, connector } = account("o", "folder");
    let handle = store.connector(&owner, &connector);
    let lease = handle.acquire_lease(&holder(), 100 * SECOND).await.unwrap();
    let session = lease.session();
    session.connector().set_sync_state(state("[1]")).await.unwrap();
    mark_only(&store, &faulty, &owner, &connector).await;
    let (document, other) = (document("d"), holder());
    let request = request(&account("o", "folder"), "op");
    let identity = WatchIdentity {
        owner: owner.clone(),
        connector: connector.clone(),
        source_id: source("s"),
    };
    let fenced = session.document(&document);
    assert!(is_lost(fenced.set_entity_trim(&owner, &connector, json("[]")).await));
    assert!(is_lost(session.connector().sync_state().await));
    assert!(is_lost(lease.renew(SECOND).await) && is_lost(lease.release().await));
    let plain = store.document(&document);
    assert!(is_forgotten(plain.arm_watch(&identity, &expectation(SECOND)).await));
    assert!(is_forgotten(plain.claim_operation(&request, &other, SECOND).await.map(drop)));
    assert!(is_forgotten(handle.set_sync_state(state("[2]")).await));
    assert!(is_forgotten(handle.acquire_lease(&other, SECOND).await));
    assert!(is_forgotten(handle.owed_sweeps().await));
    // Another connection of the same owner goes on, and so does a sweep of the document.
    let beside = super::world::request(&account("o", "mail"), "op 2");
    let claimed = plain.claim_operation(&beside, &other, SECOND).await.unwrap();
    let Claim::Attempt(claimed) = claimed else { panic!("{claimed:?}") };
    claimed.finalize_dead("given up").await.unwrap();
    plain.sweep_document_rows().await.unwrap();
    store.resume_forgetting(&owner, &connector).await.unwrap();
    assert!(handle.sync_state().await.unwrap().is_none());
    let claimed = plain.claim_operation(&request, &other, SECOND).await;
    assert!(matches!(claimed, Ok(Claim::Attempt(_))), "the account is connected anew");
    assert!(is_lost(session.connector().sync_state().await), "a lost session stays lost");
}

/// A call that is dropped right behind its mark.
async fn mark_only(
    store: &Store,
    faulty: &FaultyStorage,
    owner: &OwnerDid,
    connector: &ConnectorName,
) {
    let gate = Gate::new();
    faulty.next_append(Fault::None);
    faulty.next_append(Fault::StallBefore(gate.clone()));
    let (forgetter, of, name) = (store.clone(), owner.clone(), connector.clone());
    let call = tokio::spawn(async move { forgetter.forget_connection(&of, &name).await });
    gate.reached().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    gate.open();
    let standing = store.forgetting(None, 10).await.unwrap();
    assert_eq!((&standing[0].owner, &standing[0].connector), (owner, connector));
}

/// The row of an unfinished operation, as another host's claim leaves it.
fn unfinished_row(account: &Account) -> Row {
    let columns = Table::Operation.spec().columns.iter();
    let values = columns.map(|column| match (column.name, column.kind) {
        ("owner_did", _) => Value::text(account.owner.as_str()),
        ("connector_name", _) => Value::text(account.connector.as_str()),
        ("state", _) => Value::text("attempted"),
        (_, ColumnType::Text) => Value::text("x"),
        (_, ColumnType::Int) => Value::Int(1),
        (_, ColumnType::Blob) => Value::Blob([1].into()),
    });
    Row::new(Table::Operation, values.collect())
}

/// A claim of another host that commits between the look-up and the mark is found behind the mark.
#[tokio::test]
async fn a_claim_right_before_the_mark_makes_the_call_give_up() {
    let (store, faulty) = open().await;
    let account = account("o", "folder");
    let Account { owner, connector } = &account;
    let handle = store.connector(owner, connector);
    handle.set_sync_state(state("[1]")).await.unwrap();
    let lease = handle.acquire_lease(&holder(), 100 * SECOND).await.unwrap();
    let stream = StreamKey::Connector(owner.clone(), connector.clone()).stream_name();
    let (named, row) = (stream.clone(), unfinished_row(&account));
    let finished = RowChange::Delete(row.key());
    faulty.rival(stream, move |head| Append {
        command_id: uuid::Uuid::from_u128(1),
        record: None,
        parts: vec![Part {
            stream: named,
            kind: StreamKind::Connector,
            expected: head,
            events: Vec::new(),
            rows: vec![RowChange::Put(row)],
            snapshot: None,
            erase: false,
            trim: false,
        }],
        fences: Vec::new(),
        absent: Vec::new(),
    });
    let refused = store.forget_connection(owner, connector).await.unwrap_err();
    assert_eq!(faulty.faults_done(), 1, "the claim came right before the mark");
    assert!(matches!(refused, Error::ForgetUnfinishedOperation { .. }), "{refused}");
    assert!(store.forgetting(None, 10).await.unwrap().is_empty(), "no mark is left");
    assert!(handle.sync_state().await.unwrap().is_some());
    assert!(is_lost(lease.renew(SECOND).await), "the mark has ended the sessions");
    faulty.replace_rows(&[finished], &[]).await.unwrap();
    store.forget_connection(owner, connector).await.unwrap();
    assert!(faulty.rows(&all_marks()).await.unwrap().is_empty());
}

fn all_marks() -> connector_store::journal::RowQuery {
    let order = vec![0, 1];
    let (table, filters) = (Table::Forgetting, Vec::new());
    connector_store::journal::RowQuery { table, filters, order, after: None, limit: 10 }
}

#[tokio::test]
async fn many_calls_at_once_forget_once_and_all_succeed() {
    let (store, faulty) = open().await;
    let Account { owner, connector } = account("o", "folder");
    let handle = store.connector(&owner, &connector);
    handle.set_sync_state(state("[1]")).await.unwrap();
    for at in 0..50 {
        let document = store.document(&document(&format!("d{at}")));
        document.set_entity_trim(&owner, &connector, json("[]")).await.unwrap();
    }
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let (store, owner, connector) = (store.clone(), owner.clone(), connector.clone());
            tokio::spawn(async move { store.forget_connection(&owner, &connector).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert!(faulty.rows(&all_marks()).await.unwrap().is_empty());
    assert!(handle.sync_state().await.unwrap().is_none());
    for at in 0..50 {
        let trim = store.document(&document(&format!("d{at}"))).entity_trim().await.unwrap();
        assert!(trim.is_none(), "d{at}");
    }
}
