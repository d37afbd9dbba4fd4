//! Finds what is not as it was written, and names it.
//!
//! Every stream is looked at whole, then every row of every read table is asked whose it is. Held
//! in memory at a time: a page of streams with their rows, as they were read ahead, one stream's
//! events, state and row keys, and 100 bytes for each pending authorization. What does not look
//! right is read again by itself, and a stream that is written to meanwhile is looked at again.

use std::collections::{BTreeMap, BTreeSet};

use super::ahead::{Ahead, STREAMS};
use super::damage::{Damage, RowName};
use super::fold::{MAX_LOADS, is_intact};
use super::inspect::{Inspected, Stored, StreamRows, inspect};
use super::owners::{RowPages, all_rows, owner_of, rows_of};
use super::port::{Expected, Loaded, Storage};
use crate::base::{Result, StreamKey, StreamKind, StreamName};
use crate::domain::{ContentRef, Row, RowKey, Table, Value};

/// Streams read at once.
const PAGE: u32 = 256;
/// Most damages that are named; the others are counted.
const MAX_DAMAGES: usize = 10_000;

/// What [`verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// How many streams there are.
    pub streams: u64,
    /// How many events there are.
    pub events: u64,
    /// How many rows there are.
    pub rows: u64,
    /// What is wrong, the first 10,000 of it.
    pub damages: Vec<Damage>,
    /// How many more damages there are.
    pub more_damages: u64,
}

impl VerifyReport {
    /// Nothing is wrong.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.damages.is_empty()
    }

    fn add(&mut self, damages: impl IntoIterator<Item = Damage>) {
        for damage in damages {
            if self.damages.len() < MAX_DAMAGES {
                self.damages.push(damage);
            } else {
                self.more_damages += 1;
            }
        }
    }
}

/// Looks at everything that is stored.
///
/// # Errors
/// What the storage answers; what is damaged is no error but in the report.
pub async fn verify(storage: &dyn Storage) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let mut auths = Auths::default();
    let mut walk = StreamWalk::default();
    loop {
        let mut page = Vec::with_capacity(STREAMS);
        while page.len() < STREAMS
            && let Some(stream) = walk.next(storage).await?
        {
            page.push(stream);
        }
        if page.is_empty() {
            break;
        }
        let names: Vec<StreamName> = page.iter().map(|(name, _)| name.clone()).collect();
        let mut ahead = Ahead::read(storage, &names).await?;
        for (name, kind) in page {
            verify_stream(storage, name, kind, &mut ahead, &mut report, &mut auths).await?;
        }
    }
    for table in Table::ALL {
        let mut pages = RowPages::new(all_rows(table));
        while let Some(page) = pages.next(storage).await? {
            report.rows += page.len() as u64;
            let surplus = if table == Table::PendingAuth {
                auths.compare(storage, &page).await?
            } else {
                orphans(storage, &page).await?.iter().map(|(key, _)| surplus(key)).collect()
            };
            report.add(surplus);
        }
    }
    report.add(auths.missing(storage).await?);
    Ok(report)
}

fn surplus(key: &RowKey) -> Damage {
    Damage::RowSurplus { row: RowName::of(key) }
}

async fn verify_stream(
    storage: &dyn Storage,
    name: StreamName,
    kind: i64,
    ahead: &mut Ahead,
    report: &mut VerifyReport,
    auths: &mut Auths,
) -> Result<()> {
    for _ in 0..MAX_LOADS {
        let loaded = ahead.take(&name);
        let is_ahead = loaded.is_some();
        let stored = match loaded {
            Some(loaded) => with_events(storage, name.clone(), kind, loaded).await?,
            None => read_stream(storage, name.clone(), kind).await?,
        };
        if stored.loaded.head.is_none() {
            // It was dropped since it was listed.
            return Ok(());
        }
        let Inspected { mut damages, rows } = inspect(&stored);
        if let Some(rows) = &rows {
            compare_rows(storage, &**rows, is_ahead.then_some(&mut *ahead), &mut damages).await?;
        }
        let expected = expected_of(&stored);
        if !damages.is_empty() && (is_ahead || !still_stands(storage, &stored).await?) {
            continue;
        }
        report.streams += 1;
        report.events += stored.events.len() as u64;
        report.add(damages);
        if kind == StreamKind::Auth.number() {
            auths.add(name, expected, rows.map(|rows| rows.secret_row()));
        }
        return Ok(());
    }
    // It moves faster than it can be read, so it is alive; what it holds was proven at each load.
    report.streams += 1;
    Ok(())
}

/// Compares the rows of a stream's state with those that are stored.
async fn compare_rows(
    storage: &dyn Storage,
    rows: &dyn StreamRows,
    mut ahead: Option<&mut Ahead>,
    damages: &mut Vec<Damage>,
) -> Result<()> {
    let mut missing: BTreeSet<RowKey> = rows.keys().into_iter().collect();
    let name = rows.key().stream_name();
    let mut compare = |page: Vec<Row>| {
        for found in page {
            let key = found.key();
            missing.remove(&key);
            damages.extend(match rows.row(&key) {
                None => vec![surplus(&key)],
                Some(expected) => differences(rows, &key, &expected, &found),
            });
        }
    };
    for query in rows_of(rows.key()) {
        if let Some(read) = ahead.as_mut().and_then(|ahead| ahead.take_rows(&name, query.table)) {
            compare(read);
            continue;
        }
        let mut pages = RowPages::new(query);
        while let Some(page) = pages.next(storage).await? {
            compare(page);
        }
    }
    damages.extend(missing.iter().map(|key| Damage::RowMissing { row: RowName::of(key) }));
    Ok(())
}

fn differences(rows: &dyn StreamRows, key: &RowKey, expected: &Row, found: &Row) -> Vec<Damage> {
    let columns = different_columns(expected, found);
    let row = || RowName::of(key);
    let differs = (!columns.is_empty()).then(|| Damage::RowDiffers { row: row(), columns });
    let spoiled = rows.content(key).into_iter().filter_map(|(column, reference)| {
        let name = found.table.spec().columns.get(column).map(|column| column.name);
        let damage = Damage::ContentDiffers { row: row(), column: name };
        (!is_intact(Some(found), column, &reference)).then_some(damage)
    });
    differs.into_iter().chain(spoiled).collect()
}

/// The columns that the state tells and that are not as it tells.
pub(super) fn different_columns(expected: &Row, found: &Row) -> Vec<&'static str> {
    let columns = expected.table.spec().columns.iter();
    let values = columns.zip(expected.values.iter().zip(&found.values));
    let differs = values.filter(|(_, (one, other))| **one != Value::Keep && one != other);
    differs.map(|(column, _)| column.name).collect()
}

/// The rows of a page whose stream does not exist, as far as they are still there, each with the name
/// of the stream that it could have.
pub(super) async fn orphans(
    storage: &dyn Storage,
    page: &[Row],
) -> Result<Vec<(RowKey, Option<StreamName>)>> {
    let mut owned: Vec<(StreamName, &Row)> = Vec::new();
    let mut orphans = Vec::new();
    for row in page {
        match owner_of(row) {
            Some(owner) => owned.push((owner.stream_name(), row)),
            None => orphans.push((row.key(), None)),
        }
    }
    let names: Vec<StreamName> = owned.iter().map(|(name, _)| name.clone()).collect();
    let heads = storage.confirm_heads(&names).await?.heads;
    for ((name, row), head) in owned.into_iter().zip(heads) {
        let key = row.key();
        if head.is_none() && storage.row(&key).await?.is_some() {
            orphans.push((key, Some(name)));
        }
    }
    Ok(orphans)
}

/// What the pending authorizations' streams say of the rows that they can't name.
#[derive(Default)]
struct Auths {
    streams: BTreeMap<StreamName, Auth>,
}

struct Auth {
    expected: Expected,
    /// What the row must be, if there must be one; not known where the stream is damaged.
    row: Option<Option<ContentRef>>,
    is_found: bool,
}

impl Auths {
    fn add(&mut self, name: StreamName, expected: Expected, row: Option<Option<ContentRef>>) {
        self.streams.insert(name, Auth { expected, row, is_found: false });
    }

    /// A row and its stream are compared at once; what differs is looked at again.
    async fn compare(&mut self, storage: &dyn Storage, page: &[Row]) -> Result<Vec<Damage>> {
        let mut damages = Vec::new();
        for row in page {
            let key = row.key();
            let Some(owner) = owner_of(row) else {
                damages.push(surplus(&key));
                continue;
            };
            let name = owner.stream_name();
            let reference = ContentRef::of_row(row);
            let known = self.streams.get_mut(&name);
            let row_of_state = match known {
                Some(auth) => {
                    auth.is_found = true;
                    let Some(row_of_state) = auth.row else { continue };
                    row_of_state
                }
                None => None,
            };
            if row_of_state == Some(reference) || has_moved(storage, &owner, &key, row).await? {
                continue;
            }
            damages.push(match row_of_state {
                Some(_) => Damage::ContentDiffers { row: RowName::of(&key), column: None },
                None => surplus(&key),
            });
        }
        Ok(damages)
    }

    async fn missing(&self, storage: &dyn Storage) -> Result<Vec<Damage>> {
        let mut damages = Vec::new();
        for (name, auth) in &self.streams {
            let is_missing = matches!(auth.row, Some(Some(_))) && !auth.is_found;
            if is_missing && standing(storage, name).await? == auth.expected {
                damages.push(Damage::RowMissing { row: RowName::of_auth_stream(name) });
            }
        }
        Ok(damages)
    }
}

/// The row, or what its stream says of it, is no longer what was read.
async fn has_moved(
    storage: &dyn Storage,
    owner: &StreamKey,
    key: &RowKey,
    row: &Row,
) -> Result<bool> {
    let stored = read_stream(storage, owner.stream_name(), owner.kind().number()).await?;
    let rows = inspect(&stored).rows;
    let is_right = rows.and_then(|rows| rows.secret_row()) == Some(ContentRef::of_row(row));
    Ok(is_right || storage.row(key).await?.as_ref() != Some(row))
}

/// All of a stream. Where there is no snapshot the load gives every event.
pub(super) async fn read_stream(
    storage: &dyn Storage,
    name: StreamName,
    kind: i64,
) -> Result<Stored> {
    let loaded = storage.load(&name).await?;
    with_events(storage, name, kind, loaded).await
}

async fn with_events(
    storage: &dyn Storage,
    name: StreamName,
    kind: i64,
    loaded: Loaded,
) -> Result<Stored> {
    let events = match loaded.snapshot {
        Some(_) => storage.stream_events(&name).await?,
        None => loaded.events.clone(),
    };
    Ok(Stored { name, kind, loaded, events })
}

pub(super) fn expected_of(stored: &Stored) -> Expected {
    stored.loaded.head.map_or(Expected::NONE, |head| head.expected())
}

/// Nothing was written to the stream, or cut off it, since it was read.
pub(super) async fn still_stands(storage: &dyn Storage, stored: &Stored) -> Result<bool> {
    let Loaded { head, base, .. } = storage.load(&stored.name).await?;
    let expected = head.map_or(Expected::NONE, |head| head.expected());
    Ok((expected, base) == (expected_of(stored), stored.loaded.base))
}

pub(super) async fn standing(storage: &dyn Storage, name: &StreamName) -> Result<Expected> {
    let confirmed = storage.confirm_heads(std::slice::from_ref(name)).await?;
    Ok(confirmed.heads.first().copied().flatten().unwrap_or(Expected::NONE))
}

/// A walk over all streams, page by page.
#[derive(Default)]
pub(super) struct StreamWalk {
    page: std::vec::IntoIter<(StreamName, i64)>,
    last: Option<StreamName>,
}

impl StreamWalk {
    /// The next stream's name and stored kind.
    pub(super) async fn next(
        &mut self,
        storage: &dyn Storage,
    ) -> Result<Option<(StreamName, i64)>> {
        if self.page.len() == 0 {
            let page = storage.streams(self.last.as_deref(), PAGE).await?.streams;
            let page = page.into_iter().map(|(name, kind, _)| (name, kind));
            self.page = page.collect::<Vec<_>>().into_iter();
        }
        let next = self.page.next();
        self.last = next.as_ref().map(|(name, _)| name.clone()).or_else(|| self.last.take());
        Ok(next)
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
