//! The repository actor: the only writer. It takes appends, commits them in groups, and tells each
//! waiter what became of its own.
//!
//! While one batch is being written the next gathers; no timer delays a lone command. Where a storage
//! judges in a step of its own, the next batch is judged while the one before is written and committed,
//! and is written behind it, or not at all. It knows appends and tickets, no commands and no states.
//!
//! ```text
//! accepted ──▶ queue ──▶ batch ──▶ judged (storage) ──▶ written, durable ──▶ replies
//!                          ▲          │ withdrawn, should the one before fail
//!                          └──────────┘
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use actix_rt::ArbiterHandle;
use tokio::sync::oneshot;
use tokio::task::JoinError;

use super::carry_out::{Outcomes, carry_out};
use super::clock::StoreTime;
use super::env::{Activation, Counters};
use super::inbox::Inbox;
use super::telemetry;
use super::under_way::{Answers, Slot, UnderWay, fail, failure};
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Error, Result, StorageFault};
use crate::domain::{Fence, Row, RowChange, RowKey, Table, Value};
use crate::journal::{
    Append, AppendOutcome, BatchError, BegunAppend, CommandRecord, Part, Storage,
};

/// Most appends of one batch: bounds the time to the first answer.
const MAX_BATCH_APPENDS: usize = 4_096;
/// Most bytes of events and rows of one batch: bounds the write-ahead log and the memory.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// Answers that leave sooner than another thread wakes up.
const FEW_ANSWERS: usize = 4;
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
    /// A batch is being begun, or the storage cleans up: nothing else is begun.
    busy: bool,
    /// The batch that is being written and committed.
    committing: Option<UnderWay>,
    /// The next one, which was begun and waits for that.
    waiting: Option<(UnderWay, Began)>,
    /// The one whose commit has failed, while the next one is still being begun.
    failed: Option<(UnderWay, Began)>,
    answering: ArbiterHandle,
    idle_planned: bool,
}

/// How the first step of a batch has ended.
enum Began {
    Judged(BegunAppend, Vec<Append>),
    Failed(BatchError, Vec<Append>),
    /// The storage has panicked.
    Lost,
}

impl Began {
    const fn commits(&self) -> bool {
        matches!(self, Self::Judged(BegunAppend { commit: Some(_), .. }, _))
    }
}

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
            committing: None,
            waiting: None,
            failed: None,
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
                Some(Work::Idle | Work::Close(_)) if self.committing.is_some() => return,
                Some(Work::Idle | Work::Close(_)) => self.maintain(context),
                Some(_) => self.begin_next(context),
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

    /// Takes the next batch off the queue. A batch without an append is answered with the one before.
    fn begin_next(&mut self, context: &mut Context<Self>) {
        let (batch, slots) = self.gather();
        if batch.is_empty() {
            match &mut self.committing {
                Some(before) => before.slots.extend(slots),
                None => drop(self.settle(slots, Vec::new(), Duration::ZERO)),
            }
            return;
        }
        self.busy = true;
        let under_way = UnderWay {
            slots,
            begun: self.time.elapsed(),
            writes: batch.iter().filter(|append| append.writes()).count(),
            erases: batch.iter().flat_map(|append| &append.parts).any(erases),
        };
        let (storage, time) = (Arc::clone(&self.storage), self.time.clone());
        // A task of its own, so that a panic in the storage ends the batch and not the repository.
        let begin = actix_rt::spawn(begin(storage, time, batch, self.command_timeout));
        context.spawn(begin.into_actor(self).map(move |began, actor, context| {
            actor.go_on(under_way, began.unwrap_or(Began::Lost), context);
        }));
    }

    /// Goes on with a batch whose first step has ended, once the one before has.
    fn go_on(&mut self, mut under_way: UnderWay, began: Began, context: &mut Context<Self>) {
        if self.committing.is_some() {
            self.waiting = Some((under_way, began));
            return;
        }
        if let Some((mut before, failed)) = self.failed.take() {
            self.withdraw(under_way, began, &mut before);
            return self.go_on(before, failed, context);
        }
        match began {
            Began::Judged(BegunAppend { outcomes, commit: Some(commit) }, batch) => {
                under_way.refuse(&outcomes);
                self.committing = Some(under_way);
                let commit = actix_rt::spawn(commit);
                context.spawn(commit.into_actor(self).map(move |ended, actor, context| {
                    actor.committed(ended, outcomes, batch, context);
                }));
                self.busy = false;
                self.proceed(context);
            }
            Began::Judged(BegunAppend { outcomes, commit: None }, batch) => {
                let outcomes = outcomes.into_iter().map(Ok).collect();
                self.ended(under_way, outcomes, batch, context);
            }
            Began::Failed(error, batch) => {
                let (storage, time) = (Arc::clone(&self.storage), self.time.clone());
                let again = carry_out(storage, time, batch, self.command_timeout, error);
                let again = actix_rt::spawn(again);
                context.spawn(again.into_actor(self).map(move |ended, actor, context| {
                    let (outcomes, spent) = ended.unwrap_or_default();
                    actor.ended(under_way, outcomes, spent, context);
                }));
            }
            Began::Lost => self.ended(under_way, Vec::new(), Vec::new(), context),
        }
    }

    /// A batch has ended, and no other one is under way.
    fn ended(
        &mut self,
        under_way: UnderWay,
        outcomes: Outcomes,
        spent: Vec<Append>,
        context: &mut Context<Self>,
    ) {
        self.busy = false;
        let answers = self.publish(under_way, outcomes, context);
        self.proceed(context);
        self.leave(answers, spent);
    }

    /// The commit of a batch has ended. The next one, if it is begun, is committed now, or withdrawn.
    fn committed(
        &mut self,
        ended: Result<Result<(), BatchError>, JoinError>,
        outcomes: Vec<AppendOutcome>,
        batch: Vec<Append>,
        context: &mut Context<Self>,
    ) {
        let Some(under_way) = self.committing.take() else { return };
        let failed = match ended {
            Ok(Ok(())) => {
                let outcomes = outcomes.into_iter().map(Ok).collect();
                let answers = self.publish(under_way, outcomes, context);
                match self.waiting.take() {
                    None => self.proceed(context),
                    Some((next, began)) if began.commits() => self.go_on(next, began, context),
                    // What ends at once is answered behind this one.
                    Some((next, began)) => {
                        self.leave(answers, batch);
                        return self.go_on(next, began, context);
                    }
                }
                return self.leave(answers, batch);
            }
            Ok(Err(error)) => Began::Failed(error, batch),
            Err(_) => Began::Lost,
        };
        match self.waiting.take() {
            None if self.busy => self.failed = Some((under_way, failed)),
            None => {
                self.busy = true;
                self.go_on(under_way, failed, context);
            }
            Some((next, began)) => {
                self.failed = Some((under_way, failed));
                self.go_on(next, began, context);
            }
        }
    }

    /// Takes back a batch that was begun behind one whose commit has failed: nothing of it may be
    /// there before it is known what became of that. What does not stand on it is begun again.
    fn withdraw(&mut self, under_way: UnderWay, began: Began, before: &mut UnderWay) {
        let batch = match began {
            Began::Judged(begun, batch) => {
                drop(begun);
                batch
            }
            Began::Failed(_, batch) => batch,
            // Nobody knows what became of it, which is said once it is known of the one before.
            Began::Lost => return before.slots.extend(under_way.end()),
        };
        let mut batch = batch.into_iter();
        let work = under_way.end().into_iter().filter_map(|slot| {
            Some(match slot {
                Slot::Write { reaches, ticket, .. } => {
                    Work::Write(Write { append: batch.next()?, reaches, ticket })
                }
                Slot::Barrier { activation, ticket } => Work::Barrier { activation, ticket },
                Slot::Flush(done) => Work::Flush(done),
                stale @ Slot::Stale { .. } => {
                    before.slots.push(stale);
                    return None;
                }
            })
        });
        let work: VecDeque<Work> = work.collect();
        let behind = std::mem::replace(&mut self.queue, work);
        self.queue.extend(behind);
    }

    /// Makes known what became of a batch.
    fn publish(
        &mut self,
        under_way: UnderWay,
        outcomes: Outcomes,
        context: &mut Context<Self>,
    ) -> Answers {
        let took = self.time.elapsed().saturating_sub(under_way.begun);
        if under_way.writes > 0 {
            telemetry::committed(under_way.writes, took);
            self.counters.batches.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        if under_way.erases {
            self.plan_idle(context);
        }
        self.settle(under_way.end(), outcomes, took)
    }

    /// The next batch goes to the disk first; the answers leave while it is written. Many would keep
    /// this thread from the next step of that, as the end of so many appends would; a few are faster
    /// without a second thread.
    fn leave(&self, answers: Answers, spent: Vec<Append>) {
        let is_many = answers.waiting.len() > FEW_ANSWERS;
        let leave = async move {
            drop(answers);
            drop(spent);
        };
        if is_many {
            self.answering.spawn(leave);
        } else {
            actix_rt::spawn(leave);
        }
    }

    fn gather(&mut self) -> (Vec<Append>, Vec<Slot>) {
        let (mut batch, mut slots, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
        while batch.len() < MAX_BATCH_APPENDS && bytes < MAX_BATCH_BYTES {
            match self.queue.pop_front() {
                // It waits for what all hosts have under way: no neighbour waits, or fails, with it.
                Some(work) if is_apart(&work) && !batch.is_empty() => {
                    self.queue.push_front(work);
                    break;
                }
                Some(Work::Write(write)) => {
                    if write.reaches.iter().any(|reach| reach.activation.has_failed()) {
                        let (reaches, ticket) = (write.reaches, write.ticket);
                        // What it stands on may not be told yet, and goes back to its actor first.
                        match &mut self.committing {
                            Some(before) => before.slots.push(Slot::Stale { reaches, ticket }),
                            None => fail(&reaches, ticket, Failure::Stale, None),
                        }
                        continue;
                    }
                    let (writes, is_apart) = (write.append.writes(), sets_mark(&write.append));
                    let count =
                        write.append.parts.iter().map(|part| part.events.len()).sum::<usize>();
                    bytes += write.append.parts.iter().map(bytes_of).sum::<usize>();
                    batch.push(write.append);
                    let (reaches, ticket) = (write.reaches, write.ticket);
                    let (events, refused_behind) = (count as u64, None);
                    slots.push(Slot::Write { reaches, ticket, events, writes, refused_behind });
                    if is_apart {
                        break;
                    }
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
                Slot::Write { reaches, ticket, events, writes, refused_behind } => {
                    match outcomes.next() {
                        Some(Ok(AppendOutcome::Committed { taken })) => {
                            for reach in &reaches {
                                reach.activation.set_durable(reach.version);
                            }
                            self.counters.events.fetch_add(events, Relaxed);
                            self.counters.appends.fetch_add(u64::from(writes), Relaxed);
                            answers.waiting.push((ticket, taken));
                        }
                        outcome => fail(&reaches, ticket, failure(outcome), refused_behind),
                    }
                }
                Slot::Stale { reaches, ticket } => fail(&reaches, ticket, Failure::Stale, None),
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

fn is_apart(work: &Work) -> bool {
    matches!(work, Work::Write(write) if sets_mark(&write.append))
}

/// It begins to forget a connection, which nobody's claim may miss.
fn sets_mark(append: &Append) -> bool {
    let mut rows = append.parts.iter().flat_map(|part| &part.rows);
    rows.any(|change| matches!(change, RowChange::Put(row) if row.table == Table::Forgetting))
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

/// The first step of a batch.
async fn begin(
    storage: Arc<dyn Storage>,
    time: StoreTime,
    batch: Vec<Append>,
    timeout: Duration,
) -> Began {
    if is_planted(PlantedBug::AnswersBeforeCommit) {
        let outcomes = vec![AppendOutcome::Committed { taken: Vec::new() }; batch.len()];
        let passing = BatchError::Passing(unavailable("not yet begun"));
        actix_rt::spawn(carry_out(storage, time, batch, timeout, passing));
        return Began::Judged(BegunAppend { outcomes, commit: None }, Vec::new());
    }
    match storage.begin_append(&batch, time.now()).await {
        Ok(begun) => Began::Judged(begun, batch),
        Err(error) => Began::Failed(error, batch),
    }
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
