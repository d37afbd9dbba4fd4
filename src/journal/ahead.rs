//! Streams and their rows that are read ahead, many by one query.
//!
//! What is read ahead is of several moments, so it proves that something is right, never that it is
//! wrong. Held in memory: the streams of a page, and one page of rows of each table. A table with
//! more rows of these documents is left to be read document by document, and so are connectors,
//! which are few and have many rows.

use std::collections::{BTreeSet, HashMap};

use super::owners::{RowPages, owner_of, rows_of_documents};
use super::port::{Loaded, RowQuery, Storage};
use crate::base::{Result, StreamKey, StreamName};
use crate::domain::{Row, Table};

/// Streams that are read at once.
pub(super) const STREAMS: usize = 64;

/// What was read ahead of some streams.
#[derive(Default)]
pub(super) struct Ahead {
    loaded: HashMap<StreamName, Loaded>,
    rows: HashMap<(StreamName, Table), Vec<Row>>,
    /// The tables of which all rows of these documents are here.
    whole: BTreeSet<Table>,
}

impl Ahead {
    /// Reads streams with their rows.
    pub(super) async fn read(storage: &dyn Storage, streams: &[StreamName]) -> Result<Self> {
        let mut ahead = Self::default();
        let loaded = storage.load_all(streams).await?;
        ahead.loaded = streams.iter().cloned().zip(loaded).collect();
        let keys = streams.iter().filter_map(|name| StreamKey::from_stream_name(name));
        let documents: BTreeSet<_> = keys
            .filter_map(|key| match key {
                StreamKey::Document(document) => Some(document),
                StreamKey::Connector(..) | StreamKey::Auth(_) => None,
            })
            .collect();
        for query in rows_of_documents(&documents) {
            ahead.read_rows(storage, query).await?;
        }
        Ok(ahead)
    }

    async fn read_rows(&mut self, storage: &dyn Storage, query: RowQuery) -> Result<()> {
        let table = query.table;
        let mut pages = RowPages::new(query);
        let page = pages.next(storage).await?.unwrap_or_default();
        if !pages.is_over() {
            return Ok(());
        }
        self.whole.insert(table);
        for row in page {
            if let Some(owner) = owner_of(&row) {
                self.rows.entry((owner.stream_name(), table)).or_default().push(row);
            }
        }
        Ok(())
    }

    /// The stream, once.
    pub(super) fn take(&mut self, stream: &StreamName) -> Option<Loaded> {
        self.loaded.remove(stream)
    }

    /// All rows of a document in a table, once; none where they are to be read.
    pub(super) fn take_rows(&mut self, stream: &StreamName, table: Table) -> Option<Vec<Row>> {
        let is_document =
            matches!(StreamKey::from_stream_name(stream), Some(StreamKey::Document(_)));
        let is_here = is_document && self.whole.contains(&table);
        is_here.then(|| self.rows.remove(&(stream.clone(), table)).unwrap_or_default())
    }
}
