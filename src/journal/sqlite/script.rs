//! One transaction as data: the statements of a plan with their values, and how they are sent.
//!
//! A text costs two hops between threads, so a small transaction goes over as one text and a large
//! one as few texts of wide statements: those of one size, of all tables, go over together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments as _, AssertSqlSafe};

use super::statements::{Shape, Texts, next_size};
use crate::base::{StreamName, Timestamp};
use crate::domain::{Row, RowKey, Value};
use crate::journal::batch::{Plan, StreamWrite};

/// A transaction of at most so many rows goes over as one text. More, and the texts would be so
/// many that prepared ones are not found again.
const MAX_JOINED_ROWS: usize = 24;

/// A value of a statement. Without `Debug`, as it may be a secret.
#[derive(Clone, Copy)]
pub(super) enum Bind<'p> {
    Null,
    Int(i64),
    Name(&'p StreamName),
    Bytes(&'p [u8]),
    Value(&'p Value),
}

impl Bind<'_> {
    fn add_to(self, arguments: &mut SqliteArguments) -> sqlx::Result<()> {
        let added = match self {
            Self::Null => arguments.add(None::<i64>),
            Self::Int(int) => arguments.add(int),
            Self::Name(name) => arguments.add(StreamName::clone(name)),
            Self::Bytes(bytes) => arguments.add(bytes),
            Self::Value(value) => return add_value(value, arguments),
        };
        added.map_err(sqlx::Error::Encode)
    }
}

/// Adds a column's value; one that is kept or stamped has no place in a statement and counts as NULL.
pub(super) fn add_value(value: &Value, arguments: &mut SqliteArguments) -> sqlx::Result<()> {
    let added = match value {
        Value::Null | Value::Keep | Value::Stamp => arguments.add(None::<i64>),
        Value::Int(int) => arguments.add(*int),
        Value::Text(text) => arguments.add(std::sync::Arc::clone(text)),
        Value::Blob(blob) => arguments.add(blob.as_ref()),
    };
    added.map_err(sqlx::Error::Encode)
}

/// Where a transaction failed.
#[derive(Debug)]
pub(super) struct Failure {
    /// The library's error.
    pub(super) error: sqlx::Error,
    /// The commit had been sent, so it may be on the medium.
    pub(super) at_commit: bool,
}

/// The rows of statements of one shape.
struct Section<'p> {
    shape: Shape,
    binds: Vec<Bind<'p>>,
}

/// The statements of one transaction, in their order.
#[derive(Default)]
pub(super) struct Script<'p> {
    sections: Vec<Section<'p>>,
}

/// Statements with place for so many rows, and the values of those there are.
type Step<'s, 'p> = (Shape, usize, &'s [Bind<'p>]);

impl<'p> Script<'p> {
    /// Adds a row to the statements of its shape; shapes run in the order of their first rows.
    fn push(&mut self, shape: Shape, binds: impl IntoIterator<Item = Bind<'p>>) {
        let place = match self.sections.iter().position(|section| section.shape == shape) {
            Some(place) => place,
            None => {
                self.sections.push(Section { shape, binds: Vec::new() });
                self.sections.len() - 1
            }
        };
        self.sections[place].binds.extend(binds);
    }

    /// Says which time rows are stamped with, if any are.
    pub(super) fn note_stamp(&mut self, stamp: Option<Timestamp>) {
        if let Some(stamp) = stamp {
            self.push(Shape::Stamped, [Bind::Int(stamp.as_millis())]);
        }
    }

    /// What a plan writes. `streams` has the id of each of its streams; the first event gets the
    /// position behind `last_position`.
    pub(super) fn of_plan(
        plan: &'p Plan<'_>,
        streams: &HashMap<StreamName, i64>,
        last_position: i64,
        now: Timestamp,
    ) -> Self {
        let mut script = Self::default();
        let id = |name: &StreamName| Bind::Int(streams.get(name).copied().unwrap_or_default());
        for write in plan.streams.values().filter(|write| write.existed) {
            if let Some(through) = write.cut_through() {
                script.push(Shape::EraseEvents, [id(write.name), Bind::Int(through)]);
            }
            if write.erase_through.is_some() {
                script.push(Shape::EraseSnapshots, [id(write.name)]);
            }
        }
        if plan.streams.values().any(|write| write.trim_through.is_some()) {
            script.push(Shape::Trimmed, [Bind::Int(last_position)]);
        }
        for write in plan.streams.values() {
            script.push_head(id(write.name), write);
        }
        for (position, write) in (last_position + 1..).zip(&plan.journal) {
            let binds = [
                Bind::Int(position),
                id(write.stream),
                Bind::Int(write.version),
                Bind::Int(write.event.event_type.into()),
                Bind::Int(write.event.schema.into()),
                Bind::Bytes(&write.event.payload),
                Bind::Bytes(write.command_id.as_bytes()),
                Bind::Int(now.as_millis()),
                Bind::Bytes(write.hash.as_bytes()),
            ];
            script.push(Shape::Journal, binds);
        }
        for write in plan.streams.values() {
            let Some(snapshot) = &write.snapshot else { continue };
            let binds = [
                id(write.name),
                Bind::Int(snapshot.version),
                Bind::Int(snapshot.schema.into()),
                Bind::Bytes(snapshot.payload),
                Bind::Bytes(snapshot.hash.as_bytes()),
                Bind::Bytes(snapshot.checksum.as_bytes()),
            ];
            script.push(Shape::Snapshots, binds);
        }
        script.push_rows(&plan.rows);
        for (command_id, record) in &plan.commands {
            let binds = [
                Bind::Bytes(command_id.as_bytes()),
                Bind::Bytes(record.digest.as_bytes()),
                Bind::Bytes(&record.answer),
                Bind::Int(now.as_millis()),
            ];
            script.push(Shape::Commands, binds);
        }
        script
    }

    fn push_head(&mut self, id: Bind<'p>, write: &'p StreamWrite<'_>) {
        let binds = [
            id,
            Bind::Name(write.name),
            Bind::Int(write.kind.number()),
            Bind::Int(write.head.version),
            Bind::Bytes(write.head.command_id.as_bytes()),
            Bind::Bytes(write.head.hash.as_bytes()),
        ];
        let is_cut = write.cut_through().is_some();
        let base = match &write.base {
            Some(base) => [Bind::Int(base.version), Bind::Bytes(base.hash.as_bytes())],
            None => [Bind::Null; 2],
        };
        let base = base.into_iter().filter(|_| is_cut);
        self.push(Shape::Streams { is_cut }, binds.into_iter().chain(base));
    }

    /// The last change of each row.
    pub(super) fn push_rows(&mut self, rows: &'p BTreeMap<RowKey, Option<Row>>) {
        for (key, row) in rows {
            match row {
                Some(row) => {
                    let mut kept = 0_u32;
                    for (at, value) in row.values.iter().enumerate() {
                        kept |= u32::from(*value == Value::Keep) << at;
                    }
                    let values = row.values.iter().filter(|value| **value != Value::Keep);
                    self.push(Shape::Put { table: row.table, kept }, values.map(Bind::Value));
                }
                None => {
                    let shape = Shape::Delete { table: key.table };
                    self.push(shape, key.values.iter().map(Bind::Value));
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    fn steps(&self) -> Vec<Step<'_, 'p>> {
        let mut steps = Vec::new();
        for section in &self.sections {
            let width = section.shape.width();
            let mut left = section.binds.as_slice();
            while !left.is_empty() {
                let (rows, places) = next_size(left.len() / width, section.shape.is_repeatable());
                let (taken, rest) = left.split_at(rows * width);
                steps.push((section.shape, places, taken));
                left = rest;
            }
        }
        steps
    }

    /// The statements in the order in which they run: first what erases, then by their sizes, so
    /// that statements of one size can go over as one text. Beyond that their order does not matter:
    /// each row is in one of them.
    fn steps_by_size(&self) -> Vec<Step<'_, 'p>> {
        let mut steps = self.steps();
        steps.sort_by_key(|(shape, places, _)| (!shape.is_erasure(), Reverse(*places)));
        steps
    }

    /// Runs the transaction. After an error it may still be open.
    pub(super) async fn run(
        &self,
        connection: &mut SqliteConnection,
        texts: &mut Texts,
    ) -> Result<(), Failure> {
        self.send_all(true, connection, texts).await
    }

    /// Runs the statements in a transaction that was begun before and is ended later.
    pub(super) async fn run_within(
        &self,
        connection: &mut SqliteConnection,
        texts: &mut Texts,
    ) -> sqlx::Result<()> {
        self.send_all(false, connection, texts).await.map_err(|failure| failure.error)
    }

    async fn send_all(
        &self,
        is_transaction: bool,
        connection: &mut SqliteConnection,
        texts: &mut Texts,
    ) -> Result<(), Failure> {
        let steps = self.steps_by_size();
        let rows: usize = steps.iter().map(|(_, rows, _)| rows).sum();
        let is_joined = rows <= MAX_JOINED_ROWS;
        let mut texts_left = steps.chunk_by(|(shape, places, _), (next, next_places, _)| {
            is_joined || (shape.is_erasure() == next.is_erasure() && places == next_places)
        });
        // The begin goes over with the first statements, the commit with the last ones.
        let mut sent_together = Vec::new();
        if is_transaction {
            sent_together.push((Shape::Begin, 1, &[][..]));
        }
        let mut next = texts_left.next();
        while let Some(steps) = next {
            next = texts_left.next();
            sent_together.extend_from_slice(steps);
            let at_commit = is_transaction && next.is_none();
            if at_commit {
                sent_together.push((Shape::Commit, 1, &[]));
            }
            let sent = send(&sent_together, connection, texts).await;
            sent.map_err(|error| Failure { error, at_commit })?;
            sent_together.clear();
        }
        Ok(())
    }
}

async fn send(
    steps: &[Step<'_, '_>],
    connection: &mut SqliteConnection,
    texts: &mut Texts,
) -> sqlx::Result<()> {
    let shapes: Vec<(Shape, usize)> =
        steps.iter().map(|(shape, rows, _)| (*shape, *rows)).collect();
    let mut arguments = SqliteArguments::default();
    let values = shapes.iter().map(|(shape, rows)| shape.width() * rows).sum();
    arguments.reserve(values, 0);
    for (shape, rows, binds) in steps {
        for bind in *binds {
            bind.add_to(&mut arguments)?;
        }
        let width = shape.width();
        let Some(last) = binds.len().checked_sub(width) else { continue };
        for _ in binds.len() / width.max(1)..*rows {
            for bind in &binds[last..] {
                bind.add_to(&mut arguments)?;
            }
        }
    }
    let text = AssertSqlSafe(texts.of(&shapes));
    sqlx::query_with(text, arguments).execute(connection).await?;
    Ok(())
}
