//! What a batch is judged on: taken from what the writer knows, the rest asked by few statements.

use std::collections::{BTreeSet, HashMap};

use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Arguments as _, AssertSqlSafe};
use uuid::Uuid;

use super::heads::{Known, KnownHead};
use super::read::{blob_digest, blob_uuid, bytes, head_of, int, row_of, text};
use super::script::add_value;
use super::statements::{MAX_STATEMENT_ROWS, write_key_match, write_list, write_names};
use crate::base::{Error, StreamName};
use crate::domain::{RowKey, Table, Value};
use crate::journal::batch::{LEASE_TOKEN_COLUMN, View, named_rows};
use crate::journal::{Append, CommandRecord};

/// The ids of the streams of a batch that have one.
pub(super) type StreamIds = HashMap<StreamName, i64>;

/// Loads the view of a batch.
pub(super) async fn load(
    connection: &mut SqliteConnection,
    known: &mut Known,
    batch: &[Append],
) -> sqlx::Result<(View, StreamIds)> {
    let mut view = View::default();
    let mut ids = StreamIds::new();
    load_heads(connection, known, batch, &mut view, &mut ids).await?;
    load_leases(connection, known, batch, &mut view).await?;
    load_commands(connection, batch, &mut view).await?;
    load_standing(connection, batch, &mut view).await?;
    Ok((view, ids))
}

async fn load_heads(
    connection: &mut SqliteConnection,
    known: &mut Known,
    batch: &[Append],
    view: &mut View,
    ids: &mut StreamIds,
) -> sqlx::Result<()> {
    let mut missing = BTreeSet::new();
    for name in batch.iter().flat_map(|append| &append.parts).map(|part| &part.stream) {
        if view.heads.contains_key(name) {
            continue;
        }
        match known.head(name) {
            Some(KnownHead { stream, head }) => {
                view.heads.insert(StreamName::clone(name), head);
                ids.insert(StreamName::clone(name), stream);
            }
            None => {
                missing.insert(name);
            }
        }
    }
    let missing: Vec<&StreamName> = missing.into_iter().collect();
    for (name, stored) in stored_heads(connection, &missing).await? {
        known.set_head(StreamName::clone(&name), stored);
        view.heads.insert(StreamName::clone(&name), stored.head);
        ids.insert(name, stored.stream);
    }
    Ok(())
}

/// The ids and heads of the streams that have one, from the file.
pub(super) async fn stored_heads(
    connection: &mut SqliteConnection,
    names: &[&StreamName],
) -> sqlx::Result<Vec<(StreamName, KnownHead)>> {
    let mut found = Vec::new();
    for names in names.chunks(MAX_STATEMENT_ROWS) {
        let mut sql = String::from(
            "SELECT stream, version, last_command_id, hash, name FROM connector_stream \
             WHERE name IN ",
        );
        write_list(&mut sql, names.len().next_power_of_two());
        let rows = select(connection, sql, names, |name, arguments| {
            arguments.add(StreamName::clone(name)).map_err(sqlx::Error::Encode)
        })
        .await?;
        for row in &rows {
            let stream = int(row, 0).map_err(decode)?;
            let head = head_of(row, 1).map_err(decode)?;
            found.push((text(row, 4).map_err(decode)?.into(), KnownHead { stream, head }));
        }
    }
    Ok(found)
}

async fn load_leases(
    connection: &mut SqliteConnection,
    known: &mut Known,
    batch: &[Append],
    view: &mut View,
) -> sqlx::Result<()> {
    let mut missing = BTreeSet::new();
    for fence in batch.iter().flat_map(|append| &append.fences) {
        let key = fence.scope.row_key();
        match known.lease(&key) {
            Some(Some(token)) => {
                view.leases.insert(key, token);
            }
            Some(None) => {}
            None => {
                missing.insert(key);
            }
        }
    }
    let missing: Vec<RowKey> = missing.into_iter().collect();
    for rows in select_rows(connection, Table::Lease, &missing).await? {
        if let Some(token) = rows.values.get(LEASE_TOKEN_COLUMN) {
            view.leases.insert(rows.key(), token.clone());
        }
    }
    for key in missing {
        let token: Option<Value> = view.leases.get(&key).cloned();
        known.set_lease(key, token);
    }
    Ok(())
}

async fn load_commands(
    connection: &mut SqliteConnection,
    batch: &[Append],
    view: &mut View,
) -> sqlx::Result<()> {
    let ids: BTreeSet<Uuid> = batch
        .iter()
        .filter(|append| append.record.is_some())
        .map(|append| append.command_id)
        .collect();
    let ids: Vec<Uuid> = ids.into_iter().collect();
    for ids in ids.chunks(MAX_STATEMENT_ROWS) {
        let mut sql = String::from(
            "SELECT command_id, digest, answer FROM connector_command WHERE command_id IN ",
        );
        write_list(&mut sql, ids.len().next_power_of_two());
        let rows = select(connection, sql, ids, |id, arguments| {
            arguments.add(id.as_bytes().as_slice()).map_err(sqlx::Error::Encode)
        })
        .await?;
        for row in &rows {
            let record = CommandRecord {
                digest: blob_digest(row, 1).map_err(decode)?,
                answer: bytes(row, 2).map_err(decode)?,
            };
            view.commands.insert(blob_uuid(row, 0).map_err(decode)?, record);
        }
    }
    Ok(())
}

async fn load_standing(
    connection: &mut SqliteConnection,
    batch: &[Append],
    view: &mut View,
) -> sqlx::Result<()> {
    let keys: Vec<RowKey> = named_rows(batch).into_iter().cloned().collect();
    for keys in keys.chunk_by(|a, b| a.table == b.table) {
        let Some(first) = keys.first() else { continue };
        for row in select_rows(connection, first.table, keys).await? {
            view.standing.insert(row.key(), row);
        }
    }
    Ok(())
}

/// The rows of one table that are there, by their keys.
async fn select_rows(
    connection: &mut SqliteConnection,
    table: Table,
    keys: &[RowKey],
) -> sqlx::Result<Vec<crate::domain::Row>> {
    let mut found = Vec::new();
    for keys in keys.chunks(MAX_STATEMENT_ROWS) {
        let mut sql = String::from("SELECT ");
        write_names(&mut sql, table.spec().columns.iter());
        sql.push_str(" FROM ");
        sql.push_str(table.spec().name);
        sql.push_str(" WHERE ");
        write_key_match(&mut sql, table, keys.len().next_power_of_two());
        let rows = select(connection, sql, keys, |key, arguments| {
            key.values.iter().try_for_each(|value| add_value(value, arguments))
        })
        .await?;
        for row in &rows {
            found.push(row_of(row, table).map_err(decode)?);
        }
    }
    Ok(found)
}

/// Runs a query whose places are a power of two, the last item repeated to fill them.
async fn select<T>(
    connection: &mut SqliteConnection,
    sql: String,
    items: &[T],
    add: impl Fn(&T, &mut SqliteArguments) -> sqlx::Result<()>,
) -> sqlx::Result<Vec<SqliteRow>> {
    let mut arguments = SqliteArguments::default();
    let padding = items.len().next_power_of_two() - items.len();
    for item in items.iter().chain(items.last().into_iter().cycle().take(padding)) {
        add(item, &mut arguments)?;
    }
    sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(connection).await
}

fn decode(error: Error) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}
