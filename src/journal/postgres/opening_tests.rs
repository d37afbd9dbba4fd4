//! What stands in the text that a transaction begins with: every name as it is, and no secret.

use sqlx::Row as _;

use super::super::connect::Connector;
use super::super::options::PostgresOptions;
use super::super::tests::{COMMITTED, NOW, commit, expected, open, place, trim_append};
use super::*;
use crate::journal::{AppendOutcome, Storage as _};

/// Names that a text could take for something else.
const ODD: [&str; 6] = [
    "it's",
    "back\\slash",
    "', 'hex'), 'UTF8')); DROP TABLE connector_stream; --",
    "{\"a\",b}",
    "$1 $$ ?",
    "ä\u{1f980}\u{202e}",
];

fn id_key(operation: &str) -> RowKey {
    RowKey::new(Table::OperationId, vec![Value::text(operation)])
}

/// An append that must be the first with this operation's id.
fn first_with(document: &str, operation: &str, command: u128) -> Append {
    let mut append = trim_append(document, command, Expected::NONE);
    let id = Row::new(Table::OperationId, vec![Value::text(operation), Value::text(document)]);
    append.parts[0].rows.push(RowChange::Put(id));
    append.absent.push(id_key(operation));
    append
}

#[tokio::test]
async fn odd_names_are_locked_and_found_as_they_are() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let batch: Vec<Append> =
        ODD.iter().zip(1..).map(|(name, n)| first_with(name, name, n)).collect();
    assert_eq!(store.append(&batch, NOW).await.unwrap(), vec![COMMITTED; ODD.len()]);
    for (name, n) in ODD.iter().zip(1..) {
        let again = store.append(&[first_with(&format!("{name}2"), name, n + 10)], NOW).await;
        assert_eq!(again.unwrap(), [AppendOutcome::RowExists(id_key(name))]);
        let late = store.append(&[trim_append(name, n + 20, Expected::NONE)], NOW).await.unwrap();
        assert_eq!(late, [AppendOutcome::Conflict]);
        commit(&store, trim_append(name, n + 30, expected(1, n))).await;
        assert_eq!(store.load(&format!("document:{name}")).await.unwrap().events.len(), 2);
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_was_dropped_and_begun_anew_elsewhere_is_found() {
    let Some((_server, url)) = place() else { return };
    let (one, other) = (open(&url).await, open(&url).await);
    commit(&one, trim_append("a", 1, Expected::NONE)).await;
    let a = StreamName::from("document:a");
    for (round, is_begun) in [(2, true), (4, false)] {
        // It knows the stream's id now.
        let standing = one.load("document:a").await.unwrap().head.unwrap().expected();
        commit(&one, trim_append("a", round, standing)).await;
        let known = Expected { version: standing.version + 1, ..expected(0, round) };
        assert_eq!(other.drop_streams(&[(a.clone(), known)]).await.unwrap(), 1);
        let mut next = Expected::NONE;
        if is_begun {
            commit(&other, trim_append("a", round + 1, Expected::NONE)).await;
            next = expected(1, round + 1);
            let late = one.append(&[trim_append("a", 90, known)], NOW).await.unwrap();
            assert_eq!(late, [AppendOutcome::Conflict]);
        }
        commit(&one, trim_append("a", round + 10, next)).await;
        let events = one.load("document:a").await.unwrap().events;
        assert_eq!(events.len(), if is_begun { 2 } else { 1 });
    }
}

#[test]
fn the_key_of_an_authorization_is_in_no_text() {
    let mut append = first_with("document", "operation", 1);
    let key = RowKey::new(Table::PendingAuth, vec![Value::text("the state")]);
    append.parts[0].rows.push(RowChange::Take(key));
    let text = Opening::of_batch(&[append], &KnownStreams::default()).unwrap().text().to_owned();
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(text.contains(&hex("operation")), "it is looked for by its text");
    assert!(!text.contains(&hex("the state")) && !text.contains("the state"));
}

#[tokio::test]
async fn no_statement_of_a_connection_is_compiled() {
    let Some((_server, url)) = place() else { return };
    for is_pooled in [false, true] {
        let options = PostgresOptions::new(&url).pooler(is_pooled);
        let mut session = Connector::new(options).await.unwrap().open().await.unwrap();
        let rows = session.begin("; SHOW jit").await.unwrap();
        assert_eq!(rows[0].get::<&str, _>(0), "off", "pooled: {is_pooled}");
        session.close().await;
    }
}
