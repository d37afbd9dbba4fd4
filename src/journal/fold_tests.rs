//! The rules of loading a state.

use uuid::Uuid;

use super::*;
use crate::base::{ConnectorName, DocumentId, Json, OwnerDid, Timestamp};
use crate::domain::document::{Document, DocumentEvent, EntityTrimSet};
use crate::journal::memory::{MemoryJournal, MemoryStorage, Tables};
use crate::journal::port::{Append, AppendOutcome, NewEvent, NewSnapshot, Part};
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
    };
    let append = Append { command_id, record: None, parts: vec![part], fences: Vec::new() };
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
    use crate::domain::{Table, Value};
    use crate::journal::world::{connector, world};

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
