//! The port of a storage with faults: what is no append is handed on, while the storage can be
//! reached, has room for it and its process lives.

use std::path::Path;

use tokio::sync::watch;
use uuid::Uuid;

use super::FaultyStorage;
use crate::base::{DocumentId, OwnerDid, Result, StreamName, Timestamp};
use crate::domain::{DueRow, DueSource, Row, RowChange, RowKey};
use crate::journal::{
    Append, AppendOutcome, BatchError, BegunAppend, BoxFuture, CommandRecord, DueCandidates,
    DuePage, Expected, Heads, HistoryCut, JournalRecord, Loaded, NewSnapshot, RowQuery, Storage,
    StreamPage,
};

/// Hands a call on to the storage that reads, or that writes, can reach now.
macro_rules! hand_on {
    ($self:ident . $reached:ident . $call:ident ( $($argument:expr),* )) => {
        Box::pin($self.alive(async move { $self.$reached()?.$call($($argument),*).await }))
    };
}

impl Storage for FaultyStorage {
    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn generation(&self) -> i64 {
        self.inner.generation()
    }

    fn restored_at(&self) -> Option<Timestamp> {
        self.inner.restored_at()
    }

    fn is_restoring(&self) -> bool {
        self.inner.is_restoring()
    }

    fn begin_restore(&self, now: Timestamp) -> BoxFuture<'_, Result<()>> {
        hand_on!(self.room.begin_restore(now))
    }

    fn end_restore(&self, generation: i64) -> BoxFuture<'_, Result<()>> {
        hand_on!(self.room.end_restore(generation))
    }

    fn backup<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        hand_on!(self.online.backup(path))
    }

    fn load<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Loaded>> {
        hand_on!(self.online.load(stream))
    }

    fn append<'a>(
        &'a self,
        batch: &'a [Append],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<AppendOutcome>, BatchError>> {
        Box::pin(self.append_faulty(batch, now))
    }

    fn begin_append<'a>(
        &'a self,
        batch: &'a [Append],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<BegunAppend, BatchError>> {
        Box::pin(self.begin_faulty(batch, now))
    }

    fn confirm_heads<'a>(&'a self, streams: &'a [StreamName]) -> BoxFuture<'a, Result<Heads>> {
        Box::pin(self.alive(async move {
            let mut heads = self.online()?.confirm_heads(streams).await?;
            heads.now = self.time.as_ref().map_or(heads.now, |clock| clock.wall());
            Ok(heads)
        }))
    }

    fn look_up<'a>(&'a self, append: &'a Append) -> BoxFuture<'a, Result<Option<AppendOutcome>>> {
        Box::pin(self.look_up_taken(append))
    }

    fn command<'a>(&'a self, command_id: Uuid) -> BoxFuture<'a, Result<Option<CommandRecord>>> {
        hand_on!(self.online.command(command_id))
    }

    fn write_snapshot<'a>(
        &'a self,
        stream: &'a str,
        expected: Expected,
        snapshot: NewSnapshot,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let gate = self.script().snapshot_gate.clone();
            if let Some(gate) = gate {
                gate.pass().await;
            }
            hand_on!(self.room.write_snapshot(stream, expected, snapshot)).await
        })
    }

    fn rows<'a>(&'a self, query: &'a RowQuery) -> BoxFuture<'a, Result<Vec<Row>>> {
        Box::pin(async move {
            let rows = hand_on!(self.online.rows(query)).await;
            let gate = self.script().rows_gate.take();
            if let Some(gate) = gate {
                gate.pass().await;
                self.alive(async {}).await;
            }
            rows
        })
    }

    fn row<'a>(&'a self, key: &'a RowKey) -> BoxFuture<'a, Result<Option<Row>>> {
        hand_on!(self.online.row(key))
    }

    fn due<'a>(&'a self, page: &'a DuePage) -> BoxFuture<'a, Result<Vec<DueRow>>> {
        hand_on!(self.online.due(page))
    }

    fn count_due<'a>(
        &'a self,
        sources: &'a [DueSource],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        hand_on!(self.online.count_due(sources, until))
    }

    fn next_due(&self, after: Option<Timestamp>) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        hand_on!(self.online.next_due(after))
    }

    fn due_candidates<'a>(&'a self, page: &'a DueCandidates) -> BoxFuture<'a, Result<Vec<Row>>> {
        hand_on!(self.online.due_candidates(page))
    }

    fn observed<'a>(
        &'a self,
        after: Option<&'a (OwnerDid, DocumentId)>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(OwnerDid, DocumentId)>>> {
        hand_on!(self.online.observed(after, limit))
    }

    fn events<'a>(&'a self, after: i64, limit: u32) -> BoxFuture<'a, Result<Vec<JournalRecord>>> {
        hand_on!(self.online.events(after, limit))
    }

    fn stream_events<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Vec<JournalRecord>>> {
        hand_on!(self.online.stream_events(stream))
    }

    fn streams<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> BoxFuture<'a, Result<StreamPage>> {
        hand_on!(self.online.streams(after, limit))
    }

    fn trimmed_up_to(&self) -> BoxFuture<'_, Result<i64>> {
        hand_on!(self.online.trimmed_up_to())
    }

    fn last_position(&self) -> BoxFuture<'_, Result<i64>> {
        hand_on!(self.online.last_position())
    }

    fn cut_history(&self, cut: HistoryCut) -> BoxFuture<'_, Result<u64>> {
        hand_on!(self.room.cut_history(cut))
    }

    fn drop_streams<'a>(
        &'a self,
        streams: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<u64>> {
        hand_on!(self.room.drop_streams(streams))
    }

    fn drop_commands(&self, recorded_before: Timestamp) -> BoxFuture<'_, Result<u64>> {
        hand_on!(self.room.drop_commands(recorded_before))
    }

    fn replace_rows<'a>(
        &'a self,
        changes: &'a [RowChange],
        expected: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<bool>> {
        hand_on!(self.room.replace_rows(changes, expected))
    }

    fn committed(&self) -> watch::Receiver<i64> {
        self.inner.committed()
    }

    fn idle(&self) -> BoxFuture<'_, Result<bool>> {
        hand_on!(self.room.idle())
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.alive(self.inner.close()))
    }
}
