//! Large values, large batches, and numbers that no detour through a float may touch.

use super::build::{
    at, by_key, commit, event, filled, id, journal, name, one, part, snapshot, unit, with_rows,
};
use super::{Rule, rule};
use crate::base::Result;
use crate::domain::{ColumnType, RowChange, RowKey, Table, Value};
use crate::journal::port::{Append, Compare, Expected, Filter, RowQuery, Storage};

/// Beyond 2^53, where a 64-bit float skips every other integer.
const BEYOND_FLOAT: i64 = (1 << 53) + 1;
/// Far larger than a page of any database.
const LARGE_PAYLOAD_BYTES: usize = 10 << 20;
/// More appends than the parameters of one statement could name.
const LARGE_BATCH: u128 = 2_000;

pub(super) const RULES: &[Rule] = &[
    rule!(integers_come_back_to_the_last_digit),
    rule!(text_comes_back_to_the_byte),
    rule!(a_large_payload_is_kept_whole),
    rule!(a_large_batch_commits_in_order),
];

async fn integers_come_back_to_the_last_digit(storage: &dyn Storage) -> Result<()> {
    let wanted = [i64::MAX, i64::MAX - 1, BEYOND_FLOAT, BEYOND_FLOAT - 1, 0, -1, i64::MIN];
    let key = |at: usize| vec![Value::text(format!("d{at}"))];
    for (at, &int) in wanted.iter().enumerate() {
        let mut row = filled(Table::DocumentSweep, &key(at), 1);
        row.values[1] = Value::Int(int);
        let command = 1 + u128::try_from(at).unwrap_or_default();
        commit(storage, &[with_rows(command, vec![RowChange::Put(row.clone())])]).await?;
        let found = storage.row(&RowKey::new(Table::DocumentSweep, key(at))).await?;
        assert_eq!(found.map(|row| row.values), Some(row.values));
    }
    let below = |compare| RowQuery {
        filters: vec![Filter { column: 1, compare }],
        ..by_key(Table::DocumentSweep)
    };
    let cases = [
        (Compare::Less(Value::Int(i64::MAX)), 6),
        (Compare::AtMost(Value::Int(i64::MAX)), 7),
        (Compare::Less(Value::Int(BEYOND_FLOAT)), 4),
        (Compare::Equal(Value::Int(BEYOND_FLOAT)), 1),
    ];
    for (compare, count) in cases {
        let found = storage.rows(&below(compare.clone())).await?;
        assert_eq!(found.len(), count, "{compare:?}");
    }
    Ok(())
}

async fn text_comes_back_to_the_byte(storage: &dyn Storage) -> Result<()> {
    let texts = [
        "",
        " ",
        "a\u{308}",
        "\u{e4}",
        "🎈 \u{202e}",
        "12",
        "1e400",
        "9007199254740993",
        "'; --",
        "\u{1f}\n\u{fffd}",
    ];
    for (at, text) in texts.into_iter().enumerate() {
        let mut row = filled(Table::EntityTrim, &[Value::text(format!("d{at}{text}"))], 1);
        row.values[3] = Value::text(text);
        let command = 1 + u128::try_from(at).unwrap_or_default();
        commit(storage, &[with_rows(command, vec![RowChange::Put(row.clone())])]).await?;
        let found = storage.row(&row.key()).await?;
        assert_eq!(found.map(|row| row.values), Some(row.values));
    }
    for table in Table::ALL {
        let texts_only = table.spec().key.iter().map(|&at| match table.spec().columns[at].kind {
            ColumnType::Text => Value::text(format!("\u{e4}{at}")),
            ColumnType::Int => Value::Int(7),
            ColumnType::Blob => Value::Blob([0, 255, 7].into()),
        });
        let row = filled(table, &texts_only.collect::<Vec<_>>(), 3);
        storage.replace_rows(&[RowChange::Put(row.clone())], &[]).await?;
        let found = storage.row(&row.key()).await?;
        assert_eq!(found.map(|row| row.values), Some(row.values), "{table:?}");
    }
    Ok(())
}

async fn a_large_payload_is_kept_whole(storage: &dyn Storage) -> Result<()> {
    let pattern: Vec<u8> = (0..=255).cycle().take(LARGE_PAYLOAD_BYTES).collect();
    let mut large = part("document:a", Expected::NONE, vec![event(&pattern), event(&[])]);
    large.snapshot = Some(snapshot(&pattern));
    commit(storage, &[unit(1, vec![large]), one(2, "document:b", Expected::NONE)]).await?;
    let all = journal(storage).await?;
    assert!(all[0].payload == pattern && all[1].payload.is_empty());
    let loaded = storage.load("document:a").await?;
    assert!(loaded.snapshot.is_some_and(|snapshot| snapshot.payload == pattern));
    Ok(())
}

async fn a_large_batch_commits_in_order(storage: &dyn Storage) -> Result<()> {
    let hot = |command: u128, version: i64| {
        let expected = if version == 0 { Expected::NONE } else { at(version, command - 1) };
        one(command, "document:hot", expected)
    };
    let batch: Vec<Append> = (1..=LARGE_BATCH)
        .zip(0_i64..)
        .map(|(command, version)| {
            let mut append = hot(command, version);
            let stream = format!("document:{command}");
            append.parts.push(part(&stream, Expected::NONE, vec![event(b"1")]));
            let row = filled(Table::EntityTrim, &[Value::text(stream)], version);
            append.parts[1].rows.push(RowChange::Put(row));
            append
        })
        .collect();
    commit(storage, &batch).await?;
    let all = journal(storage).await?;
    assert_eq!(all.len(), 2 * batch.len());
    assert!(all.windows(2).all(|pair| pair[0].position < pair[1].position));
    let hot: Vec<_> = all.iter().filter(|event| &*event.stream == "document:hot").collect();
    assert!(hot.iter().zip(1..).all(|(event, version)| event.command_id == id(version)));
    let heads = storage.confirm_heads(&[name("document:hot")]).await?.heads;
    let newest = i64::try_from(LARGE_BATCH).unwrap_or_default();
    assert_eq!(heads, [Some(at(newest, LARGE_BATCH))]);
    let rows = storage.rows(&by_key(Table::EntityTrim)).await?;
    assert_eq!(rows.len(), batch.len());
    let names: Vec<_> = batch.iter().map(|append| append.parts[1].stream.clone()).collect();
    let heads = storage.confirm_heads(&names).await?.heads;
    assert!(heads.iter().zip(1..).all(|(head, command)| *head == Some(at(1, command))));
    Ok(())
}
