//! Observation copies and repairs: the times that rows are stamped with, bytes, and who has copies.

use super::build::{
    COMMITTED, at, by_key, commit, filled, journal, now, one, part, trim, unit, with_rows, write,
};
use super::{Rule, rule};
use crate::base::{DocumentId, OwnerDid, Result, Timestamp};
use crate::domain::{Row, RowChange, Table, Value};
use crate::journal::port::{Append, AppendOutcome, BatchError, Expected, Storage};
use crate::records::OBSERVATION_TYPE;

pub(super) const RULES: &[Rule] = &[
    rule!(stamps_grow_from_batch_to_batch_whatever_the_time_is),
    rule!(rows_of_one_batch_share_their_stamp_and_it_is_the_time_of_their_events),
    rule!(what_fails_is_not_stamped_and_what_follows_is_stamped_later),
    rule!(a_stamp_is_kept_until_the_row_is_stamped_again),
    rule!(rows_without_events_are_stamped_behind_all_others),
    rule!(bytes_come_back_exactly),
    rule!(kept_bytes_stay),
    rule!(each_owner_and_document_with_copies_is_named_once_in_byte_order),
];

const WRITTEN_AT: usize = 6;
const PAYLOAD: usize = 6;

/// A repair that is stamped when it is written.
fn repair(document: &str) -> Row {
    let mut row = filled(Table::ObservationRepair, &[Value::text(document)], 1);
    row.values[WRITTEN_AT] = Value::Stamp;
    row
}

fn put_repairs(command: u128, documents: &[&str]) -> Append {
    with_rows(command, documents.iter().map(|name| RowChange::Put(repair(name))).collect())
}

async fn written_at(storage: &dyn Storage, document: &str) -> Result<Option<i64>> {
    let row = storage.row(&repair(document).key()).await?;
    Ok(row.and_then(|row| row.values[WRITTEN_AT].as_int()))
}

async fn write_at(
    storage: &dyn Storage,
    batch: &[Append],
    now: Timestamp,
) -> Result<Vec<AppendOutcome>> {
    storage.append(batch, now).await.map_err(|error| match error {
        BatchError::Passing(error) | BatchError::Failed(error) | BatchError::Unknown(error) => {
            error
        }
    })
}

/// The stamps of the rows that an append handed back.
fn handed_back(outcome: &AppendOutcome) -> Vec<Option<i64>> {
    match outcome {
        AppendOutcome::Committed { taken } => {
            taken.iter().map(|row| row.values[WRITTEN_AT].as_int()).collect()
        }
        _ => Vec::new(),
    }
}

async fn stamps_grow_from_batch_to_batch_whatever_the_time_is(storage: &dyn Storage) -> Result<()> {
    let mut last = None;
    for (command, moved) in (1..).zip([0, 0, 10, -50, -50, i64::MIN / 4, 11, 0]) {
        let name = format!("d{command}");
        let time = Timestamp::from_millis(now().as_millis() + moved);
        let outcomes = write_at(storage, &[put_repairs(command, &[&name])], time).await?;
        let stamp = written_at(storage, &name).await?;
        assert!(stamp.is_some() && stamp > last, "{stamp:?} is not behind {last:?}");
        assert_eq!(handed_back(&outcomes[0]), [stamp]);
        last = stamp;
        // What stamps nothing in between takes no time away.
        let other = with_rows(command + 100, vec![RowChange::Put(trim(&name, "[]"))]);
        assert_eq!(write_at(storage, &[other], time).await?, [COMMITTED]);
    }
    Ok(())
}

async fn rows_of_one_batch_share_their_stamp_and_it_is_the_time_of_their_events(
    storage: &dyn Storage,
) -> Result<()> {
    commit(storage, &[put_repairs(1, &["a"])]).await?;
    let outcomes = write(storage, &[put_repairs(2, &["b", "c"]), put_repairs(3, &["d"])]).await?;
    let stamp = written_at(storage, "b").await?;
    assert!(stamp > written_at(storage, "a").await?);
    for other in ["c", "d"] {
        assert_eq!(written_at(storage, other).await?, stamp);
    }
    assert_eq!(handed_back(&outcomes[0]), [stamp, stamp]);
    assert_eq!(handed_back(&outcomes[1]), [stamp]);
    let AppendOutcome::Committed { taken } = &outcomes[1] else { return Ok(()) };
    let found = storage.row(&taken[0].key()).await?;
    assert_eq!(found.map(|row| row.values), Some(taken[0].values.clone()), "the whole row");
    let recorded = journal(storage).await?;
    let recorded = recorded.iter().map(|event| Some(event.recorded_at.as_millis()));
    assert_eq!(recorded.collect::<Vec<_>>(), [written_at(storage, "a").await?, stamp, stamp]);
    Ok(())
}

async fn what_fails_is_not_stamped_and_what_follows_is_stamped_later(
    storage: &dyn Storage,
) -> Result<()> {
    commit(storage, &[one(1, "document:a", Expected::NONE), put_repairs(2, &["before"])]).await?;
    let failing = |command, name| {
        let mut part = part("document:a", at(7, 7), Vec::new());
        part.rows = vec![RowChange::Put(repair(name))];
        unit(command, vec![part])
    };
    assert_eq!(write(storage, &[failing(3, "alone")]).await?, [AppendOutcome::Conflict]);
    let batch = [failing(4, "first"), put_repairs(5, &["beside"]), failing(6, "last")];
    let outcomes = write(storage, &batch).await?;
    assert_eq!((&outcomes[0], &outcomes[2]), (&AppendOutcome::Conflict, &AppendOutcome::Conflict));
    assert!(matches!(outcomes[1], AppendOutcome::Committed { .. }));
    for failed in ["alone", "first", "last"] {
        assert_eq!(written_at(storage, failed).await?, None, "{failed}");
    }
    commit(storage, &[put_repairs(7, &["first"])]).await?;
    let [before, beside, first] = ["before", "beside", "first"];
    assert!(written_at(storage, before).await? < written_at(storage, beside).await?);
    assert!(written_at(storage, beside).await? < written_at(storage, first).await?);
    Ok(())
}

async fn a_stamp_is_kept_until_the_row_is_stamped_again(storage: &dyn Storage) -> Result<()> {
    let mut kept = repair("a");
    kept.values[2] = Value::text("changed");
    kept.values[WRITTEN_AT] = Value::Keep;
    commit(storage, &[put_repairs(1, &["a", "b"])]).await?;
    let stamp = written_at(storage, "a").await?;
    commit(storage, &[with_rows(2, vec![RowChange::Put(kept.clone())])]).await?;
    storage.replace_rows(&[RowChange::Put(kept.clone())], &[]).await?;
    assert_eq!(written_at(storage, "a").await?, stamp);
    // The last of a batch counts, and keeps what the first was stamped with.
    commit(storage, &[put_repairs(3, &["a"]), with_rows(4, vec![RowChange::Put(kept)])]).await?;
    assert!(written_at(storage, "a").await? > stamp);
    let row = storage.row(&repair("a").key()).await?;
    assert_eq!(row.map(|row| row.values[2].clone()), Some(Value::text("changed")));
    commit(storage, &[with_rows(5, vec![RowChange::Delete(repair("b").key())])]).await?;
    assert_eq!(written_at(storage, "b").await?, None);
    Ok(())
}

async fn rows_without_events_are_stamped_behind_all_others(storage: &dyn Storage) -> Result<()> {
    commit(storage, &[put_repairs(1, &["a"])]).await?;
    storage.replace_rows(&[RowChange::Put(repair("b")), RowChange::Put(repair("c"))], &[]).await?;
    storage.replace_rows(&[RowChange::Put(repair("d"))], &[]).await?;
    commit(storage, &[put_repairs(2, &["e"])]).await?;
    let mut stamps = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        stamps.push(written_at(storage, name).await?);
    }
    assert!(stamps[0] < stamps[1] && stamps[1] == stamps[2], "{stamps:?}");
    assert!(stamps[2] < stamps[3] && stamps[3] < stamps[4], "{stamps:?}");
    Ok(())
}

fn copy(owner: &str, document: &str, op_hash: &str, payload: Value) -> Row {
    let key = [OBSERVATION_TYPE, owner, document, op_hash].map(Value::text);
    let mut row = filled(Table::ObservationRecords, &key, 1);
    row.values[PAYLOAD] = payload;
    row
}

fn blob(bytes: &[u8]) -> Value {
    Value::Blob(bytes.into())
}

async fn bytes_come_back_exactly(storage: &dyn Storage) -> Result<()> {
    let all: Vec<u8> = (0..=255).collect();
    let payloads = [
        Value::Null,
        blob(&[]),
        blob(&[0]),
        blob(&all),
        blob(&all.repeat(4_096)),
        blob("text, \u{e4}".as_bytes()),
        blob(&[0xff, 0xfe, 0x00, 0xd8]),
    ];
    let rows: Vec<Row> = (0..)
        .zip(&payloads)
        .map(|(at, payload)| copy("did:web:o", "d", &format!("{at}"), payload.clone()))
        .collect();
    commit(storage, &[with_rows(1, rows.iter().cloned().map(RowChange::Put).collect())]).await?;
    let found = storage.rows(&by_key(Table::ObservationRecords)).await?;
    assert_eq!(found.len(), rows.len());
    for (row, found) in rows.iter().zip(found) {
        assert!(row.values == found.values, "{row:?}");
        let alone = storage.row(&row.key()).await?;
        assert!(alone.is_some_and(|alone| alone.values == row.values), "{row:?}");
    }
    for (command, row) in (2..).zip(&rows) {
        let batch = [with_rows(command, vec![RowChange::Take(row.key())])];
        let outcomes = write(storage, &batch).await?;
        let AppendOutcome::Committed { taken } = &outcomes[0] else { panic!("{outcomes:?}") };
        assert!(taken.len() == 1 && taken[0].values == row.values, "{row:?}");
    }
    Ok(())
}

async fn kept_bytes_stay(storage: &dyn Storage) -> Result<()> {
    let put = |hash: &str, payload| RowChange::Put(copy("did:web:o", "d", hash, payload));
    let mut kept = copy("did:web:o", "d", "a", Value::Keep);
    (kept.values[4], kept.values[5]) = (Value::text("new"), Value::Keep);
    let first =
        with_rows(1, vec![put("a", blob(&[1, 0])), put("b", blob(&[2])), put("c", blob(b"3"))]);
    commit(storage, &[first]).await?;
    let changes = vec![RowChange::Put(kept), put("b", Value::Keep), put("c", Value::Null)];
    commit(storage, &[with_rows(2, changes), with_rows(3, vec![put("b", Value::Keep)])]).await?;
    let key = |hash: &str| copy("did:web:o", "d", hash, Value::Null).key();
    let token = copy("did:web:o", "d", "a", Value::Null).values[5].clone();
    let stamp = Value::text("hlc 1");
    let cases = [
        ("a", [Value::text("new"), token.clone(), blob(&[1, 0])]),
        ("b", [stamp.clone(), token.clone(), blob(&[2])]),
        ("c", [stamp, token, Value::Null]),
    ];
    for (hash, expected) in cases {
        let found = storage.row(&key(hash)).await?;
        assert_eq!(found.map(|row| row.values[4..].to_vec()), Some(expected.to_vec()), "{hash}");
    }
    Ok(())
}

async fn each_owner_and_document_with_copies_is_named_once_in_byte_order(
    storage: &dyn Storage,
) -> Result<()> {
    assert_eq!(storage.observed(None, 10).await?, []);
    let mut names: Vec<(String, String)> = Vec::new();
    for owner in ["did:web:Z", "did:web:a", "did:web:a!", "did:web:\u{e4}", "did:web:a\u{308}"] {
        for document in ["d", "D", "d d", "d1", "\u{e4}", "\u{fb33}", "🎈"] {
            names.push((owner.to_owned(), document.to_owned()));
        }
    }
    let copies = |(owner, document): &(String, String)| {
        let row = |at| copy(owner, document, &format!("{at}"), Value::Null);
        (0..7).map(row).map(RowChange::Put).collect::<Vec<_>>()
    };
    let mut puts: Vec<RowChange> = names.iter().rev().flat_map(copies).collect();
    let mut other = copy("did:web:other", "other", "h", Value::Null);
    other.values[0] = Value::text("another.type");
    puts.push(RowChange::Put(other));
    commit(storage, &[with_rows(1, puts)]).await?;
    names.sort();
    for limit in [1, 3, 7, 35, 36] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page: Vec<(OwnerDid, DocumentId)> = storage.observed(after.as_ref(), limit).await?;
            assert!(page.len() <= usize::try_from(limit).unwrap_or_default());
            let Some(last) = page.last() else { break };
            assert!(after.as_ref() < Some(last), "each page is behind the one before it");
            after = Some(last.clone());
            found.extend(
                page.iter().map(|(of, id)| (of.as_str().to_owned(), id.as_str().to_owned())),
            );
        }
        assert_eq!(found, names, "in pages of {limit}");
    }
    assert_eq!(storage.observed(None, 0).await?, []);
    let gone = copies(&names[0]).into_iter().map(|change| match change {
        RowChange::Put(row) => RowChange::Delete(row.key()),
        change => change,
    });
    commit(storage, &[with_rows(2, gone.collect())]).await?;
    let left = storage.observed(None, 100).await?;
    assert_eq!(left.len(), names.len() - 1);
    assert_eq!((left[0].0.as_str(), left[0].1.as_str()), (&*names[1].0, &*names[1].1));
    Ok(())
}
