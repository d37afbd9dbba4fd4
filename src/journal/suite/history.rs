//! Streams over time: loading, snapshots, the feed, erasure, retention, and the end.

use super::build::{
    at, base_at, by_key, commit, event, id, journal, name, now, one, part, snapshot, swept, trim,
    trim_key, unit, versions, with_rows, write,
};
use super::{Rule, rule};
use crate::base::{Error, Result, StreamKind};
use crate::domain::{RowChange, Table};
use crate::journal::chain::{EventHashInput, snapshot_checksum, start_hash};
use crate::journal::port::{
    Append, BatchError, Expected, HistoryCut, JournalRecord, NewEvent, Storage,
};

pub(super) const RULES: &[Rule] = &[
    rule!(an_event_is_kept_as_it_was_written_and_chained),
    rule!(a_stream_loads_from_its_newest_snapshot),
    rule!(a_snapshot_is_written_only_at_the_expected_head),
    rule!(the_feed_gives_every_event_once_in_order),
    rule!(streams_are_listed_in_byte_order),
    rule!(heads_are_confirmed_in_the_order_asked),
    rule!(a_commit_is_heard_of),
    rule!(an_erasure_leaves_one_event_and_the_stream_goes_on),
    rule!(a_position_is_never_given_again),
    rule!(retention_cuts_old_events_behind_snapshots),
    rule!(retention_leaves_no_hole),
    rule!(the_newest_event_that_retention_cut_is_the_base),
    rule!(a_stream_is_dropped_only_at_its_expected_head),
    rule!(a_closed_storage_reads_and_writes_nothing),
];

/// What each event's hash must be.
pub(super) fn assert_chained(records: &[JournalRecord], mut previous: crate::base::Digest) {
    for record in records {
        let input = EventHashInput {
            version: record.version,
            event_type: record.event_type,
            schema: record.schema,
            command_id: record.command_id,
            recorded_at: record.recorded_at,
            payload: &record.payload,
        };
        assert_eq!(record.hash, input.chain(&previous), "version {}", record.version);
        previous = record.hash;
    }
}

async fn an_event_is_kept_as_it_was_written_and_chained(storage: &dyn Storage) -> Result<()> {
    let odd = NewEvent { event_type: u16::MAX, schema: 513, ..event(&[0, 255, 128]) };
    let mut first = unit(u128::MAX, vec![part("auth:ä\u{1f}b", Expected::NONE, vec![odd])]);
    first.parts[0].kind = StreamKind::Auth;
    first.parts[0].events.push(event(&[]));
    commit(storage, &[first]).await?;
    let all = journal(storage).await?;
    let fields = (all[0].event_type, all[0].schema, all[0].payload.as_slice(), all[0].kind);
    assert_eq!(fields, (u16::MAX, 513, &[0, 255, 128][..], StreamKind::Auth.number()));
    assert_eq!((all[0].command_id, &*all[0].stream), (id(u128::MAX), "auth:ä\u{1f}b"));
    assert!(storage.is_shared() || all[0].recorded_at == now());
    assert_chained(&all, start_hash("auth:ä\u{1f}b"));
    assert_eq!(storage.stream_events("auth:ä\u{1f}b").await?, all);
    assert_eq!(storage.stream_events("auth:none").await?, []);
    let head = storage.load("auth:ä\u{1f}b").await?.head;
    assert_eq!(head.map(|head| (head.version, head.hash)), Some((2, all[1].hash)));
    assert!(storage.load("auth:none").await?.head.is_none_or(|head| head.version == 0));
    Ok(())
}

/// Events 1 to `count` of a stream, one command each.
async fn grow(storage: &dyn Storage, stream: &str, count: i64) -> Result<()> {
    let expected =
        |command: u128, version| if version == 0 { Expected::NONE } else { at(version, command) };
    let batch: Vec<Append> = (1_u128..)
        .zip(0..count)
        .map(|(command, version)| one(command, stream, expected(command - 1, version)))
        .collect();
    commit(storage, &batch).await
}

async fn a_stream_loads_from_its_newest_snapshot(storage: &dyn Storage) -> Result<()> {
    let with_snapshot = |command: u128, version: i64, payload: &[u8]| {
        let mut append = one(command, "document:a", at(version, command - 1));
        append.parts[0].snapshot = Some(snapshot(payload));
        append
    };
    grow(storage, "document:a", 2).await?;
    let loaded = storage.load("document:a").await?;
    assert!(loaded.snapshot.is_none());
    assert_eq!(versions(&loaded.events), [1, 2]);
    commit(storage, &[with_snapshot(3, 2, b"three"), one(4, "document:a", at(3, 3))]).await?;
    let loaded = storage.load("document:a").await?;
    let found = loaded.snapshot.ok_or(Error::NotFound { what: "snapshot" })?;
    let third = journal(storage).await?.remove(2);
    assert_eq!((found.version, found.schema, found.payload.as_slice()), (3, 1, &b"three"[..]));
    assert_eq!(found.hash, third.hash);
    let checksum = snapshot_checksum("document:a", 3, 1, b"three", &third.hash);
    assert_eq!(found.checksum, checksum);
    assert_eq!(versions(&loaded.events), [4]);
    commit(storage, &[with_snapshot(5, 4, b"five"), with_snapshot(6, 5, b"six")]).await?;
    let loaded = storage.load("document:a").await?;
    assert_eq!(loaded.snapshot.map(|snapshot| snapshot.version), Some(6));
    assert_eq!(loaded.events, []);
    assert_eq!(versions(&storage.stream_events("document:a").await?), [1, 2, 3, 4, 5, 6]);
    Ok(())
}

async fn a_snapshot_is_written_only_at_the_expected_head(storage: &dyn Storage) -> Result<()> {
    grow(storage, "document:a", 3).await?;
    for stale in [at(2, 2), at(3, 2), Expected::NONE] {
        storage.write_snapshot("document:a", stale, snapshot(b"stale")).await?;
        assert!(storage.load("document:a").await?.snapshot.is_none(), "{stale:?}");
    }
    storage.write_snapshot("document:none", at(1, 1), snapshot(b"none")).await?;
    storage.write_snapshot("document:a", at(3, 3), snapshot(b"three")).await?;
    let loaded = storage.load("document:a").await?;
    let found = loaded.snapshot.ok_or(Error::NotFound { what: "snapshot" })?;
    let hash = loaded.head.map(|head| head.hash).unwrap_or_else(|| start_hash(""));
    assert_eq!((found.version, found.hash, found.payload.as_slice()), (3, hash, &b"three"[..]));
    assert_eq!(found.checksum, snapshot_checksum("document:a", 3, 1, b"three", &hash));
    Ok(())
}

async fn the_feed_gives_every_event_once_in_order(storage: &dyn Storage) -> Result<()> {
    for command in 1..=25_u128 {
        let stream = format!("document:{}", command % 10 + 10 * (command / 10));
        commit(storage, &[one(command, &stream, Expected::NONE)]).await?;
    }
    let mut after = 0;
    let mut found = Vec::new();
    loop {
        let page = storage.events(after, 7).await?;
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 7 && page[0].position > after);
        after = last.position;
        found.extend(page.iter().map(|event| event.command_id));
    }
    assert_eq!(found, (1..=25).map(id).collect::<Vec<_>>());
    assert_eq!(after, storage.last_position().await?);
    assert_eq!(storage.events(i64::MAX, 7).await?, []);
    assert_eq!(storage.events(0, 0).await?, []);
    Ok(())
}

async fn streams_are_listed_in_byte_order(storage: &dyn Storage) -> Result<()> {
    let mut names = vec![
        "document:a",
        "document:A",
        "document:a!",
        "document:\u{e4}",
        "document:a\u{308}",
        "document:🎈",
        "document:\u{fb33}",
        "connector:did:web:a\u{1f}c",
        "connector:did:web:a!\u{1f}c",
        "auth:00",
    ];
    for (command, name) in (1_u128..).zip(&names) {
        commit(storage, &[one(command, name, Expected::NONE)]).await?;
    }
    names.sort_unstable_by_key(|name| name.as_bytes());
    let mut found: Vec<crate::base::StreamName> = Vec::new();
    loop {
        let page = storage.streams(found.last().map(|name| &**name), 3).await?;
        if page.streams.is_empty() {
            break;
        }
        for (name, kind, head) in page.streams {
            assert_eq!((kind, head.version), (StreamKind::Document.number(), 1));
            found.push(name);
        }
    }
    assert_eq!(found.iter().map(|name| &**name).collect::<Vec<_>>(), names);
    Ok(())
}

async fn heads_are_confirmed_in_the_order_asked(storage: &dyn Storage) -> Result<()> {
    grow(storage, "document:b", 2).await?;
    commit(storage, &[one(9, "document:a", Expected::NONE)]).await?;
    let asked = ["document:b", "document:none", "document:a", "document:b"].map(name);
    let heads = storage.confirm_heads(&asked).await?.heads;
    assert_eq!(heads, [Some(at(2, 2)), None, Some(at(1, 9)), Some(at(2, 2))]);
    assert_eq!(storage.confirm_heads(&[]).await?.heads, []);
    Ok(())
}

async fn a_commit_is_heard_of(storage: &dyn Storage) -> Result<()> {
    let mut heard = storage.committed();
    heard.mark_unchanged();
    let conflict = write(storage, &[one(1, "document:a", at(1, 1))]).await?;
    assert_eq!(conflict.len(), 1);
    commit(storage, &[one(1, "document:a", Expected::NONE)]).await?;
    assert!(heard.has_changed().is_ok_and(|changed| changed));
    let told = *heard.borrow_and_update();
    assert_eq!(told, storage.last_position().await?);
    Ok(())
}

/// Sweeps a stream at its head.
fn sweep(command: u128, stream: &str, expected: Expected) -> Append {
    let mut append = unit(command, vec![part(stream, expected, vec![swept()])]);
    append.parts[0].erase = true;
    append
}

async fn an_erasure_leaves_one_event_and_the_stream_goes_on(storage: &dyn Storage) -> Result<()> {
    grow(storage, "document:a", 3).await?;
    storage.write_snapshot("document:a", at(3, 3), snapshot(b"three")).await?;
    commit(storage, &[one(8, "document:b", Expected::NONE)]).await?;
    let newest = storage.last_position().await?;
    let mut erasing = sweep(4, "document:a", at(3, 3));
    erasing.parts[0].rows.push(RowChange::Delete(trim_key("a")));
    commit(storage, &[with_rows(7, vec![RowChange::Put(trim("a", "1"))]), erasing]).await?;
    let loaded = storage.load("document:a").await?;
    assert!(loaded.snapshot.is_none());
    assert_eq!(versions(&loaded.events), [4]);
    assert!(loaded.events[0].position > newest);
    assert_chained(&loaded.events, start_hash("document:a"));
    assert_eq!(storage.row(&trim_key("a")).await?, None);
    assert_eq!(storage.stream_events("document:b").await?.len(), 1);
    commit(storage, &[one(5, "document:a", at(4, 4))]).await?;
    let after = storage.stream_events("document:a").await?;
    assert_eq!(versions(&after), [4, 5]);
    assert_chained(&after, start_hash("document:a"));
    // Written, erased and written again in one batch.
    let batch = [
        one(10, "document:c", Expected::NONE),
        sweep(11, "document:c", at(1, 10)),
        one(12, "document:c", at(2, 11)),
    ];
    commit(storage, &batch).await?;
    let found = storage.stream_events("document:c").await?;
    assert_eq!(versions(&found), [2, 3]);
    assert_chained(&found, start_hash("document:c"));
    Ok(())
}

async fn a_position_is_never_given_again(storage: &dyn Storage) -> Result<()> {
    grow(storage, "document:a", 3).await?;
    storage.write_snapshot("document:a", at(3, 3), snapshot(b"three")).await?;
    let newest = storage.last_position().await?;
    let cut = HistoryCut { recorded_before: now().plus_millis(i64::MAX), limit: 10 };
    assert_eq!(storage.cut_history(cut).await?, 3);
    assert_eq!(storage.last_position().await?, newest);
    commit(storage, &[one(4, "document:a", at(3, 3))]).await?;
    let fourth = storage.last_position().await?;
    assert!(fourth > newest);
    commit(storage, &[sweep(5, "document:a", at(4, 4))]).await?;
    let fifth = storage.last_position().await?;
    assert!(fifth > fourth);
    assert_eq!(storage.drop_streams(&[(name("document:a"), at(5, 5))]).await?, 1);
    assert_eq!(storage.last_position().await?, fifth);
    commit(storage, &[one(6, "document:a", Expected::NONE)]).await?;
    assert!(storage.last_position().await? > fifth);
    assert_eq!(versions(&journal(storage).await?), [1]);
    Ok(())
}

async fn retention_cuts_old_events_behind_snapshots(storage: &dyn Storage) -> Result<()> {
    for stream in ["document:a", "document:b", "document:c"] {
        grow(storage, stream, 3).await?;
    }
    let all = journal(storage).await?;
    storage.write_snapshot("document:a", at(3, 3), snapshot(b"three")).await?;
    storage.write_snapshot("document:b", at(3, 3), snapshot(b"three")).await?;
    commit(storage, &[one(4, "document:a", at(3, 3))]).await?;
    let written_at = all[0].recorded_at;
    let cut = |recorded_before, limit| HistoryCut { recorded_before, limit };
    assert_eq!(storage.trimmed_up_to().await?, 0);
    assert_eq!(storage.cut_history(cut(written_at, 10)).await?, 0, "not older than the bound");
    assert_eq!(storage.trimmed_up_to().await?, 0);
    let old = all[5].recorded_at.plus_millis(1);
    assert_eq!(storage.cut_history(cut(old, 1)).await?, 3, "one stream at a time");
    assert_eq!(storage.cut_history(cut(old, 1)).await?, 3);
    assert_eq!(storage.cut_history(cut(old, 1)).await?, 0);
    assert_eq!(versions(&storage.stream_events("document:a").await?), [4]);
    assert_eq!(storage.stream_events("document:b").await?, []);
    assert_eq!(versions(&storage.stream_events("document:c").await?), [1, 2, 3]);
    assert_eq!(storage.trimmed_up_to().await?, all[5].position);
    let loaded = storage.load("document:b").await?;
    assert_eq!(loaded.head.map(|head| head.version), Some(3));
    assert!(loaded.snapshot.is_some());
    commit(storage, &[one(9, "document:b", at(3, 3))]).await?;
    Ok(())
}

/// Clocks of hosts step back, so a later event may bear an earlier time.
async fn retention_leaves_no_hole(storage: &dyn Storage) -> Result<()> {
    let mut head = Expected::NONE;
    for (command, millis) in [(1, 5), (2, 50), (3, 5)] {
        let batch = [one(command, "document:a", head)];
        let at_time = crate::base::Timestamp::from_millis(millis);
        assert!(storage.append(&batch, at_time).await.is_ok());
        head = at(head.version + 1, command);
    }
    storage.write_snapshot("document:a", head, snapshot(b"three")).await?;
    let cut = HistoryCut { recorded_before: crate::base::Timestamp::from_millis(10), limit: 10 };
    storage.cut_history(cut).await?;
    let left = versions(&storage.stream_events("document:a").await?);
    assert!(storage.is_shared() || left == [2, 3], "{left:?}");
    assert_eq!(storage.cut_history(cut).await?, 0);
    Ok(())
}

/// The first event that is left is proven by it, whatever snapshots come later.
async fn the_newest_event_that_retention_cut_is_the_base(storage: &dyn Storage) -> Result<()> {
    for stream in ["document:a", "document:b", "document:c"] {
        grow(storage, stream, 3).await?;
    }
    let cut = HistoryCut { recorded_before: now().plus_millis(i64::MAX), limit: 10 };
    let before = storage.stream_events("document:a").await?;
    storage.write_snapshot("document:a", at(3, 3), snapshot(b"three")).await?;
    storage.write_snapshot("document:c", at(3, 3), snapshot(b"three")).await?;
    assert_eq!(storage.load("document:a").await?.base, None);
    commit(storage, &[one(4, "document:a", at(3, 3)), one(5, "document:a", at(4, 4))]).await?;
    assert_eq!(storage.cut_history(cut).await?, 6);
    storage.write_snapshot("document:a", at(5, 5), snapshot(b"five")).await?;
    let all = ["document:a", "document:b", "document:c"].map(name);
    let loaded = storage.load_all(&all).await?;
    let bases: Vec<_> = loaded.iter().map(|loaded| loaded.base).collect();
    let third = |records: &[JournalRecord]| records.get(2).and_then(base_at);
    assert_eq!(bases[..2], [third(&before), None]);
    assert_eq!(bases[2].map(|base| base.version), Some(3));
    let left = storage.stream_events("document:a").await?;
    assert_chained(&left, before[2].hash);
    assert_eq!(storage.cut_history(cut).await?, 2);
    let again = storage.load("document:a").await?;
    assert_eq!(again.base, left.last().and_then(base_at));
    commit(storage, &[one(6, "document:a", at(5, 5))]).await?;
    assert_eq!(storage.load("document:a").await?.base, again.base, "an append leaves it");
    commit(storage, &[sweep(7, "document:a", at(6, 6))]).await?;
    assert_eq!(storage.load("document:a").await?.base, None, "the chain starts anew");
    Ok(())
}

async fn a_stream_is_dropped_only_at_its_expected_head(storage: &dyn Storage) -> Result<()> {
    for stream in ["document:a", "document:b"] {
        grow(storage, stream, 2).await?;
    }
    storage.write_snapshot("document:a", at(2, 2), snapshot(b"two")).await?;
    let asked = [
        (name("document:a"), at(2, 2)),
        (name("document:b"), at(2, 1)),
        (name("document:none"), at(1, 1)),
    ];
    assert_eq!(storage.drop_streams(&asked).await?, 1);
    assert_eq!(storage.drop_streams(&[]).await?, 0);
    let heads = storage.confirm_heads(&["document:a", "document:b"].map(name)).await?.heads;
    assert_eq!(heads, [None, Some(at(2, 2))]);
    assert_eq!(journal(storage).await?.len(), 2);
    assert!(storage.load("document:a").await?.snapshot.is_none());
    assert!(storage.trimmed_up_to().await? > 0, "a reader of the feed must hear of it");
    commit(storage, &[one(7, "document:a", Expected::NONE)]).await?;
    let again = storage.stream_events("document:a").await?;
    assert_eq!(versions(&again), [1]);
    assert_chained(&again, start_hash("document:a"));
    Ok(())
}

async fn a_closed_storage_reads_and_writes_nothing(storage: &dyn Storage) -> Result<()> {
    let append = one(1, "document:a", Expected::NONE);
    commit(storage, std::slice::from_ref(&append)).await?;
    storage.idle().await?;
    storage.close().await?;
    let cut = HistoryCut { recorded_before: now(), limit: 1 };
    let failed = storage.append(std::slice::from_ref(&append), now()).await;
    assert!(matches!(failed, Err(BatchError::Failed(Error::Closed))), "{failed:?}");
    let names = [name("document:a")];
    // The newest position is left out: a backend may hold it in memory.
    let failures = [
        storage.load("document:a").await.err(),
        storage.confirm_heads(&names).await.err(),
        storage.look_up(&append).await.err(),
        storage.command(id(1)).await.err(),
        storage.write_snapshot("document:a", at(1, 1), snapshot(b"")).await.err(),
        storage.rows(&by_key(Table::EntityTrim)).await.err(),
        storage.row(&trim_key("a")).await.err(),
        storage.events(0, 1).await.err(),
        storage.stream_events("document:a").await.err(),
        storage.streams(None, 1).await.err(),
        storage.trimmed_up_to().await.err(),
        storage.cut_history(cut).await.err(),
        storage.drop_streams(&[(name("document:a"), at(1, 1))]).await.err(),
        storage.drop_commands(now()).await.err(),
        storage.replace_rows(&[RowChange::Delete(trim_key("a"))], &[]).await.err(),
        storage.idle().await.err(),
    ];
    for (at, failure) in failures.into_iter().enumerate() {
        assert!(matches!(failure, Some(Error::Closed)), "call {at}: {failure:?}");
    }
    Ok(())
}
