//! The rules of loading a state.

use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::base::{ConnectorName, DocumentId, Json, OwnerDid, Timestamp};
use crate::domain::document::{Document, DocumentEvent, EntityTrimSet};
use crate::journal::memory::{MemoryJournal, MemoryStorage, Stream, Tables};
use crate::journal::port::{Append, AppendOutcome, NewEvent, NewSnapshot, Part};
use crate::journal::world::{connector, copy, document, put_copy, run, set_trim, world};
use crate::journal::{encode_event, encode_snapshot};

fn key() -> StreamKey {
    StreamKey::Document(DocumentId::new("d").unwrap())
}

fn trim_set(at: i64) -> DocumentEvent {
    DocumentEvent::EntityTrimSet(EntityTrimSet {
        owner: OwnerDid::new("did:web:o").unwrap(),
        connector: ConnectorName::new("c").unwrap(),
        trimmed_fields: Json::parse("trimmed_fields", "[]").unwrap(),
        updated_at: Timestamp::from_millis(at),
    })
}

/// Appends one event; with it the snapshot of `state` after it, and the erasure of what was before.
async fn append(
    storage: &MemoryStorage,
    expected: Expected,
    event: DocumentEvent,
    snapshot: Option<&Document>,
) -> Expected {
    let new = NewEvent {
        event_type: event.event_type(),
        schema: event.schema(),
        payload: encode_event(&event).unwrap(),
        is_swept: event.is_swept(),
    };
    let version = expected.version + 1;
    let command_id = Uuid::from_u128(u128::try_from(version).unwrap());
    let part = Part {
        stream: key().stream_name(),
        kind: key().kind(),
        expected,
        events: vec![new],
        rows: Vec::new(),
        snapshot: snapshot
            .map(|state| NewSnapshot { schema: 1, payload: encode_snapshot(state).unwrap() }),
        erase: event.is_swept(),
        trim: false,
    };
    let append = Append {
        command_id,
        record: None,
        parts: vec![part],
        fences: Vec::new(),
        absent: Vec::new(),
    };
    let outcomes = storage.append(&[append], Timestamp::from_millis(7)).await.unwrap();
    assert!(matches!(outcomes[..], [AppendOutcome::Committed { .. }]));
    Expected { version, command_id }
}

/// Three events, with a snapshot at the second if asked.
async fn three(snapshot: bool) -> (MemoryJournal, MemoryStorage) {
    let journal = MemoryJournal::new();
    let storage = journal.open().unwrap();
    let mut state = Document::default();
    let mut head = Expected::NONE;
    for at in 1..=3 {
        let event = trim_set(at);
        state.apply(&event);
        let taken = (snapshot && at == 2).then_some(&state);
        head = append(&storage, head, event, taken).await;
    }
    (journal, storage)
}

fn updated_at(loaded: &LoadedState<Document>) -> Option<i64> {
    loaded.state.trim.as_ref().map(|trim| trim.updated_at.as_millis())
}

#[tokio::test]
async fn a_state_is_the_snapshot_and_the_events_behind_it() {
    for (snapshot, tail_len) in [(false, 3), (true, 1)] {
        let (_journal, storage) = three(snapshot).await;
        let loaded = load_state::<Document>(&storage, &key()).await.unwrap();
        assert_eq!((loaded.tail_len, updated_at(&loaded)), (tail_len, Some(3)));
        assert_eq!(loaded.expected, Expected { version: 3, command_id: Uuid::from_u128(3) });
    }
}

#[tokio::test]
async fn a_key_without_events_has_the_default_state() {
    let storage = MemoryJournal::new().open().unwrap();
    let loaded = load_state::<Document>(&storage, &key()).await.unwrap();
    assert_eq!((loaded.state, loaded.expected), (Document::default(), Expected::NONE));
}

#[tokio::test]
async fn a_stream_goes_on_after_its_erasure() {
    let (_journal, storage) = three(true).await;
    let head = Expected { version: 3, command_id: Uuid::from_u128(3) };
    let head = append(&storage, head, DocumentEvent::Swept, None).await;
    assert_eq!(load_state::<Document>(&storage, &key()).await.unwrap().state, Document::default());
    append(&storage, head, trim_set(5), None).await;
    let loaded = load_state::<Document>(&storage, &key()).await.unwrap();
    assert_eq!((updated_at(&loaded), loaded.expected.version), (Some(5), 5));
}

#[tokio::test]
async fn a_damaged_snapshot_falls_back_to_the_events_if_they_are_all_there() {
    let spoil = |tables: &mut Tables| {
        let stream = tables.streams.get_mut(&key().stream_name()).unwrap();
        stream.snapshot.as_mut().unwrap().payload[0] ^= 1;
    };
    let (journal, storage) = three(true).await;
    journal.tamper(spoil);
    let loaded = load_state::<Document>(&storage, &key()).await.unwrap();
    assert_eq!((loaded.tail_len, updated_at(&loaded)), (3, Some(3)));
    let cut = crate::journal::HistoryCut { recorded_before: Timestamp::from_millis(8), limit: 9 };
    assert_eq!(storage.cut_history(cut).await.unwrap(), 2);
    let refused = load_state::<Document>(&storage, &key()).await.unwrap_err();
    assert!(refused.to_string().contains("document d: its snapshot"), "{refused}");
}

#[tokio::test]
async fn a_snapshot_that_does_not_reach_what_was_cut_off_is_refused() {
    let cut = crate::journal::HistoryCut { recorded_before: Timestamp::from_millis(8), limit: 9 };
    let cases: [fn(&mut Stream); 2] = [
        |stream| stream.base.as_mut().unwrap().hash = stream.head.hash,
        |stream| stream.base.as_mut().unwrap().version += 1,
    ];
    for spoil in cases {
        let (journal, storage) = three(true).await;
        assert_eq!(storage.cut_history(cut).await.unwrap(), 2);
        assert_eq!(load_state::<Document>(&storage, &key()).await.unwrap().tail_len, 1);
        journal.tamper(|tables| spoil(tables.streams.get_mut(&key().stream_name()).unwrap()));
        let refused = load_state::<Document>(&storage, &key()).await.unwrap_err();
        assert!(refused.to_string().contains("its snapshot does not go with"), "{refused}");
    }
}

/// What is done to the stored tables, and what the refusal says.
type Spoiling = (fn(&mut Tables), &'static str);

#[tokio::test]
async fn a_changed_missing_or_swapped_event_is_refused() {
    let cases: [Spoiling; 5] = [
        (|tables| tables.journal.get_mut(&2).unwrap().payload[3] ^= 1, "event 2"),
        (
            |tables| tables.journal.get_mut(&2).unwrap().recorded_at = Timestamp::default(),
            "event 2",
        ),
        (|tables| drop(tables.journal.remove(&2)), "event 3"),
        (|tables| drop(tables.journal.remove(&3)), "newest events"),
        (
            |tables| {
                let second = tables.journal.get(&2).unwrap().payload.clone();
                let third =
                    std::mem::replace(&mut tables.journal.get_mut(&3).unwrap().payload, second);
                tables.journal.get_mut(&2).unwrap().payload = third;
            },
            "event 2",
        ),
    ];
    for (at, (spoil, named)) in cases.into_iter().enumerate() {
        let (journal, storage) = three(false).await;
        journal.tamper(spoil);
        let refused = load_state::<Document>(&storage, &key()).await.unwrap_err();
        assert!(refused.to_string().contains(named), "{at}: {refused}");
    }
}

/// The state keeps `recovery` in memory; the journal proves what the row must hold.
#[tokio::test]
async fn content_that_is_not_what_was_written_is_refused() {
    use crate::domain::connector::Connector;

    let (journal, storage) = world(false).await;
    let key = connector("did:web:a");
    assert!(load_state::<Connector>(&storage, &key).await.is_ok());
    journal.tamper(|tables| {
        let is_it = |row: &&mut Row| row.table == Table::SyncState && row.values[8] != Value::Null;
        tables.rows.values_mut().find(is_it).unwrap().values[8] = Value::text("{}");
    });
    let refused = load_state::<Connector>(&storage, &key).await.unwrap_err();
    assert!(refused.to_string().contains("kubun_connector_sync_state"), "{refused}");
    assert!(load_state::<Connector>(&storage, &connector("did:web:a!")).await.is_ok());
}

/// How many tokens a document has in memory, and how many payloads.
fn contents(document: &Document) -> (usize, usize) {
    let contents = document.observations.values().flat_map(|at| at.content.values());
    contents.fold((0, 0), |(tokens, payloads), content| {
        let is_there = (content.token.is_some(), content.payload.is_some());
        (tokens + usize::from(is_there.0), payloads + usize::from(is_there.1))
    })
}

#[tokio::test]
async fn copies_are_read_with_their_content_over_many_pages() {
    let storage = MemoryJournal::new().open().unwrap();
    for at in 0..40 {
        let put = copy("did:web:o", &format!("s{at}"), 1, Some(b"value"));
        put_copy(&storage, "d", put, false).await;
    }
    let loaded = load_state::<Document>(&storage, &document("d")).await.unwrap();
    assert_eq!(contents(&loaded.state), (40, 40));
    let (_, observation) = loaded.state.observations.first_key_value().unwrap();
    for copy in observation.set.copies.values() {
        let content = &observation.content[&copy.op_hash];
        let token = content.token.as_ref().unwrap();
        assert_eq!(crate::base::Digest::of(token.text().as_bytes()), copy.op_hash);
        assert_eq!(token.verdict(0), None, "what is read was not verified");
        assert_eq!(content.payload.as_deref(), Some(b"value".as_slice()));
    }
}

#[tokio::test]
async fn a_copy_whose_content_is_lost_or_damaged_stays_away_and_the_document_is_loaded() {
    // Of five copies of three owners; two owners have a value, one of them in two rows.
    type Spoil = fn(&mut Tables, &RowKey);
    let cases: [(Spoil, (usize, usize)); 5] = [
        (|_, _| {}, (5, 3)),
        (|tables, key| drop(tables.rows.remove(key)), (4, 2)),
        (|tables, key| tables.rows.get_mut(key).unwrap().values[5] = Value::text("x"), (4, 3)),
        (|tables, key| tables.rows.get_mut(key).unwrap().values[6] = Value::Null, (5, 2)),
        (|tables, _| tables.rows.retain(|key, _| key.table != Table::ObservationRecords), (0, 0)),
    ];
    for (at, (spoil, expected)) in cases.into_iter().enumerate() {
        let (journal, storage) = world(false).await;
        journal.tamper(|tables| {
            let mut keys = tables.rows.keys().filter(|key| key.table == Table::ObservationRecords);
            let first = keys.next().unwrap().clone();
            spoil(tables, &first);
        });
        let loaded = load_state::<Document>(&storage, &document("observed")).await.unwrap();
        assert_eq!(contents(&loaded.state), expected, "{at}");
        assert_eq!(loaded.state.observations.len(), 3, "the copies stand");
    }
}

/// Loads a state whose rows are read while they are away; `write` runs before the load goes on.
async fn load_meanwhile<A: Aggregate>(
    key: StreamKey,
    write: impl AsyncFnOnce(&MemoryStorage),
) -> Result<LoadedState<A>> {
    use crate::testing::{FaultyStorage, Gate};

    let (journal, storage) = world(false).await;
    let storage = Arc::new(storage);
    let faulty = FaultyStorage::new(storage.clone());
    let rows = journal.tamper(|tables| std::mem::take(&mut tables.rows));
    let gate = Gate::new();
    faulty.stall_next_rows(gate.clone());
    let load = tokio::spawn(async move { load_state::<A>(&faulty, &key).await });
    gate.reached().await;
    journal.tamper(|tables| tables.rows = rows);
    write(&storage).await;
    gate.open();
    load.await.unwrap()
}

/// The rows are read after the events. Between the two another host may have written.
#[tokio::test]
async fn rows_that_vanish_because_another_host_wrote_are_read_again() {
    use crate::domain::connector::{Connector, ConnectorCommand};

    let observed = || document("observed");
    let loaded = load_meanwhile::<Document>(observed(), async |_| {}).await.unwrap();
    assert_eq!(contents(&loaded.state), (0, 0), "nobody wrote, so they are lost");
    let write = async |storage: &MemoryStorage| set_trim(storage, "observed", "[]", false).await;
    let loaded = load_meanwhile::<Document>(observed(), write).await.unwrap();
    assert_eq!(contents(&loaded.state), (5, 3));
    assert!(loaded.state.trim.is_some(), "the state is the newer one");

    let synced = || connector("did:web:a");
    assert!(load_meanwhile::<Connector>(synced(), async |_| {}).await.is_err());
    let write = async |storage: &MemoryStorage| {
        run::<Connector>(storage, &synced(), ConnectorCommand::BeginForget, false).await;
    };
    assert!(load_meanwhile::<Connector>(synced(), write).await.is_ok());
}
