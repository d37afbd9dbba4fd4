//! Appends: what they are judged on, and that each is written whole or not at all.

use super::build::{
    COMMITTED, at, commit, event, fence, id, journal, lease, name, one, part, record, swept, trim,
    trim_key, unit, versions, with_rows, write,
};
use super::{Rule, rule};
use crate::base::{Error, Result};
use crate::domain::RowChange;
use crate::journal::port::{Append, AppendOutcome, Expected, Storage};

pub(super) const RULES: &[Rule] = &[
    rule!(an_append_is_judged_on_version_and_command_id),
    rule!(each_append_of_a_batch_is_judged_on_those_before_it),
    rule!(a_unit_is_written_whole_or_not_at_all),
    rule!(a_part_without_events_is_a_condition_alone),
    rule!(a_refused_append_never_fails_its_neighbours),
    rule!(a_fence_holds_only_with_the_current_token),
    rule!(a_fence_is_judged_on_the_leases_that_the_batch_wrote_before_it),
    rule!(a_row_that_must_be_absent_refuses_that_append_alone),
    rule!(an_absence_is_judged_on_the_rows_that_the_batch_wrote_before_it),
    rule!(an_absence_is_asked_after_fences_and_heads),
    rule!(a_known_command_id_gets_its_first_outcome),
    rule!(an_outcome_is_kept_without_an_event),
    rule!(outcomes_are_forgotten_by_age),
    rule!(a_taken_row_comes_back_once),
    rule!(a_lost_acknowledgement_can_be_looked_up),
    rule!(a_lost_acknowledgement_of_a_record_can_be_looked_up),
    rule!(a_commit_whose_event_was_erased_since_is_not_told_as_failed),
];

async fn an_append_is_judged_on_version_and_command_id(storage: &dyn Storage) -> Result<()> {
    assert_eq!(write(storage, &[]).await?, []);
    commit(storage, &[one(1, "document:a", Expected::NONE)]).await?;
    let stale = [Expected::NONE, at(1, 9), at(2, 1), at(0, 1), at(i64::MAX, 1)];
    for expected in stale {
        let outcomes = write(storage, &[one(2, "document:a", expected)]).await?;
        assert_eq!(outcomes, [AppendOutcome::Conflict], "{expected:?}");
    }
    commit(storage, &[one(3, "document:a", at(1, 1))]).await?;
    assert_eq!(write(storage, &[one(4, "document:b", at(1, 1))]).await?, [AppendOutcome::Conflict]);
    let all = journal(storage).await?;
    assert_eq!(versions(&all), [1, 2]);
    assert!(all[0].position > 0 && all[0].position < all[1].position);
    Ok(())
}

async fn each_append_of_a_batch_is_judged_on_those_before_it(storage: &dyn Storage) -> Result<()> {
    let batch = [
        one(1, "document:a", Expected::NONE),
        one(2, "document:a", at(1, 1)),
        one(3, "document:a", at(1, 1)),
        one(4, "document:a", at(2, 2)),
    ];
    let outcomes = write(storage, &batch).await?;
    assert_eq!(outcomes, [COMMITTED, COMMITTED, AppendOutcome::Conflict, COMMITTED]);
    let commands: Vec<_> = journal(storage).await?.iter().map(|event| event.command_id).collect();
    assert_eq!(commands, [id(1), id(2), id(4)]);
    let heads = storage.confirm_heads(&[name("document:a")]).await?.heads;
    assert_eq!(heads, [Some(at(3, 4))]);
    Ok(())
}

async fn a_unit_is_written_whole_or_not_at_all(storage: &dyn Storage) -> Result<()> {
    let parts = |on_b| {
        let mut first = part("document:a", Expected::NONE, vec![event(b"1"), event(b"2")]);
        first.rows.push(RowChange::Put(trim("a", "[]")));
        vec![first, part("document:b", on_b, vec![event(b"3")])]
    };
    let outcomes = write(storage, &[unit(1, parts(at(1, 7)))]).await?;
    assert_eq!(outcomes, [AppendOutcome::Conflict]);
    assert_eq!(journal(storage).await?, []);
    assert_eq!(storage.row(&trim_key("a")).await?, None);
    commit(storage, &[unit(1, parts(Expected::NONE))]).await?;
    assert_eq!(versions(&journal(storage).await?), [1, 2, 1]);
    assert_eq!(storage.row(&trim_key("a")).await?, Some(trim("a", "[]")));
    let heads = storage.confirm_heads(&[name("document:b"), name("document:a")]).await?.heads;
    assert_eq!(heads, [Some(at(1, 1)), Some(at(2, 1))]);
    Ok(())
}

async fn a_part_without_events_is_a_condition_alone(storage: &dyn Storage) -> Result<()> {
    commit(storage, &[one(1, "document:a", Expected::NONE)]).await?;
    let conditions = |on_a| {
        vec![
            part("document:a", on_a, Vec::new()),
            part("document:c", Expected::NONE, Vec::new()),
            part("document:b", Expected::NONE, vec![event(b"1")]),
        ]
    };
    let outcomes = write(storage, &[unit(2, conditions(at(2, 1)))]).await?;
    assert_eq!(outcomes, [AppendOutcome::Conflict]);
    commit(storage, &[unit(3, conditions(at(1, 1)))]).await?;
    let names = ["document:a", "document:b", "document:c"].map(name);
    let heads = storage.confirm_heads(&names).await?.heads;
    assert_eq!(heads, [Some(at(1, 1)), Some(at(1, 3)), None]);
    let listed = storage.streams(None, 10).await?.streams;
    assert_eq!(listed.iter().filter(|(_, _, head)| head.version > 0).count(), 2);
    assert_eq!(storage.load("document:c").await?.events, []);
    Ok(())
}

async fn a_refused_append_never_fails_its_neighbours(storage: &dyn Storage) -> Result<()> {
    let first = record("first", b"answer");
    let mut known = one(1, "document:k", Expected::NONE);
    known.record = Some(first.clone());
    commit(storage, std::slice::from_ref(&known)).await?;
    let mut fenced = one(3, "document:f", Expected::NONE);
    fenced.fences.push(fence("c", 1)?);
    let batch = [
        one(2, "document:a", Expected::NONE),
        fenced.clone(),
        one(4, "document:b", Expected::NONE),
        one(5, "document:a", Expected::NONE),
        known,
        one(6, "document:c", Expected::NONE),
    ];
    let outcomes = write(storage, &batch).await?;
    let lost = AppendOutcome::FenceLost { fence: fenced.fences.remove(0) };
    let known = AppendOutcome::CommandKnown(first);
    let expected = [COMMITTED, lost, COMMITTED, AppendOutcome::Conflict, known, COMMITTED];
    assert_eq!(outcomes, expected);
    let streams: Vec<_> = journal(storage).await?.into_iter().map(|event| event.stream).collect();
    assert_eq!(streams, ["document:k", "document:a", "document:b", "document:c"].map(name));
    Ok(())
}

async fn a_fence_holds_only_with_the_current_token(storage: &dyn Storage) -> Result<()> {
    let current = fence("c", 7)?;
    commit(storage, &[with_rows(1, vec![RowChange::Put(lease(&current))])]).await?;
    let cases = [(fence("c", 6)?, false), (fence("d", 7)?, false), (current.clone(), true)];
    for (command, (fence, holds)) in (2_u128..).zip(cases) {
        let mut append = one(command, &format!("document:{command}"), Expected::NONE);
        append.fences.push(fence.clone());
        let expected = if holds { COMMITTED } else { AppendOutcome::FenceLost { fence } };
        assert_eq!(write(storage, &[append]).await?, [expected]);
    }
    let released = with_rows(9, vec![RowChange::Delete(current.scope.row_key())]);
    commit(storage, &[released]).await?;
    let mut append = one(10, "document:z", Expected::NONE);
    append.fences.push(current.clone());
    let outcomes = write(storage, &[append]).await?;
    assert_eq!(outcomes, [AppendOutcome::FenceLost { fence: current }]);
    Ok(())
}

async fn a_fence_is_judged_on_the_leases_that_the_batch_wrote_before_it(
    storage: &dyn Storage,
) -> Result<()> {
    let (old, new) = (fence("c", 1)?, fence("c", 2)?);
    let fenced = |command: u128, fence| {
        let mut append = one(command, &format!("document:{command}"), Expected::NONE);
        append.fences.push(fence);
        append
    };
    let batch = [
        fenced(1, old.clone()),
        with_rows(2, vec![RowChange::Put(lease(&old))]),
        fenced(3, old.clone()),
        with_rows(4, vec![RowChange::Put(lease(&new))]),
        fenced(5, old.clone()),
        fenced(6, new),
    ];
    let outcomes = write(storage, &batch).await?;
    let lost = AppendOutcome::FenceLost { fence: old };
    assert_eq!(outcomes, [lost.clone(), COMMITTED, COMMITTED, COMMITTED, lost, COMMITTED]);
    Ok(())
}

/// One event on a stream of its own, if there is no trim of the document.
fn if_absent(command: u128, document: &str) -> Append {
    let mut append = one(command, &format!("absent:{command}"), Expected::NONE);
    append.absent.push(trim_key(document));
    append
}

fn exists(document: &str) -> AppendOutcome {
    AppendOutcome::RowExists(trim_key(document))
}

async fn a_row_that_must_be_absent_refuses_that_append_alone(storage: &dyn Storage) -> Result<()> {
    commit(storage, &[with_rows(1, vec![RowChange::Put(trim("a", "[]"))])]).await?;
    let mut second = if_absent(3, "z");
    second.absent.push(trim_key("a"));
    second.record = Some(record("command", b"answer"));
    second.parts[0].rows.push(RowChange::Put(trim("b", "[]")));
    let batch =
        [if_absent(2, "a"), second, if_absent(4, "b"), one(5, "document:d", Expected::NONE)];
    let outcomes = write(storage, &batch).await?;
    assert_eq!(outcomes, [exists("a"), exists("a"), COMMITTED, COMMITTED]);
    assert_eq!(storage.row(&trim_key("b")).await?, None);
    assert_eq!(storage.command(id(3)).await?, None);
    let streams: Vec<_> = journal(storage).await?.into_iter().map(|event| event.stream).collect();
    assert_eq!(streams, ["rows:1", "absent:4", "document:d"].map(name));
    commit(storage, &[with_rows(6, vec![RowChange::Delete(trim_key("a"))])]).await?;
    commit(storage, &[if_absent(7, "a")]).await
}

async fn an_absence_is_judged_on_the_rows_that_the_batch_wrote_before_it(
    storage: &dyn Storage,
) -> Result<()> {
    let put = |document| RowChange::Put(trim(document, "[]"));
    commit(storage, &[with_rows(1, vec![put("stored"), put("taken")])]).await?;
    // Two streams that both want to be the first to have the row.
    let first = |command| {
        let mut append = if_absent(command, "new");
        append.parts[0].rows.push(put("new"));
        append
    };
    let taken = vec![trim("taken", "[]")];
    let cases = [
        (if_absent(2, "stored"), exists("stored")),
        (with_rows(3, vec![RowChange::Delete(trim_key("stored"))]), COMMITTED),
        (if_absent(4, "stored"), COMMITTED),
        (with_rows(5, vec![put("stored")]), COMMITTED),
        (if_absent(6, "stored"), exists("stored")),
        (if_absent(7, "taken"), exists("taken")),
        (
            with_rows(8, vec![RowChange::Take(trim_key("taken"))]),
            AppendOutcome::Committed { taken },
        ),
        (if_absent(9, "taken"), COMMITTED),
        (first(10), COMMITTED),
        (first(11), exists("new")),
        (with_rows(12, vec![put("gone"), RowChange::Delete(trim_key("gone"))]), COMMITTED),
        (if_absent(13, "gone"), COMMITTED),
    ];
    let (batch, expected): (Vec<Append>, Vec<AppendOutcome>) = cases.into_iter().unzip();
    assert_eq!(write(storage, &batch).await?, expected);
    let mut again = first(14);
    again.parts[0].stream = name("absent:another");
    assert_eq!(write(storage, &[again]).await?, [exists("new")]);
    Ok(())
}

/// A stale decision is made again before its refusal is told.
async fn an_absence_is_asked_after_fences_and_heads(storage: &dyn Storage) -> Result<()> {
    commit(storage, &[with_rows(1, vec![RowChange::Put(trim("a", "[]"))])]).await?;
    let mut stale = if_absent(2, "a");
    stale.parts[0].expected = at(1, 1);
    let mut fenced = if_absent(3, "a");
    fenced.fences.push(fence("c", 1)?);
    let lost = AppendOutcome::FenceLost { fence: fence("c", 1)? };
    assert_eq!(write(storage, &[stale, fenced]).await?, [AppendOutcome::Conflict, lost]);
    Ok(())
}

async fn a_known_command_id_gets_its_first_outcome(storage: &dyn Storage) -> Result<()> {
    let first = record("command", b"\x00first\xff");
    let mut append = one(1, "document:a", Expected::NONE);
    append.record = Some(first.clone());
    let mut other = one(1, "document:b", Expected::NONE);
    other.record = Some(record("other", b"second"));
    let known = AppendOutcome::CommandKnown(first.clone());
    let outcomes = write(storage, &[append.clone(), other.clone()]).await?;
    assert_eq!(outcomes, [COMMITTED, known.clone()]);
    for repeat in [append, other] {
        assert_eq!(write(storage, &[repeat]).await?, std::slice::from_ref(&known));
    }
    assert_eq!(storage.command(id(1)).await?, Some(first));
    assert_eq!(storage.command(id(2)).await?, None);
    assert_eq!(journal(storage).await?.len(), 1);
    Ok(())
}

async fn an_outcome_is_kept_without_an_event(storage: &dyn Storage) -> Result<()> {
    commit(storage, &[one(1, "document:a", Expected::NONE)]).await?;
    let mut refused = unit(2, vec![part("document:a", Expected::NONE, Vec::new())]);
    refused.record = Some(record("read", b""));
    assert_eq!(write(storage, std::slice::from_ref(&refused)).await?, [AppendOutcome::Conflict]);
    assert_eq!(storage.command(id(2)).await?, None);
    refused.parts[0].expected = at(1, 1);
    commit(storage, &[refused]).await?;
    assert_eq!(storage.command(id(2)).await?, Some(record("read", b"")));
    assert_eq!(journal(storage).await?.len(), 1);
    Ok(())
}

async fn outcomes_are_forgotten_by_age(storage: &dyn Storage) -> Result<()> {
    let mut append = one(1, "document:a", Expected::NONE);
    append.record = Some(record("command", b"answer"));
    commit(storage, &[append]).await?;
    let written_at = journal(storage).await?[0].recorded_at;
    assert_eq!(storage.drop_commands(written_at).await?, 0);
    assert!(storage.command(id(1)).await?.is_some());
    assert_eq!(storage.drop_commands(written_at.plus_millis(1)).await?, 1);
    assert_eq!(storage.command(id(1)).await?, None);
    Ok(())
}

async fn a_taken_row_comes_back_once(storage: &dyn Storage) -> Result<()> {
    let row = trim("d", "[\"title\"]");
    let take = |command| with_rows(command, vec![RowChange::Take(row.key())]);
    commit(storage, &[with_rows(1, vec![RowChange::Put(row.clone())])]).await?;
    let taken = AppendOutcome::Committed { taken: vec![row.clone()] };
    assert_eq!(write(storage, &[take(2), take(3)]).await?, [taken.clone(), COMMITTED]);
    assert_eq!(storage.row(&row.key()).await?, None);
    assert_eq!(write(storage, &[take(4)]).await?, [COMMITTED]);
    let put = with_rows(5, vec![RowChange::Put(row.clone())]);
    assert_eq!(write(storage, &[put, take(6)]).await?, [COMMITTED, taken]);
    assert_eq!(storage.row(&row.key()).await?, None);
    Ok(())
}

async fn a_lost_acknowledgement_can_be_looked_up(storage: &dyn Storage) -> Result<()> {
    let first = one(1, "document:a", Expected::NONE);
    let never = one(2, "document:a", Expected::NONE);
    assert_eq!(storage.look_up(&first).await?, None);
    commit(storage, std::slice::from_ref(&first)).await?;
    commit(storage, &[one(3, "document:a", at(1, 1))]).await?;
    let found = storage.look_up(&first).await?;
    assert!(matches!(found, Some(AppendOutcome::Committed { .. })), "{found:?}");
    assert_eq!(storage.look_up(&never).await?, None);
    let condition_first = unit(
        4,
        vec![
            part("document:a", at(2, 3), Vec::new()),
            part("document:b", Expected::NONE, vec![event(b"1")]),
        ],
    );
    assert_eq!(storage.look_up(&condition_first).await?, None);
    commit(storage, std::slice::from_ref(&condition_first)).await?;
    let found = storage.look_up(&condition_first).await?;
    assert!(matches!(found, Some(AppendOutcome::Committed { .. })), "{found:?}");
    Ok(())
}

async fn a_lost_acknowledgement_of_a_record_can_be_looked_up(storage: &dyn Storage) -> Result<()> {
    let mut alone = unit(1, Vec::new());
    alone.record = Some(record("command", b"answer"));
    assert_eq!(storage.look_up(&alone).await?, None);
    commit(storage, std::slice::from_ref(&alone)).await?;
    let found = storage.look_up(&alone).await?;
    assert!(found.is_some_and(|found| found != AppendOutcome::Conflict));
    let mut other = one(1, "document:a", Expected::NONE);
    other.record = Some(record("other", b"answer"));
    let found = storage.look_up(&other).await?;
    assert!(!matches!(found, Some(AppendOutcome::Committed { .. })), "another command's record");
    Ok(())
}

async fn a_commit_whose_event_was_erased_since_is_not_told_as_failed(
    storage: &dyn Storage,
) -> Result<()> {
    let first = one(1, "document:a", Expected::NONE);
    let mut recorded = one(2, "document:a", at(1, 1));
    recorded.record = Some(record("command", b"answer"));
    let mut erasing = unit(3, vec![part("document:a", at(2, 2), vec![swept()])]);
    erasing.parts[0].erase = true;
    commit(storage, &[first.clone(), recorded.clone(), erasing.clone()]).await?;
    let unknown = storage.look_up(&first).await;
    assert!(matches!(unknown, Err(Error::OutcomeUnknown { .. })), "{unknown:?}");
    for append in [recorded, erasing] {
        let found = storage.look_up(&append).await?;
        assert!(matches!(found, Some(AppendOutcome::Committed { .. })), "{found:?}");
    }
    let never = one(4, "document:a", at(3, 3));
    assert_eq!(storage.look_up(&never).await?, None);
    Ok(())
}
