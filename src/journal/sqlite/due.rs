//! What is due, as SQL: one query over the indexed due columns of all tables.
//!
//! Each part of the union walks its own index in the order of the result and stops at the limit.

use std::fmt::Write as _;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteRow;

use super::query::Built;
use super::read::{int, row_of, text};
use super::readers::Readers;
use super::statements::write_names;
use crate::base::{DocumentId, Error, OwnerDid, Result, Timestamp};
use crate::domain::{
    DueFilter, DueRow, DueSource, DueSpec, MAX_DUE_NAMES, OPERATION_DOCUMENT_COLUMN,
    OPERATION_DUE_COLUMN, Row, Table, Value,
};
use crate::journal::{DueCandidates, DuePage};
use crate::records::OBSERVATION_TYPE;

impl Readers {
    /// A page of what is due, or stuck.
    pub(super) async fn due(&self, page: &DuePage) -> Result<Vec<DueRow>> {
        let built = union(page)?;
        let rows = self.all(AssertSqlSafe(built.sql), built.arguments, "reading what is due");
        rows.await?.iter().map(due_row).collect()
    }

    /// How many rows have a time at `until` or before.
    pub(super) async fn count_due(&self, sources: &[DueSource], until: Timestamp) -> Result<u64> {
        let mut built = Built::new("SELECT 0");
        for source in sources {
            let spec = source.spec();
            let _ = write!(built.sql, " + (SELECT count(*) FROM {}", spec.table.spec().name);
            write_condition(&mut built.sql, spec);
            let _ = write!(built.sql, " AND {} <= ?)", column(spec.table, spec.due));
            built.bind(&Value::Int(until.as_millis()))?;
        }
        let rows = self.all(AssertSqlSafe(built.sql), built.arguments, "counting what is due");
        let count = rows.await?.first().map(|row| int(row, 0)).transpose()?.unwrap_or_default();
        u64::try_from(count).map_err(|_| Error::damaged("a count"))
    }

    /// The earliest time at which something is due.
    pub(super) async fn next_due(&self, after: Option<Timestamp>) -> Result<Option<Timestamp>> {
        let mut built = Built::new("SELECT min(at) FROM (");
        for (at, source) in DueSource::WAITING.iter().enumerate() {
            let spec = source.spec();
            let due = column(spec.table, spec.due);
            built.sql.push_str(if at == 0 { "" } else { " UNION ALL " });
            let table = spec.table.spec().name;
            let _ = write!(built.sql, "SELECT * FROM (SELECT {due} AS at FROM {table}");
            write_condition(&mut built.sql, spec);
            if let Some(after) = after {
                let _ = write!(built.sql, " AND {due} > ?");
                built.bind(&Value::Int(after.as_millis()))?;
            }
            let _ = write!(built.sql, " ORDER BY {due} LIMIT 1)");
        }
        // Without a row the minimum is NULL, which this leaves out.
        built.sql.push_str(") HAVING min(at) IS NOT NULL");
        let rows = self.all(AssertSqlSafe(built.sql), built.arguments, "reading the next due time");
        rows.await?.first().map(|row| int(row, 0).map(Timestamp::from_millis)).transpose()
    }

    /// The owners and documents that have observation copies.
    pub(super) async fn observed(
        &self,
        after: Option<&(OwnerDid, DocumentId)>,
        limit: u32,
    ) -> Result<Vec<(OwnerDid, DocumentId)>> {
        let built = observed(after, limit)?;
        let rows =
            self.all(AssertSqlSafe(built.sql), built.arguments, "reading observed documents");
        let rows = rows.await?;
        let names = rows
            .iter()
            .map(|row| Ok((OwnerDid::new(text(row, 0)?)?, DocumentId::new(text(row, 1)?)?)));
        names.collect()
    }

    /// The due candidates of a connector.
    pub(super) async fn due_candidates(&self, page: &DueCandidates) -> Result<Vec<Row>> {
        let spec = DueSource::SweepCandidate.spec();
        let name = |at: usize| column(spec.table, at);
        let mut built = Built::new("SELECT ");
        write_names(&mut built.sql, spec.table.spec().columns.iter());
        let _ = write!(built.sql, " FROM {}", spec.table.spec().name);
        write_condition(&mut built.sql, spec);
        let due = name(spec.due);
        let (owner, connector) = (name(0), name(1));
        let _ = write!(built.sql, " AND {owner} = ? AND {connector} = ? AND {due} <= ?");
        let (document, partition, provenance) = (name(4), name(2), name(3));
        let order = format!("{due}, {document}, {partition}, {provenance}");
        let _ = write!(built.sql, " ORDER BY {order} LIMIT ?");
        built.bind(&Value::Text(page.owner.shared()))?;
        built.bind(&Value::Text(page.connector.shared()))?;
        built.bind(&Value::Int(page.until.as_millis()))?;
        built.bind(&Value::Int(page.limit.into()))?;
        let rows = self.all(AssertSqlSafe(built.sql), built.arguments, "reading due candidates");
        rows.await?.iter().map(|row| row_of(row, spec.table)).collect()
    }
}

/// The owners and documents that have observation copies, each once.
pub(super) fn observed(after: Option<&(OwnerDid, DocumentId)>, limit: u32) -> Result<Built> {
    let table = Table::ObservationRecords;
    let mut built = Built::new("SELECT DISTINCT owner, id FROM ");
    let _ = write!(built.sql, "{} WHERE type = '{OBSERVATION_TYPE}'", table.spec().name);
    if let Some((owner, document)) = after {
        built.sql.push_str(" AND (owner, id) > (?, ?)");
        built.bind(&Value::Text(owner.shared()))?;
        built.bind(&Value::Text(document.shared()))?;
    }
    built.sql.push_str(" ORDER BY owner, id LIMIT ?");
    built.bind(&Value::Int(limit.into()))?;
    Ok(built)
}

fn column(table: Table, at: usize) -> &'static str {
    table.spec().columns[at].name
}

/// ` WHERE …`: which rows wait. The words are those of the partial indexes, else these are not used.
fn write_condition(sql: &mut String, spec: &DueSpec) {
    let name = |at: usize| column(spec.table, at);
    sql.push_str(" WHERE ");
    match spec.filter {
        DueFilter::IsSet => {
            let _ = write!(sql, "{} IS NOT NULL", name(spec.due));
        }
        DueFilter::IsNull(at) => {
            let _ = write!(sql, "{} IS NULL", name(at));
        }
        DueFilter::OneOf(at, texts) => {
            let _ = write!(sql, "{} IN ('{}')", name(at), texts.join("', '"));
        }
        DueFilter::StartsWith(at, start) => {
            let _ = write!(sql, "substr({}, 1, {}) = '{start}'", name(at), start.len());
        }
    }
    if let Some(document) = spec.yields_for {
        let _ = write!(
            sql,
            " AND NOT EXISTS (SELECT 1 FROM {operations} AS o WHERE o.{id} = {table}.{document} \
             AND o.{due} IS NOT NULL)",
            operations = Table::Operation.spec().name,
            id = column(Table::Operation, OPERATION_DOCUMENT_COLUMN),
            table = spec.table.spec().name,
            document = name(document),
            due = column(Table::Operation, OPERATION_DUE_COLUMN),
        );
    }
    if !spec.newest_of.is_empty() {
        let (table, due) = (spec.table.spec().name, name(spec.due));
        let _ = write!(
            sql,
            " AND NOT EXISTS (SELECT 1 FROM {table} AS n WHERE n.{due} > {table}.{due}"
        );
        for &at in spec.newest_of {
            let _ = write!(sql, " AND n.{same} = {table}.{same}", same = name(at));
        }
        sql.push(')');
    }
}

fn union(page: &DuePage) -> Result<Built> {
    let mut built = Built::new("");
    for (at, source) in page.sources.iter().enumerate() {
        built.sql.push_str(if at == 0 { "" } else { " UNION ALL " });
        add_source(&mut built, *source, page)?;
    }
    built.sql.push_str(" ORDER BY 1, 2");
    for at in 0..MAX_DUE_NAMES {
        let _ = write!(built.sql, ", {}", at + 3);
    }
    built.sql.push_str(" LIMIT ?");
    built.bind(&Value::Int(page.limit.into()))?;
    Ok(built)
}

fn add_source(built: &mut Built, source: DueSource, page: &DuePage) -> Result<()> {
    let place = DueSource::ALL.iter().position(|at| *at == source).unwrap_or_default();
    let spec = source.spec();
    let due = column(spec.table, spec.due);
    let _ = write!(built.sql, "SELECT * FROM (SELECT {due}, {place}");
    for at in 0..MAX_DUE_NAMES {
        let name = spec.names.get(at).map_or("NULL", |&at| column(spec.table, at));
        let _ = write!(built.sql, ", {name}");
    }
    let _ = write!(built.sql, " FROM {}", spec.table.spec().name);
    write_condition(&mut built.sql, spec);
    let _ = write!(built.sql, " AND {due} <= ?");
    built.bind(&Value::Int(page.until.as_millis()))?;
    let keys = spec.table.spec().key.len();
    let mut order = String::from(due);
    for &at in &spec.names[..keys] {
        let _ = write!(order, ", {}", column(spec.table, at));
    }
    if let Some(after) = &page.after {
        let time = Value::Int(after.due_at.as_millis());
        if source == after.source {
            let _ = write!(built.sql, " AND ({order}) > (?{})", ", ?".repeat(keys));
            built.bind(&time)?;
            after.names.iter().take(keys).try_for_each(|name| built.bind(name))?;
        } else {
            let sign = if source < after.source { ">" } else { ">=" };
            let _ = write!(built.sql, " AND {due} {sign} ?");
            built.bind(&time)?;
        }
    }
    let _ = write!(built.sql, " ORDER BY {order} LIMIT ?)");
    built.bind(&Value::Int(page.limit.into()))
}

fn due_row(row: &SqliteRow) -> Result<DueRow> {
    let place = usize::try_from(int(row, 1)?).ok();
    let source = place.and_then(|at| DueSource::ALL.get(at)).copied();
    let source = source.ok_or_else(|| Error::damaged("a source of what is due"))?;
    let names = (0..source.spec().names.len()).map(|at| text(row, at + 2).map(Value::text));
    Ok(DueRow {
        due_at: Timestamp::from_millis(int(row, 0)?),
        source,
        names: names.collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part of the union walks an index in the order of the result: nothing is sorted but the
    /// merged pages and what is stuck, and no table is read whole.
    #[tokio::test]
    async fn no_due_column_is_read_without_its_index() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("due.db");
        let options = crate::journal::SqliteOptions::new(path, Timestamp::default());
        let storage = crate::journal::SqliteStorage::open(options).await.unwrap();
        for source in DueSource::ALL {
            let names = vec![Value::text("x"); source.spec().names.len()];
            for after in [None, Some(DueRow { due_at: Timestamp::default(), source, names })] {
                let mut built = Built::new("EXPLAIN QUERY PLAN ");
                let until = Timestamp::default();
                let page = DuePage { sources: DueSource::WAITING, until, after, limit: 5 };
                add_source(&mut built, source, &page).unwrap();
                let rows =
                    storage.readers.all(AssertSqlSafe(built.sql), built.arguments, "a plan").await;
                let plan: Vec<String> =
                    rows.unwrap().iter().map(|row| text(row, 3).unwrap()).collect();
                let is_stuck = !DueSource::WAITING.contains(&source);
                let is_indexed = |line: &String| {
                    // What is stuck is little.
                    (is_stuck && line.starts_with("USE TEMP B-TREE"))
                        || (line.contains("SEARCH") && line.contains("INDEX"))
                        || line.contains("SCAN (subquery")
                        || line.contains("CO-ROUTINE")
                        || line.contains("CORRELATED")
                };
                assert!(plan.iter().all(is_indexed), "{source:?}: {plan:#?}");
            }
        }
    }
}
