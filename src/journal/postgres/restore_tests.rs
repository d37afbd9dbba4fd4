//! What waits for other hosts' appends: a restore begins a life in which nobody of the one before can
//! write, and a row is not removed that another host is about to write.

use super::super::tests::{
    NOW, begin as begin_append, commit, expected, number, open, outsider, place, run, trim_append,
    trim_key, until_one_waits,
};
use crate::base::{Error, StorageFault, StreamName};
use crate::domain::RowChange;
use crate::journal::{BatchError, Expected, Storage};

fn is_refused<T: std::fmt::Debug>(result: Result<T, BatchError>) -> bool {
    match result {
        Err(BatchError::Failed(Error::Storage { fault, context, .. })) => {
            fault == StorageFault::Damaged && context.contains("restored")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_host_of_the_life_before_a_restore_writes_nothing_any_more() {
    let Some((_server, url)) = place() else { return };
    let (old, new) = (open(&url).await, open(&url).await);
    commit(&old, trim_append("a", 1, Expected::NONE)).await;
    new.begin_restore(NOW).await.unwrap();
    assert!(is_refused(old.append(&[trim_append("a", 2, expected(1, 1))], NOW).await));
    assert!(is_refused(old.append(&[trim_append("b", 3, Expected::NONE)], NOW).await));
    assert_ne!(old.generation(), new.generation());
    // Nor does it end what it has not begun.
    old.end_restore(old.generation()).await.unwrap();
    let late = open(&url).await;
    assert_eq!((late.generation(), late.is_restoring()), (new.generation(), true));
    commit(&new, trim_append("a", 4, expected(1, 1))).await;
    commit(&late, trim_append("a", 5, expected(2, 4))).await;
    new.end_restore(new.generation()).await.unwrap();
    let after = open(&url).await;
    assert_eq!((after.restored_at(), after.is_restoring()), (new.restored_at(), false));
}

/// What such an append claims must be there when the restore looks for claims.
#[tokio::test]
async fn a_restore_begins_behind_the_appends_that_are_under_way() {
    let Some((_server, url)) = place() else { return };
    for (name, at) in [("a", Expected::NONE), ("a", expected(1, 1)), ("b", Expected::NONE)] {
        let (old, new) = (open(&url).await, open(&url).await);
        let mut holder = outsider(&url).await;
        // Its generation is read, and it can't draw a position yet.
        run(&mut holder, "BEGIN; ALTER SEQUENCE connector_journal_position OWNED BY NONE").await;
        let command = u128::try_from(at.version).unwrap() + 1;
        let append = begin_append(&old, trim_append(name, command, at));
        until_one_waits(&url).await;
        let begun = tokio::spawn(async move { new.begin_restore(NOW).await.map(|()| new) });
        let sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ExclusiveLock' \
                   AND relation = 'connector_stream'::regclass";
        let mut tool = outsider(&url).await;
        while number(&mut tool, sql).await == 0 {
            assert!(!begun.is_finished());
            tokio::task::yield_now().await;
        }
        run(&mut holder, "COMMIT").await;
        assert!(append.await.unwrap().is_ok());
        let new = begun.await.unwrap().unwrap();
        assert!(new.load(&format!("document:{name}")).await.unwrap().head.is_some());
    }
}

#[tokio::test]
async fn a_row_without_a_stream_is_not_removed_while_another_host_begins_the_stream() {
    let Some((_server, url)) = place() else { return };
    let (one, other) = (open(&url).await, open(&url).await);
    commit(&one, trim_append("held", 1, Expected::NONE)).await;
    // Its head is there, and its rows are not committed.
    let mut holder = outsider(&url).await;
    run(&mut holder, "BEGIN; SELECT 1 FROM kubun_connector_entity_trim FOR UPDATE").await;
    let mut append = trim_append("a", 2, Expected::NONE);
    append.parts.extend(trim_append("held", 2, expected(1, 1)).parts);
    let append = begin_append(&other, append);
    until_one_waits(&url).await;
    let removed = tokio::spawn(async move {
        let told = [(StreamName::from("document:a"), Expected::NONE)];
        one.replace_rows(&[RowChange::Delete(trim_key("a"))], &told).await.map(|done| (one, done))
    });
    let sql = "SELECT count(*) FROM pg_stat_activity \
               WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let mut tool = outsider(&url).await;
    while number(&mut tool, sql).await < 2 {
        assert!(!removed.is_finished());
        tokio::task::yield_now().await;
    }
    run(&mut holder, "COMMIT").await;
    assert!(append.await.unwrap().is_ok());
    let (one, is_removed) = removed.await.unwrap().unwrap();
    assert!(!is_removed);
    assert!(one.row(&trim_key("a")).await.unwrap().is_some());
}
