//! Projection watches, and who wins a read: the fetched value, a local write, or a decision.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::operation::WatchExpectation;
use super::rows::projection_watch;
use super::{DocumentRef, Store, equal, unexpected};
use crate::base::limits::MAX_PAGE_ROWS;
use crate::base::{ConnectorName, Digest, DocumentId, OwnerDid, Result, SourceId, Timestamp};
use crate::domain::document::{
    ArmOutcome, DocumentCommand, DocumentReply, ProjectionWatch, ReadWinner, Verification,
    WatchIdentity,
};
use crate::domain::{Table, Value};
use crate::journal::{Compare, Filter, RowQuery};
use crate::records::Hlc;

/// Documents that [`Store::read_winners`] asks at once.
const WINNERS_AT_ONCE: usize = 64;
/// The column of a watch's row that holds its deadline.
const DEADLINE_COLUMN: usize = 8;

/// A fetched value that is about to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedRead {
    /// Whose.
    pub owner: OwnerDid,
    /// The document that it would be applied to.
    pub document: DocumentId,
    /// When the fetch began.
    pub fetch_hlc: Hlc,
}

impl DocumentRef {
    /// Watches that a write is read back: until a fetch shows the expected value, values that are
    /// older than the write must not be applied.
    ///
    /// # Errors
    /// [`crate::Error::DocumentBeingSwept`], [`crate::Error::ConnectionForgotten`],
    /// [`crate::Error::InvalidInput`]; retryable errors.
    pub async fn arm_watch(
        &self,
        identity: &WatchIdentity,
        expectation: &WatchExpectation,
    ) -> Result<ArmOutcome> {
        let (identity, options) = (identity.clone(), expectation.options());
        match self.send(DocumentCommand::ArmWatch { identity, options }).await? {
            DocumentReply::Armed(outcome) => Ok(outcome),
            _ => Err(unexpected()),
        }
    }

    /// The document's watch, or none.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn watch(&self) -> Result<Option<ProjectionWatch>> {
        match self.send(DocumentCommand::WatchByDocument).await? {
            DocumentReply::Watch(watch) => Ok(watch.map(|watch| *watch)),
            _ => Err(unexpected()),
        }
    }

    /// Records what a fetch has shown: the digest that was read, none when the entity was absent.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn record_verification(
        &self,
        fetch_hlc: &Hlc,
        observed: Option<Digest>,
    ) -> Result<Verification> {
        let fetch_hlc = fetch_hlc.clone();
        match self.send(DocumentCommand::RecordVerification { fetch_hlc, observed }).await? {
            DocumentReply::Verification(outcome) => Ok(outcome),
            _ => Err(unexpected()),
        }
    }

    /// Ends the watch. Ending nothing is fine.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn disarm_watch(&self) -> Result<()> {
        match self.send(DocumentCommand::DisarmWatch).await? {
            DocumentReply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Whether a value that was fetched at `fetch_hlc` may be applied: a local write that is
    /// unfinished, or newer than the fetch, comes first, then a newer decision of the owner's
    /// observation record.
    ///
    /// # Errors
    /// [`crate::Error::KeyUnavailable`] while the key of an issuer of a newer decision can't be
    /// resolved; retryable errors.
    pub async fn read_winner(&self, owner: &OwnerDid, fetch_hlc: &Hlc) -> Result<ReadWinner> {
        let command = || {
            let (owner, fetch_hlc) = (owner.clone(), fetch_hlc.clone());
            DocumentCommand::ReadWinner { owner, fetch_hlc }
        };
        match self.send_verified(command).await? {
            DocumentReply::ReadWinner(winner) => Ok(winner),
            _ => Err(unexpected()),
        }
    }
}

impl Store {
    /// The watch on an entity at the provider, or none.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn watch_by_source(
        &self,
        owner: &OwnerDid,
        connector: &ConnectorName,
        source_id: &SourceId,
    ) -> Result<Option<ProjectionWatch>> {
        let query = RowQuery {
            table: Table::ProjectionWatch,
            filters: vec![
                equal(1, Value::Text(owner.shared())),
                equal(2, Value::Text(connector.shared())),
                equal(3, Value::Text(source_id.shared())),
            ],
            order: vec![0],
            after: None,
            limit: 1,
        };
        self.rows(&query).await?.first().map(projection_watch).transpose()
    }

    /// One page of the watches whose deadline has passed, by deadline, then document, behind
    /// `after`. They count as work until they are verified, disarmed or swept.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn expired_watches(
        &self,
        after: Option<(Timestamp, &DocumentId)>,
        limit: u32,
    ) -> Result<Vec<ProjectionWatch>> {
        let now = self.now().await?;
        let query = RowQuery {
            table: Table::ProjectionWatch,
            filters: vec![Filter {
                column: DEADLINE_COLUMN,
                compare: Compare::AtMost(Value::Int(now.as_millis())),
            }],
            order: vec![DEADLINE_COLUMN, 0],
            after: after.map(|(deadline, document)| {
                vec![Value::Int(deadline.as_millis()), Value::Text(document.shared())]
            }),
            limit: limit.min(MAX_PAGE_ROWS),
        };
        self.rows(&query).await?.iter().map(projection_watch).collect()
    }

    /// [`DocumentRef::read_winner`] for a page of fetched values, in their order.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn read_winners(&self, reads: &[FetchedRead]) -> Result<Vec<ReadWinner>> {
        let mut winners = Vec::with_capacity(reads.len());
        for reads in reads.chunks(WINNERS_AT_ONCE) {
            let ask = |read: &FetchedRead| {
                let (document, read) = (self.document(&read.document), read.clone());
                async move { document.read_winner(&read.owner, &read.fetch_hlc).await }
            };
            for winner in all(reads.iter().map(ask)).await {
                winners.push(winner?);
            }
        }
        Ok(winners)
    }
}

/// A future and, once it has ended, its output.
type Running<F> = (Pin<Box<F>>, Option<<F as Future>::Output>);

/// Awaits a few futures at once, on whatever executor the caller has.
pub(super) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Running<F>> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut pending = false;
        for (future, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(ready) => *output = Some(ready),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}
