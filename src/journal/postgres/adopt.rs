//! Adoption of a database that has the read tables of another program and no journal: its tables are
//! brought to this program's shape and become the genesis of their streams, in the transaction that
//! creates this program's tables, under its lock.
//!
//! Numbers are widened, and text is compared by its bytes from then on. It holds one page of streams
//! in memory.

use std::collections::BTreeSet;

use sqlx::postgres::PgRow;

use super::commit::has_written;
use super::connect::Session;
use super::fault::storage_error;
use super::known::KnownStreams;
use super::opening::{DRAWN, Opening};
use super::query::{self, bound};
use super::read::{get, int, row_of, text};
use super::script::Script;
use super::statement::{Statement, push_names};
use crate::base::{Error, Result, Timestamp};
use crate::domain::{ColumnType, Row, RowKey, Table, Value};
use crate::journal::adopt::{
    ADOPTED, Found, OF_CONNECTORS, OF_DOCUMENTS, PREFIX, STREAMS_AT_ONCE, Streams, aside,
    check_columns, genesis, group, known_tables, own_names, table_refused,
};
use crate::journal::batch::{View, judge};
use crate::journal::damage::RowName;
use crate::journal::owners::all_rows;
use crate::journal::{Append, Compare, Filter, RowQuery};

/// The code of an object that others depend on.
const DEPENDENT_OBJECTS: &str = "2BP01";

fn failed(error: sqlx::Error) -> Error {
    storage_error(error, "adopting the tables of another program")
}

async fn run(session: &mut Session, sql: String) -> Result<Vec<PgRow>> {
    session.run(sql).await.map_err(failed)
}

/// Moves the tables of another program aside, so that this program's can be created. Gives them, none
/// for a database without any.
pub(super) async fn move_aside(session: &mut Session) -> Result<Vec<Table>> {
    let sql = format!(
        "SELECT relname::text FROM pg_class WHERE relnamespace = \
         (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) \
         AND relkind IN ('r', 'p', 'v', 'm', 'f') \
         AND (starts_with(relname::text, '{PREFIX}') OR relname IN ({})) \
         ORDER BY relname::text COLLATE \"C\"",
        own_names()
    );
    let rows = run(session, sql).await?;
    let names = rows.iter().map(|row| text(row, 0).map(str::to_owned));
    let tables = known_tables(&names.collect::<Result<Vec<_>>>()?)?;
    if !tables.is_empty() {
        // What is there may take longer than a command may.
        run(session, "SET LOCAL statement_timeout = 0".to_owned()).await?;
    }
    for &table in &tables {
        let name = table.spec().name;
        let others = format!(
            "SELECT format('DROP INDEX %s', i.indexrelid::regclass) FROM pg_index AS i \
             WHERE i.indrelid = '{name}'::regclass AND NOT EXISTS \
             (SELECT 1 FROM pg_constraint AS c WHERE c.conindid = i.indexrelid)"
        );
        if !is_plain(session, name).await? {
            return Err(table_refused(name));
        }
        for row in run(session, others).await? {
            run(session, text(&row, 0)?.to_owned()).await?;
        }
        run(session, format!("ALTER TABLE {name} RENAME TO {}", aside(table))).await?;
    }
    Ok(tables)
}

/// Whether it is a table with nothing on it that would be lost with it and is of no store that is
/// known: triggers and rules, who may see which rows or columns, who is sent the changes.
async fn is_plain(session: &mut Session, name: &str) -> Result<bool> {
    let sql = format!(
        "SELECT relkind = 'r' AND NOT relrowsecurity AND NOT relforcerowsecurity \
         AND NOT EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal) \
         AND NOT EXISTS (SELECT 1 FROM pg_rewrite WHERE ev_class = c.oid) \
         AND NOT EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = c.oid) \
         AND NOT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = c.oid AND attacl IS NOT NULL) \
         AND NOT EXISTS (SELECT 1 FROM pg_publication_rel WHERE prrelid = c.oid) \
         FROM pg_class AS c WHERE oid = '{name}'::regclass"
    );
    run(session, sql).await?.first().map_or(Ok(false), |row| get(row, 0))
}

/// Fills this program's tables from those that were moved aside, and writes the genesis of their
/// streams.
pub(super) async fn fill(session: &mut Session, tables: &[Table]) -> Result<()> {
    if tables.is_empty() {
        return Ok(());
    }
    for &table in tables {
        check_shape(session, table).await?;
        check_values(session, table).await?;
        move_rows(session, table).await?;
    }
    let sql = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint".to_owned();
    let rows = run(session, sql).await?;
    let now = rows.first().map_or(Ok(0), |row| int(row, 0))?;
    let mut writer = Writer { session, now: Timestamp::from_millis(now) };
    writer.documents().await?;
    writer.connectors().await?;
    writer.auths().await?;
    let stamped = "UPDATE connector_meta SET value = coalesce(\
                   (SELECT max(written_at) FROM kubun_connector_observation_repair), 0) \
                   WHERE key = 'stamped_at'";
    run(session, stamped.to_owned()).await.map(drop)
}

/// Refuses a table whose columns are not those that are known.
async fn check_shape(session: &mut Session, table: Table) -> Result<()> {
    let sql = format!(
        "SELECT a.attname::text, format_type(a.atttypid, NULL), coalesce((SELECT k.place \
         FROM pg_index AS i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place) \
         WHERE i.indrelid = a.attrelid AND i.indisprimary AND k.attnum = a.attnum), 0) \
         FROM pg_attribute AS a WHERE a.attrelid = '{}'::regclass AND a.attnum > 0 \
         AND NOT a.attisdropped ORDER BY a.attnum",
        aside(table)
    );
    let found = run(session, sql).await?;
    let found = found.iter().map(|row| {
        let kind = match text(row, 1)? {
            "smallint" | "integer" | "bigint" => Some(ColumnType::Int),
            "text" | "character varying" => Some(ColumnType::Text),
            "bytea" => Some(ColumnType::Blob),
            _ => None,
        };
        Ok(Found { name: text(row, 0)?.to_owned(), kind, key_place: int(row, 2)? })
    });
    check_columns(table, &found.collect::<Result<Vec<_>>>()?)
}

/// Refuses a NULL where the table takes none.
async fn check_values(session: &mut Session, table: Table) -> Result<()> {
    let spec = table.spec();
    let sql = format!(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = '{}'::regclass AND attnotnull \
         AND attnum > 0",
        spec.name
    );
    let rows = run(session, sql).await?;
    let set: Vec<&str> = rows.iter().map(|row| text(row, 0)).collect::<Result<_>>()?;
    for column in spec.columns.iter().filter(|column| set.contains(&column.name)) {
        let mut sql = String::from("SELECT ");
        for (at, &key) in spec.key.iter().enumerate() {
            sql.push_str(if at == 0 { "" } else { ", " });
            sql.push_str(spec.columns[key].name);
        }
        let found = run(
            session,
            format!("{sql} FROM {} WHERE {} IS NULL LIMIT 1", aside(table), column.name),
        );
        let Some(row) = found.await?.pop() else { continue };
        let key = (0..spec.key.len())
            .map(|at| get::<Option<&str>>(&row, at).map(Value::text_or_null))
            .collect::<Result<_>>()?;
        let RowName { table: name, key } = RowName::of(&RowKey::new(table, key));
        let column = Some(column.name.to_owned());
        return Err(Error::AdoptionRefused { table: name.to_owned(), column, row: key });
    }
    Ok(())
}

async fn move_rows(session: &mut Session, table: Table) -> Result<()> {
    let (name, aside) = (table.spec().name, aside(table));
    if !ADOPTED.contains(&table) {
        // Nothing is known of another program's rows, even under the names that are known.
        let found = run(session, format!("SELECT 1 FROM {aside} LIMIT 1")).await?;
        if !found.is_empty() {
            return Err(table_refused(name));
        }
    }
    let mut columns = String::new();
    push_names(&mut columns, table.spec().columns.iter());
    run(session, format!("INSERT INTO {name} ({columns}) SELECT {columns} FROM {aside}")).await?;
    // Those who may read or write the table may do so still.
    let granted = format!(
        "SELECT format('GRANT %s ON {name} TO %s%s', a.privilege_type, \
         CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END, \
         CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END) \
         FROM pg_class AS c, aclexplode(c.relacl) AS a \
         WHERE c.oid = '{aside}'::regclass AND a.grantee != c.relowner"
    );
    for row in run(session, granted).await? {
        run(session, text(&row, 0)?.to_owned()).await?;
    }
    match session.run(format!("DROP TABLE {aside}")).await {
        Ok(_) => Ok(()),
        Err(error) => {
            let code = error.as_database_error().and_then(|error| error.code());
            // A view, or another table, that would not follow.
            let is_used = code.is_some_and(|code| code == DEPENDENT_OBJECTS);
            Err(if is_used { table_refused(name) } else { failed(error) })
        }
    }
}

/// Writes the genesis of each stream.
struct Writer<'s> {
    session: &'s mut Session,
    now: Timestamp,
}

impl Writer<'_> {
    /// The next names behind `after`, of all tables that have such.
    async fn names<const N: usize>(
        &mut self,
        tables: &[(Table, [usize; N])],
        after: Option<&[String; N]>,
    ) -> Result<Vec<[String; N]>> {
        let mut statement = Statement::new("");
        for (at, (table, columns)) in tables.iter().enumerate() {
            let spec = table.spec();
            let names = columns.map(|column| spec.columns[column].name).join(", ");
            statement.push(if at == 0 { "" } else { " UNION " });
            statement.push(&format!("SELECT {names} FROM {}", spec.name));
            if let Some(after) = after {
                statement.push(&format!(" WHERE ({names}) > ("));
                for (at, name) in after.iter().enumerate() {
                    statement.push(if at == 0 { "" } else { ", " });
                    statement.bind(name.as_str()).map_err(failed)?;
                }
                statement.push(")");
            }
        }
        let order: Vec<String> = (1..=N).map(|place| place.to_string()).collect();
        statement.push(&format!(" ORDER BY {} LIMIT {STREAMS_AT_ONCE}", order.join(", ")));
        let rows = self.session.all(statement).await.map_err(failed)?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut names = std::array::from_fn(|_| String::new());
            for (at, name) in names.iter_mut().enumerate() {
                text(row, at)?.clone_into(name);
            }
            found.push(names);
        }
        Ok(found)
    }

    async fn documents(&mut self) -> Result<()> {
        let tables = OF_DOCUMENTS.map(|(table, column)| (table, [column]));
        let mut after = None;
        loop {
            let names = self.names(&tables, after.as_ref()).await?;
            let Some(last) = names.last() else { return Ok(()) };
            after = Some(last.clone());
            let names: Vec<Value> = names.into_iter().map(|[name]| Value::text(name)).collect();
            let mut streams = Streams::new();
            for (table, column) in OF_DOCUMENTS {
                let filters = vec![Filter { column, compare: Compare::In(names.clone()) }];
                self.take(RowQuery { filters, ..all_rows(table) }, &mut streams).await?;
            }
            self.write(streams).await?;
        }
    }

    /// One at a time: a connector may have many rows.
    async fn connectors(&mut self) -> Result<()> {
        let mut after = None;
        loop {
            let names = self.names(&OF_CONNECTORS, after.as_ref()).await?;
            let Some(last) = names.last() else { return Ok(()) };
            after = Some(last.clone());
            for names in names {
                let names = names.map(Value::text);
                let mut streams = Streams::new();
                for (table, columns) in OF_CONNECTORS {
                    let equal = |(column, value)| Filter { column, compare: Compare::Equal(value) };
                    let filters = columns.into_iter().zip(names.clone()).map(equal).collect();
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
        let rows = self.session.all(query::build(query)?).await.map_err(failed)?;
        rows.iter().map(|row| row_of(row, query.table)).collect()
    }

    async fn write(&mut self, streams: Streams) -> Result<()> {
        let batch = streams.into_values().map(|(key, rows)| genesis(&key, rows, self.now));
        let batch: Vec<Append> = batch.collect::<Result<_>>()?;
        let judged = judge(&batch, &View::default(), self.now);
        let opening = bound(Opening::of_batch(&batch, &KnownStreams::default()))?;
        let rows = run(self.session, opening.text().to_owned()).await?;
        let taken = || Error::damaged("a stream was begun while its rows were adopted");
        let locked = bound(opening.read(&rows))?.ok_or_else(taken)?;
        let positions = locked.drawn.as_ref().map_or(&[][..], |drawn| &drawn.positions);
        let script = Script::of_plan(&judged.plan, &locked, positions, self.now, &BTreeSet::new());
        let (statement, guarded) = script.map_err(failed)?.finish();
        let rows = self.session.all(statement).await.map_err(failed)?;
        if !has_written(&rows, &guarded).map_err(failed)? {
            return Err(taken());
        }
        // The next page draws in a savepoint of its own, and each that is open holds a lock.
        run(self.session, format!("RELEASE SAVEPOINT {DRAWN}")).await.map(drop)
    }
}
