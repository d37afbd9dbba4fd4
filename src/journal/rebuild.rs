//! Makes the read tables what the streams say, in bounded transactions.
//!
//! Row-only content is in no stream: it is carried over from the row that is there, and named as
//! lost where it is not what was written. The time of a stamped row is that of its event, else what
//! the row has; where both are gone it is stamped anew, so that no reader of stamps misses it. Rows of a stream whose state can't be told stay as they
//! are. Held in memory at a time: one stream's events, state and row keys, and one page of rows.

use std::collections::{BTreeMap, BTreeSet};

use super::damage::{Damage, RowName};
use super::fold::{MAX_LOADS, is_intact};
use super::inspect::{Inspected, StreamRows, inspect};
use super::owners::{RowPages, all_rows, owner_of, rows_of};
use super::port::{Expected, Storage};
use super::verify::{
    StreamWalk, different_columns, expected_of, orphans, read_stream, standing, still_stands,
};
use crate::base::{Error, Result, StreamKind, StreamName};
use crate::domain::{ContentRef, Row, RowChange, RowKey, Table, Value};

/// Most row changes in one transaction: other writers wait for it.
const MAX_CHANGES: usize = 500;

/// What [`rebuild`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// How many streams there are.
    pub streams: u64,
    /// How many rows were written because they were missing or different.
    pub written: u64,
    /// How many rows were removed because no state has them.
    pub removed: u64,
    /// Row-only content that can't be had back.
    pub lost: Vec<Damage>,
    /// Damaged streams. Where no state could be told, their rows were left alone.
    pub damages: Vec<Damage>,
}

/// Writes the rows of every state, and removes those that no state has.
///
/// Others may write meanwhile: rows that were told from a stream that has moved since are not written,
/// and the stream is done again.
///
/// # Errors
/// What the storage answers; [`Error::Contention`] when a stream moved during every try.
pub async fn rebuild(storage: &dyn Storage) -> Result<RebuildReport> {
    let mut work = Work {
        storage,
        report: RebuildReport::default(),
        changes: Vec::new(),
        expected: Vec::new(),
    };
    let mut auths: BTreeMap<StreamName, Auth> = BTreeMap::new();
    let mut walk = StreamWalk::default();
    while let Some((name, kind)) = walk.next(storage).await? {
        work.report.streams += 1;
        let (expected, secret_row) = work.rebuild_stream(&name, kind).await?;
        if kind == StreamKind::Auth.number() {
            auths.insert(name, Auth { expected, secret_row, is_found: false });
        }
    }
    for table in Table::ALL {
        let mut pages = RowPages::new(all_rows(table));
        while let Some(page) = pages.next(storage).await? {
            if table == Table::PendingAuth {
                work.remove_auths(&page, &mut auths).await?;
            } else {
                work.remove_orphans(&page).await?;
            }
        }
    }
    for (name, auth) in auths {
        let is_missing = matches!(auth.secret_row, Some(Some(_))) && !auth.is_found;
        if is_missing && standing(storage, &name).await? == auth.expected {
            let row = RowName::of_auth_stream(&name);
            work.report.lost.push(Damage::RowMissing { row });
        }
    }
    Ok(work.report)
}

/// What a pending authorization's stream says of its row; nothing where the stream is damaged.
struct Auth {
    expected: Expected,
    secret_row: Option<Option<ContentRef>>,
    is_found: bool,
}

struct Work<'a> {
    storage: &'a dyn Storage,
    report: RebuildReport,
    changes: Vec<RowChange>,
    /// The heads that the changes were told from.
    expected: Vec<(StreamName, Expected)>,
}

impl Work<'_> {
    /// Gives the stream's head, and what it says of the row that it can't name.
    async fn rebuild_stream(
        &mut self,
        name: &StreamName,
        kind: i64,
    ) -> Result<(Expected, Option<Option<ContentRef>>)> {
        for _ in 0..MAX_LOADS {
            let stored = read_stream(self.storage, name.clone(), kind).await?;
            if stored.loaded.head.is_none() {
                // It was dropped since it was listed, and no state has a row of it.
                return Ok((Expected::NONE, Some(None)));
            }
            let Inspected { damages, rows } = inspect(&stored);
            let (before, expected) = (self.counts(), expected_of(&stored));
            let lost_before = self.report.lost.len();
            self.expected = vec![(name.clone(), expected)];
            if let Some(rows) = &rows {
                self.rebuild_rows(&**rows).await?;
                self.flush().await?;
            }
            if still_stands(self.storage, &stored).await? {
                self.report.damages.extend(damages);
                return Ok((expected, rows.map(|rows| rows.secret_row())));
            }
            self.report.lost.truncate(lost_before);
            self.set_counts(before);
        }
        Err(Error::Contention)
    }

    async fn rebuild_rows(&mut self, rows: &dyn StreamRows) -> Result<()> {
        let mut missing: BTreeSet<RowKey> = rows.keys().into_iter().collect();
        for query in rows_of(rows.key()) {
            let mut pages = RowPages::new(query);
            while let Some(page) = pages.next(self.storage).await? {
                for found in page {
                    let key = found.key();
                    missing.remove(&key);
                    match rows.row(&key) {
                        Some(row) => self.write(rows, &key, row, Some(&found)).await?,
                        None => self.remove([key]).await?,
                    }
                }
            }
        }
        for key in missing {
            if let Some(row) = rows.row(&key) {
                self.write(rows, &key, row, None).await?;
            }
        }
        Ok(())
    }

    /// Writes a row if it is not as the state has it. Its row-only columns keep what they hold; one
    /// that is gone is not written where content is lost that no row is without.
    async fn write(
        &mut self,
        rows: &dyn StreamRows,
        key: &RowKey,
        mut row: Row,
        found: Option<&Row>,
    ) -> Result<()> {
        let columns = row.table.spec().columns;
        let mut is_right = found.is_some_and(|found| different_columns(&row, found).is_empty());
        let mut is_lost = false;
        if found.is_none() {
            let stamped = columns.iter().zip(&mut row.values).filter(|(of, _)| of.stamped);
            for (_, value) in stamped.filter(|(_, value)| **value == Value::Keep) {
                *value = Value::Stamp;
            }
        }
        for (column, reference) in rows.content(key) {
            if is_intact(found, column, &reference) {
                continue;
            }
            match known_content(&reference) {
                Some(value) => {
                    row.values[column] = value;
                    is_right = false;
                }
                None => {
                    let of = columns.get(column);
                    is_lost |= found.is_none() && of.is_some_and(|of| of.required);
                    self.report.lost.push(Damage::ContentDiffers {
                        row: RowName::of(key),
                        column: of.map(|of| of.name),
                    });
                }
            }
        }
        if !is_right && !is_lost {
            self.report.written += 1;
            self.change(RowChange::Put(row)).await?;
        }
        Ok(())
    }

    async fn remove(&mut self, keys: impl IntoIterator<Item = RowKey>) -> Result<()> {
        for key in keys {
            self.report.removed += 1;
            self.change(RowChange::Delete(key)).await?;
        }
        Ok(())
    }

    /// Removes the rows of a page that no stream has. None of these may begin meanwhile.
    async fn remove_orphans(&mut self, page: &[Row]) -> Result<()> {
        for _ in 0..MAX_LOADS {
            let before = self.counts();
            let (keys, names): (Vec<_>, Vec<_>) =
                orphans(self.storage, page).await?.into_iter().unzip();
            let names: BTreeSet<StreamName> = names.into_iter().flatten().collect();
            self.expected = names.into_iter().map(|name| (name, Expected::NONE)).collect();
            self.remove(keys).await?;
            if self.flush().await? {
                return Ok(());
            }
            self.set_counts(before);
        }
        Err(Error::Contention)
    }

    const fn counts(&self) -> (u64, u64) {
        (self.report.written, self.report.removed)
    }

    const fn set_counts(&mut self, (written, removed): (u64, u64)) {
        self.report.written = written;
        self.report.removed = removed;
    }

    async fn remove_auths(
        &mut self,
        page: &[Row],
        auths: &mut BTreeMap<StreamName, Auth>,
    ) -> Result<()> {
        for row in page {
            let Some(owner) = owner_of(row).map(|owner| owner.stream_name()) else { continue };
            match auths.get_mut(&owner) {
                Some(Auth { secret_row: None, .. }) => {}
                Some(auth) if auth.secret_row == Some(Some(ContentRef::of_row(row))) => {
                    auth.is_found = true;
                }
                other => {
                    let expected = other.map_or(Expected::NONE, |auth| auth.expected);
                    let before = self.counts();
                    self.expected = vec![(owner, expected)];
                    self.remove([row.key()]).await?;
                    // A stream that has moved since has written its row itself.
                    if !self.flush().await? {
                        self.set_counts(before);
                    }
                }
            }
        }
        Ok(())
    }

    async fn change(&mut self, change: RowChange) -> Result<()> {
        self.changes.push(change);
        if self.changes.len() >= MAX_CHANGES {
            // What was not written is seen by the stream's head.
            self.flush().await?;
        }
        Ok(())
    }

    /// Writes the changes. `false`: a stream that they were told from has moved, and none was written.
    async fn flush(&mut self) -> Result<bool> {
        if self.changes.is_empty() {
            return Ok(true);
        }
        let is_written = self.storage.replace_rows(&self.changes, &self.expected).await?;
        self.changes.clear();
        Ok(is_written)
    }
}

/// Content that can be told from its reference alone: the empty list.
fn known_content(reference: &ContentRef) -> Option<Value> {
    const EMPTY_LIST: &str = "[]";
    (*reference == ContentRef::of(EMPTY_LIST)).then(|| Value::text(EMPTY_LIST))
}

#[cfg(test)]
#[path = "rebuild_tests.rs"]
mod tests;
