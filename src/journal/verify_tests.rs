//! Every kind of damage, and its name.

use super::*;
use crate::base::Timestamp;
use crate::domain::document::Document;
use crate::domain::{Aggregate, Value};
use crate::journal::memory::{MemoryJournal, MemoryStorage, Stream, Tables};
use crate::journal::port::{Append, NewEvent, NewSnapshot, Part};
use crate::journal::world::{SECRET_STATES, connector, document, tables, world};
use crate::journal::{decode_event, encode_snapshot, load_state};

fn stream<'a>(tables: &'a mut Tables, key: &StreamKey) -> &'a mut Stream {
    tables.streams.get_mut(&key.stream_name()).unwrap()
}

/// The stored event of a version of the document `long`.
fn event(tables: &mut Tables, version: i64) -> &mut crate::journal::JournalRecord {
    let position = stream(tables, &document("long")).positions[&version];
    tables.journal.get_mut(&position).unwrap()
}

fn remove_events(tables: &mut Tables, versions: std::ops::RangeInclusive<i64>) {
    for version in versions {
        let position = stream(tables, &document("long")).positions.remove(&version).unwrap();
        tables.journal.remove(&position);
    }
}

fn row(tables: &mut Tables, table: Table) -> &mut Row {
    tables.rows.values_mut().find(|row| row.table == table).unwrap()
}

fn remove_row(tables: &mut Tables, table: Table) {
    let key = row(tables, table).key();
    tables.rows.remove(&key);
}

async fn found(journal: &MemoryJournal, storage: &MemoryStorage, spoil: Spoil) -> Vec<String> {
    journal.tamper(spoil);
    let report = verify(storage).await.unwrap();
    report.damages.iter().map(ToString::to_string).collect()
}

type Spoil = fn(&mut Tables);

#[tokio::test]
async fn a_sound_store_has_no_damage() {
    for cut in [false, true] {
        let (journal, storage) = world(cut).await;
        let report = verify(&storage).await.unwrap();
        assert!(report.is_sound(), "{:?}", report.damages);
        let (streams, events, rows) = journal
            .tamper(|tables| (tables.streams.len(), tables.journal.len(), tables.rows.len()));
        assert_eq!((report.streams, report.events), (streams as u64, events as u64));
        assert_eq!(report.rows, rows as u64);
        let tables: BTreeSet<Table> =
            journal.tamper(|tables| tables.rows.keys().map(|key| key.table).collect());
        assert_eq!(tables, self::tables().collect(), "the world has a row of every table");
    }
}

#[tokio::test]
async fn each_damage_of_a_stream_is_named() {
    let long = r#"stream "document:long": "#;
    let cases: [(Spoil, &[&str]); 15] = [
        (|tables| event(tables, 2).payload[2] ^= 1, &["event 2 was changed"]),
        (|tables| event(tables, 5).recorded_at = Timestamp::default(), &["event 5 was changed"]),
        (|tables| event(tables, 1).event_type = 4, &["event 1 was changed"]),
        (|tables| event(tables, 4).command_id = uuid::Uuid::nil(), &["event 4 was changed"]),
        (
            |tables| {
                let second = event(tables, 2).payload.clone();
                let first = std::mem::replace(&mut event(tables, 1).payload, second);
                event(tables, 2).payload = first;
            },
            &["event 1 was changed", "event 2 was changed"],
        ),
        (|tables| remove_events(tables, 2..=2), &["events from 2 are missing"]),
        (|tables| remove_events(tables, 4..=4), &["events from 4 are missing"]),
        (|tables| remove_events(tables, 5..=5), &["it does not end at 5 as its head says"]),
        (|tables| remove_events(tables, 4..=5), &["it does not end at 5 as its head says"]),
        (
            |tables| {
                stream(tables, &document("long")).snapshot = None;
                remove_events(tables, 1..=2);
            },
            &["what was before 3 is missing"],
        ),
        (
            |tables| stream(tables, &document("long")).head.version = 6,
            &["it does not end at 6 as its head says"],
        ),
        (
            |tables| stream(tables, &document("long")).head.command_id = uuid::Uuid::nil(),
            &["it does not end at 5 as its head says"],
        ),
        (
            |tables| stream(tables, &document("long")).snapshot.as_mut().unwrap().payload[1] ^= 1,
            &["snapshot 3 was changed"],
        ),
        (
            |tables| {
                let snapshot = stream(tables, &document("long")).snapshot.as_mut().unwrap();
                snapshot.version = 2;
            },
            &["snapshot 2 was changed"],
        ),
        (
            |tables| {
                let name = document("long").stream_name();
                let payload =
                    crate::journal::encode_snapshot(&crate::domain::document::Document::default());
                let snapshot = stream(tables, &document("long")).snapshot.as_mut().unwrap();
                snapshot.payload = payload.unwrap();
                snapshot.checksum = crate::journal::chain::snapshot_checksum(
                    &name,
                    snapshot.version,
                    snapshot.schema,
                    &snapshot.payload,
                    &snapshot.hash,
                );
            },
            &["snapshot 3 is not what the events come to"],
        ),
    ];
    for (at, (spoil, expected)) in cases.into_iter().enumerate() {
        let (journal, storage) = world(false).await;
        let expected: Vec<String> = expected.iter().map(|text| format!("{long}{text}")).collect();
        let found = found(&journal, &storage, spoil).await;
        assert_eq!(found, expected, "case {at}");
    }
}

#[tokio::test]
async fn what_this_program_does_not_know_is_named_and_stops_nothing_else() {
    let cases: [(Spoil, &str); 3] = [
        (|tables| stream(tables, &document("long")).kind = 99, "unknown kind 99"),
        (|tables| stream(tables, &document("long")).kind = 2, "unknown kind 2"),
        (
            |tables| {
                let name = document("long").stream_name();
                let previous = event(tables, 4).hash;
                let record = event(tables, 5);
                record.schema = 9;
                record.hash = crate::journal::fold::hash_of(record, &previous);
                let hash = record.hash;
                tables.streams.get_mut(&name).unwrap().head.hash = hash;
            },
            "unknown event type 2, schema 9",
        ),
    ];
    for (spoil, expected) in cases {
        let (journal, storage) = world(false).await;
        journal.tamper(|tables| remove_row(tables, Table::Lease));
        let found = found(&journal, &storage, spoil).await;
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().any(|damage| damage.ends_with(expected)), "{found:?}");
        assert!(found.iter().any(|damage| damage.contains("connector_lease")), "{found:?}");
    }
}

#[tokio::test]
async fn a_damaged_start_behind_a_cut_is_still_found() {
    let cases: [(Spoil, &str); 3] = [
        (|tables| event(tables, 4).payload[2] ^= 1, "event 4 was changed"),
        (|tables| remove_events(tables, 4..=4), "events from 4 are missing"),
        (
            |tables| stream(tables, &document("long")).snapshot = None,
            "what was before 4 is missing",
        ),
    ];
    for (spoil, expected) in cases {
        let (journal, storage) = world(true).await;
        let found = found(&journal, &storage, spoil).await;
        assert!(found.iter().any(|damage| damage.ends_with(expected)), "{found:?}");
    }
}

/// Takes a snapshot of the document `long` where it stands.
async fn renew_snapshot(storage: &MemoryStorage) {
    let key = document("long");
    let loaded = load_state::<Document>(storage, &key).await.unwrap();
    let payload = encode_snapshot(&loaded.state).unwrap();
    let snapshot = NewSnapshot { schema: 1, payload };
    storage.write_snapshot(&key.stream_name(), loaded.expected, snapshot).await.unwrap();
}

/// The document `long`, cut up to its event 3, and whole up to 5 with a snapshot there.
async fn cut_by_retention() -> (MemoryJournal, MemoryStorage) {
    let (journal, storage) = world(true).await;
    renew_snapshot(&storage).await;
    (journal, storage)
}

/// The same, cut by an append: the first event that is left is the one that it wrote.
async fn cut_by_a_trim() -> (MemoryJournal, MemoryStorage) {
    let (journal, storage) = world(false).await;
    let (key, mut state) = (document("long"), Document::default());
    let cut = journal.tamper(|tables| {
        let stream = tables.streams.remove(&key.stream_name()).unwrap();
        let events: Vec<_> =
            stream.positions.values().map(|at| tables.journal.remove(at).unwrap()).collect();
        events
    });
    let mut expected = Expected::NONE;
    for record in cut {
        state.apply(&decode_event(record.event_type, record.schema, &record.payload).unwrap());
        let trim = record.version == 4;
        let payload = encode_snapshot(&state).unwrap();
        let part = Part {
            stream: record.stream,
            kind: StreamKind::Document,
            expected,
            events: vec![NewEvent {
                event_type: record.event_type,
                schema: record.schema,
                payload: record.payload,
                is_swept: false,
            }],
            rows: Vec::new(),
            snapshot: (record.version >= 4).then_some(NewSnapshot { schema: 1, payload }),
            erase: false,
            trim,
        };
        let command_id = record.command_id;
        let (fences, absent) = (Vec::new(), Vec::new());
        let append = Append { command_id, record: None, parts: vec![part], fences, absent };
        storage.append(&[append], record.recorded_at).await.unwrap();
        expected = Expected { version: record.version, command_id };
    }
    (journal, storage)
}

#[tokio::test]
async fn the_first_event_behind_a_cut_is_proven_also_when_a_newer_snapshot_stands() {
    let cases: [(Spoil, &[&str]); 9] = [
        (|_| (), &[]),
        (|tables| event(tables, 4).payload[2] ^= 1, &["event 4 was changed"]),
        (|tables| event(tables, 4).command_id = uuid::Uuid::nil(), &["event 4 was changed"]),
        (
            |tables| {
                let fifth = event(tables, 5).payload.clone();
                let fourth = std::mem::replace(&mut event(tables, 4).payload, fifth);
                event(tables, 5).payload = fourth;
            },
            &["event 4 was changed", "event 5 was changed"],
        ),
        (
            |tables| {
                let fourth = event(tables, 4);
                fourth.payload[2] ^= 1;
                fourth.hash = crate::journal::fold::hash_of(fourth, &fourth.hash);
            },
            &["event 4 was changed", "event 5 was changed"],
        ),
        (|tables| remove_events(tables, 4..=4), &["events from 4 are missing"]),
        (|tables| remove_events(tables, 4..=5), &["it does not end at 5 as its head says"]),
        (|tables| stream(tables, &document("long")).base = None, &["what was before 4 is missing"]),
        (
            |tables| {
                let hash = event(tables, 5).hash;
                stream(tables, &document("long")).base.as_mut().unwrap().hash = hash;
            },
            &["event 4 was changed"],
        ),
    ];
    for (at, (spoil, expected)) in cases.into_iter().enumerate() {
        let worlds = [cut_by_retention().await, cut_by_a_trim().await];
        for (by, (journal, storage)) in worlds.into_iter().enumerate() {
            let expected = expected.iter().map(|text| format!("stream \"document:long\": {text}"));
            let found = found(&journal, &storage, spoil).await;
            assert_eq!(found, expected.collect::<Vec<_>>(), "case {at} of {by}");
        }
    }
}

#[tokio::test]
async fn a_lost_start_is_named_where_nothing_was_cut() {
    let (journal, storage) = world(false).await;
    let found = found(&journal, &storage, |tables| remove_events(tables, 1..=2)).await;
    assert_eq!(found, [r#"stream "document:long": what was before 3 is missing"#]);
}

#[tokio::test]
async fn every_column_of_every_table_is_compared() {
    let (journal, storage) = world(false).await;
    for table in tables() {
        let spec = table.spec();
        for (at, column) in spec.columns.iter().enumerate().filter(|(at, _)| !spec.key.contains(at))
        {
            let before = journal.tamper(|tables| {
                let row = row(tables, table);
                let before = row.clone();
                row.values[at] = match &row.values[at] {
                    Value::Int(int) => Value::Int(int + 1),
                    Value::Text(text) => Value::text(format!("{text} ")),
                    _ => Value::text("something"),
                };
                before
            });
            let report = verify(&storage).await.unwrap();
            let row = RowName::of(&before.key());
            let expected = match (table, column.row_only) {
                // The row is another document's now.
                (Table::Operation | Table::OperationId, _) if column.name == "document_id" => {
                    vec![Damage::RowMissing { row: row.clone() }, Damage::RowSurplus { row }]
                }
                (Table::PendingAuth, _) => vec![Damage::ContentDiffers { row, column: None }],
                (_, true) => vec![Damage::ContentDiffers { row, column: Some(column.name) }],
                (_, false) => vec![Damage::RowDiffers { row, columns: vec![column.name] }],
            };
            assert_eq!(report.damages, expected, "{} of {table:?}", column.name);
            journal.tamper(|tables| tables.rows.insert(before.key(), before));
        }
    }
}

#[tokio::test]
async fn a_missing_row_of_any_table_is_named() {
    for table in tables() {
        let (journal, storage) = world(false).await;
        let key = journal.tamper(|tables| row(tables, table).key());
        journal.tamper(|tables| tables.rows.remove(&key));
        let report = verify(&storage).await.unwrap();
        assert_eq!(report.damages, [Damage::RowMissing { row: RowName::of(&key) }], "{table:?}");
    }
}

#[tokio::test]
async fn a_row_of_no_state_is_named_whether_or_not_its_stream_exists() {
    for table in tables() {
        for changed in table.spec().key {
            let (journal, storage) = world(false).await;
            let key = journal.tamper(|tables| {
                let mut row = row(tables, table).clone();
                row.values[*changed] = match &row.values[*changed] {
                    Value::Int(int) => Value::Int(int + 50),
                    Value::Text(text) => Value::text(format!("{text}0")),
                    _ => Value::Null,
                };
                let key = row.key();
                tables.rows.insert(key.clone(), row);
                key
            });
            let report = verify(&storage).await.unwrap();
            assert_eq!(report.damages, [Damage::RowSurplus { row: RowName::of(&key) }]);
        }
    }
}

#[tokio::test]
async fn a_row_of_a_consumed_authorization_is_surplus_and_no_secret_is_shown() {
    let (journal, storage) = world(false).await;
    journal.tamper(|tables| {
        let mut row = row(tables, Table::PendingAuth).clone();
        row.values[0] = Value::text(SECRET_STATES[2]);
        tables.rows.insert(row.key(), row);
        tables.rows.remove(&RowKey::new(Table::PendingAuth, vec![Value::text(SECRET_STATES[0])]));
        let two = RowKey::new(Table::PendingAuth, vec![Value::text(SECRET_STATES[1])]);
        tables.rows.get_mut(&two).unwrap().values[1] = Value::text("another verifier");
    });
    let report = verify(&storage).await.unwrap();
    assert_eq!(report.damages.len(), 3, "{:?}", report.damages);
    let shown = format!("{report:?} {:?}", report.damages.iter().map(ToString::to_string));
    for secret in SECRET_STATES.into_iter().chain(["verifier"]) {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn a_stream_that_is_gone_leaves_its_rows_as_surplus() {
    let (journal, storage) = world(false).await;
    let key = connector("did:web:a");
    let rows = journal.tamper(|tables| {
        tables.streams.remove(&key.stream_name());
        tables.rows.values().filter(|row| owner_of(row) == Some(key.clone())).count()
    });
    let report = verify(&storage).await.unwrap();
    let surplus = report.damages.iter().filter(|it| matches!(it, Damage::RowSurplus { .. }));
    assert_eq!((surplus.count(), report.damages.len()), (rows, rows));
}
