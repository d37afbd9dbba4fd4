//! The public handles: open a store, send it commands, read its feed, close it.
//!
//! Handles are cheap clones. They check input, choose the key, and hide the runtime.

mod auth;
mod builder;
mod connector;
mod document;
mod due;
mod feed;
mod forget;
mod health;
mod lease;
mod maintenance;
mod observation;
mod operation;
mod owners;
mod record_adapter;
mod repair;
mod restore;
mod rows;
mod stamps;
mod sweep;
mod unit;
mod watch;

pub use builder::StoreBuilder;
pub use connector::{ConnectorRef, ProgressVersion};
pub use document::DocumentRef;
pub use due::{DueStream, DueWork, Work};
pub use feed::{Event, EventFilter, EventStream, FeedCursor, FeedItem};
pub use forget::ForgettingConnection;
pub use health::{Evidence, Health, StuckReason, StuckWork};
pub use lease::{Lease, Session};
pub use maintenance::{RetentionReport, StoreStats};
pub use observation::DecisionPage;
pub use operation::{
    Claim, ClaimedOperation, OperationFilter, OperationRequest, OperationState, SendPermit,
    WatchExpectation,
};
pub use owners::DocumentOwners;
pub use record_adapter::RecordAdapter;
pub use repair::WrittenRepair;
pub use rows::{BegunSweep, SyncStateEntry};
pub use unit::UnitOfWork;
pub use watch::FetchedRead;

use std::sync::Arc;

use uuid::Uuid;

use owners::OwnerRule;

use crate::base::limits::MAX_PAGE_ROWS;
use crate::base::{ConnectorName, DocumentId, Error, Json, OwnerDid, Result, StreamKey, Timestamp};
use crate::domain::{Row, Table, Value};
use crate::journal::{Compare, Filter, RowQuery, Storage};
use crate::runtime::{CallOptions, Directories, Env, Intent, Routed, Runtime, Unit};

/// A caller's own id for a command: repeated with the same command, it gets the first answer.
pub type CommandId = Uuid;

/// A running store. Cheap to clone; the store ends with [`Store::close`], or when the last handle
/// is dropped, which loses nothing that was answered.
///
/// Unless a method says otherwise, dropping its future is safe: a list or a look-up changes nothing,
/// a command is carried out whole or not at all, and what works by pages leaves whole pages done.
/// What can fail answers [`Error::Closed`] once the store is closed.
#[derive(Clone)]
pub struct Store {
    runtime: Arc<Runtime>,
    owner_rule: OwnerRule,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// A builder with the defaults.
    pub fn builder() -> StoreBuilder {
        StoreBuilder::default()
    }

    /// A handle on a document. Nothing is loaded before its first command.
    #[must_use]
    pub fn document(&self, document: &DocumentId) -> DocumentRef {
        DocumentRef::new(self.sender(CallOptions::default()), document.clone())
    }

    /// A handle on an owner's connector. Nothing is loaded before its first command.
    #[must_use]
    pub fn connector(&self, owner: &OwnerDid, connector: &ConnectorName) -> ConnectorRef {
        let options = CallOptions { owner: Some(owner.clone()), ..CallOptions::default() };
        ConnectorRef::new(self.sender(options), owner.clone(), connector.clone())
    }

    /// Begins a unit of work: the keys' actors are held in sorted order, commands run against the
    /// held states, and [`UnitOfWork::commit`] writes all their events in one append, or none.
    ///
    /// # Errors
    /// [`Error::Contention`] when another host wrote to one of the keys meanwhile;
    /// [`Error::TimedOut`], [`Error::ActorStopped`] and storage errors, all retryable.
    ///
    /// # Cancel safety
    /// A dropped call gives back what it held.
    pub async fn unit_of_work(
        &self,
        keys: impl IntoIterator<Item = StreamKey>,
    ) -> Result<UnitOfWork> {
        UnitOfWork::begin(self, keys, &CallOptions::default()).await
    }

    /// One page of all owners' sync states of a connector, ordered by owner, behind `after`.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn sync_states(
        &self,
        connector: &ConnectorName,
        after: Option<&OwnerDid>,
        limit: u32,
    ) -> Result<Vec<SyncStateEntry>> {
        let query = RowQuery {
            table: Table::SyncState,
            filters: vec![equal(0, Value::Text(connector.shared()))],
            order: vec![1],
            after: after.map(|owner| vec![Value::Text(owner.shared())]),
            limit: limit.min(MAX_PAGE_ROWS),
        };
        self.rows(&query).await?.iter().map(rows::sync_state_entry).collect()
    }

    /// One page of the document sweeps that have begun and not ended, ordered by document, behind
    /// `after`. After a crash they are finished by whoever began them.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn begun_sweeps(
        &self,
        after: Option<&DocumentId>,
        limit: u32,
    ) -> Result<Vec<BegunSweep>> {
        let query = RowQuery {
            table: Table::DocumentSweep,
            filters: Vec::new(),
            order: vec![0],
            after: after.map(|document| vec![Value::Text(document.shared())]),
            limit: limit.min(MAX_PAGE_ROWS),
        };
        self.rows(&query).await?.iter().map(rows::begun_sweep).collect()
    }

    /// No new commands are taken, mailboxes drain, the last batch commits, files are checkpointed.
    ///
    /// # Errors
    /// The failure of the last flush; [`Error::Closed`] when it was closed before.
    ///
    /// # Cancel safety
    /// A dropped call leaves the store closed to commands; the rest goes on when the last handle
    /// is dropped.
    pub async fn close(&self) -> Result<()> {
        self.runtime.close().await
    }

    fn env(&self) -> &Env {
        &self.runtime.directories.env
    }

    fn directories(&self) -> &Directories {
        &self.runtime.directories
    }

    fn storage(&self) -> &dyn Storage {
        &*self.env().storage
    }

    fn sender(&self, options: CallOptions) -> Sender {
        Sender { store: self.clone(), route: Route::Store(options) }
    }

    async fn rows(&self, query: &RowQuery) -> Result<Vec<Row>> {
        self.env().check_open()?;
        self.env().answer_in_time(self.storage().rows(query)).await
    }

    /// The time by which things are due: on a shared storage the database's.
    async fn now(&self) -> Result<Timestamp> {
        if self.storage().is_shared() {
            Ok(self.env().answer_in_time(self.storage().confirm_heads(&[])).await?.now)
        } else {
            Ok(self.env().time.now())
        }
    }

    /// The time that others' stamps are held to: on a shared storage the database's.
    async fn time_for_stamps(&self) -> Result<Timestamp> {
        if self.storage().is_shared() { self.now().await } else { Ok(self.env().time.for_stamps()) }
    }

    fn check_json(&self, field: &'static str, json: Option<&Json>) -> Result<()> {
        check_json(self.env().bounds.max_json_bytes, field, json)
    }
}

fn check_json(max_bytes: usize, field: &'static str, json: Option<&Json>) -> Result<()> {
    match json {
        Some(json) if json.as_str().len() > max_bytes => {
            let got = json.as_str().len();
            Err(Error::invalid(field, format!("expected at most {max_bytes} bytes, got {got}")))
        }
        _ => Ok(()),
    }
}

fn equal(column: usize, value: Value) -> Filter {
    Filter { column, compare: Compare::Equal(value) }
}

/// The answer of another command than the one that was sent. No input leads here.
fn unexpected() -> Error {
    Error::damaged("an answer of the wrong kind")
}

/// Where a handle's commands go.
#[derive(Clone)]
enum Route {
    /// To the key's actor.
    Store(CallOptions),
    /// To the state that a unit of work holds.
    Unit(Arc<Unit>),
}

/// How a handle sends.
#[derive(Clone)]
struct Sender {
    store: Store,
    route: Route,
}

impl Sender {
    async fn send<A: Routed>(&self, key: &StreamKey, command: A::Command) -> Result<A::Reply> {
        match &self.route {
            Route::Store(options) => {
                let intent = Intent::Plain(command);
                self.store.directories().call::<A>(key, intent, options.clone()).await
            }
            Route::Unit(unit) => unit.run::<A>(key, &command),
        }
    }

    fn with_options(&self, change: impl FnOnce(&mut CallOptions)) -> Self {
        let mut sender = self.clone();
        if let Route::Store(options) = &mut sender.route {
            change(options);
        }
        sender
    }
}
