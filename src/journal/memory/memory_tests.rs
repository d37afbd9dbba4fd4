//! What is a database's own: who may open it, and what several stores on it see of each other.

use std::sync::atomic::{AtomicI64, Ordering};

use uuid::Uuid;

use super::*;
use crate::base::{StreamKind, StreamName};
use crate::journal::port::{Append, AppendOutcome, Expected, NewEvent, Part, Storage};

fn append(command: u128) -> Append {
    let event = NewEvent { event_type: 2, schema: 1, payload: vec![1], is_swept: false };
    let part = Part {
        stream: StreamName::from("document:a"),
        kind: StreamKind::Document,
        expected: Expected::NONE,
        events: vec![event],
        rows: Vec::new(),
        snapshot: None,
        erase: false,
    };
    let command_id = Uuid::from_u128(command);
    Append { command_id, record: None, parts: vec![part], fences: Vec::new() }
}

#[tokio::test]
async fn one_store_at_a_time_opens_a_journal_that_is_not_shared() {
    let journal = MemoryJournal::new();
    let first = journal.open().unwrap();
    assert!(matches!(journal.clone().open(), Err(Error::StoreInUse { .. })));
    first.append(&[append(1)], Timestamp::default()).await.unwrap();
    first.close().await.unwrap();
    let second = journal.open().unwrap();
    assert_eq!(second.events(0, 9).await.unwrap().len(), 1, "what was written is there");
    drop(first);
    assert!(journal.open().is_err(), "a store that ended twice gave one place back");
    drop(second);
    assert!(journal.open().is_ok());
}

#[tokio::test]
async fn stores_on_a_shared_journal_hear_of_and_conflict_with_each_other() {
    let time = Arc::new(AtomicI64::new(100));
    let clock = Arc::clone(&time);
    let now = move || Timestamp::from_millis(clock.load(Ordering::Relaxed));
    let journal = MemoryJournal::shared(Arc::new(now));
    let (one, other) = (journal.open().unwrap(), journal.open().unwrap());
    assert!(one.is_shared() && other.is_shared());
    let mut heard = other.committed();
    heard.mark_unchanged();
    one.append(&[append(1)], Timestamp::from_millis(7)).await.unwrap();
    assert!(heard.has_changed().unwrap());
    let events = other.events(0, 9).await.unwrap();
    assert_eq!(events[0].recorded_at, Timestamp::from_millis(100), "the database's own time");
    let lost = other.append(&[append(2)], Timestamp::default()).await.unwrap();
    assert_eq!(lost, [AppendOutcome::Conflict]);
    time.store(200, Ordering::Relaxed);
    let heads = other.confirm_heads(&[StreamName::from("document:a")]).await.unwrap();
    assert_eq!(heads.now, Timestamp::from_millis(200));
    assert_eq!(heads.heads, [Some(Expected { version: 1, command_id: Uuid::from_u128(1) })]);
}
