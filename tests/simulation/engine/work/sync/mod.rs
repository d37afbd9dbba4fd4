//! The sync of an account, as a host does it under the account's lease: it lists a partition or takes the
//! changes, writes the rows, asks about what is missing and deletes it.
//!
//! Any host may take over where another one was killed, or was too slow: what it needs is in the store.

pub mod finish;
mod pages;
pub mod place;
mod receipts;
mod sweeps;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use connector_store::testing::ProviderError;
use connector_store::{
    ConnectorRef, DocumentId, Error, FencingToken, Holder, Lease, PartitionId, Rfc3339, Session,
    SyncProgress, SyncState,
};

use self::place::Places;
use super::{Account, Worker};
use crate::engine::graph::Entity;
use crate::engine::world::World;

/// Shorter than most pauses of a host, and than some visits.
const LEASE: Duration = Duration::from_secs(4);

/// Why a visit ends early. The next one goes on.
enum Stop {
    Store(Error),
    Provider(ProviderError),
    /// The graph has let a newer holder in.
    Late,
    /// It is of another account, or nothing was said.
    Unusable,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => f.write_str(error.code()),
            Self::Provider(error) => error.fmt(f),
            Self::Late => f.write_str("a newer holder was here"),
            Self::Unusable => f.write_str("what it was told is of no use"),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<ProviderError> for Stop {
    fn from(error: ProviderError) -> Self {
        Self::Provider(error)
    }
}

type Step<T = ()> = Result<T, Stop>;

/// A visit to an account under its lease.
struct Visit<'a> {
    worker: &'a Worker,
    /// The account's number.
    at: usize,
    lease: Lease,
    session: Session,
    connector: ConnectorRef,
    places: Places,
    /// Documents whose sweep has begun.
    begun: BTreeSet<DocumentId>,
    /// Everything is listed, and whatever is missing may go.
    is_thorough: bool,
}

/// Visits an account, or looks at what is shown of one.
pub async fn work(worker: &Worker) {
    let world = &*worker.world;
    let at = world.chance(|chance| chance.below(world.accounts.all.len()));
    if world.chance(|chance| chance.per_mille(200)) {
        read(worker, at).await;
    } else {
        visit(worker, at, false).await;
    }
}

/// A document that the graph has shows a row of its own, or none yet.
async fn read(worker: &Worker, at: usize) {
    let world = &*worker.world;
    let shown: Vec<Entity> = {
        let graph = world.graph.borrow();
        graph.of_account(at).map(|(entity, _)| entity.clone()).collect()
    };
    if shown.is_empty() {
        return;
    }
    let document = shown[world.chance(|chance| chance.below(shown.len()))].document();
    let handle = worker.store.document(&document);
    let read =
        world.call(&worker.host, &format!("read a trim: {document}"), handle.entity_trim()).await;
    if let Ok(Some(trim)) = read {
        let audit = world.audit.borrow();
        let bytes = trim.trimmed_fields.as_str().as_bytes();
        world.hold("a document has its own row", audit.rows.is_of(bytes, &document), || {
            format!("{document} has {:?}", trim.trimmed_fields)
        });
    }
}

/// One visit. True if everything went through.
pub async fn visit(worker: &Worker, at: usize, is_thorough: bool) -> bool {
    let (world, host) = (&*worker.world, &*worker.host);
    let (owner, connector) = (&world.accounts.all[at].owner, &world.accounts.connector);
    let holder = Holder::new(&worker.name).unwrap();
    let account = worker.store.connector(owner, connector);
    let acquire = account.acquire_lease(&holder, LEASE);
    world.accounts.visited.borrow_mut().insert(at);
    let Ok(lease) = world.call(host, &format!("acquire a sync lease: a{at}"), acquire).await else {
        return false;
    };
    if !world.graph.borrow_mut().enter(at, lease.token()) {
        return false;
    }
    let session = lease.session();
    let connector = session.connector();
    let (places, begun) = (Places::default(), BTreeSet::new());
    let mut visit = Visit { worker, at, lease, session, connector, places, begun, is_thorough };
    let stop = visit.go().await.err();
    if let Some(stop) = &stop {
        world.note(&worker.name, format_args!("leaves a{at}: {stop}"));
    }
    let is_left = world.chance(|chance| chance.per_mille(100)) && !is_thorough;
    if !is_left {
        let release = visit.lease.release();
        let _ = world.call(host, &format!("release a sync lease: a{at}"), release).await;
    }
    stop.is_none()
}

impl Visit<'_> {
    fn world(&self) -> &World {
        &self.worker.world
    }

    fn account(&self) -> &Account {
        &self.world().accounts.all[self.at]
    }

    fn token(&self) -> FencingToken {
        self.lease.token()
    }

    fn drawn(&self, per_mille: usize) -> bool {
        self.world().chance(|chance| chance.per_mille(per_mille))
    }

    async fn call<T>(
        &self,
        what: &str,
        call: impl Future<Output = connector_store::Result<T>>,
    ) -> Step<T> {
        let (kind, of) = what.split_once(": ").unwrap_or((what, ""));
        let what = format!("{kind}: a{} {of}", self.at);
        Ok(self.world().call(&self.worker.host, what.trim_end(), call).await?)
    }

    /// A request needs its time to the provider.
    async fn reach(&self) {
        self.world().rest(10, 400).await;
    }

    async fn go(&mut self) -> Step {
        self.take_over().await?;
        let partitions = self.world().accounts.partitions.clone();
        if self.is_thorough {
            for partition in &partitions {
                self.sync(partition).await?;
                self.candidates().await?;
            }
            return Ok(());
        }
        let at = self.world().chance(|chance| chance.below(partitions.len()));
        self.sync(&partitions[at]).await?;
        if self.drawn(200) {
            self.lease = self.call("renew a sync lease", self.lease.renew(LEASE)).await?;
        }
        // What is left to somebody else may have come back by then.
        if self.drawn(400) { Ok(()) } else { self.candidates().await }
    }

    /// What an earlier holder left: content that was fetched and not written, and begun sweeps.
    async fn take_over(&mut self) -> Step {
        let state = self.call("read a sync state", self.connector.sync_state()).await?;
        self.places = Places::parse(state.as_ref().and_then(|state| state.checkpoint.as_ref()));
        if state.is_some_and(|state| state.recovery.is_some()) {
            let update = self.connector.update_sync_progress(without_recovery);
            self.call("move progress: without recovery", update).await?;
        }
        self.resume_sweeps().await
    }

    /// A pass over a partition.
    async fn sync(&mut self, partition: &PartitionId) -> Step {
        let remote = self.account().provider.account();
        if !self.is_thorough && self.changes(partition, remote).await? {
            return Ok(());
        }
        self.list(partition, remote).await
    }
}

/// The progress of a state.
fn without_recovery(state: Option<&SyncState>) -> SyncProgress {
    progress(state.and_then(|state| state.checkpoint.clone()), None)
}

fn progress(
    checkpoint: Option<connector_store::Json>,
    recovery: Option<connector_store::Json>,
) -> SyncProgress {
    SyncProgress {
        checkpoint,
        recovery,
        last_synced_at: Rfc3339::parse("2026-01-01T00:00:00Z").unwrap(),
        entity_count: 0,
        error: None,
    }
}
