//! What waits for a time, as a stream that hosts live by: nothing waits silently.
//!
//! One query over the due columns of all tables is its source; it is asked anew when something was
//! committed and when the next time has come, over restarts too, because the rows are all there is.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::sync::watch;

use super::Store;
use crate::base::{
    ConnectorName, DocumentId, Error, OperationId, OwnerDid, PartitionId, Provenance, Result,
    SourceId, StreamKey, Timestamp,
};
use crate::domain::connector::CandidateKey;
use crate::domain::{DueRow, DueSource, Value};
use crate::journal::DuePage;

/// Rows that are read at once.
const ROWS_PER_READ: u32 = 500;
/// Pause between two looks at a storage that other hosts write to, should no word of theirs come;
/// and between two looks at a backlog of more than one read, which commits alone must not turn into
/// a loop.
const POLL_PAUSE: Duration = Duration::from_secs(1);

/// A piece of work, by what names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Work {
    /// An operation on a document.
    Operation {
        /// The operation.
        operation_id: OperationId,
        /// The document.
        document_id: DocumentId,
        /// Whose account.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
    },
    /// The lease on a sync.
    SyncLease {
        /// Whose.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
    },
    /// A sweep candidate.
    Candidate {
        /// Whose.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
        /// The candidate.
        candidate: CandidateKey,
    },
    /// A projection watch.
    Watch {
        /// The document.
        document_id: DocumentId,
        /// Whose account.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
        /// The entity at the provider.
        source_id: SourceId,
    },
    /// A document sweep that has begun.
    DocumentSweep {
        /// The document.
        document_id: DocumentId,
    },
    /// A partition that owes a sweep.
    OwedSweep {
        /// Whose.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
        /// The partition.
        partition: PartitionId,
    },
    /// A connection that is being forgotten: see [`Store::resume_forgetting`].
    Forgetting {
        /// Whose.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
    },
    /// A receipt.
    Receipt {
        /// Whose.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
        /// The partition.
        partition: PartitionId,
        /// The lineage.
        provenance: Provenance,
    },
}

/// Work and its time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DueWork {
    /// When it is due.
    pub due_at: Timestamp,
    /// What it is.
    pub work: Work,
}

/// What is due, as it becomes due. See [`Store::due_work`].
pub struct DueStream {
    store: Store,
    committed: watch::Receiver<i64>,
    /// What was given and was still due at the last look.
    given: BTreeSet<DueRow>,
    look: Option<Look>,
    /// When the last look was begun, and the earliest time behind it.
    waits: Option<(Timestamp, Option<Timestamp>)>,
    ready: VecDeque<DueWork>,
}

/// A look at all that is due, under way.
struct Look {
    until: Timestamp,
    after: Option<DueRow>,
    seen: BTreeSet<DueRow>,
}

impl std::fmt::Debug for DueStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DueStream").field("given", &self.given.len()).finish_non_exhaustive()
    }
}

impl Store {
    /// Everything that waits for a time, when its time comes, and for ever: operations (deferred,
    /// given back, or whose claim has ended), expired sync leases, sweep candidates whose document
    /// has no unfinished operation, watches past their deadline, and, since the time of their begin,
    /// document sweeps, owed sweeps and connections that are being forgotten.
    ///
    /// Each piece of work is given once for each due time it has: handled, it is gone or has another
    /// time, at which it is given again. Work that is left undone is not repeated by this stream;
    /// [`Store::health`] names it, and a new stream begins with all that is due. It is a hint for
    /// where to look: by the time it is given, somebody else may have done it.
    ///
    /// ```
    /// # use connector_store::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let store = Store::builder().memory(&MemoryJournal::new()).open().await?;
    /// // The host was killed between the two ends of a document sweep.
    /// store.document(&DocumentId::new("doc-1")?).begin_document_sweep().await?;
    ///
    /// let mut due = store.due_work();
    /// if let Work::DocumentSweep { document_id } = due.next().await?.work {
    ///     // Delete the document in the graph, which may have been done already; then:
    ///     store.document(&document_id).sweep_document_rows().await?;
    /// }
    /// assert_eq!(store.next_due().await?, None);
    /// # store.close().await
    /// # }
    /// ```
    #[must_use]
    pub fn due_work(&self) -> DueStream {
        DueStream {
            store: self.clone(),
            committed: self.storage().committed(),
            given: BTreeSet::new(),
            look: None,
            waits: None,
            ready: VecDeque::new(),
        }
    }

    /// The earliest time for which something waits, also one that has passed; none when nothing
    /// does.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn next_due(&self) -> Result<Option<Timestamp>> {
        self.next_due_after(None).await
    }

    async fn next_due_after(&self, after: Option<Timestamp>) -> Result<Option<Timestamp>> {
        self.env().check_open()?;
        self.env().answer_in_time(self.storage().next_due(after)).await
    }

    pub(super) async fn due_page(&self, page: &DuePage) -> Result<Vec<DueRow>> {
        self.env().check_open()?;
        self.env().answer_in_time(self.storage().due(page)).await
    }
}

impl DueStream {
    /// The next piece of work, once it is due.
    ///
    /// # Errors
    /// Storage errors, after which the call may be repeated; [`Error::Closed`] once the store is.
    ///
    /// # Cancel safety
    /// A dropped call loses nothing.
    pub async fn next(&mut self) -> Result<DueWork> {
        loop {
            if let Some(work) = self.next_ready().await? {
                return Ok(work);
            }
            self.wait().await?;
        }
    }

    /// The next piece of work that is due already, or none.
    ///
    /// # Errors
    /// As [`Self::next`].
    ///
    /// # Cancel safety
    /// A dropped call loses nothing.
    pub async fn next_ready(&mut self) -> Result<Option<DueWork>> {
        while self.ready.is_empty() {
            let (until, after) = match &self.look {
                Some(look) => (look.until, look.after.clone()),
                None => {
                    // Marked before the read, so that a commit during it is not slept through.
                    self.committed.borrow_and_update();
                    (self.store.now().await?, None)
                }
            };
            let (sources, limit) = (DueSource::WAITING, ROWS_PER_READ);
            let page = DuePage { sources, until, after, limit };
            let rows = self.store.due_page(&page).await?;
            if rows.is_empty() {
                let next = self.store.next_due_after(Some(until)).await?;
                self.given = self.look.take().map(|look| look.seen).unwrap_or_default();
                self.waits = Some((until, next));
                return Ok(None);
            }
            let new = rows.iter().filter(|row| !self.given.contains(row));
            self.ready = new.map(due_work).collect::<Result<_>>()?;
            let look = self.look.get_or_insert(Look { until, after: None, seen: BTreeSet::new() });
            look.after = rows.last().cloned();
            look.seen.extend(rows);
        }
        Ok(self.ready.pop_front())
    }

    /// Waits until a new look may find something new.
    async fn wait(&mut self) -> Result<()> {
        let env = self.store.env();
        let next = self.waits.and_then(|(looked, next)| {
            let pause = next?.as_millis().saturating_sub(looked.as_millis());
            Some(Duration::from_millis(u64::try_from(pause).unwrap_or(0)))
        });
        let polls = self.store.storage().is_shared().then_some(POLL_PAUSE);
        let pause = next.into_iter().chain(polls).min();
        let sleep = async {
            match pause {
                Some(pause) => env.time.sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        let is_backlog = self.given.len() > usize::try_from(ROWS_PER_READ).unwrap_or(usize::MAX);
        let committed = async {
            let changed = self.committed.changed().await;
            if is_backlog {
                env.time.sleep(POLL_PAUSE).await;
            }
            changed.map_err(|_| Error::Closed)
        };
        tokio::select! {
            biased;
            changed = committed => changed,
            () = env.closing() => Err(Error::Closed),
            () = sleep => Ok(()),
        }
    }
}

fn due_work(row: &DueRow) -> Result<DueWork> {
    Ok(DueWork { due_at: row.due_at, work: work(row)? })
}

/// The work that a row names.
pub(super) fn work(row: &DueRow) -> Result<Work> {
    let text = |at: usize| {
        let text = row.names.get(at).and_then(Value::as_text);
        text.ok_or_else(|| Error::damaged(format_args!("a name of {:?}", row.source)))
    };
    let owner = |at: usize| OwnerDid::new(text(at)?);
    let connector = |at: usize| ConnectorName::new(text(at)?);
    let document = |at: usize| DocumentId::new(text(at)?);
    Ok(match row.source {
        DueSource::Operation | DueSource::UnknownOutcome | DueSource::DeadOperation => {
            let operation_id = OperationId::new(text(0)?)?;
            let (document_id, owner, connector) = (document(1)?, owner(2)?, connector(3)?);
            Work::Operation { operation_id, document_id, owner, connector }
        }
        DueSource::SyncLease => {
            let names = text(0)?.strip_prefix("sync:").unwrap_or_default();
            match StreamKey::from_stream_name(&format!("connector:{names}")) {
                Some(StreamKey::Connector(owner, connector)) => {
                    Work::SyncLease { owner, connector }
                }
                _ => return Err(Error::damaged("the scope of a lease")),
            }
        }
        DueSource::SweepCandidate | DueSource::DeadCandidate => {
            let partition = PartitionId::new(text(2)?)?;
            let provenance = Provenance::new(text(3)?)?;
            let (document_id, source_id) = (document(4)?, SourceId::new(text(5)?)?);
            let candidate = CandidateKey { partition, provenance, document_id, source_id };
            Work::Candidate { owner: owner(0)?, connector: connector(1)?, candidate }
        }
        DueSource::ProjectionWatch => Work::Watch {
            document_id: document(0)?,
            owner: owner(1)?,
            connector: connector(2)?,
            source_id: SourceId::new(text(3)?)?,
        },
        DueSource::DocumentSweep => Work::DocumentSweep { document_id: document(0)? },
        DueSource::OwedSweep => {
            let partition = PartitionId::new(text(2)?)?;
            Work::OwedSweep { owner: owner(0)?, connector: connector(1)?, partition }
        }
        DueSource::Forgetting => Work::Forgetting { owner: owner(0)?, connector: connector(1)? },
        DueSource::OpenReceipt => {
            let partition = PartitionId::new(text(2)?)?;
            let provenance = Provenance::new(text(3)?)?;
            Work::Receipt { owner: owner(0)?, connector: connector(1)?, partition, provenance }
        }
    })
}
