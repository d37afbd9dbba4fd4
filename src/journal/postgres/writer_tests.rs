//! Batches that presume what they are judged on: where it is not so, they are judged on what is there.

use super::super::opening::tests::{changed, first_with, id_key};
use super::super::tests::{
    COMMITTED, NOW, all_that_won, begin, commit, expected, number, open, outsider, place, run,
    trim_append, trim_key, until_one_waits,
};
use super::*;
use crate::journal::Storage as _;

#[tokio::test]
async fn streams_and_rows_that_another_host_was_first_to_write_are_found() {
    let Some((_server, url)) = place() else { return };
    let (one, other) = (open(&url).await, open(&url).await);
    commit(&other, first_with("a", "x", 1)).await;
    let batch = [
        trim_append("a", 2, Expected::NONE),
        trim_append("b", 3, Expected::NONE),
        trim_append("b", 4, expected(1, 3)),
        first_with("c", "x", 5),
        first_with("d", "y", 6),
    ];
    let outcomes = one.append(&batch, NOW).await.unwrap();
    let exists = AppendOutcome::RowExists(id_key("x"));
    assert_eq!(outcomes, [AppendOutcome::Conflict, COMMITTED, COMMITTED, exists, COMMITTED]);
    let mut tool = outsider(&url).await;
    assert_eq!(number(&mut tool, "SELECT count(*) FROM connector_stream").await, 3);
    assert_eq!(number(&mut tool, "SELECT count(*) FROM connector_journal").await, 4);
    assert!(one.row(&trim_key("c")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_stream_that_another_host_is_about_to_begin_is_waited_for() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let ends = [("ROLLBACK", COMMITTED), ("COMMIT", AppendOutcome::Conflict)];
    for ((end, outcome), n) in ends.into_iter().zip(1..) {
        let mut holder = outsider(&url).await;
        let begins = format!(
            "BEGIN; INSERT INTO connector_stream (name, kind, version, last_command_id, hash) \
             VALUES ('document:{n}', 1, 1, decode(repeat('09', 16), 'hex'), \
             decode(repeat('09', 32), 'hex'))"
        );
        run(&mut holder, begins).await;
        let append = begin(&store, trim_append(&n.to_string(), n, Expected::NONE));
        until_one_waits(&url).await;
        run(&mut holder, end).await;
        assert_eq!(append.await.unwrap().unwrap(), [outcome], "{end}");
    }
}

/// A rebuild puts rows without an event, so the head is as it was presumed.
#[tokio::test]
async fn a_row_that_a_rebuild_puts_before_the_batch_that_removes_it_is_removed() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let mut holder = outsider(&url).await;
    run(&mut holder, "CREATE TABLE kept AS SELECT * FROM kubun_connector_entity_trim").await;
    run(&mut holder, "DELETE FROM kubun_connector_entity_trim").await;
    run(&mut holder, "BEGIN; SELECT 1 FROM connector_stream FOR UPDATE").await;
    let removes = |command: u128, at: Expected| {
        let rows = vec![RowChange::Delete(trim_key("a"))];
        changed(&trim_append("a", command, at), |part| part.rows = rows)
    };
    let append = begin(&store, removes(2, expected(1, 1)));
    until_one_waits(&url).await;
    run(&mut holder, "INSERT INTO kubun_connector_entity_trim SELECT * FROM kept; COMMIT").await;
    assert_eq!(append.await.unwrap().unwrap(), [COMMITTED]);
    assert!(store.row(&trim_key("a")).await.unwrap().is_none());
    // One that is missing is no fault of the batch, and one that it puts itself was not there.
    commit(&store, removes(3, expected(2, 2))).await;
    let puts = trim_append("a", 4, expected(3, 3));
    let outcomes = store.append(&[puts, removes(5, expected(4, 4))], NOW).await.unwrap();
    assert_eq!(outcomes, [COMMITTED, COMMITTED]);
    assert!(store.row(&trim_key("a")).await.unwrap().is_none());
}

/// What would have confirmed it is refused, or is folded away.
#[tokio::test]
async fn a_row_that_nothing_is_the_first_to_put_is_read() {
    let Some((_server, url)) = place() else { return };
    let (one, other) = (open(&url).await, open(&url).await);
    commit(&other, first_with("a", "x", 1)).await;
    commit(&other, trim_append("b", 2, Expected::NONE)).await;
    let exists = || AppendOutcome::RowExists(id_key("x"));
    // The one that expects it does not put it, the one that puts it is refused.
    let bare = |document: &str, command| {
        let mut append = trim_append(document, command, Expected::NONE);
        append.absent.push(id_key("x"));
        append
    };
    let mut puts = first_with("b", "x", 3);
    puts.absent.clear();
    for batch in [[puts.clone(), bare("c", 4)], [bare("c", 4), puts]] {
        let outcomes = one.append(&batch, NOW).await.unwrap();
        assert!(outcomes.contains(&AppendOutcome::Conflict), "{outcomes:?}");
        assert!(outcomes.contains(&exists()), "{outcomes:?}");
    }
    let mut puts = first_with("d", "x", 5);
    puts.absent.clear();
    let mut removes = trim_append("e", 6, Expected::NONE);
    removes.parts[0].rows.push(RowChange::Delete(id_key("x")));
    let outcomes = open(&url).await.append(&[bare("f", 7), puts, removes], NOW).await.unwrap();
    assert_eq!(outcomes, [exists(), COMMITTED, COMMITTED]);
    assert!(one.row(&id_key("x")).await.unwrap().is_none());
}

/// One head is to be inserted and the other one to be moved.
#[tokio::test]
async fn no_event_is_written_where_one_of_two_kinds_of_heads_is_not_as_presumed() {
    let Some((_server, url)) = place() else { return };
    let (one, other) = (open(&url).await, open(&url).await);
    commit(&one, trim_append("a", 1, Expected::NONE)).await;
    commit(&other, trim_append("b", 2, Expected::NONE)).await;
    let batch = [trim_append("a", 3, expected(1, 1)), trim_append("b", 4, Expected::NONE)];
    let outcomes = one.append(&batch, NOW).await.unwrap();
    assert_eq!(outcomes, [COMMITTED, AppendOutcome::Conflict]);
    let one = open(&url).await;
    commit(&one, trim_append("a", 5, expected(2, 3))).await;
    commit(&other, trim_append("a", 6, expected(3, 5))).await;
    let batch = [trim_append("a", 7, expected(3, 5)), trim_append("c", 8, Expected::NONE)];
    assert_eq!(one.append(&batch, NOW).await.unwrap(), [AppendOutcome::Conflict, COMMITTED]);
    let mut tool = outsider(&url).await;
    let events = number(&mut tool, "SELECT count(*) FROM connector_journal").await;
    let versions = number(&mut tool, "SELECT sum(version)::bigint FROM connector_stream").await;
    assert_eq!((events, versions), (6, 6));
}

#[tokio::test]
async fn a_batch_on_a_head_that_another_host_has_moved_is_judged_on_what_is_there() {
    let Some((_server, url)) = place() else { return };
    let (one, other) = (open(&url).await, open(&url).await);
    for name in ["a", "b"] {
        commit(&one, trim_append(name, 1, Expected::NONE)).await;
    }
    commit(&other, trim_append("a", 2, expected(1, 1))).await;
    // The first stands on what was, as the store remembers it, the second on what is there.
    let batch = [
        trim_append("a", 3, expected(1, 1)),
        trim_append("b", 4, expected(1, 1)),
        trim_append("a", 5, expected(2, 2)),
    ];
    let outcomes = one.append(&batch, NOW).await.unwrap();
    assert_eq!(outcomes, [AppendOutcome::Conflict, COMMITTED, COMMITTED]);
    // A condition on a stream that nothing is written to is judged under its lock.
    commit(&other, trim_append("b", 6, expected(2, 4))).await;
    let mut both = trim_append("a", 7, expected(3, 5));
    both.parts.extend(trim_append("b", 7, expected(2, 4)).parts);
    both.parts[1].events.clear();
    both.parts[1].rows.clear();
    assert_eq!(one.append(&[both], NOW).await.unwrap(), [AppendOutcome::Conflict]);
    let mut tool = outsider(&url).await;
    assert_eq!(number(&mut tool, "SELECT count(*) FROM connector_journal").await, 6);
}

/// The place of its event in the stream is taken then, which is no damage.
#[tokio::test]
async fn a_head_that_moves_while_the_batch_waits_to_write_it_is_judged_anew() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let move_it = "UPDATE connector_stream SET version = 2, last_command_id = decode(repeat('09', 16), 'hex'), \
                   hash = decode(repeat('09', 32), 'hex'); \
                   INSERT INTO connector_journal SELECT nextval('connector_journal_position'), \
                   stream, 2, event_type, event_schema, payload, command_id, recorded_at, hash, \
                   pg_current_xact_id() FROM connector_journal; COMMIT";
    for (end, outcome) in [("ROLLBACK", COMMITTED), (move_it, AppendOutcome::Conflict)] {
        let mut holder = outsider(&url).await;
        run(&mut holder, "DELETE FROM connector_journal WHERE stream_version > 1").await;
        run(&mut holder, "BEGIN; SELECT 1 FROM connector_stream FOR UPDATE").await;
        let standing = store.load("document:a").await.unwrap().head.unwrap().expected();
        let append = begin(&store, trim_append("a", 7, standing));
        until_one_waits(&url).await;
        let end = end.replace("version = 2", &format!("version = {}", standing.version + 1));
        run(&mut holder, end).await;
        assert_eq!(append.await.unwrap().unwrap(), [outcome]);
    }
}

#[tokio::test]
async fn hosts_that_write_to_the_same_known_streams_in_turn_and_at_once_never_wait_in_a_circle() {
    const ROUNDS: u128 = 40;
    let Some((_server, url)) = place() else { return };
    let names: Vec<String> = (0..8).map(|at| format!("a {at}")).collect();
    let streams: Vec<StreamName> =
        names.iter().map(|name| StreamName::from(format!("document:{name}"))).collect();
    let hosts = [open(&url).await, open(&url).await].into_iter().zip(0_u128..);
    let writers = hosts.map(|(store, host)| {
        let (mut names, mut streams) = (names.clone(), streams.clone());
        if host == 1 {
            names.reverse();
            streams.reverse();
        }
        tokio::spawn(async move {
            let mut won = 0;
            for round in 0..ROUNDS {
                let heads = store.confirm_heads(&streams).await.unwrap().heads;
                let batch: Vec<Append> = names
                    .iter()
                    .zip(heads)
                    .zip((2 + host..).step_by(2))
                    .map(|((name, head), n)| {
                        trim_append(name, n + 100 * round, head.unwrap_or(Expected::NONE))
                    })
                    .collect();
                let outcomes = store.append(&batch, NOW).await.unwrap();
                won += outcomes.iter().filter(|outcome| **outcome == COMMITTED).count();
            }
            won
        })
    });
    let events = all_that_won(&url, writers.collect()).await;
    let mut tool = outsider(&url).await;
    let versions = number(&mut tool, "SELECT sum(version)::bigint FROM connector_stream").await;
    assert_eq!(versions, events);
}
