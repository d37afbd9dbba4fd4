//! Trims in an append: the snapshot takes the place of the events before it.

use super::build::{
    COMMITTED, at, base_at, commit, event, journal, one, part, snapshot, swept, trim, trim_key,
    unit, versions, write,
};
use super::history::assert_chained;
use super::{Rule, rule};
use crate::base::{Error, Result};
use crate::domain::RowChange;
use crate::journal::chain::{snapshot_checksum, start_hash};
use crate::journal::port::{Append, AppendOutcome, Expected, Storage};

pub(super) const RULES: &[Rule] = &[
    rule!(a_trim_leaves_its_snapshot_and_its_own_events),
    rule!(a_stream_goes_on_behind_a_trim),
    rule!(a_trim_without_a_snapshot_has_no_effect),
    rule!(a_trim_of_a_batch_reaches_the_events_of_that_batch),
    rule!(the_newest_event_that_a_trim_cut_is_the_base),
    rule!(a_refused_trim_cuts_nothing),
    rule!(a_sweep_and_a_trim_of_one_batch_go_by_their_order),
];

/// One event, a snapshot behind it, and no history before it.
fn trimming(command: u128, stream: &str, expected: Expected) -> Append {
    let mut append = one(command, stream, expected);
    append.parts[0].snapshot = Some(snapshot(b"trimmed"));
    append.parts[0].trim = true;
    append
}

/// Three events of a stream, by the commands 1 to 3, and one of another stream between.
async fn grow(storage: &dyn Storage) -> Result<()> {
    let batch = [one(1, "document:a", Expected::NONE), one(9, "document:b", Expected::NONE)];
    commit(storage, &batch).await?;
    commit(storage, &[one(2, "document:a", at(1, 1)), one(3, "document:a", at(2, 2))]).await
}

async fn a_trim_leaves_its_snapshot_and_its_own_events(storage: &dyn Storage) -> Result<()> {
    grow(storage).await?;
    let before = journal(storage).await?;
    storage.write_snapshot("document:a", at(3, 3), snapshot(b"three")).await?;
    assert_eq!(storage.trimmed_up_to().await?, 0);
    let mut append = trimming(4, "document:a", at(3, 3));
    append.parts[0].events.push(event(b"five"));
    append.parts[0].rows.push(RowChange::Put(trim("a", "[]")));
    commit(storage, &[append]).await?;
    let left = storage.stream_events("document:a").await?;
    assert_eq!(versions(&left), [4, 5]);
    let loaded = storage.load("document:a").await?;
    assert_eq!(loaded.head.map(|head| (head.version, head.hash)), Some((5, left[1].hash)));
    assert_eq!(loaded.events, []);
    let found = loaded.snapshot.ok_or(Error::NotFound { what: "snapshot" })?;
    assert_eq!((found.version, found.payload.as_slice()), (5, &b"trimmed"[..]));
    assert_eq!(found.hash, left[1].hash);
    assert_eq!(found.checksum, snapshot_checksum("document:a", 5, 1, b"trimmed", &found.hash));
    assert_eq!(storage.row(&trim_key("a")).await?, Some(trim("a", "[]")));
    assert_eq!(storage.stream_events("document:b").await?.len(), 1, "no other stream is cut");
    let newest = before.iter().map(|event| event.position).max().unwrap_or_default();
    assert!(left[0].position > newest);
    let told = storage.trimmed_up_to().await?;
    assert!((newest..left[0].position).contains(&told), "a reader hears of what went: {told}");
    Ok(())
}

async fn a_stream_goes_on_behind_a_trim(storage: &dyn Storage) -> Result<()> {
    grow(storage).await?;
    commit(storage, &[trimming(4, "document:a", at(3, 3))]).await?;
    let outcomes = write(storage, &[one(5, "document:a", at(3, 3))]).await?;
    assert_eq!(outcomes, [AppendOutcome::Conflict]);
    commit(storage, &[one(5, "document:a", at(4, 4))]).await?;
    let loaded = storage.load("document:a").await?;
    assert_eq!(loaded.snapshot.map(|snapshot| snapshot.version), Some(4));
    assert_eq!(versions(&loaded.events), [5]);
    let told = storage.trimmed_up_to().await?;
    commit(storage, &[trimming(6, "document:a", at(5, 5))]).await?;
    assert_eq!(versions(&storage.stream_events("document:a").await?), [6]);
    assert_eq!(storage.load("document:a").await?.snapshot.map(|at| at.version), Some(6));
    assert!(storage.trimmed_up_to().await? > told);
    let found = storage.look_up(&trimming(6, "document:a", at(5, 5))).await?;
    assert!(matches!(found, Some(AppendOutcome::Committed { .. })), "{found:?}");
    Ok(())
}

async fn a_trim_without_a_snapshot_has_no_effect(storage: &dyn Storage) -> Result<()> {
    grow(storage).await?;
    let mut append = trimming(4, "document:a", at(3, 3));
    append.parts[0].snapshot = None;
    commit(storage, &[append]).await?;
    let loaded = storage.load("document:a").await?;
    assert_eq!(versions(&loaded.events), [1, 2, 3, 4]);
    assert!(loaded.snapshot.is_none());
    assert_eq!(storage.trimmed_up_to().await?, 0);
    Ok(())
}

async fn a_trim_of_a_batch_reaches_the_events_of_that_batch(storage: &dyn Storage) -> Result<()> {
    grow(storage).await?;
    let batch = [
        one(4, "document:a", at(3, 3)),
        one(10, "document:c", Expected::NONE),
        trimming(5, "document:a", at(4, 4)),
        trimming(11, "document:c", at(1, 10)),
        one(6, "document:a", at(5, 5)),
        trimming(12, "document:d", Expected::NONE),
    ];
    commit(storage, &batch).await?;
    for (stream, left, snapshot, behind) in [
        ("document:a", vec![5, 6], 5, vec![6]),
        ("document:c", vec![2], 2, vec![]),
        ("document:d", vec![1], 1, vec![]),
    ] {
        assert_eq!(versions(&storage.stream_events(stream).await?), left, "{stream}");
        let loaded = storage.load(stream).await?;
        assert_eq!(loaded.snapshot.map(|at| at.version), Some(snapshot), "{stream}");
        assert_eq!(versions(&loaded.events), behind, "{stream}");
    }
    let all = journal(storage).await?;
    assert!(all.is_sorted_by(|one, next| one.position < next.position));
    assert_eq!(storage.last_position().await?, all.last().map_or(0, |event| event.position));
    commit(storage, &[one(13, "document:c", at(2, 11))]).await
}

async fn the_newest_event_that_a_trim_cut_is_the_base(storage: &dyn Storage) -> Result<()> {
    grow(storage).await?;
    let before = storage.stream_events("document:a").await?;
    commit(storage, &[trimming(4, "document:a", at(3, 3))]).await?;
    let loaded = storage.load("document:a").await?;
    assert_eq!(loaded.base, before.last().and_then(base_at));
    // The events that this batch writes and cuts are nowhere, but what follows them is proven.
    let batch = [
        one(5, "document:a", at(4, 4)),
        trimming(6, "document:a", at(5, 5)),
        one(7, "document:a", at(6, 6)),
        one(10, "document:c", Expected::NONE),
        trimming(11, "document:c", at(1, 10)),
        trimming(12, "document:d", Expected::NONE),
    ];
    commit(storage, &batch).await?;
    for (stream, version) in
        [("document:a", Some(5)), ("document:c", Some(1)), ("document:d", None)]
    {
        let base = storage.load(stream).await?.base;
        assert_eq!(base.map(|base| base.version), version, "{stream}");
        let previous = base.map_or_else(|| start_hash(stream), |base| base.hash);
        assert_chained(&storage.stream_events(stream).await?, previous);
    }
    Ok(())
}

async fn a_refused_trim_cuts_nothing(storage: &dyn Storage) -> Result<()> {
    grow(storage).await?;
    let outcomes = write(storage, &[trimming(4, "document:a", at(2, 2))]).await?;
    assert_eq!(outcomes, [AppendOutcome::Conflict]);
    let loaded = storage.load("document:a").await?;
    assert_eq!(versions(&loaded.events), [1, 2, 3]);
    assert!(loaded.snapshot.is_none());
    assert_eq!(storage.trimmed_up_to().await?, 0);
    Ok(())
}

async fn a_sweep_and_a_trim_of_one_batch_go_by_their_order(storage: &dyn Storage) -> Result<()> {
    grow(storage).await?;
    let sweep = |command, stream: &str, expected| {
        let mut append = unit(command, vec![part(stream, expected, vec![swept()])]);
        append.parts[0].erase = true;
        append
    };
    let batch = [
        trimming(4, "document:a", at(3, 3)),
        sweep(5, "document:a", at(4, 4)),
        sweep(10, "document:b", at(1, 9)),
        trimming(11, "document:b", at(2, 10)),
    ];
    assert_eq!(write(storage, &batch).await?, [COMMITTED; 4]);
    let a = storage.load("document:a").await?;
    assert!(a.snapshot.is_none());
    assert_eq!((a.base, versions(&a.events)), (None, vec![5]));
    assert_eq!(a.head.map(|head| head.hash), a.events.first().map(|event| event.hash));
    assert_ne!(a.head.map(|head| head.hash), Some(start_hash("document:a")));
    let b = storage.load("document:b").await?;
    assert_eq!(b.snapshot.map(|snapshot| snapshot.version), Some(3));
    assert_eq!(b.base.map(|base| base.version), Some(2));
    assert_eq!(versions(&storage.stream_events("document:b").await?), [3]);
    Ok(())
}
