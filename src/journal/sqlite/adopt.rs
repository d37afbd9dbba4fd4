//! Adoption of a file that has the read tables of another program and no journal: its tables are
//! brought to this program's shape and become the genesis of their streams, in one transaction.
//!
//! It runs before the file is switched to a write-ahead log, so a refused file is byte for byte what
//! it was. It reads no row that it does not own, and holds one page of streams in memory.

use std::collections::HashMap;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row as _};

use super::fault::storage_error;
use super::migrate;
use super::query::{self, Built};
use super::read::{int, row_of, text};
use super::script::Script;
use super::statements::{Texts, write_names};
use crate::base::{Error, Result, StreamName, Timestamp};
use crate::domain::{ColumnType, Row, RowKey, Table, Value};
use crate::journal::adopt::{
    ADOPTED, Found, OF_CONNECTORS, OF_DOCUMENTS, PREFIX, STREAMS_AT_ONCE, Streams, aside,
    check_columns, genesis, group, known_tables, own_names, table_refused,
};
use crate::journal::batch::{View, judge};
use crate::journal::damage::RowName;
use crate::journal::owners::all_rows;
use crate::journal::{Append, Compare, Filter, RowQuery};

fn failed(error: sqlx::Error) -> Error {
    storage_error(error, "adopting the tables of another program")
}

/// The names of what stands in the place of this program's tables in a file that is no store.
pub(super) async fn foreign_names(connection: &mut SqliteConnection) -> Result<Vec<String>> {
    let sql = format!(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') \
         AND (name GLOB '{PREFIX}*' OR name IN ({})) ORDER BY name",
        own_names()
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(connection).await.map_err(failed)?;
    rows.iter().map(|row| text(row, 0)).collect()
}

/// Adopts the tables of these names.
pub(super) async fn run(
    connection: &mut SqliteConnection,
    names: &[String],
    now: Timestamp,
) -> Result<()> {
    // What other tables, views and triggers say of a table that is moved aside stays as it is: it
    // is for the one that takes its place.
    execute(connection, "PRAGMA legacy_alter_table = ON").await?;
    execute(connection, "BEGIN IMMEDIATE").await?;
    let adopted = Box::pin(adopt(connection, names, now)).await;
    let ended = match adopted {
        Ok(()) => execute(connection, "COMMIT").await,
        Err(error) => Err(error),
    };
    if ended.is_err() {
        // The first error is what the caller must see; the file is as it was at any rate.
        let _ = execute(connection, "ROLLBACK").await;
        return ended;
    }
    execute(connection, "PRAGMA legacy_alter_table = OFF").await
}

async fn adopt(connection: &mut SqliteConnection, names: &[String], now: Timestamp) -> Result<()> {
    let tables = known_tables(names)?;
    for &table in &tables {
        move_aside(connection, table).await?;
    }
    migrate::create(connection, now).await.map_err(failed)?;
    for &table in &tables {
        check_shape(connection, table).await?;
        check_values(connection, table).await?;
        move_rows(connection, table).await?;
    }
    let mut writer =
        Writer { connection, texts: Texts::default(), now, last_stream: 0, last_position: 0 };
    writer.documents().await?;
    writer.connectors().await?;
    writer.auths().await?;
    let stamped = "UPDATE connector_meta SET value = coalesce(\
                   (SELECT max(written_at) FROM kubun_connector_observation_repair), 0) \
                   WHERE key = 'stamped_at'";
    execute(connection, stamped).await
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) -> Result<()> {
    sqlx::query(sql).execute(connection).await.map(drop).map_err(failed)
}

async fn all(connection: &mut SqliteConnection, sql: String) -> Result<Vec<SqliteRow>> {
    sqlx::query(AssertSqlSafe(sql)).fetch_all(connection).await.map_err(failed)
}

/// Gives the table's name, and those of its indexes, free.
async fn move_aside(connection: &mut SqliteConnection, table: Table) -> Result<()> {
    let name = table.spec().name;
    let sql = format!(
        "SELECT type, name FROM sqlite_schema WHERE tbl_name = '{name}' \
         AND type != 'table' AND sql IS NOT NULL"
    );
    for row in all(connection, sql).await? {
        // A trigger or a view is of no store that is known.
        if text(&row, 0)? != "index" {
            return Err(table_refused(name));
        }
        let index = text(&row, 1)?.replace('"', "\"\"");
        all(connection, format!("DROP INDEX \"{index}\"")).await?;
    }
    all(connection, format!("ALTER TABLE {name} RENAME TO {}", aside(table))).await.map(drop)
}

/// Refuses a table whose columns are not those that are known.
async fn check_shape(connection: &mut SqliteConnection, table: Table) -> Result<()> {
    let sql = format!("SELECT name, type, pk FROM pragma_table_xinfo('{}')", aside(table));
    let found = all(connection, sql).await?;
    let found = found.iter().map(|row| {
        let (name, kind) = (text(row, 0)?, affinity(&text(row, 1)?));
        Ok(Found { name, kind, key_place: int(row, 2)? })
    });
    check_columns(table, &found.collect::<Result<Vec<_>>>()?)
}

/// The kind of a declared type, by the engine's own rules.
fn affinity(declared: &str) -> Option<ColumnType> {
    let declared = declared.to_ascii_uppercase();
    let has = |part: &str| declared.contains(part);
    if has("INT") {
        Some(ColumnType::Int)
    } else if has("CHAR") || has("CLOB") || has("TEXT") {
        Some(ColumnType::Text)
    } else if has("BLOB") {
        Some(ColumnType::Blob)
    } else {
        None
    }
}

/// Refuses a value of another type than its column's, which the engine lets in, and a NULL where
/// the table takes none.
async fn check_values(connection: &mut SqliteConnection, table: Table) -> Result<()> {
    let spec = table.spec();
    let sql = format!("SELECT name FROM pragma_table_xinfo('{}') WHERE \"notnull\"", spec.name);
    let rows = all(connection, sql).await?;
    let set: Vec<String> = rows.iter().map(|row| text(row, 0)).collect::<Result<_>>()?;
    let mut sql = String::from("SELECT CASE");
    for (at, column) in spec.columns.iter().enumerate() {
        let kind = match column.kind {
            ColumnType::Text => "text",
            ColumnType::Int => "integer",
            ColumnType::Blob => "blob",
        };
        let name = column.name;
        let null = if set.iter().any(|set| set == name) { "" } else { ", 'null'" };
        sql.push_str(&format!(" WHEN typeof({name}) NOT IN ('{kind}'{null}) THEN {at}"));
    }
    sql.push_str(" END AS bad");
    for &at in spec.key {
        sql.push_str(&format!(", CAST({} AS TEXT)", spec.columns[at].name));
    }
    sql.push_str(&format!(" FROM {} WHERE bad IS NOT NULL LIMIT 1", aside(table)));
    let Some(row) = all(connection, sql).await?.pop() else { return Ok(()) };
    let bad = usize::try_from(int(&row, 0)?).unwrap_or(0);
    let key = (1..=spec.key.len()).map(|at| {
        let text: Option<String> = row.try_get(at).map_err(failed)?;
        Ok(Value::text_or_null(text))
    });
    let RowName { table: name, key } =
        RowName::of(&RowKey::new(table, key.collect::<Result<_>>()?));
    let column = spec.columns.get(bad).map(|column| column.name.to_owned());
    Err(Error::AdoptionRefused { table: name.to_owned(), column, row: key })
}

async fn move_rows(connection: &mut SqliteConnection, table: Table) -> Result<()> {
    let (name, aside) = (table.spec().name, aside(table));
    if !ADOPTED.contains(&table) {
        // Nothing is known of another program's rows, even under the names that are known.
        let found = all(connection, format!("SELECT 1 FROM {aside} LIMIT 1")).await?;
        if !found.is_empty() {
            return Err(table_refused(name));
        }
    }
    let mut columns = String::new();
    write_names(&mut columns, table.spec().columns.iter());
    let sql = format!("INSERT INTO {name} ({columns}) SELECT {columns} FROM {aside}");
    all(connection, sql).await?;
    all(connection, format!("DROP TABLE {aside}")).await.map(drop)
}

/// All documents that have rows, from a name on.
const DOCUMENTS: &str = "\
    SELECT document_id FROM kubun_connector_entity_trim WHERE document_id >= ?1 UNION \
    SELECT id FROM kubun_connector_observation_records WHERE id >= ?1 UNION \
    SELECT document_id FROM kubun_connector_observation_repair WHERE document_id >= ?1 \
    ORDER BY 1 LIMIT ?2";

/// All owners' connectors that have rows, from one on.
const CONNECTORS: &str = "\
    SELECT owner_did, connector_name FROM kubun_connector_sync_state \
    WHERE (owner_did, connector_name) >= (?1, ?2) UNION \
    SELECT owner_did, connector_name FROM kubun_connector_sweep_receipt \
    WHERE (owner_did, connector_name) >= (?1, ?2) UNION \
    SELECT owner_did, connector_name FROM kubun_connector_sweep_candidate \
    WHERE (owner_did, connector_name) >= (?1, ?2) UNION \
    SELECT owner_did, connector_name FROM kubun_connector_sweep_checkpoint \
    WHERE (owner_did, connector_name) >= (?1, ?2) \
    ORDER BY 1, 2 LIMIT ?3";

/// Writes the genesis of each stream.
struct Writer<'c> {
    connection: &'c mut SqliteConnection,
    texts: Texts,
    now: Timestamp,
    last_stream: i64,
    last_position: i64,
}

impl Writer<'_> {
    async fn documents(&mut self) -> Result<()> {
        let mut from = String::new();
        loop {
            let page = sqlx::query(DOCUMENTS).bind(&from).bind(STREAMS_AT_ONCE);
            let page = page.fetch_all(&mut *self.connection).await.map_err(failed)?;
            let names: Vec<String> = page.iter().map(|row| text(row, 0)).collect::<Result<_>>()?;
            let Some(last) = names.last() else { return Ok(()) };
            // The least text behind it.
            from = format!("{last}\0");
            let names: Vec<Value> = names.into_iter().map(Value::text).collect();
            let mut streams = Streams::new();
            for (table, column) in OF_DOCUMENTS {
                let compare = Compare::In(names.clone());
                let filters = vec![Filter { column, compare }];
                self.take(RowQuery { filters, ..all_rows(table) }, &mut streams).await?;
            }
            self.write(streams).await?;
        }
    }

    /// One at a time: a connector may have many rows.
    async fn connectors(&mut self) -> Result<()> {
        let mut from = [String::new(), String::new()];
        loop {
            let page = sqlx::query(CONNECTORS).bind(&from[0]).bind(&from[1]).bind(STREAMS_AT_ONCE);
            let page = page.fetch_all(&mut *self.connection).await.map_err(failed)?;
            let Some(last) = page.last() else { return Ok(()) };
            from = [text(last, 0)?, format!("{}\0", text(last, 1)?)];
            for row in &page {
                let [owner, connector] = [Value::text(text(row, 0)?), Value::text(text(row, 1)?)];
                let mut streams = Streams::new();
                for (table, columns) in OF_CONNECTORS {
                    let names = columns.into_iter().zip([owner.clone(), connector.clone()]);
                    let equal = |(column, value)| Filter { column, compare: Compare::Equal(value) };
                    let filters = names.map(equal).collect();
                    self.take(RowQuery { filters, ..all_rows(table) }, &mut streams).await?;
                }
                self.write(streams).await?;
            }
        }
    }

    async fn auths(&mut self) -> Result<()> {
        let mut query = RowQuery { limit: STREAMS_AT_ONCE, ..all_rows(Table::PendingAuth) };
        loop {
            let mut streams = Streams::new();
            let page = self.page(&query).await?;
            let Some(last) = page.last() else { return Ok(()) };
            query.after = Some(last.key().values);
            group(page, &mut streams)?;
            self.write(streams).await?;
        }
    }

    /// Takes the rows of a query to their streams.
    async fn take(&mut self, mut query: RowQuery, streams: &mut Streams) -> Result<()> {
        loop {
            let page = self.page(&query).await?;
            let Some(last) = page.last() else { return Ok(()) };
            query.after = Some(last.key().values);
            group(page, streams)?;
        }
    }

    async fn page(&mut self, query: &RowQuery) -> Result<Vec<Row>> {
        let Built { sql, arguments } = query::build(query)?;
        let rows = sqlx::query_with(AssertSqlSafe(sql), arguments);
        let rows = rows.fetch_all(&mut *self.connection).await.map_err(failed)?;
        rows.iter().map(|row| row_of(row, query.table)).collect()
    }

    async fn write(&mut self, streams: Streams) -> Result<()> {
        let batch = streams.into_values().map(|(key, rows)| genesis(&key, rows, self.now));
        let batch: Vec<Append> = batch.collect::<Result<_>>()?;
        let judged = judge(&batch, &View::default(), self.now);
        let names = judged.plan.streams.keys();
        let ids: HashMap<StreamName, i64> =
            names.map(|name| StreamName::clone(name)).zip(self.last_stream + 1..).collect();
        let script = Script::of_plan(&judged.plan, &ids, self.last_position, self.now);
        script.run_within(self.connection, &mut self.texts).await.map_err(failed)?;
        let count = |written: usize| i64::try_from(written).unwrap_or(i64::MAX);
        self.last_stream = self.last_stream.saturating_add(count(ids.len()));
        self.last_position = self.last_position.saturating_add(count(judged.plan.journal.len()));
        Ok(())
    }
}
