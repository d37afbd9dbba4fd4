//! What the store knows and what may happen to it.
//!
//! Pure: a command is decided against a state and gives events or a refusal; an event is applied
//! to a state and cannot fail; rows are derived from a state. Nothing here knows a clock, a random
//! source, a thread, a log or a database: time, chance and ids are arguments.

pub mod auth;
mod columns;
pub mod connector;
pub mod document;
mod due;
mod lease;
mod tables;

pub use columns::{BadColumn, Columns, Unfit};
pub use due::{
    DueFilter, DueRow, DueSource, DueSpec, MAX_DUE_NAMES, OPERATION_DOCUMENT_COLUMN,
    OPERATION_DUE_COLUMN,
};
pub use lease::{Fence, FencingToken, Lease, LeaseScope};
pub use tables::{
    Column, ColumnType, ContentRef, Row, RowChange, RowKey, Table, TableSpec, Value,
    exists_refusal, forgetting_key,
};

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::base::{Result, StreamKey, StreamKind, Timestamp};

/// What a decision needs besides state and command.
#[derive(Clone, Debug)]
pub struct Context {
    /// The time of the decision.
    pub now: Timestamp,
    /// A fresh random id.
    pub id: Uuid,
    /// Chance, 0 ≤ `jitter` < 1.
    pub jitter: f64,
    /// The store's generation, for fencing tokens.
    pub generation: i64,
    /// When the store was last restored from a backup; none when it never was.
    pub restored_at: Option<Timestamp>,
    /// The stream version that the first event of this decision will have.
    pub next_version: i64,
    /// The lease under which the command was sent.
    pub fence: Option<Fence>,
    /// The epoch of keys and signers: what was verified under another one is not known to be valid.
    pub records_epoch: u64,
}

/// What a command comes to: the events, the answer, and the content that no event may hold.
#[derive(Clone)]
pub struct Decision<A: Aggregate> {
    /// What happened, in order; none for a read or a command that changes nothing.
    pub events: Vec<A::Event>,
    /// The answer, given once the events are durable.
    pub reply: A::Reply,
    /// Row-only content: the row's key, the column's place, the value.
    pub content: Vec<(RowKey, usize, Value)>,
    /// Row changes that no event can name: the row's key is a secret, or a swept event names nothing.
    pub rows: Vec<RowChange>,
    /// The stream's earlier events and snapshots are deleted in the same transaction.
    pub erase: bool,
    /// A snapshot is written with these events, and the events up to it are deleted at once.
    pub trim: bool,
    /// It takes something back that stood: what a caller was told of it before does not hold any more.
    pub retracts: bool,
    /// Rows that must not be there when the events are written; else the command is refused with
    /// [`exists_refusal`].
    pub absent: Vec<RowKey>,
}

/// The content is not shown.
impl<A: Aggregate> fmt::Debug for Decision<A>
where
    A::Reply: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("events", &self.events)
            .field("reply", &self.reply)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl<A: Aggregate> Decision<A> {
    /// An answer that changes nothing.
    pub const fn unchanged(reply: A::Reply) -> Self {
        Self::events(reply, Vec::new())
    }

    /// An answer and what happened.
    pub const fn events(reply: A::Reply, events: Vec<A::Event>) -> Self {
        Self {
            events,
            reply,
            content: Vec::new(),
            rows: Vec::new(),
            erase: false,
            trim: false,
            retracts: false,
            absent: Vec::new(),
        }
    }
}

/// One kind of stream: its state, commands, events, and how they go together.
pub trait Aggregate:
    Clone + Default + Send + Sync + Serialize + DeserializeOwned + 'static
{
    /// The kind of its streams.
    const KIND: StreamKind;
    /// The schema number of its snapshots.
    const SNAPSHOT_SCHEMA: u16;
    /// A plain-data command.
    type Command: Clone + Send + Sync + Serialize + 'static;
    /// What happened.
    type Event: StoredEvent;
    /// The answer of a command.
    type Reply: Clone + Send + Serialize + DeserializeOwned + 'static;

    /// The command's name, for spans and metrics.
    fn command_name(command: &Self::Command) -> &'static str;

    /// The command leaves no event whatever the state is.
    fn is_read(command: &Self::Command) -> bool;

    /// The command compares nothing with the time, but stamps with it at most.
    fn is_timeless(command: &Self::Command) -> bool;

    /// Decides a command: every rule is here.
    ///
    /// # Errors
    /// The refusal. A refusal leaves no event and no row.
    fn decide(
        &self,
        key: &StreamKey,
        command: &Self::Command,
        context: &Context,
    ) -> Result<Decision<Self>>;

    /// Takes an event over. No rule is here, and it cannot fail.
    fn apply(&mut self, event: &Self::Event);

    /// Names the rows that the event may have changed.
    fn touched(key: &StreamKey, event: &Self::Event, rows: &mut Vec<RowKey>);

    /// The row of a key as the state has it. A row-only column that is set holds [`Value::Keep`],
    /// one that is not set [`Value::Null`].
    fn row(&self, key: &StreamKey, row: &RowKey) -> Option<Row>;

    /// The keys of all rows that the state has.
    fn rows(&self, key: &StreamKey) -> Vec<RowKey>;

    /// What the row-only columns of the row must hold: the column's place and its reference. A
    /// table whose every column is row-only has one reference for the whole row, at place 0.
    fn content(&self, key: &StreamKey, row: &RowKey) -> Vec<(usize, ContentRef)>;

    /// The row-only content that the state keeps in memory: the keys of the rows to read it from.
    fn resident(&self, _key: &StreamKey) -> Vec<RowKey> {
        Vec::new()
    }

    /// Takes row-only content over, after the events that speak of it were applied. Content of
    /// which [`Self::can_do_without`] says so may stay away.
    fn attach(&mut self, _row: &RowKey, _column: usize, _value: &Value) {}

    /// The state can be used although the row's content was damaged.
    fn can_do_without(_row: &RowKey) -> bool {
        false
    }

    /// Completes the answer with the rows that the append took, and those that it stamped.
    fn with_taken(reply: Self::Reply, _taken: Vec<Row>) -> Self::Reply {
        reply
    }

    /// The answer as it may be recorded for a repeated command id: without secrets. `None` when a
    /// repeat is decided again.
    fn recorded(reply: &Self::Reply) -> Option<Self::Reply> {
        Some(reply.clone())
    }
}

/// An event as the journal stores it.
pub trait StoredEvent: Clone + fmt::Debug + Send + Sync + 'static {
    /// The stable number of the variant.
    fn event_type(&self) -> u16;
    /// The schema number in which the variant is written.
    fn schema(&self) -> u16 {
        1
    }
    /// Writes the variant's data with `encode`.
    ///
    /// # Errors
    /// What `encode` answers.
    fn encode_with<E: PayloadEncoder>(&self, encoder: E) -> Result<Vec<u8>>;
    /// Reads a variant of any schema that was ever released.
    ///
    /// # Errors
    /// [`crate::Error::UnknownSchema`] or what `decoder` answers.
    fn decode_with<D: PayloadDecoder>(event_type: u16, schema: u16, decoder: D) -> Result<Self>;
    /// It stands for erased history: no content, and the hash chain starts anew with it.
    fn is_swept(&self) -> bool {
        false
    }
    /// When the stamped rows that it touches were written, where that is not when it was recorded.
    fn stamped_at(&self) -> Option<Timestamp> {
        None
    }
}

/// Writes an event's data; the journal's codec implements it.
pub trait PayloadEncoder {
    /// The bytes of `value`.
    ///
    /// # Errors
    /// When the value is larger than the codec allows.
    fn encode<T: Serialize>(self, value: &T) -> Result<Vec<u8>>;
}

/// Reads an event's data; the journal's codec implements it.
pub trait PayloadDecoder {
    /// The value of the bytes, which must hold nothing else.
    ///
    /// # Errors
    /// When the bytes are damaged or hostile.
    fn decode<T: DeserializeOwned>(self) -> Result<T>;
}
