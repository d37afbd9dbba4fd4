//! Two transactions of one store: one is written while the other waits for its commit.

use std::sync::Arc;

use super::super::PostgresStorage;
use super::super::tests::{
    COMMITTED, NOW, commit, expected, number, open, outsider, place, run, trim_append, trim_key,
    until_one_waits,
};
use crate::domain::RowChange;
use crate::journal::{Append, AppendOutcome, BatchError, BoxFuture, Expected, Storage as _};

type Commit = BoxFuture<'static, Result<(), BatchError>>;

async fn begin(store: &PostgresStorage, append: Append) -> Commit {
    let begun = store.begin_append(&[append], NOW).await.unwrap();
    assert_eq!(begun.outcomes, [COMMITTED]);
    begun.commit.unwrap()
}

async fn with_a_and_b(url: &str) -> Arc<PostgresStorage> {
    let store = open(url).await;
    for name in ["a", "b"] {
        commit(&store, trim_append(name, 1, Expected::NONE)).await;
    }
    store
}

#[tokio::test]
async fn a_batch_is_written_beside_the_commit_of_one_with_other_streams() {
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
async fn a_batch_with_the_streams_of_one_under_way_waits_for_its_commit() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let mut first = trim_append("a", 1, Expected::NONE);
    first.parts[0].rows.clear();
    commit(&store, first).await;
    let first = begin(&store, trim_append("a", 2, expected(1, 1))).await;
    let mut deletes = trim_append("a", 3, expected(2, 2));
    deletes.parts[0].rows = vec![RowChange::Delete(trim_key("a"))];
    let writer = Arc::clone(&store);
    let next = tokio::spawn(async move { begin(&writer, deletes).await.await });
    until_one_waits(&url).await;
    assert!(!next.is_finished());
    first.await.unwrap();
    next.await.unwrap().unwrap();
    assert_eq!(store.row(&trim_key("a")).await.unwrap(), None);
}

#[tokio::test]
async fn a_batch_on_a_stream_that_the_one_under_way_begins_waits_for_it() {
    let Some((_server, url)) = place() else { return };
    for is_committed in [true, false] {
        let store = open(&url).await;
        let name = format!("new {is_committed}");
        let first = begin(&store, trim_append(&name, 2, Expected::NONE)).await;
        let (writer, next) = (Arc::clone(&store), trim_append(&name, 3, expected(1, 2)));
        let next = tokio::spawn(async move { writer.append(&[next], NOW).await });
        until_one_waits(&url).await;
        let mut outcome = AppendOutcome::Conflict;
        if is_committed {
            first.await.unwrap();
            outcome = COMMITTED;
        } else {
            drop(first);
        }
        assert_eq!(next.await.unwrap().unwrap(), [outcome]);
    }
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
