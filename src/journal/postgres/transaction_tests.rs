//! Two transactions of one store: one is judged while the other is written and committed.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::super::PostgresStorage;
use super::super::tests::{
    COMMITTED, NOW, commit, expected, number, open, outsider, place, run, trim_append, trim_key,
};
use crate::base::StreamName;
use crate::domain::{RowChange, Value};
use crate::journal::{Append, AppendOutcome, BatchError, BoxFuture, Expected, Storage as _};

type Commit = BoxFuture<'static, Result<(), BatchError>>;

async fn begin(store: &PostgresStorage, append: Append) -> Commit {
    let begun = store.begin_append(&[append], NOW).await.unwrap();
    assert_eq!(begun.outcomes, [COMMITTED]);
    begun.commit.unwrap()
}

/// Returns once somebody has the turn to write, and can't use it.
async fn until_behind<T>(store: &PostgresStorage, writer: &JoinHandle<T>) {
    while store.writer.try_lock().is_ok() && !writer.is_finished() {
        tokio::task::yield_now().await;
    }
}

async fn with_a_and_b(url: &str) -> Arc<PostgresStorage> {
    let store = open(url).await;
    for name in ["a", "b"] {
        commit(&store, trim_append(name, 1, Expected::NONE)).await;
    }
    store
}

#[tokio::test]
async fn a_batch_is_judged_while_the_one_before_is_neither_written_nor_committed() {
    let Some((_server, url)) = place() else { return };
    let store = with_a_and_b(&url).await;
    let first = begin(&store, trim_append("a", 2, expected(1, 1))).await;
    let next = begin(&store, trim_append("b", 3, expected(1, 1))).await;
    let mut tool = outsider(&url).await;
    let events = "SELECT count(*) FROM connector_journal";
    assert_eq!(number(&mut tool, events).await, 2, "nothing is committed yet");
    first.await.unwrap();
    assert_eq!(number(&mut tool, events).await, 3);
    next.await.unwrap();
    assert_eq!(number(&mut tool, events).await, 4);
    assert_eq!(store.load("document:b").await.unwrap().head.unwrap().expected(), expected(2, 3));
}

/// It must see the rows of that one: what it deletes may have been written there.
#[tokio::test]
async fn a_batch_removes_what_the_one_before_has_written() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let mut first = trim_append("a", 1, Expected::NONE);
    first.parts[0].rows.clear();
    commit(&store, first).await;
    let first = begin(&store, trim_append("a", 2, expected(1, 1))).await;
    let mut deletes = trim_append("a", 3, expected(2, 2));
    deletes.parts[0].rows = vec![RowChange::Delete(trim_key("a"))];
    let next = begin(&store, deletes).await;
    first.await.unwrap();
    next.await.unwrap();
    assert_eq!(store.row(&trim_key("a")).await.unwrap(), None);
}

#[tokio::test]
async fn a_batch_stands_on_the_stream_that_the_one_before_begins_or_is_refused() {
    let Some((_server, url)) = place() else { return };
    for is_committed in [true, false] {
        let store = open(&url).await;
        let name = format!("new {is_committed}");
        let first = begin(&store, trim_append(&name, 2, Expected::NONE)).await;
        let next = trim_append(&name, 3, expected(1, 2));
        let begun = begin(&store, next.clone()).await;
        if is_committed {
            first.await.unwrap();
            begun.await.unwrap();
        } else {
            drop(first);
            assert!(matches!(begun.await, Err(BatchError::Passing(_))), "nothing confirms it");
            let outcomes = store.append(&[next], NOW).await.unwrap();
            assert_eq!(outcomes, [AppendOutcome::Conflict]);
        }
    }
}

/// What it locks or reads is judged as the one before leaves it, not as it was.
#[tokio::test]
async fn a_batch_that_takes_what_the_one_before_puts_waits_for_its_end() {
    let Some((_server, url)) = place() else { return };
    for is_committed in [true, false] {
        let store = open(&url).await;
        let name = format!("taken {is_committed}");
        commit(&store, trim_append(&name, 1, Expected::NONE)).await;
        let first = begin(&store, trim_append(&name, 2, expected(1, 1))).await;
        let mut takes = trim_append(&name, 3, expected(2, 2));
        takes.parts[0].rows = vec![RowChange::Take(trim_key(&name))];
        let writer = Arc::clone(&store);
        let next = tokio::spawn(async move { writer.append(&[takes], NOW).await });
        until_behind(&store, &next).await;
        if is_committed {
            first.await.unwrap();
            let outcomes = next.await.unwrap().unwrap();
            let [AppendOutcome::Committed { taken }] = &*outcomes else { panic!("{outcomes:?}") };
            assert_eq!(taken[0].values[4], Value::Int(2));
        } else {
            drop(first);
            assert_eq!(next.await.unwrap().unwrap(), [AppendOutcome::Conflict]);
        }
    }
}

/// They would lock one of its streams before it, and wait for another one behind it.
#[tokio::test]
async fn what_is_no_batch_and_locks_many_streams_waits_for_the_one_under_way() {
    let Some((_server, url)) = place() else { return };
    let store = with_a_and_b(&url).await;
    let first = begin(&store, trim_append("a", 2, expected(1, 1))).await;
    let names = ["document:a", "document:b"].map(StreamName::from);
    let heads = names.map(|name| (name, expected(1, 1)));
    let writer = Arc::clone(&store);
    let drops = tokio::spawn(async move { writer.drop_streams(&heads).await });
    until_behind(&store, &drops).await;
    first.await.unwrap();
    assert_eq!(drops.await.unwrap().unwrap(), 1, "of the other one only");
    let first = begin(&store, trim_append("a", 3, expected(2, 2))).await;
    let told = [("document:a".into(), expected(2, 2))];
    let writer = Arc::clone(&store);
    let replaces = tokio::spawn(async move { writer.replace_rows(&[], &told).await });
    until_behind(&store, &replaces).await;
    first.await.unwrap();
    assert!(!replaces.await.unwrap().unwrap(), "the head has moved");
}

/// Another host writes first, or nobody knows: the commit says so, and nothing is written.
#[tokio::test]
async fn a_batch_that_was_judged_on_what_is_not_so_any_more_may_pass_when_it_is_tried_again() {
    let Some((_server, url)) = place() else { return };
    let (store, other) = (with_a_and_b(&url).await, open(&url).await);
    let late = trim_append("a", 2, expected(1, 1));
    let first = begin(&store, late.clone()).await;
    commit(&other, trim_append("a", 3, expected(1, 1))).await;
    let next = begin(&store, trim_append("b", 4, expected(1, 1))).await;
    assert!(matches!(first.await, Err(BatchError::Passing(_))));
    next.await.unwrap();
    assert_eq!(store.append(&[late], NOW).await.unwrap(), [AppendOutcome::Conflict]);
    let mut tool = outsider(&url).await;
    assert_eq!(number(&mut tool, "SELECT count(*) FROM connector_journal").await, 4);
}

/// A server, or a pooler, that had room for one connection has room for the store.
#[tokio::test]
async fn where_no_second_connection_can_be_made_the_first_one_is_waited_for() {
    let Some((_server, url)) = place() else { return };
    let store = with_a_and_b(&url).await;
    let first = begin(&store, trim_append("a", 2, expected(1, 1))).await;
    let mut tool = outsider(&url).await;
    let closed = "UPDATE pg_database SET datallowconn = false WHERE datname = current_database()";
    run(&mut tool, closed).await;
    let next = trim_append("b", 3, expected(1, 1));
    let refused = store.begin_append(std::slice::from_ref(&next), NOW).await;
    assert!(matches!(refused, Err(BatchError::Passing(_))));
    first.await.unwrap();
    let next = begin(&store, next).await;
    // Without one under way there is none to wait for.
    drop(next);
    let refused = store.append(&[trim_append("b", 4, expected(1, 1))], NOW).await;
    assert!(matches!(refused, Err(BatchError::Failed(_))), "{refused:?}");
}

#[tokio::test]
async fn what_is_not_committed_is_nothing_to_the_batches_behind_it() {
    let Some((_server, url)) = place() else { return };
    let store = with_a_and_b(&url).await;
    drop(begin(&store, trim_append("a", 2, expected(1, 1))).await);
    let behind = store.append(&[trim_append("a", 3, expected(2, 2))], NOW).await.unwrap();
    assert_eq!(behind, [AppendOutcome::Conflict]);
    commit(&store, trim_append("a", 4, expected(1, 1))).await;
    // Also where later ones are: such a head is not confirmed, or stands behind what is there.
    for command in 5..30 {
        drop(begin(&store, trim_append("b", command, expected(1, 1))).await);
        let version = i64::try_from(command).unwrap() - 3;
        let last = if command == 5 { 4 } else { command + 99 };
        commit(&store, trim_append("a", command + 100, expected(version, last))).await;
    }
    commit(&store, trim_append("b", 200, expected(1, 1))).await;
}
