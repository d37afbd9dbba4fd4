//! Edits: people change documents, and whichever host has the time writes them to the provider, by the
//! protocol of operations: it claims, marks, sends, and says or asks what became of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use connector_store::testing::ProviderError;
use connector_store::{
    Claim, ClaimedOperation, Clock as _, DeferReason, Digest, DocumentId, DueWork, Error, Holder,
    LeaseScope, OperationFilter, OperationPhase, OperationState, Result, SendPermit,
    WatchExpectation, WatchReason, Work,
};

use super::Worker;
use super::plans::{self, Answer, Plan, Pursuit, Stopped, source};
use super::watches::verify;
use crate::engine::audit::leases::Step;
use crate::engine::world::World;

/// Rounds in which all that was begun comes to its end once nothing fails.
const LAST_ROUNDS: usize = 60;
/// Tries of a step whose outcome is unknown.
const TRIES: usize = 3;

pub async fn work(worker: &Worker) {
    let world = &worker.world;
    let documents: Vec<_> = plans::documents().collect();
    let (document, action) =
        world.chance(|chance| (documents[chance.below(documents.len())].clone(), chance.below(20)));
    let _ = match action {
        0..11 => edit(worker, &document).await,
        11..13 => due(worker).await,
        13 => tracked(worker).await,
        14 => sweep(worker, &document).await,
        15 => other_facts(worker, &document).await,
        16 => ask(worker, &document).await,
        _ => verify(worker, &document).await,
    };
}

async fn edit(worker: &Worker, document: &DocumentId) -> Result<()> {
    let all = &worker.world.accounts.all;
    // A document is of one account.
    let owner = &all[usize::from(document.as_str().as_bytes()[1]) % all.len()].owner;
    let plan = worker.world.accounts.edits.wanted(&worker.world, document, owner);
    pursue(worker, &plan).await
}

/// What the store says is to be done.
async fn due(worker: &Worker) -> Result<()> {
    let mut due = worker.store.due_work();
    for _ in 0..3 {
        let next = worker.world.call(&worker.host, "next due work", due.next_ready()).await?;
        match next {
            None => return Ok(()),
            Some(DueWork { work: Work::Operation { operation_id, .. }, .. }) => {
                if let Some(plan) = worker.world.accounts.edits.plan(&operation_id) {
                    let _ = pursue(worker, &plan).await;
                }
            }
            Some(DueWork { work: Work::Watch { document_id, .. }, .. })
                if plans::documents().any(|of| of == document_id) =>
            {
                let _ = verify(worker, &document_id).await;
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// What is unfinished, as a host lists it.
async fn tracked(worker: &Worker) -> Result<()> {
    let filter = unfinished(&worker.world);
    let call = worker.store.tracked_operations(&filter, None, 10);
    let found = worker.world.call(&worker.host, "list operations", call).await?;
    for record in found.iter().take(2) {
        if let Some(plan) = worker.world.accounts.edits.plan(&record.operation_id) {
            let _ = pursue(worker, &plan).await;
        }
    }
    Ok(())
}

/// Ended operations go with their document, and nobody comes back to them.
async fn sweep(worker: &Worker, document: &DocumentId) -> Result<()> {
    if !worker.world.accounts.edits.close(&worker.world, document) {
        return Ok(());
    }
    let handle = worker.store.document(document);
    let call = handle.sweep_document_rows();
    worker.world.call(&worker.host, &format!("sweep a document: {document}"), call).await
}

/// The id of an operation, and other facts.
async fn other_facts(worker: &Worker, document: &DocumentId) -> Result<()> {
    let world = &worker.world;
    let Some(plan) = world.accounts.edits.newest(document) else { return Ok(()) };
    let stage = world.audit.borrow().operations.stage(plan.id());
    let Some(_pursuit) = Pursuit::of(&plan).filter(|_| stage.is_some()) else { return Ok(()) };
    let mut request = plan.request.clone();
    request.request_digest = Digest::of(b"other");
    let holder = Holder::new(&worker.name).unwrap();
    let claim = |id| {
        let handle = worker.store.document(document).with_command_id(id);
        let (request, holder) = (request.clone(), holder.clone());
        async move { handle.claim_operation(&request, &holder, Duration::from_secs(5)).await }
    };
    let claim =
        world.command(&worker.host, &format!("claim with other facts: {}", plan.id()), claim).await;
    let is_refused = claim.is_err();
    world.hold("an operation's facts stay", is_refused, || format!("{claim:?}"));
    Ok(())
}

async fn ask(worker: &Worker, document: &DocumentId) -> Result<()> {
    let world = &worker.world;
    let Some(plan) = world.accounts.edits.newest(document) else { return Ok(()) };
    let handle = worker.store.document(document);
    let what = format!("read the winner: {document}");
    let fetched = world.accounts.edits.stamp(world);
    world.call(&worker.host, &what, handle.read_winner(&plan.request.owner, &fetched)).await?;
    let what = format!("ask for a newer operation: {}", plan.id());
    world.call(&worker.host, &what, handle.has_newer_operation(plan.id())).await?;
    Ok(())
}

/// Brings an operation on, as far as it goes now.
async fn pursue(worker: &Worker, plan: &Rc<Plan>) -> Result<()> {
    let world = &worker.world;
    let Some(_pursuit) = Pursuit::of(plan) else { return Ok(()) };
    let document_id = plan.document.clone();
    let scope = LeaseScope::Operation { document_id, operation_id: plan.id().clone() };
    world.audit.borrow_mut().leases.is_told(&scope);
    let (whole, ttl) = world.chance(|chance| (chance.per_mille(100), chance.millis(1_000, 10_000)));
    let holder = if whole { worker.host.holder() } else { Holder::new(&worker.name).unwrap() };
    let document = worker.store.document(&plan.document);
    // What is finished is only told, and leaves nothing under the command's id: as a refusal does.
    let finished = RefCell::new(None);
    let claim = |id| {
        let (document, holder, finished) =
            (document.with_command_id(id), holder.clone(), &finished);
        async move {
            match document.claim_operation(&plan.request, &holder, ttl).await? {
                Claim::Attempt(claimed) => Ok((claimed, true)),
                Claim::Reconcile(claimed) => Ok((claimed, false)),
                Claim::Finished(record) => {
                    finished.replace(Some(record));
                    Err(Error::NotFound { what: "anything to be done" })
                }
            }
        }
    };
    let what = format!("claim: {} for {holder}", plan.id());
    let claimed = world.command(&worker.host, &what, claim).await;
    if let Some(record) = finished.take() {
        let writes = world.accounts.edits.provider.effective_writes(plan.id());
        let is_committed = matches!(record.operation.phase, OperationPhase::Committed { .. });
        world.hold("a replay gets what became of it", writes == u32::from(is_committed), || {
            format!("{record:?}, written {writes} times")
        });
    }
    let (claimed, may_send) = claimed?;
    let hand = Hand { worker, plan, scope, claimed };
    // The claim was so long on its way that the document was swept before it, and the operation's row
    // with it: nothing but the plan tells that it was done.
    if hand.plan.is_closed() {
        return hand
            .step(Step::Finalize, |of| async move { of.finalize_dead("swept").await })
            .await;
    }
    if may_send { hand.attempt().await } else { hand.reconcile().await }
}

fn name(step: Step) -> &'static str {
    match step {
        Step::Mark => "mark as sent",
        Step::Defer => "defer",
        Step::Record => "record an outcome",
        Step::Read => "begin a read to reconcile",
        Step::Finalize => "finalize",
        Step::Renew => "renew a claim",
        Step::Release => "release a claim",
    }
}

/// An operation in hand.
struct Hand<'a> {
    worker: &'a Worker,
    plan: &'a Rc<Plan>,
    scope: LeaseScope,
    claimed: ClaimedOperation,
}

impl Hand<'_> {
    /// A call under the token, repeated while nobody knows what became of it.
    async fn step<T, F>(&self, step: Step, call: impl Fn(ClaimedOperation) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let world = &self.worker.world;
        let what = format!("{}: {}", name(step), self.plan.id());
        let mut tries = 0;
        loop {
            tries += 1;
            world.audit.borrow_mut().leases.call(&self.scope, step, self.claimed.token());
            let result = world.call(&self.worker.host, &what, call(self.claimed.clone())).await;
            let is_certain = !matches!(&result, Err(error) if error.is_retryable() || matches!(error, Error::OutcomeUnknown { .. }));
            if is_certain || tries == TRIES {
                return result;
            }
            world.rest(50, 2_000).await;
        }
    }

    /// It may be sent. Not everybody gets there.
    async fn attempt(mut self) -> Result<()> {
        let world = &self.worker.world;
        match world.chance(|chance| chance.below(24)) {
            0 => return self.step(Step::Release, |of| async move { of.release().await }).await,
            1 => return self.defer(DeferReason::Dependency, Duration::from_secs(3), false).await,
            2 => return Ok(()),
            3 => return self.unknown().await,
            // Of what may still leave late nobody knows that it will never be made.
            4 if !self.plan.has_condition() => {
                return self
                    .step(Step::Finalize, |of| async move { of.finalize_dead("given up").await })
                    .await;
            }
            5..8 => {
                let ttl = world.chance(|chance| chance.millis(2_000, 10_000));
                self.claimed =
                    self.step(Step::Renew, |of| async move { of.renew(ttl).await }).await?;
            }
            8..12 => world.rest(1, 12_000).await,
            _ => {}
        }
        let called = Cell::new(Duration::ZERO);
        let mark = self.step(Step::Mark, |of| {
            let called = &called;
            async move {
                called.set(world.clock.monotonic());
                of.mark_send_started().await
            }
        });
        let mark = mark.await;
        if mark.is_ok() && world.chance(|chance| chance.per_mille(100)) {
            let again =
                self.step(Step::Mark, |of| async move { of.mark_send_started().await }).await;
            world.hold("an operation is marked once", again.is_err(), || format!("{again:?}"));
        }
        match mark {
            Ok(permit) => self.send(permit, called.get()).await,
            Err(Error::LeaseExpired { .. }) => {
                self.step(Step::Release, |of| async move { of.release().await }).await
            }
            Err(error) => Err(error),
        }
    }

    async fn send(self, permit: SendPermit, called: Duration) -> Result<()> {
        let world = &self.worker.world;
        let (is_stopped, latency) =
            world.chance(|chance| (chance.per_mille(400), chance.millis(1, 3_000)));
        let answer = if self.plan.has_condition() && is_stopped {
            // The clock was looked at, and the host is stopped before the request leaves.
            let stopped = Stopped::new(self.plan);
            world.rest(0, 40_000).await;
            let answer = plans::send(world, self.plan, latency, permit.send_until);
            drop(stopped);
            answer
        } else {
            self.worker.host.unpaused().await;
            let left = (called + permit.send_within).saturating_sub(world.clock.monotonic());
            // Its time-out ends with the permit.
            let latency = latency.min(left.saturating_sub(Duration::from_millis(1)));
            if latency.is_zero() {
                return self.unknown().await;
            }
            plans::send(world, self.plan, latency, permit.send_until)
        };
        match answer.await {
            Ok(answer) => self.answered(answer).await,
            Err(_) => Ok(()),
        }
    }

    async fn answered(self, answer: Answer) -> Result<()> {
        let is_delete = self.plan.write.content.is_none();
        match answer {
            Ok(version) => self.commit(version.as_deref()).await,
            Err(ProviderError::Gone) if is_delete => self.commit(None).await,
            Err(ProviderError::RateLimited { retry_after }) => {
                self.worker.world.audit.borrow_mut().operations.refused(self.plan.id());
                self.defer(DeferReason::RateLimited, retry_after, true).await
            }
            // Nobody knows, or an earlier request of it was late.
            Err(_) => self.unknown().await,
        }
    }

    async fn commit(&self, version: Option<&str>) -> Result<()> {
        let expected = WatchExpectation {
            reason: WatchReason::Write,
            expected_digest: self.plan.expected(),
            written_hlc: self.plan.request.version.clone(),
            deadline: Duration::from_secs(20),
        };
        let source_id = source(&self.plan.document);
        self.step(Step::Finalize, |of| {
            let (source_id, expected) = (&source_id, &expected);
            async move { of.finalize_committed(source_id, version, Some(expected)).await }
        })
        .await
        .map(drop)
    }

    async fn defer(&self, reason: DeferReason, by: Duration, is_refused: bool) -> Result<()> {
        self.step(Step::Defer, |of| async move { of.defer(reason, by, is_refused).await }).await
    }

    async fn unknown(self) -> Result<()> {
        self.step(Step::Record, |of| async move { of.record_unknown().await }).await?;
        if self.worker.world.chance(|chance| chance.per_mille(500)) {
            return self.reconcile().await;
        }
        Ok(())
    }

    /// It may have been sent: the provider is asked.
    async fn reconcile(self) -> Result<()> {
        let world = &self.worker.world;
        let pause = world.chance(|chance| chance.millis(500, 8_000));
        self.step(Step::Read, |of| async move { of.begin_reconcile_read().await }).await?;
        world.rest(1, 800).await;
        self.worker.host.unpaused().await;
        match world.accounts.edits.is_written(self.plan) {
            Ok(true) => return self.commit(None).await,
            Ok(false) => {}
            Err(_) => return self.defer(DeferReason::Offline, pause, false).await,
        }
        match self.step(Step::Record, |of| async move { of.record_not_written().await }).await {
            Ok(()) if world.chance(|chance| chance.per_mille(300)) => Ok(()),
            Ok(()) => Box::pin(self.attempt()).await,
            Err(Error::ReconcileTooEarly { .. }) => {
                self.defer(DeferReason::Dependency, pause, false).await
            }
            Err(error) => Err(error),
        }
    }
}

/// All operations come to their end, and all watches, once nothing fails.
pub async fn finish(worker: &Worker) {
    let world = &worker.world;
    let edits = &world.accounts.edits;
    edits.provider.chances(&[]);
    for _ in 0..LAST_ROUNDS {
        let unfinished: Vec<_> =
            edits.all().into_iter().filter(|plan| !has_ended(world, plan)).collect();
        let mut watched = Vec::new();
        for document in plans::documents() {
            let watch = worker.store.document(&document).watch().await;
            if !matches!(watch, Ok(None)) {
                watched.push(document);
            }
        }
        if unfinished.is_empty() && watched.is_empty() || world.is_broken() {
            return nothing_is_left(worker).await;
        }
        for plan in &unfinished {
            let _ = pursue(worker, plan).await;
        }
        for document in &watched {
            let _ = verify(worker, document).await;
        }
        world.rest(2_000, 5_000).await;
    }
    world.violate("all comes to its end once nothing fails", "operations or watches do not");
}

fn unfinished(world: &World) -> OperationFilter {
    OperationFilter {
        connector: Some(world.accounts.edits.connector.clone()),
        states: vec![OperationState::Attempted, OperationState::ReconcileOnly],
        ..OperationFilter::default()
    }
}

async fn nothing_is_left(worker: &Worker) {
    let filter = unfinished(&worker.world);
    let left = worker.store.tracked_operations(&filter, None, 10).await;
    let is_none = matches!(&left, Ok(left) if left.is_empty());
    worker.world.hold("all comes to its end once nothing fails", is_none, || format!("{left:?}"));
}

/// One that was never claimed is nowhere.
fn has_ended(world: &World, plan: &Plan) -> bool {
    let stage = world.audit.borrow().operations.stage(plan.id());
    stage.is_none_or(|stage| stage.is_final())
}
