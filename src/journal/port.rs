//! The storage port: what the runtime asks of a backend.
//!
//! It carries what several hosts on one database need: heads that are confirmed by a statement
//! begun after the question, the database's time, outcomes looked up under a lock, the generation.
//! A backend that one process owns answers these trivially. It knows nothing of commands or
//! states: events are bytes, rows are values.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use tokio::sync::watch;
use uuid::Uuid;

use super::chain::ChainHash;
use crate::base::{
    ConnectorName, Digest, DocumentId, Error, OwnerDid, Result, StreamKind, StreamName, Timestamp,
};
use crate::domain::{DueRow, DueSource, Fence, Row, RowChange, RowKey, Table, Value};

/// A boxed future, so that the port can be a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The head of a stream: its newest event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The newest version; 0 when the stream has no event.
    pub version: i64,
    /// The command that wrote it; nil at version 0.
    pub command_id: Uuid,
    /// The chain hash at it; the stream's start at version 0.
    pub hash: ChainHash,
}

impl Head {
    /// This head as what is decided on it expects it.
    #[must_use]
    pub const fn expected(&self) -> Expected {
        Expected { version: self.version, command_id: self.command_id }
    }
}

/// Where the chain of a stream goes on whose oldest events were cut off: the newest of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Its version.
    pub version: i64,
    /// The chain hash at it.
    pub hash: ChainHash,
}

/// The head that a decision was made on. The version alone is not enough: of two pipelined appends
/// the first may lose to another host, and the second would then match by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The version; 0 for a stream without an event.
    pub version: i64,
    /// The command id of the event at that version; nil at version 0.
    pub command_id: Uuid,
}

impl Expected {
    /// The head of a stream without an event.
    pub const NONE: Self = Self { version: 0, command_id: Uuid::nil() };
}

/// An event to be written.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The variant's number.
    pub event_type: u16,
    /// The variant's schema.
    pub schema: u16,
    /// The encoded data.
    pub payload: Vec<u8>,
    /// The chain starts anew with this event.
    pub is_swept: bool,
}

/// A snapshot to be written with the append: the state after its events.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// The schema of the payload.
    pub schema: u16,
    /// The encoded state.
    pub payload: Vec<u8>,
}

/// What an append does to one stream. A part without events is a condition alone.
#[derive(Clone, Debug)]
pub struct Part {
    /// The stream's name.
    pub stream: StreamName,
    /// The stream's kind.
    pub kind: StreamKind,
    /// The head that it was decided on.
    pub expected: Expected,
    /// The events, in order.
    pub events: Vec<NewEvent>,
    /// The row changes.
    pub rows: Vec<RowChange>,
    /// The state after the events.
    pub snapshot: Option<NewSnapshot>,
    /// The stream's events and snapshots before these events are deleted.
    pub erase: bool,
    /// The stream's events before these are deleted; the snapshot of this part takes their place.
    /// Without a snapshot it has no effect.
    pub trim: bool,
}

/// The outcome of a command with a caller's id, kept so that a repeat gets the first answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRecord {
    /// SHA-256 of the encoded command.
    pub digest: Digest,
    /// The encoded answer.
    pub answer: Vec<u8>,
}

/// All that one command, or one unit of work, writes: all of it or nothing.
#[derive(Clone, Debug)]
pub struct Append {
    /// The command's id, in every event it writes.
    pub command_id: Uuid,
    /// Kept under the command's id; only for ids that callers gave.
    pub record: Option<CommandRecord>,
    /// What it does to each stream; each stream once.
    pub parts: Vec<Part>,
    /// The leases that must be current.
    pub fences: Vec<Fence>,
    /// The rows that must not be there.
    pub absent: Vec<RowKey>,
}

impl Append {
    /// It writes something; else it is a condition alone.
    #[must_use]
    pub fn writes(&self) -> bool {
        let writes = |part: &Part| !part.events.is_empty() || !part.rows.is_empty();
        self.record.is_some() || self.parts.iter().any(writes)
    }
}

/// What became of one append of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// It is durable.
    Committed {
        /// The rows that [`RowChange::Take`] removed, and those with a [`Value::Stamp`] as they were
        /// written.
        taken: Vec<Row>,
    },
    /// A stream's head is not the expected one. Nothing was written.
    Conflict,
    /// A lease is not current. Nothing was written.
    FenceLost {
        /// The fence that failed.
        fence: Fence,
    },
    /// A row is there that must not be. Nothing was written.
    RowExists(RowKey),
    /// The command id is known with this outcome. Nothing was written.
    CommandKnown(CommandRecord),
}

/// A batch that was judged, in a transaction that has not ended.
pub struct BegunAppend {
    /// What became of each append, in their order: what was refused is refused, the others are committed
    /// once the transaction is.
    pub outcomes: Vec<AppendOutcome>,
    /// Writes and commits it; none where nothing is left to do: it was committed already, or all of it was
    /// refused. Where this is dropped before it was polled, nothing is written.
    pub commit: Option<BoxFuture<'static, Result<(), BatchError>>>,
}

/// Why a whole batch did not commit.
#[derive(Clone, Debug)]
pub enum BatchError {
    /// Nothing was written; the same batch may pass when tried again at once (busy, deadlock).
    Passing(Error),
    /// Nothing was written; the callers get this error.
    Failed(Error),
    /// The commit may have happened: each outcome must be looked up.
    Unknown(Error),
}

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    /// The place in the whole journal.
    pub position: i64,
    /// The stream's name.
    pub stream: StreamName,
    /// The stream's kind number, as stored.
    pub kind: i64,
    /// The place in the stream.
    pub version: i64,
    /// The variant's number.
    pub event_type: u16,
    /// The variant's schema.
    pub schema: u16,
    /// The encoded data.
    pub payload: Vec<u8>,
    /// The command that wrote it.
    pub command_id: Uuid,
    /// When it was written.
    pub recorded_at: Timestamp,
    /// The chain hash at it.
    pub hash: ChainHash,
}

/// A snapshot as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// The version after which it was taken.
    pub version: i64,
    /// The schema of the payload.
    pub schema: u16,
    /// The encoded state.
    pub payload: Vec<u8>,
    /// The chain hash at its version.
    pub hash: ChainHash,
    /// SHA-256 of stream name, version, schema, payload and chain hash.
    pub checksum: Digest,
}

/// What a stream is loaded from: the newest snapshot and the events behind it.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The head, if the stream has one.
    pub head: Option<Head>,
    /// What the first event that is there follows; none where the chain starts with it.
    pub base: Option<Base>,
    /// The newest snapshot.
    pub snapshot: Option<SnapshotRecord>,
    /// The events behind the snapshot (all there are, without one), in order.
    pub events: Vec<JournalRecord>,
}

/// Heads as one statement saw them.
#[derive(Clone, Debug)]
pub struct Heads {
    /// The database's time when the statement ran.
    pub now: Timestamp,
    /// The heads, in the order asked for; none for a stream without an event.
    pub heads: Vec<Option<Expected>>,
}

/// How a column is compared with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Equal.
    Equal(Value),
    /// One of these.
    In(Vec<Value>),
    /// Less.
    Less(Value),
    /// Less or equal.
    AtMost(Value),
}

/// A condition on one column, by its place in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The column's place.
    pub column: usize,
    /// The comparison.
    pub compare: Compare,
}

/// The order of a query: columns by their places, ascending, bytes for text.
pub type Order = Vec<usize>;

/// A page of rows of one read table.
#[derive(Clone, Debug)]
pub struct RowQuery {
    /// The table.
    pub table: Table,
    /// All must hold.
    pub filters: Vec<Filter>,
    /// Must name a unique order.
    pub order: Order,
    /// Only rows behind these values of the order's columns.
    pub after: Option<Vec<Value>>,
    /// At most so many rows.
    pub limit: u32,
}

/// A page of rows of several tables, by time, source and names. What yields to an unfinished
/// operation of its document is left out.
#[derive(Clone, Debug)]
pub struct DuePage {
    /// Rows of these, in their order.
    pub sources: &'static [DueSource],
    /// Only rows with a time at this one or before.
    pub until: Timestamp,
    /// Only rows behind this one.
    pub after: Option<DueRow>,
    /// At most so many.
    pub limit: u32,
}

/// The sweep candidates of an owner's connector that are due.
#[derive(Clone, Debug)]
pub struct DueCandidates {
    /// Whose.
    pub owner: OwnerDid,
    /// Which connector's.
    pub connector: ConnectorName,
    /// Due at this time or before.
    pub until: Timestamp,
    /// At most so many.
    pub limit: u32,
}

/// A page of the streams of a journal, by name.
#[derive(Clone, Debug, Default)]
pub struct StreamPage {
    /// Names, stored kind numbers, heads, and how many events at the start were cut off by
    /// retention or erased.
    pub streams: Vec<(StreamName, i64, Head)>,
}

/// What retention removes.
#[derive(Clone, Copy, Debug)]
pub struct HistoryCut {
    /// Events recorded before this time, and at or before their stream's snapshot, go.
    pub recorded_before: Timestamp,
    /// At most so many streams in one transaction.
    pub limit: u32,
}

/// Which life of a store this is. A copy that is restored from a backup begins a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Grows with each restore.
    pub generation: i64,
    /// When the last restore began; none where there was none.
    pub restored_at: Option<Timestamp>,
    /// It has not ended: nobody may use the store before.
    pub is_restoring: bool,
}

impl Lineage {
    /// The lineage that a restore begins at a time. By the time its generation is greater than those
    /// of the future that the copy never saw, which may have been restored more often than it.
    #[must_use]
    pub fn restored(self, now: Timestamp) -> Self {
        let generation = self.generation.saturating_add(1).max(now.as_millis());
        // Where a number must be kept, 0 says that there was none.
        let restored_at = Some(now.max(Timestamp::from_millis(1)));
        Self { generation, restored_at, is_restoring: true }
    }
}

impl Default for Lineage {
    /// The first life of a journal in memory.
    fn default() -> Self {
        Self { generation: 1, restored_at: None, is_restoring: false }
    }
}

/// A backend. One store writes through it from one place; many may read.
///
/// Cancel safety: no future that writes is dropped before it ends, but for a commit that was not polled.
pub trait Storage: Send + Sync + 'static {
    /// Several stores may write to it at once, so heads must be confirmed and `now` is the database's.
    fn is_shared(&self) -> bool;

    /// The store's generation, for fencing tokens and for cursors of the feed.
    fn generation(&self) -> i64;

    /// When the last restore from a backup began; none where there was none.
    fn restored_at(&self) -> Option<Timestamp>;

    /// A restore was begun and has not ended: nobody may use the store before.
    fn is_restoring(&self) -> bool;

    /// Begins a restore, in one durable transaction: the lineage becomes [`Lineage::restored`] of it,
    /// at `now`, unless the storage is shared and has its own time.
    fn begin_restore(&self, now: Timestamp) -> BoxFuture<'_, Result<()>>;

    /// Ends the restore that began this generation. If another one was begun since, it stays begun.
    fn end_restore(&self, generation: i64) -> BoxFuture<'_, Result<()>>;

    /// Copies everything that is committed when it begins into a new file, while writers go on. What
    /// it answers is on the medium; after a failure there is no file.
    ///
    /// [`Error::InvalidInput`]: for the field `path` when something is there already, or it can't be
    /// a file's; for the field `place` when the backend is in memory.
    fn backup<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<()>>;

    /// Snapshot and tail of a stream, by one query.
    fn load<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Loaded>>;

    /// The same of several streams, in their order, each of one moment.
    fn load_all<'a>(&'a self, streams: &'a [StreamName]) -> BoxFuture<'a, Result<Vec<Loaded>>> {
        Box::pin(async move {
            let mut all = Vec::with_capacity(streams.len());
            for stream in streams {
                all.push(self.load(stream).await?);
            }
            Ok(all)
        })
    }

    /// Judges and writes a batch in one transaction. `now` is what `recorded_at` holds, unless the
    /// storage is shared and has its own time; a batch that stamps rows gets one that is greater than
    /// that of every such batch before.
    fn append<'a>(
        &'a self,
        batch: &'a [Append],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<AppendOutcome>, BatchError>>;

    /// The same, but the batch is only judged: to write and commit it is left to the caller, so that the next
    /// one can be begun meanwhile. That is judged on what this one leaves, and must not be committed unless
    /// this one was. No third one is begun before that.
    fn begin_append<'a>(
        &'a self,
        batch: &'a [Append],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<BegunAppend, BatchError>> {
        Box::pin(async move {
            let outcomes = self.append(batch, now).await?;
            Ok(BegunAppend { outcomes, commit: None })
        })
    }

    /// The heads of streams, and the time, by one statement begun after the call.
    fn confirm_heads<'a>(&'a self, streams: &'a [StreamName]) -> BoxFuture<'a, Result<Heads>>;

    /// Whether an append whose commit is in doubt is there, looked up under its streams' locks.
    /// `None`: it is not, and cannot come any more. [`Error::OutcomeUnknown`]: what would tell was
    /// erased or trimmed since.
    fn look_up<'a>(&'a self, append: &'a Append) -> BoxFuture<'a, Result<Option<AppendOutcome>>>;

    /// The recorded outcome of a command with a caller's id.
    fn command<'a>(&'a self, command_id: Uuid) -> BoxFuture<'a, Result<Option<CommandRecord>>>;

    /// Writes a snapshot if the stream's head is still the expected one.
    fn write_snapshot<'a>(
        &'a self,
        stream: &'a str,
        expected: Expected,
        snapshot: NewSnapshot,
    ) -> BoxFuture<'a, Result<()>>;

    /// A page of rows.
    fn rows<'a>(&'a self, query: &'a RowQuery) -> BoxFuture<'a, Result<Vec<Row>>>;

    /// One row.
    fn row<'a>(&'a self, key: &'a RowKey) -> BoxFuture<'a, Result<Option<Row>>>;

    /// A page of what is due, or stuck.
    fn due<'a>(&'a self, page: &'a DuePage) -> BoxFuture<'a, Result<Vec<DueRow>>>;

    /// How many rows of these sources have a time at `until` or before.
    fn count_due<'a>(
        &'a self,
        sources: &'a [DueSource],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<u64>>;

    /// The earliest time later than `after` for which something waits; of all times without it.
    fn next_due(&self, after: Option<Timestamp>) -> BoxFuture<'_, Result<Option<Timestamp>>>;

    /// Due candidates by time, document, partition and provenance, without those whose document
    /// has an unfinished operation.
    fn due_candidates<'a>(&'a self, page: &'a DueCandidates) -> BoxFuture<'a, Result<Vec<Row>>>;

    /// A page of the owners and documents that have observation copies, by owner, then document.
    fn observed<'a>(
        &'a self,
        after: Option<&'a (OwnerDid, DocumentId)>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(OwnerDid, DocumentId)>>>;

    /// Events after a position, in order, none skipped.
    fn events<'a>(&'a self, after: i64, limit: u32) -> BoxFuture<'a, Result<Vec<JournalRecord>>>;

    /// All events of one stream that are there, in order.
    fn stream_events<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Vec<JournalRecord>>>;

    /// Streams after a name, in order of their names' bytes.
    fn streams<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> BoxFuture<'a, Result<StreamPage>>;

    /// The position up to which retention has cut events somewhere; 0 when it never has.
    fn trimmed_up_to(&self) -> BoxFuture<'_, Result<i64>>;

    /// The newest position that was ever given.
    fn last_position(&self) -> BoxFuture<'_, Result<i64>>;

    /// Removes old events behind snapshots. Gives how many events went; fewer streams than the
    /// limit were left to cut when it gives 0.
    fn cut_history(&self, cut: HistoryCut) -> BoxFuture<'_, Result<u64>>;

    /// Removes whole streams (events, snapshot, head), if their heads are the expected ones.
    fn drop_streams<'a>(
        &'a self,
        streams: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<u64>>;

    /// Forgets outcomes of callers' command ids recorded before a time.
    fn drop_commands(&self, recorded_before: Timestamp) -> BoxFuture<'_, Result<u64>>;

    /// Writes and removes read rows without events, in one transaction: only `rebuild` does. The heads
    /// of the streams that they were told from must still be the expected ones. `false`: one is not,
    /// and nothing was written.
    fn replace_rows<'a>(
        &'a self,
        changes: &'a [RowChange],
        expected: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<bool>>;

    /// Grows when this store, or one that it can hear, has committed.
    fn committed(&self) -> watch::Receiver<i64>;

    /// Does what waits for a quiet moment: moves the write-ahead log to the file, so that nothing of
    /// erased events is left in it. `false`: a reader is in the way, and it must be asked again.
    fn idle(&self) -> BoxFuture<'_, Result<bool>>;

    /// Flushes and closes. Later calls fail.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}
