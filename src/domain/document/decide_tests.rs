//! Given events, when a command comes, then events and an answer; and the rows of each state.

use std::collections::BTreeSet;

use proptest::prelude::*;
use uuid::Uuid;

use super::super::fixture::{copy_of, other_owner, owner, prune, put_copy, put_repair};
use super::super::{
    Document, DocumentCommand, DocumentEvent, DocumentReply, DocumentSweepBegun, EntityTrimRecord,
    EntityTrimSet,
};
use crate::base::{ConnectorName, Digest, DocumentId, Error, Json, OwnerDid, StreamKey, Timestamp};
use crate::domain::{
    Aggregate, Context, Decision, Row, RowChange, RowKey, StoredEvent, Table, Value,
};
use DocumentCommand as Do;

const NOW: i64 = 7_000;
const SWEPT: DocumentEvent = DocumentEvent::Swept;
const CLEARED: DocumentEvent = DocumentEvent::EntityTrimCleared;
const ABANDONED: DocumentEvent = DocumentEvent::DocumentSweepAbandoned;

fn document() -> DocumentId {
    DocumentId::new("doc-1").unwrap()
}

fn key() -> StreamKey {
    StreamKey::Document(document())
}

fn set_trim(owner: &str, connector: &str, fields: &str) -> DocumentCommand {
    Do::SetEntityTrim {
        owner: OwnerDid::new(owner).unwrap(),
        connector: ConnectorName::new(connector).unwrap(),
        trimmed_fields: Json::parse("trimmed_fields", fields).unwrap(),
    }
}

fn trim_set(owner: &str, connector: &str, fields: &str, at: i64) -> DocumentEvent {
    DocumentEvent::EntityTrimSet(EntityTrimSet {
        owner: OwnerDid::new(owner).unwrap(),
        connector: ConnectorName::new(connector).unwrap(),
        trimmed_fields: Json::parse("trimmed_fields", fields).unwrap(),
        updated_at: Timestamp::from_millis(at),
    })
}

fn trimmed(at: i64) -> DocumentEvent {
    trim_set("did:a:first", "caldav", r#"["body"]"#, at)
}

fn begun(at: i64) -> DocumentEvent {
    DocumentEvent::DocumentSweepBegun(DocumentSweepBegun { at: Timestamp::from_millis(at) })
}

fn given(events: &[DocumentEvent]) -> Document {
    let mut state = Document::default();
    for event in events {
        state.apply(event);
    }
    state
}

fn context() -> Context {
    Context {
        now: Timestamp::from_millis(NOW),
        id: Uuid::nil(),
        jitter: 0.0,
        generation: 1,
        restored_at: None,
        next_version: 1,
        fence: None,
        records_epoch: 0,
    }
}

fn when(state: &Document, command: &DocumentCommand) -> Decision<Document> {
    state.decide(&key(), command, &context()).unwrap()
}

type Case = (&'static str, Vec<DocumentEvent>, DocumentCommand, Vec<DocumentEvent>);

#[test]
fn each_command_gives_what_its_rule_says() {
    let other = r#"["title","note"]"#;
    let cases: Vec<Case> = vec![
        (
            "a first trim is created",
            vec![],
            set_trim("did:a:first", "caldav", r#"["body"]"#),
            vec![trimmed(NOW)],
        ),
        (
            "a later trim replaces fields and time, and keeps owner and connector",
            vec![trimmed(1)],
            set_trim("did:b:second", "drive", other),
            vec![trim_set("did:a:first", "caldav", other, NOW)],
        ),
        (
            "after a clear the next trim is a first one",
            vec![trimmed(1), CLEARED],
            set_trim("did:b:second", "drive", other),
            vec![trim_set("did:b:second", "drive", other, NOW)],
        ),
        (
            "after a sweep the next trim is a first one",
            vec![trimmed(1), SWEPT],
            set_trim("did:b:second", "drive", other),
            vec![trim_set("did:b:second", "drive", other, NOW)],
        ),
        ("a trim is cleared", vec![trimmed(1)], Do::ClearEntityTrim, vec![CLEARED]),
        ("clearing nothing is fine", vec![], Do::ClearEntityTrim, vec![]),
        ("clearing twice is fine", vec![trimmed(1), CLEARED], Do::ClearEntityTrim, vec![]),
        ("a sweep begins", vec![], Do::BeginDocumentSweep, vec![begun(NOW)]),
        ("a begun sweep keeps its first time", vec![begun(1)], Do::BeginDocumentSweep, vec![]),
        (
            "an abandoned sweep can begin again",
            vec![begun(1), ABANDONED],
            Do::BeginDocumentSweep,
            vec![begun(NOW)],
        ),
        (
            "an ended sweep can begin again",
            vec![begun(1), SWEPT],
            Do::BeginDocumentSweep,
            vec![begun(NOW)],
        ),
        ("a sweep is abandoned", vec![begun(1)], Do::AbandonDocumentSweep, vec![ABANDONED]),
        ("abandoning nothing is fine", vec![], Do::AbandonDocumentSweep, vec![]),
        ("abandoning twice is fine", vec![begun(1), ABANDONED], Do::AbandonDocumentSweep, vec![]),
        ("reading leaves no event", vec![trimmed(1)], Do::EntityTrim, vec![]),
    ];
    for (rule, events, command, then) in cases {
        let decision = when(&given(&events), &command);
        assert_eq!(decision.events, then, "{rule}");
        assert!(!decision.erase && decision.rows.is_empty(), "{rule}");
        if !Document::is_read(&command) {
            assert_eq!(decision.reply, DocumentReply::Done, "{rule}");
        }
    }
}

#[test]
fn a_trim_does_not_end_a_begun_sweep_and_a_sweep_does_not_end_a_trim() {
    let state = given(&[begun(1), trimmed(2)]);
    assert_eq!(state.sweep_begun_at, Some(Timestamp::from_millis(1)));
    assert!(given(&[trimmed(1), begun(2)]).trim.is_some());
    assert!(given(&[trimmed(1), begun(2), ABANDONED]).trim.is_some());
}

#[test]
fn a_trim_is_read_as_it_was_last_set() {
    let record = |at, fields: &str| EntityTrimRecord {
        document_id: document(),
        owner: OwnerDid::new("did:a:first").unwrap(),
        connector: ConnectorName::new("caldav").unwrap(),
        trimmed_fields: Json::parse("trimmed_fields", fields).unwrap(),
        updated_at: Timestamp::from_millis(at),
    };
    let big = "[9007199254740993]";
    let cases = [
        (vec![], None),
        (vec![trimmed(1)], Some(record(1, r#"["body"]"#))),
        (vec![trimmed(1), trim_set("did:a:first", "caldav", big, 2)], Some(record(2, big))),
        (vec![trimmed(1), CLEARED], None),
        (vec![trimmed(1), SWEPT], None),
    ];
    for (events, trim) in cases {
        let reply = when(&given(&events), &Do::EntityTrim).reply;
        assert_eq!(reply, DocumentReply::Trim(trim), "{events:?}");
    }
}

#[test]
fn a_sweep_erases_whatever_history_there_is() {
    let cases = [
        ("a trim", vec![trimmed(1)]),
        ("a cleared trim, whose events are still there", vec![trimmed(1), CLEARED]),
        ("a begun sweep", vec![begun(1)]),
        ("an abandoned sweep", vec![begun(1), ABANDONED]),
        ("a trim and a begun sweep", vec![trimmed(1), begun(2)]),
        ("a trim after a sweep", vec![trimmed(1), SWEPT, trimmed(3)]),
    ];
    for (rule, events) in cases {
        let mut state = given(&events);
        let decision = when(&state, &Do::SweepDocumentRows);
        assert!(decision.erase, "{rule}");
        assert_eq!(decision.events, [SWEPT], "{rule}");
        assert!(decision.events[0].is_swept(), "{rule}");
        state.apply(&SWEPT);
        assert_eq!(state, Document::default(), "{rule}");
        assert!(state.rows(&key()).is_empty(), "{rule}");
    }
}

#[test]
fn a_sweep_of_a_clean_document_leaves_no_event() {
    for events in [vec![], vec![trimmed(1), SWEPT]] {
        let decision = when(&given(&events), &Do::SweepDocumentRows);
        assert!(decision.events.is_empty() && !decision.erase, "{events:?}");
        assert_eq!(decision.reply, DocumentReply::Done);
    }
}

#[test]
fn only_a_read_is_a_read() {
    for command in commands() {
        assert_eq!(Document::is_read(&command), command == Do::EntityTrim, "{command:?}");
    }
}

#[test]
fn a_key_of_another_kind_is_refused() {
    let other = StreamKey::Auth(Digest::of(b"state"));
    for command in commands() {
        let refused = Document::default().decide(&other, &command, &context());
        assert!(matches!(refused, Err(Error::InvalidInput { field: "key", .. })), "{command:?}");
    }
    let mut touched = Vec::new();
    Document::touched(&other, &trimmed(1), &mut touched);
    assert!(touched.is_empty() && given(&[trimmed(1)]).rows(&other).is_empty());
}

#[test]
fn the_rows_hold_the_state() {
    let row = |table, values| Some(Row::new(table, values));
    let key_of = |table| RowKey::new(table, vec![Value::text("doc-1")]);
    let state = given(&[trimmed(1), begun(2)]);
    let trim = vec![
        Value::text("doc-1"),
        Value::text("did:a:first"),
        Value::text("caldav"),
        Value::text(r#"["body"]"#),
        Value::Int(1),
    ];
    let sweep = vec![Value::text("doc-1"), Value::Int(2)];
    assert_eq!(state.row(&key(), &key_of(Table::EntityTrim)), row(Table::EntityTrim, trim));
    assert_eq!(state.row(&key(), &key_of(Table::DocumentSweep)), row(Table::DocumentSweep, sweep));
    assert_eq!(state.row(&key(), &key_of(Table::Lease)), None);
    let empty = Document::default();
    for table in Table::ALL {
        assert_eq!(empty.row(&key(), &key_of(table)), None);
    }
}

fn commands() -> Vec<DocumentCommand> {
    vec![
        set_trim("did:a:first", "caldav", "[]"),
        Do::EntityTrim,
        Do::ClearEntityTrim,
        Do::BeginDocumentSweep,
        Do::AbandonDocumentSweep,
        Do::SweepDocumentRows,
    ]
}

/// Copies of two owners and a repair besides.
fn all_commands() -> Vec<DocumentCommand> {
    let owners = [owner(), other_owner()];
    let copies = owners.iter().flat_map(|owner| {
        [(1, "a"), (1, "b"), (2, "a")].map(|(version, signer)| copy_of(owner, version, signer))
    });
    let puts = copies.map(|copy| put_copy(&copy));
    let prunes = owners.iter().map(|owner| prune(owner, "a"));
    let repairs = [put_repair(1), put_repair(2), Do::ClearRepair];
    commands().into_iter().chain(puts).chain(prunes).chain(repairs).collect()
}

proptest! {
    /// Whatever happens: the rows that the events touched, or the decision named itself, are all the
    /// rows that change, `rows` names exactly those that are there, and each row has its table's
    /// columns and its own key.
    #[test]
    fn touched_rows_are_the_rows_that_change(picks in proptest::collection::vec(0..17_usize, 0..30)) {
        let commands = all_commands();
        prop_assert_eq!(commands.len(), 17);
        let mut state = Document::default();
        let mut all = BTreeSet::from([
            Table::EntityTrim,
            Table::DocumentSweep,
            Table::ProjectionWatch,
            Table::ObservationRepair,
        ].map(|table| RowKey::new(table, vec![Value::text("doc-1")])));
        for pick in picks {
            let before = state.clone();
            let decision = when(&state, &commands[pick]);
            let mut touched = Vec::new();
            for event in &decision.events {
                Document::touched(&key(), event, &mut touched);
                state.apply(event);
            }
            for (row, column, value) in &decision.content {
                prop_assert!(touched.contains(row));
                state.attach(row, *column, value);
            }
            touched.extend(decision.rows.iter().map(|change| match change {
                RowChange::Delete(key) => key.clone(),
                other => panic!("{other:?}"),
            }));
            all.extend(touched.iter().cloned());
            for row_key in &all {
                let row = state.row(&key(), row_key);
                let changed = before.row(&key(), row_key) != row;
                prop_assert!(!changed || touched.contains(row_key), "{row_key:?}");
                if let Some(row) = row {
                    prop_assert_eq!(&row.key(), row_key);
                    prop_assert_eq!(row.values.len(), row.table.spec().columns.len());
                }
            }
            let named: BTreeSet<_> = state.rows(&key()).into_iter().collect();
            let there: BTreeSet<_> =
                all.iter().filter(|it| state.row(&key(), it).is_some()).cloned().collect();
            prop_assert_eq!(named, there);
        }
    }
}
