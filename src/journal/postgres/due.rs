//! What is due, as SQL: one query over the indexed due columns of all tables.
//!
//! Each part of the union walks its own index in the order of the result and stops at the limit.

use std::fmt::Write as _;

use sqlx::postgres::PgRow;

use super::query::bound;
use super::read::{int, row_of, text};
use super::readers::Readers;
use super::statement::{Statement, push_names};
use crate::base::{DocumentId, Error, OwnerDid, Result, Timestamp};
use crate::domain::{
    ColumnType, DueFilter, DueRow, DueSource, DueSpec, MAX_DUE_NAMES, OPERATION_DOCUMENT_COLUMN,
    OPERATION_DUE_COLUMN, Row, Table,
};
use crate::journal::{DueCandidates, DuePage};
use crate::records::OBSERVATION_TYPE;

impl Readers {
    /// A page of what is due, or stuck.
    pub(super) async fn due(&self, page: &DuePage) -> Result<Vec<DueRow>> {
        if page.sources.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.all(union(page)?, "reading what is due").await?;
        rows.iter().map(due_row).collect()
    }

    /// How many rows have a time at `until` or before.
    pub(super) async fn count_due(&self, sources: &[DueSource], until: Timestamp) -> Result<u64> {
        let mut built = Statement::new("SELECT 0::bigint");
        for source in sources {
            let spec = source.spec();
            let _ = write!(built.sql, " + (SELECT count(*) FROM {}", spec.table.spec().name);
            write_condition(&mut built.sql, spec);
            let _ = write!(built.sql, " AND {} <= ", column(spec.table, spec.due));
            bound(built.bind(until.as_millis()))?;
            built.push(")");
        }
        let rows = self.all(built, "counting what is due").await?;
        let count = rows.first().map(|row| int(row, 0)).transpose()?.unwrap_or_default();
        u64::try_from(count).map_err(|_| Error::damaged("a count"))
    }

    /// The earliest time at which something is due.
    pub(super) async fn next_due(&self, after: Option<Timestamp>) -> Result<Option<Timestamp>> {
        let mut built = Statement::new("SELECT min(at) FROM (");
        for (at, source) in DueSource::WAITING.iter().enumerate() {
            let spec = source.spec();
            let due = column(spec.table, spec.due);
            built.push(if at == 0 { "" } else { " UNION ALL " });
            let table = spec.table.spec().name;
            let _ = write!(built.sql, "(SELECT {due} AS at FROM {table}");
            write_condition(&mut built.sql, spec);
            if let Some(after) = after {
                let _ = write!(built.sql, " AND {due} > ");
                bound(built.bind(after.as_millis()))?;
            }
            let _ = write!(built.sql, " ORDER BY {due} LIMIT 1)");
        }
        // Without a row the minimum is NULL, which this leaves out.
        built.push(") AS due HAVING min(at) IS NOT NULL");
        let rows = self.all(built, "reading the next due time").await?;
        rows.first().map(|row| int(row, 0).map(Timestamp::from_millis)).transpose()
    }

    /// The owners and documents that have observation copies.
    pub(super) async fn observed(
        &self,
        after: Option<&(OwnerDid, DocumentId)>,
        limit: u32,
    ) -> Result<Vec<(OwnerDid, DocumentId)>> {
        let table = Table::ObservationRecords;
        let mut built = Statement::new("SELECT DISTINCT owner, id FROM ");
        let _ = write!(built.sql, "{} WHERE type = '{OBSERVATION_TYPE}'", table.spec().name);
        if let Some((owner, document)) = after {
            built.push(" AND (owner, id) > (");
            bound(built.bind(owner.as_str()))?;
            built.push(", ");
            bound(built.bind(document.as_str()))?;
            built.push(")");
        }
        built.push(" ORDER BY owner, id LIMIT ");
        bound(built.bind(i64::from(limit)))?;
        let rows = self.all(built, "reading observed documents").await?;
        let names = rows
            .iter()
            .map(|row| Ok((OwnerDid::new(text(row, 0)?)?, DocumentId::new(text(row, 1)?)?)));
        names.collect()
    }

    /// The due candidates of a connector.
    pub(super) async fn due_candidates(&self, page: &DueCandidates) -> Result<Vec<Row>> {
        let spec = DueSource::SweepCandidate.spec();
        let name = |at: usize| column(spec.table, at);
        let mut built = Statement::new("SELECT ");
        push_names(&mut built.sql, spec.table.spec().columns.iter());
        let _ = write!(built.sql, " FROM {}", spec.table.spec().name);
        write_condition(&mut built.sql, spec);
        let due = name(spec.due);
        let _ = write!(built.sql, " AND {} = ", name(0));
        bound(built.bind(page.owner.as_str()))?;
        let _ = write!(built.sql, " AND {} = ", name(1));
        bound(built.bind(page.connector.as_str()))?;
        let _ = write!(built.sql, " AND {due} <= ");
        bound(built.bind(page.until.as_millis()))?;
        let (document, partition, provenance) = (name(4), name(2), name(3));
        let order = format!("{due}, {document}, {partition}, {provenance}");
        let _ = write!(built.sql, " ORDER BY {order} LIMIT ");
        bound(built.bind(i64::from(page.limit)))?;
        let rows = self.all(built, "reading due candidates").await?;
        rows.iter().map(|row| row_of(row, spec.table)).collect()
    }
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

fn union(page: &DuePage) -> Result<Statement> {
    // Of a lone part, the inner order and limit would be the outer ones, too.
    let mut built = Statement::new("SELECT * FROM (");
    for (at, source) in page.sources.iter().enumerate() {
        built.push(if at == 0 { "" } else { " UNION ALL " });
        add_source(&mut built, *source, page)?;
    }
    built.push(") AS due ORDER BY 1, 2");
    for at in 0..MAX_DUE_NAMES {
        let _ = write!(built.sql, ", {}", at + 3);
    }
    built.push(" LIMIT ");
    bound(built.bind(i64::from(page.limit)))?;
    Ok(built)
}

fn add_source(built: &mut Statement, source: DueSource, page: &DuePage) -> Result<()> {
    let place = DueSource::ALL.iter().position(|at| *at == source).unwrap_or_default();
    let spec = source.spec();
    let due = column(spec.table, spec.due);
    let _ = write!(built.sql, "(SELECT {due} AS due, {place}::bigint AS source");
    for at in 0..MAX_DUE_NAMES {
        let name =
            spec.names.get(at).map_or("NULL::text COLLATE \"C\"", |&at| column(spec.table, at));
        let _ = write!(built.sql, ", {name} AS n{at}");
    }
    let _ = write!(built.sql, " FROM {}", spec.table.spec().name);
    write_condition(&mut built.sql, spec);
    let _ = write!(built.sql, " AND {due} <= ");
    bound(built.bind(page.until.as_millis()))?;
    let keys = spec.table.spec().key.len();
    let mut order = String::from(due);
    for &at in &spec.names[..keys] {
        let _ = write!(order, ", {}", column(spec.table, at));
    }
    if let Some(after) = &page.after {
        let time = after.due_at.as_millis();
        if source == after.source {
            let _ = write!(built.sql, " AND ({order}) > (");
            bound(built.bind(time))?;
            for name in after.names.iter().take(keys) {
                built.push(", ");
                bound(built.bind_value(ColumnType::Text, name))?;
            }
            built.push(")");
        } else {
            let sign = if source < after.source { ">" } else { ">=" };
            let _ = write!(built.sql, " AND {due} {sign} ");
            bound(built.bind(time))?;
        }
    }
    let _ = write!(built.sql, " ORDER BY {order} LIMIT ");
    bound(built.bind(i64::from(page.limit)))?;
    built.push(")");
    Ok(())
}

fn due_row(row: &PgRow) -> Result<DueRow> {
    let place = usize::try_from(int(row, 1)?).ok();
    let source = place.and_then(|at| DueSource::ALL.get(at)).copied();
    let source = source.ok_or_else(|| Error::damaged("a source of what is due"))?;
    let names =
        (0..source.spec().names.len()).map(|at| text(row, at + 2).map(crate::domain::Value::text));
    Ok(DueRow {
        due_at: Timestamp::from_millis(int(row, 0)?),
        source,
        names: names.collect::<Result<_>>()?,
    })
}
