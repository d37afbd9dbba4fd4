//! The times of repairs: a cursor over them misses nothing, read by anyone with plain SQL.

use std::collections::BTreeMap;
use std::sync::Arc;

use connector_store::StreamKind;
use connector_store::domain::document::{DocumentEvent, EntityTrimSet};
use connector_store::domain::{Row, RowChange, StoredEvent as _, Table, Value};
use connector_store::journal::{
    Append, AppendOutcome, Expected, NewEvent, Part, PostgresOptions, PostgresStorage, Storage,
    encode_event,
};
use uuid::Uuid;

use crate::common::*;
use crate::proxy::{Cut, Proxy};
use crate::world::{World, open_storage};

/// An append that writes an event of a new document, and its repair or its trim.
fn append(name: &str, is_repair: bool) -> Append {
    let event = DocumentEvent::EntityTrimSet(EntityTrimSet {
        owner: owner("o"),
        connector: folder(),
        trimmed_fields: json(1),
        updated_at: connector_store::Timestamp::default(),
    });
    let new = NewEvent {
        event_type: event.event_type(),
        schema: event.schema(),
        payload: encode_event(&event).unwrap(),
        is_swept: false,
    };
    let text = |text: &str| Value::text(text);
    let row = if is_repair {
        let names = [text(name), text("did:web:o"), text("f"), text("d"), Value::Int(1)];
        let values = [&names[..], &[text("digest"), Value::Stamp]].concat();
        Row { table: Table::ObservationRepair, values }
    } else {
        let values = vec![text(name), text("did:web:o"), text("folder"), text("1"), Value::Int(1)];
        Row { table: Table::EntityTrim, values }
    };
    let part = Part {
        stream: document_key(name).stream_name(),
        kind: StreamKind::Document,
        expected: Expected::NONE,
        events: vec![new],
        rows: vec![RowChange::Put(row)],
        snapshot: None,
        erase: false,
        trim: false,
    };
    let command_id = Uuid::now_v7();
    Append { command_id, record: None, parts: vec![part], fences: Vec::new(), absent: Vec::new() }
}

/// Writes them as one batch, and gives the times of their repairs.
async fn write(storage: &PostgresStorage, batch: Vec<Append>) -> Vec<i64> {
    let outcomes = storage.append(&batch, connector_store::Timestamp::default()).await.unwrap();
    let stamps = outcomes.into_iter().flat_map(|outcome| match outcome {
        AppendOutcome::Committed { taken } => taken,
        outcome => panic!("{outcome:?}"),
    });
    stamps.map(|row| row.values[6].as_int().unwrap()).collect()
}

async fn storage(url: String) -> Arc<PostgresStorage> {
    open_storage(PostgresOptions::new(url)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_over_the_times_of_repairs_misses_none_of_two_hosts() {
    const HOSTS: usize = 2;
    const EACH: usize = 60;
    const PAGE: usize = 7;
    let Some(world) = World::new() else { return };
    let mut writers = Vec::new();
    for host in 0..HOSTS {
        let storage = storage(world.url()).await;
        writers.push(tokio::spawn(async move {
            let mut written = BTreeMap::new();
            for at in 0..EACH {
                // Those of one batch share their time: of some batches they fill whole pages.
                let names: Vec<_> =
                    (0..1 + at % 10).map(|nth| format!("{host}-{at}-{nth}")).collect();
                let batch = names.iter().map(|name| append(name, true)).collect();
                written.extend(names.iter().cloned().zip(write(&storage, batch).await));
            }
            written
        }));
    }
    let mut session = world.session().await;
    let (mut read, mut cursor) = (BTreeMap::new(), (0, String::new()));
    loop {
        let is_over = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let page: Vec<(i64, String)> = sqlx::query_as(
            "SELECT written_at, document_id FROM kubun_connector_observation_repair \
             WHERE (written_at, document_id) > ($1, $2) ORDER BY written_at, document_id LIMIT $3",
        )
        .bind(cursor.0)
        .bind(&cursor.1)
        .bind(i64::try_from(PAGE).unwrap())
        .fetch_all(&mut session)
        .await
        .unwrap();
        cursor = page.last().cloned().unwrap_or(cursor);
        let is_empty = page.is_empty();
        for (at, name) in page {
            assert!(read.insert(name.clone(), at).is_none(), "{name} is read once");
        }
        if is_over && is_empty {
            break;
        }
    }
    let mut written = BTreeMap::new();
    for writer in writers {
        written.append(&mut bounded(writer).await.unwrap());
    }
    assert_eq!(read, written);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_waits_for_the_one_before_it_and_nothing_else_does() {
    let Some(world) = World::new() else { return };
    let proxy = Proxy::start(world.server.port()).await;
    let (late, other) = (storage(proxy.url(&world.database)).await, storage(world.url()).await);
    proxy.at_commit(Cut::Hold);
    let first = tokio::spawn(async move { write(&late, vec![append("first", true)]).await });
    bounded(proxy.seen(1)).await;
    bounded(write(&other, vec![append("no repair", false)])).await;
    let second = tokio::spawn(async move { write(&other, vec![append("second", true)]).await });
    world.until_locked_out(1).await;
    assert!(!second.is_finished());
    proxy.release();
    let (first, second) = (bounded(first).await.unwrap(), bounded(second).await.unwrap());
    assert!(first[0] < second[0], "{first:?} {second:?}");
}
