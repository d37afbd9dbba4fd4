//! Disconnecting an account: everything of an owner's connector goes, over many keys, a bounded
//! part at a time, and from wherever a crash has left it.

use super::{ConnectorRef, Store, equal, rows};
use crate::base::limits::{MAX_FORGET_PAGE_ROWS, MAX_PAGE_ROWS};
use crate::base::{
    ConnectorName, DocumentId, Error, OwnerDid, Result, Secret, StreamKey, Timestamp,
};
use crate::domain::auth::{PendingAuth, PendingAuthCommand, auth_key, row_to_record};
use crate::domain::connector::{ConnectorCommand, ConnectorReply};
use crate::domain::document::{Document, DocumentCommand};
use crate::domain::{Table, Value};
use crate::journal::{Compare, Filter, RowQuery};

/// Keys that one unit of work holds at once: few enough that others do not wait for long.
const KEYS_PER_UNIT: u32 = 32;
/// How often a unit of work starts over because another writer was faster.
const MAX_STARTS: u32 = 16;

/// A connection whose forgetting has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgettingConnection {
    /// Whose account.
    pub owner: OwnerDid,
    /// Which connector's.
    pub connector: ConnectorName,
    /// When it began.
    pub begun_at: Timestamp,
}

/// Something of the connection on another key.
enum Target {
    Document(DocumentId),
    Auth(Secret),
}

impl Target {
    fn key(&self) -> StreamKey {
        match self {
            Self::Document(document) => StreamKey::Document(document.clone()),
            Self::Auth(state) => auth_key(state),
        }
    }
}

/// A forgetting under way.
struct Forgetter<'a> {
    store: &'a Store,
    connector: ConnectorRef,
    mark: i64,
}

impl Store {
    /// Disconnects an account: sync state, lease, receipts, candidates and pending authorizations of
    /// the owner's connector go, and so do its trims and watches on documents; the history that tells
    /// of them is removed too. An authorization is the connector's when its provider has the
    /// connector's name. Finished operations stay until their documents are swept: they keep a replay
    /// from writing again once the account is back.
    ///
    /// It begins with a durable mark: from then on every session of the connector is
    /// [`Error::LeaseLost`], and its other commands, as well as claims and watches for it, are
    /// [`Error::ConnectionForgotten`]. Once it has ended, the account may be connected anew.
    ///
    /// A call that finds a mark goes on from there, so after an error or a crash the call is
    /// repeated; [`Self::forgetting`] and [`Self::due_work`] name what has begun.
    ///
    /// # Errors
    /// [`Error::ForgetUnfinishedOperation`] while an operation of the connection can still write to
    /// the provider: nothing is changed but that, if the operation began while the call did, the
    /// sync lease is gone. [`Error::Contention`] and other retryable errors.
    ///
    /// # Cancel safety
    /// A dropped call leaves a mark, perhaps, and a part done; another call goes on.
    pub async fn forget_connection(
        &self,
        owner: &OwnerDid,
        connector: &ConnectorName,
    ) -> Result<()> {
        let connector = self.connector(owner, connector);
        if let Some(mark) = standing_mark(&connector).await? {
            return Forgetter { store: self, connector, mark }.go_on().await;
        }
        if self.has_unfinished(&connector).await? {
            return Err(unfinished(&connector));
        }
        match connector.send(ConnectorCommand::BeginForget).await? {
            ConnectorReply::Forgetting(Some(forgetting)) => {
                Forgetter { store: self, connector, mark: forgetting.mark }.go_on().await
            }
            _ => Err(super::unexpected()),
        }
    }

    /// Goes on with a forgetting that has begun, and begins none: for a host at its start, which may
    /// find that another host has ended it, and that the account is connected anew.
    ///
    /// # Errors
    /// As [`Self::forget_connection`].
    ///
    /// # Cancel safety
    /// As [`Self::forget_connection`].
    pub async fn resume_forgetting(
        &self,
        owner: &OwnerDid,
        connector: &ConnectorName,
    ) -> Result<()> {
        let connector = self.connector(owner, connector);
        match standing_mark(&connector).await? {
            Some(mark) => Forgetter { store: self, connector, mark }.go_on().await,
            None => Ok(()),
        }
    }

    /// One page of the connections whose forgetting has begun and not ended, by owner and connector,
    /// behind `after`.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn forgetting(
        &self,
        after: Option<(&OwnerDid, &ConnectorName)>,
        limit: u32,
    ) -> Result<Vec<ForgettingConnection>> {
        let query = RowQuery {
            table: Table::Forgetting,
            filters: Vec::new(),
            order: vec![0, 1],
            after: after.map(|(owner, connector)| names(owner, connector).into()),
            limit: limit.min(MAX_PAGE_ROWS),
        };
        self.rows(&query).await?.iter().map(rows::forgetting).collect()
    }

    async fn has_unfinished(&self, connector: &ConnectorRef) -> Result<bool> {
        let states = ["attempted", "reconcile_only"].map(Value::text).to_vec();
        let mut filters = of_connection(connector, [2, 3]);
        filters.push(Filter { column: 7, compare: Compare::In(states) });
        let order = vec![0];
        let query = RowQuery { table: Table::Operation, filters, order, after: None, limit: 1 };
        Ok(!self.rows(&query).await?.is_empty())
    }
}

fn names(owner: &OwnerDid, connector: &ConnectorName) -> [Value; 2] {
    [Value::Text(owner.shared()), Value::Text(connector.shared())]
}

/// The conditions on the columns of owner and connector.
fn of_connection(connector: &ConnectorRef, columns: [usize; 2]) -> Vec<Filter> {
    let names = names(connector.owner(), connector.name());
    columns.into_iter().zip(names).map(|(column, name)| equal(column, name)).collect()
}

fn unfinished(connector: &ConnectorRef) -> Error {
    let (owner, connector) = (connector.owner().clone(), connector.name().clone());
    Error::ForgetUnfinishedOperation { owner, connector }
}

async fn standing_mark(connector: &ConnectorRef) -> Result<Option<i64>> {
    match connector.send(ConnectorCommand::Forgetting).await? {
        ConnectorReply::Forgetting(forgetting) => Ok(forgetting.map(|forgetting| forgetting.mark)),
        _ => Err(super::unexpected()),
    }
}

impl Forgetter<'_> {
    async fn go_on(&self) -> Result<()> {
        let mark = self.mark;
        // Looked up behind the mark: a claim that came before it is seen, none comes after it.
        if self.store.has_unfinished(&self.connector).await? {
            let reply = self.connector.send(ConnectorCommand::AbandonForget { mark }).await?;
            return match reply {
                // Another call has ended it, and the operation is of a new connection.
                ConnectorReply::ForgetOver { is_forgotten: true } => Ok(()),
                _ => Err(unfinished(&self.connector)),
            };
        }
        for table in [Table::EntityTrim, Table::ProjectionWatch, Table::PendingAuth] {
            self.forget_rows(table).await?;
        }
        loop {
            let command = ConnectorCommand::ForgetPage { mark, limit: MAX_FORGET_PAGE_ROWS };
            match self.connector.send(command).await? {
                ConnectorReply::PageForgotten { is_done: false } => {}
                ConnectorReply::PageForgotten { is_done: true } => break,
                reply => return self.over(&reply),
            }
        }
        match self.connector.send(ConnectorCommand::FinishForget { mark }).await? {
            ConnectorReply::Done => Ok(()),
            reply => self.over(&reply),
        }
    }

    fn over(&self, reply: &ConnectorReply) -> Result<()> {
        match reply {
            ConnectorReply::ForgetOver { is_forgotten: true } => Ok(()),
            // What makes a call abandon a forgetting is an unfinished operation.
            ConnectorReply::ForgetOver { is_forgotten: false } => Err(unfinished(&self.connector)),
            _ => Err(super::unexpected()),
        }
    }

    /// Goes through the connection's rows of a table, and removes what they tell of. A row that
    /// comes meanwhile is of a write that counts as later.
    async fn forget_rows(&self, table: Table) -> Result<()> {
        // Each order is one that an index has: of trims that of their key, which is read through.
        let (columns, order) = match table {
            Table::EntityTrim => ([1, 2], vec![0]),
            Table::ProjectionWatch => ([1, 2], vec![3, 0]),
            _ => ([3, 2], vec![0]),
        };
        let filters = of_connection(&self.connector, columns);
        let mut query = RowQuery { table, filters, order, after: None, limit: KEYS_PER_UNIT };
        loop {
            let rows = self.store.rows(&query).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            let place = query.order.iter().filter_map(|&at| last.values.get(at)).cloned();
            query.after = Some(place.collect());
            let target = |row| match table {
                Table::PendingAuth => Ok(Target::Auth(row_to_record(row)?.state.clone())),
                _ => rows::document(row).map(Target::Document),
            };
            let targets: Vec<Target> = rows.iter().map(target).collect::<Result<_>>()?;
            if !self.forget(&targets).await? {
                return Ok(());
            }
        }
    }

    async fn forget(&self, targets: &[Target]) -> Result<bool> {
        for _ in 0..MAX_STARTS {
            match self.try_forget(targets).await {
                Err(Error::Contention) => {}
                result => return result,
            }
        }
        Err(Error::Contention)
    }

    /// Removes what the connection has on these keys, if the mark still stands in the same
    /// transaction: else a call that was paused would take from a new connection.
    async fn try_forget(&self, targets: &[Target]) -> Result<bool> {
        let keys = targets.iter().map(Target::key).chain([self.connector.key.clone()]);
        let unit = self.store.unit_of_work(keys).await?;
        let (owner, name) = (self.connector.owner(), self.connector.name());
        let held = unit.connector(owner, name);
        if standing_mark(&held).await? != Some(self.mark) {
            return Ok(false);
        }
        for target in targets {
            let key = target.key();
            match target {
                Target::Document(_) => {
                    let (owner, connector) = (owner.clone(), name.clone());
                    let command = DocumentCommand::ForgetDocumentConnection { owner, connector };
                    held.sender.send::<Document>(&key, command).await?;
                }
                Target::Auth(state) => {
                    let command = PendingAuthCommand::ForgetPendingAuth { state: state.clone() };
                    held.sender.send::<PendingAuth>(&key, command).await?;
                }
            }
        }
        unit.commit().await?;
        Ok(true)
    }
}
