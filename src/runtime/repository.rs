//! The repository actor: the only writer. It takes appends, commits them in groups, and tells each
//! waiter what became of its own.
//!
//! While one batch is being committed the next gathers; no timer delays a lone command. It knows
//! appends and tickets, no commands and no states.
//!
//! ```text
//! accepted ──▶ queue ──▶ batch ──▶ written (storage) ──▶ durable ──▶ replies
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use actix_rt::ArbiterHandle;
use tokio::sync::oneshot;

use super::clock::{StoreTime, within};
use super::env::{Activation, Counters};
use super::inbox::Inbox;
use super::telemetry;
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Error, Result, StorageFault};
use crate::domain::{Fence, Row, RowChange, RowKey, Table, Value};
use crate::journal::{Append, AppendOutcome, BatchError, CommandRecord, Part, Storage};

/// Most appends of one batch: bounds the time to the first answer.
const MAX_BATCH_APPENDS: usize = 4_096;
/// Most bytes of events and rows of one batch: bounds the write-ahead log and the memory.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// Answers that leave sooner than another thread wakes up.
const FEW_ANSWERS: usize = 4;
/// Tries of a batch that fails for a passing reason.
const MAX_BATCH_TRIES: u32 = 10;
/// First pause between them; it doubles.
const BATCH_RETRY_PAUSE: Duration = Duration::from_millis(2);
/// Pause between two look-ups of an unknown outcome.
const LOOK_UP_PAUSE: Duration = Duration::from_millis(100);
/// Quiet time after an erasure before the storage is told to clean up: what was erased must not lie
/// in the log for longer than 10 s, and a busy store must not clean up after each.
const IDLE_AFTER_ERASURE: Duration = Duration::from_secs(5);

/// Why an append is not durable.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another writer was faster.
    Conflict,
    /// An earlier append of the same activation failed.
    Stale,
    /// The lease is lost.
    Fence(Fence),
    /// A row is there that must not be.
    Exists(RowKey),
    /// The command id has an outcome.
    Known(CommandRecord),
    /// The storage failed; nothing was written.
    Storage(Error),
    /// It may be written or not.
    Unknown,
}

/// Somebody waits for the end of an append, or for the durability of those before it.
pub(super) trait Ticket: Send {
    /// Everything it waits for is durable, after a commit of this time.
    fn committed(self: Box<Self>, taken: Vec<Row>, took: Duration);
    /// It is not, for this reason.
    fn failed(self: Box<Self>, failure: Failure);
}

/// An activation that an append was decided on, and how far the append brings it.
pub(super) struct Reach {
    pub(super) activation: Arc<Activation>,
    pub(super) version: i64,
    /// It takes something back.
    pub(super) retracts: bool,
}

/// An append with what it reaches.
pub(super) struct Write {
    pub(super) append: Append,
    pub(super) reaches: Vec<Reach>,
    pub(super) ticket: Box<dyn Ticket>,
}

/// What the repository does, in the order in which it is asked.
pub(super) enum Work {
    /// Commit an append.
    Write(Write),
    /// Answer once all earlier appends of the activation are durable, or fail with them.
    Barrier { activation: Arc<Activation>, ticket: Box<dyn Ticket> },
    /// Say when all earlier work is done, whatever became of it.
    Flush(oneshot::Sender<()>),
    /// Let the storage clean up.
    Idle,
    /// Close the storage.
    Close(oneshot::Sender<Result<()>>),
}

/// There is work in the inbox of a repository that was at rest.
#[derive(Message)]
#[rtype(result = "()")]
struct Wake;

/// Where the actors hand over their work.
pub(crate) struct RepositoryRef {
    inbox: Arc<Inbox<Work>>,
    addr: Addr<Repository>,
}

impl RepositoryRef {
    /// Hands work over; it is done in the order in which it came. What it takes back is doubted from
    /// here on: once it is written everybody can see it, long before it is acknowledged.
    pub(super) fn hand_over(&self, work: Work) {
        if let Work::Write(write) = &work {
            let retracting = write.reaches.iter().filter(|reach| reach.retracts);
            retracting.for_each(|reach| reach.activation.doubt());
        }
        if self.inbox.push(work) {
            self.addr.do_send(Wake);
        }
    }
}

pub(crate) struct Repository {
    storage: Arc<dyn Storage>,
    time: StoreTime,
    counters: Arc<Counters>,
    command_timeout: Duration,
    inbox: Arc<Inbox<Work>>,
    queue: VecDeque<Work>,
    busy: bool,
    answering: ArbiterHandle,
    idle_planned: bool,
}

/// The work of one batch, in order; the appends themselves are in the batch.
enum Slot {
    Write { reaches: Vec<Reach>, ticket: Box<dyn Ticket>, events: u64, writes: bool },
    Barrier { activation: Arc<Activation>, ticket: Box<dyn Ticket> },
    Flush(oneshot::Sender<()>),
}

/// The slots of a batch that is being committed. Should the store's threads be stopped meanwhile,
/// nobody can say what became of its appends.
struct UnderWay(Vec<Slot>);

impl UnderWay {
    fn end(mut self) -> Vec<Slot> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        for slot in self.0.drain(..) {
            if let Slot::Write { ticket, .. } = slot {
                ticket.failed(Failure::Unknown);
            }
        }
    }
}

/// Answers of a batch that is durable. Dropped, they leave, so that nobody is forgotten who waits.
struct Answers {
    waiting: Vec<(Box<dyn Ticket>, Vec<Row>)>,
    took: Duration,
}

impl Drop for Answers {
    fn drop(&mut self) {
        for (ticket, taken) in self.waiting.drain(..) {
            ticket.committed(taken, self.took);
        }
    }
}

/// What a batch came to, append by append.
type Outcomes = Vec<Result<AppendOutcome, Failure>>;

impl Repository {
    /// Starts a repository on an arbiter. Many answers leave from another one, `answering`.
    pub(super) fn start_on(
        arbiter: &ArbiterHandle,
        answering: ArbiterHandle,
        storage: Arc<dyn Storage>,
        time: StoreTime,
        counters: Arc<Counters>,
        command_timeout: Duration,
    ) -> RepositoryRef {
        let inbox = Arc::new(Inbox::new());
        let repository = Self {
            storage,
            time,
            counters,
            command_timeout,
            inbox: Arc::clone(&inbox),
            queue: VecDeque::new(),
            busy: false,
            answering,
            idle_planned: false,
        };
        let addr = Self::start_in_arbiter(arbiter, move |_| repository);
        RepositoryRef { inbox, addr }
    }

    fn proceed(&mut self, context: &mut Context<Self>) {
        while !self.busy {
            self.inbox.take(&mut self.queue);
            match self.queue.front() {
                None => return,
                Some(Work::Idle | Work::Close(_)) => self.maintain(context),
                Some(_) => self.commit_next(context),
            }
        }
    }

    fn maintain(&mut self, context: &mut Context<Self>) {
        let storage = Arc::clone(&self.storage);
        let work = self.queue.pop_front();
        self.busy = true;
        let run = async move {
            match work {
                Some(Work::Close(done)) => {
                    let _ = done.send(storage.close().await);
                    true
                }
                _ => storage.idle().await.unwrap_or_else(|error| {
                    tracing::warn!(%error, "clean-up of the storage failed");
                    false
                }),
            }
        };
        context.spawn(run.into_actor(self).map(|is_clean, actor, context| {
            actor.busy = false;
            if !is_clean {
                actor.plan_idle(context);
            }
            actor.proceed(context);
        }));
    }

    /// Takes the next batch off the queue. A batch without an append is answered at once.
    fn commit_next(&mut self, context: &mut Context<Self>) {
        let (batch, slots) = self.gather();
        if batch.is_empty() {
            drop(self.settle(slots, Vec::new(), Duration::ZERO));
            return;
        }
        self.busy = true;
        let erases = batch.iter().flat_map(|append| &append.parts).any(erases);
        let (storage, time) = (Arc::clone(&self.storage), self.time.clone());
        let timeout = self.command_timeout;
        let begun = self.time.elapsed();
        // A task of its own, so that a panic in the storage ends the batch and not the repository.
        let appends = batch.len();
        let writes = batch.iter().filter(|append| append.writes()).count();
        let mut commit = actix_rt::spawn(commit(storage, time, batch, timeout));
        if is_planted(PlantedBug::AnswersBeforeCommit) {
            commit = actix_rt::spawn(async move { (all_done(appends), Vec::new()) });
        }
        let under_way = UnderWay(slots);
        context.spawn(commit.into_actor(self).map(move |outcomes, actor, context| {
            actor.busy = false;
            let took = actor.time.elapsed().saturating_sub(begun);
            if writes > 0 {
                telemetry::committed(writes, took);
                actor.counters.batches.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            let unknown = || (0..appends).map(|_| Err(Failure::Unknown)).collect();
            let (outcomes, spent) = outcomes.unwrap_or_else(|_| (unknown(), Vec::new()));
            let answers = actor.settle(under_way.end(), outcomes, took);
            if erases {
                actor.plan_idle(context);
            }
            actor.proceed(context);
            // The next batch goes to the disk first; the answers leave while it is written. Many would
            // keep this thread from the next step of that, as the end of so many appends would; a few are
            // faster without a second thread.
            let is_many = answers.waiting.len() > FEW_ANSWERS;
            let leave = async move {
                drop(answers);
                drop(spent);
            };
            if is_many {
                actor.answering.spawn(leave);
            } else {
                actix_rt::spawn(leave);
            }
        }));
    }

    fn gather(&mut self) -> (Vec<Append>, Vec<Slot>) {
        let (mut batch, mut slots, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
        while batch.len() < MAX_BATCH_APPENDS && bytes < MAX_BATCH_BYTES {
            match self.queue.pop_front() {
                Some(Work::Write(write)) => {
                    if write.reaches.iter().any(|reach| reach.activation.has_failed()) {
                        fail(&write.reaches, write.ticket, Failure::Stale);
                        continue;
                    }
                    let writes = write.append.writes();
                    let count =
                        write.append.parts.iter().map(|part| part.events.len()).sum::<usize>();
                    bytes += write.append.parts.iter().map(bytes_of).sum::<usize>();
                    batch.push(write.append);
                    let (reaches, ticket) = (write.reaches, write.ticket);
                    slots.push(Slot::Write { reaches, ticket, events: count as u64, writes });
                }
                Some(Work::Barrier { activation, ticket }) => {
                    slots.push(Slot::Barrier { activation, ticket });
                }
                Some(Work::Flush(done)) => slots.push(Slot::Flush(done)),
                Some(work) => {
                    self.queue.push_front(work);
                    break;
                }
                None => break,
            }
        }
        (batch, slots)
    }

    /// Publishes what is durable and what failed, in the order in which the work came. Gives the
    /// answers of what is durable; failures are answered here, because an actor that reloads waits
    /// for a flush and then takes up again what failed.
    fn settle(&self, slots: Vec<Slot>, outcomes: Outcomes, took: Duration) -> Answers {
        use std::sync::atomic::Ordering::Relaxed;
        let mut outcomes = outcomes.into_iter();
        let mut answers = Answers { waiting: Vec::with_capacity(slots.len()), took };
        for slot in slots {
            match slot {
                Slot::Write { reaches, ticket, events, writes } => match outcomes.next() {
                    Some(Ok(AppendOutcome::Committed { taken })) => {
                        for reach in &reaches {
                            reach.activation.set_durable(reach.version);
                        }
                        self.counters.events.fetch_add(events, Relaxed);
                        self.counters.appends.fetch_add(u64::from(writes), Relaxed);
                        answers.waiting.push((ticket, taken));
                    }
                    outcome => fail(&reaches, ticket, failure(outcome)),
                },
                Slot::Barrier { activation, ticket }
                    if activation.has_failed() && !is_planted(PlantedBug::FailedStateAnswers) =>
                {
                    ticket.failed(Failure::Stale);
                }
                Slot::Barrier { ticket, .. } => answers.waiting.push((ticket, Vec::new())),
                Slot::Flush(done) => {
                    let _ = done.send(());
                }
            }
        }
        answers
    }

    fn plan_idle(&mut self, context: &mut Context<Self>) {
        if self.idle_planned {
            return;
        }
        self.idle_planned = true;
        let pause = self.time.sleep(IDLE_AFTER_ERASURE);
        context.spawn(pause.into_actor(self).map(|(), actor, context| {
            actor.idle_planned = false;
            actor.queue.push_back(Work::Idle);
            actor.proceed(context);
        }));
    }
}

/// What a part writes, as far as its size is the caller's.
fn bytes_of(part: &Part) -> usize {
    let events = part.events.iter().map(|event| event.payload.len());
    let rows = part.rows.iter().filter_map(|change| match change {
        RowChange::Put(row) => Some(&row.values),
        RowChange::Delete(_) | RowChange::Take(_) => None,
    });
    let values = rows.flatten().map(|value| match value {
        Value::Text(text) => text.len(),
        Value::Blob(blob) => blob.len(),
        Value::Int(_) | Value::Null | Value::Keep | Value::Stamp => 0,
    });
    events.chain(values).sum()
}

/// What it removes must be in no file before long: erased or cut history, and rows with secrets.
fn erases(part: &Part) -> bool {
    let has_secret = |change: &RowChange| match change {
        RowChange::Take(_) => true,
        RowChange::Delete(key) => key.table == Table::PendingAuth,
        RowChange::Put(_) => false,
    };
    part.erase || part.trim || part.rows.iter().any(has_secret)
}

fn failure(outcome: Option<Result<AppendOutcome, Failure>>) -> Failure {
    match outcome {
        Some(Ok(AppendOutcome::Conflict)) => {
            metrics::counter!(telemetry::CONFLICTS).increment(1);
            Failure::Conflict
        }
        Some(Ok(AppendOutcome::FenceLost { fence })) => Failure::Fence(fence),
        Some(Ok(AppendOutcome::RowExists(key))) => Failure::Exists(key),
        Some(Ok(AppendOutcome::CommandKnown(record))) => Failure::Known(record),
        Some(Err(failure)) => failure,
        Some(Ok(AppendOutcome::Committed { .. })) | None => Failure::Unknown,
    }
}

/// Once an append has failed, every later one of its activations is refused until their actors
/// have reloaded. Of two failures of one activation only the first has a reason of its own.
fn fail(reaches: &[Reach], ticket: Box<dyn Ticket>, failure: Failure) {
    let behind = reaches.iter().any(|reach| reach.activation.has_failed());
    for reach in reaches {
        reach.activation.fail();
    }
    let conflict = matches!(failure, Failure::Conflict);
    ticket.failed(if conflict && behind { Failure::Stale } else { failure });
}

/// Writes one batch, to the end: no step of it is ever dropped half-way. A batch in which one
/// append is more than the storage can take is halved until that one is alone: it never fails its
/// neighbours. Gives back what was written besides.
async fn commit(
    storage: Arc<dyn Storage>,
    time: StoreTime,
    batch: Vec<Append>,
    timeout: Duration,
) -> (Outcomes, Vec<Append>) {
    let (mut outcomes, mut spent) = (Vec::with_capacity(batch.len()), Vec::new());
    let mut left = vec![batch];
    while let Some(mut batch) = left.pop() {
        match write(&*storage, &time, &batch).await {
            Ok(written) => {
                outcomes.extend(written.into_iter().map(Ok));
                spent.append(&mut batch);
            }
            Err(BatchError::Unknown(_)) if is_planted(PlantedBug::UnknownTakenForFailure) => {
                outcomes.extend(batch.iter().map(|_| Err(Failure::Stale)));
            }
            Err(BatchError::Unknown(_)) if is_planted(PlantedBug::UnknownTakenForSuccess) => {
                outcomes.extend(all_done(batch.len()));
            }
            Err(BatchError::Unknown(error)) => {
                tracing::warn!(%error, "the outcome of a commit is looked up");
                outcomes.extend(look_up(&storage, &time, batch, timeout).await);
            }
            Err(BatchError::Failed(error) | BatchError::Passing(error)) => {
                let one_is_bad =
                    matches!(error, Error::Storage { fault: StorageFault::Damaged, .. });
                if one_is_bad && batch.len() > 1 {
                    left.push(batch.split_off(batch.len() / 2));
                    left.push(batch);
                    continue;
                }
                tracing::warn!(%error, appends = batch.len(), "a batch failed");
                outcomes.extend(batch.iter().map(|_| Err(Failure::Storage(error.clone()))));
            }
        }
    }
    (outcomes, spent)
}

/// Every append of a batch counts as written.
fn all_done(appends: usize) -> Outcomes {
    (0..appends).map(|_| Ok(AppendOutcome::Committed { taken: Vec::new() })).collect()
}

/// Writes a batch; one that fails for a passing reason is tried again.
async fn write(
    storage: &dyn Storage,
    time: &StoreTime,
    batch: &[Append],
) -> Result<Vec<AppendOutcome>, BatchError> {
    let mut pause = BATCH_RETRY_PAUSE;
    for _ in 1..MAX_BATCH_TRIES {
        match storage.append(batch, time.now()).await {
            Err(BatchError::Passing(_)) => {
                time.sleep(pause).await;
                pause *= 2;
            }
            result => return result,
        }
    }
    storage.append(batch, time.now()).await
}

/// Finds out what became of each append. One that is not there cannot come any more, so its actor
/// may decide it again.
async fn look_up(
    storage: &Arc<dyn Storage>,
    time: &StoreTime,
    batch: Vec<Append>,
    timeout: Duration,
) -> Outcomes {
    let give_up_at = time.elapsed().saturating_add(timeout);
    let mut outcomes = Vec::with_capacity(batch.len());
    for append in batch.into_iter().map(Arc::new) {
        let outcome = loop {
            let left = give_up_at.saturating_sub(time.elapsed());
            let (storage, wanted) = (Arc::clone(storage), Arc::clone(&append));
            // A task of its own, so that a look-up under locks is never dropped half-way.
            let found = actix_rt::spawn(async move { storage.look_up(&wanted).await });
            match within(time, left, found).await {
                Some(Ok(Ok(Some(outcome)))) => break Ok(outcome),
                Some(Ok(Ok(None))) => break Err(Failure::Stale),
                // What would tell is gone for good.
                Some(Ok(Err(Error::OutcomeUnknown { .. }))) => break Err(Failure::Unknown),
                Some(Ok(Err(error))) => {
                    tracing::warn!(%error, "an outcome can't be looked up yet");
                    if time.elapsed().saturating_add(LOOK_UP_PAUSE) >= give_up_at {
                        break Err(Failure::Unknown);
                    }
                    time.sleep(LOOK_UP_PAUSE).await;
                }
                Some(Err(_)) | None => break Err(Failure::Unknown),
            }
        };
        outcomes.push(outcome);
    }
    outcomes
}

impl Actor for Repository {
    type Context = Context<Self>;
}

impl Handler<Wake> for Repository {
    type Result = ();

    fn handle(&mut self, _: Wake, context: &mut Context<Self>) {
        self.proceed(context);
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

/// The error of a storage that does not answer in time.
pub(super) fn unavailable(context: &str) -> Error {
    Error::storage(StorageFault::Unavailable, context)
}
