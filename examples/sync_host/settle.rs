//! Edits on their way to the provider: each is written once, through whatever kills the host.
//!
//! The graph says what is to be written, the store how far it has come:
//!
//! ```text
//! edit kept in the graph ─ claim ─ mark_send_started ─ provider writes ─ finalize + watch ─ read back
//!                            │            │                  │                │
//!     killed here: the next run sends     │                  │                nothing is left to do
//!                                  it asks the provider, and waits until no request can be under way
//! ```
//!
//! A **conflict** is a file that was changed at the source while an edit of it is not written. Neither
//! is lost: the file stays as it is, and the document stays as the user edited it. Each run tells of
//! it. The user decides by editing once more: that edit stands upon what the conflict has shown,
//! and takes the place of the one before. An edit to the very text of the file takes the source's side.
//! It is a conflict as well when a killed run did write and the file was changed since, before any run
//! could see it: what stands there now is newer than what the host knows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use connector_store::{
    Claim, ClaimedOperation, DeferReason, Digest, DocumentId, Error, OperationKind, OperationPhase,
    OperationRecord, OperationRequest, SendPermit, Timestamp, WatchExpectation, WatchReason,
};
use tokio::time::Instant;

use crate::Failure;
use crate::crash::{CrashPoint, stop_until_woken};
use crate::graph::{Edit, EditState};
use crate::owners::Owner;
use crate::provider::{Put, PutAnswer, PutFailure, Standing};
use crate::summary::Counts;
use crate::sync::{Mirror, OwnerRun, now};

/// A request must leave within this time, so after a kill the next run waits no longer than that
/// before it may say that nothing was written.
const TTL: Duration = Duration::from_secs(2);
/// A folder shows a write at once.
const VISIBILITY_DELAY: Duration = Duration::ZERO;
/// So long something else than what was written may be read before the write counts as gone.
const READ_BACK_WITHIN: Duration = Duration::from_secs(60);
/// An edit that cannot be written now is tried again by the next round, whenever that is: a round
/// is never made because of a deferral, so there is nothing to slow down.
const NEXT_ROUND: Duration = Duration::ZERO;
/// How often the provider is asked in one round whether it has a write.
const MAX_ASKS: u32 = 5;

/// What became of an edit in this round.
enum Settled {
    /// Written by this round.
    Written,
    /// Found written.
    Reconciled,
    /// Another edit takes its place.
    Dropped,
    /// It waits, and why.
    Deferred(String),
    /// It waits for the user.
    Conflict,
}

/// Settles all edits of the owner, in their order. What is given back are the edits of earlier
/// rounds that are to be read back in this one: a later look is better evidence of a write than one
/// that follows it at once.
pub async fn settle(
    run: &OwnerRun,
    counts: &mut Counts,
) -> Result<HashMap<DocumentId, i64>, Failure> {
    let mut watched = run.mirror.graph.written(&run.owner.did).await?;
    // What stands behind an edit that waits has to wait as well: it was made upon it.
    let mut waiting = HashSet::new();
    let mut after = 0;
    while let Some(edit) = run.mirror.graph.next_unwritten(&run.owner.did, after).await? {
        after = edit.number;
        watched.remove(&edit.document);
        if run.mirror.stop.requested() || waiting.contains(&edit.document) {
            counts.deferred += 1;
            continue;
        }
        let settled = settle_one(run, &edit).await?;
        count(run, &edit, &settled, counts);
        if matches!(settled, Settled::Deferred(_) | Settled::Conflict) {
            waiting.insert(edit.document);
        }
    }
    Ok(watched)
}

/// Edits of owners who are not mirrored for in this run. They are kept, and must not be forgotten.
pub async fn of_others(mirror: &Arc<Mirror>, owners: &[Owner]) -> Result<u64, Failure> {
    let mut unwritten = mirror.graph.unwritten_by_owner().await?;
    unwritten.retain(|did, _| owners.iter().all(|owner| owner.did.as_str() != did));
    let edits = unwritten.values().sum();
    if edits > 0 {
        let owners = unwritten.len();
        mirror.report.note(&format!("{edits} edits wait for {owners} owners beyond --owners"));
    }
    Ok(edits)
}

fn count(run: &OwnerRun, edit: &Edit, settled: &Settled, counts: &mut Counts) {
    let (name, source_id) = (&run.owner.name, &edit.source_id);
    match settled {
        Settled::Written => {
            counts.written += 1;
            run.mirror.report.step(|| format!("{source_id} written for {name}"));
        }
        Settled::Reconciled => {
            counts.reconciled += 1;
            run.mirror.report.note(&format!("{name}: {source_id} was written already"));
        }
        Settled::Dropped => {
            run.mirror.report.note(&format!("{name}: a later edit of {source_id} takes the place"));
        }
        Settled::Deferred(reason) => {
            counts.deferred += 1;
            run.mirror.report.note(&format!("{name}: {source_id} is not written yet: {reason}"));
        }
        Settled::Conflict => {
            counts.deferred += 1;
            counts.conflicts += 1;
            run.mirror.report.note(&format!(
                "{name}: conflict: {source_id} was edited here and changed at the source; both are \
                 kept (--edit once more to decide)"
            ));
        }
    }
}

async fn settle_one(run: &OwnerRun, edit: &Edit) -> Result<Settled, Failure> {
    let document = run.session.document(&edit.document);
    let request = request(run, edit);
    let claim = match document.claim_operation(&request, &run.mirror.holder, TTL).await {
        Ok(claim) => claim,
        // Under another name, which was lost: it may still be at work.
        Err(error @ (Error::Deferred { .. } | Error::OperationBusy { .. })) => {
            return Ok(Settled::Deferred(error.to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    run.mirror.report.step(|| format!("{} claimed", edit.operation_id));
    run.mirror.crash.after(CrashPoint::Claim);
    let (operation, mut may_send) = match claim {
        Claim::Attempt(operation) => (operation, true),
        Claim::Reconcile(operation) => (operation, false),
        Claim::Finished(record) => return finished(run, edit, &record).await,
    };
    // The provider had refused it, and the user has decided since.
    if is_conflict(edit) && is_superseded(run, edit).await? {
        return kill(run, edit, &operation).await;
    }
    loop {
        let settled = if may_send {
            send(run, edit, &operation).await?
        } else {
            ask(run, edit, &operation).await?
        };
        match settled {
            Some(settled) => return Ok(settled),
            None => may_send = !may_send,
        }
    }
}

/// An earlier run has ended the operation, and could not tell the graph any more.
async fn finished(
    run: &OwnerRun,
    edit: &Edit,
    record: &OperationRecord,
) -> Result<Settled, Failure> {
    if let OperationPhase::Dead { .. } = record.operation.phase {
        return dropped(run, edit).await;
    }
    run.mirror.graph.edit_written(edit).await?;
    Ok(Settled::Reconciled)
}

/// The facts of the operation, which are the same in every run.
fn request(run: &OwnerRun, edit: &Edit) -> OperationRequest {
    let parts = [run.owner.did.as_str(), "\u{1f}", edit.source_id.as_str(), "\u{1f}", &edit.text];
    OperationRequest {
        operation_id: edit.operation_id.clone(),
        owner: run.owner.did.clone(),
        connector: run.mirror.connector.clone(),
        op: if edit.base.is_some() { OperationKind::Update } else { OperationKind::Create },
        version: edit.version.clone(),
        request_digest: Digest::of_parts(&parts.map(str::as_bytes)),
        visibility_delay: VISIBILITY_DELAY,
    }
}

/// Sends the request, if there is still time to when it is at hand. None where there was not: nobody
/// may say then that it did not leave.
async fn send(
    run: &OwnerRun,
    edit: &Edit,
    operation: &ClaimedOperation,
) -> Result<Option<Settled>, Failure> {
    let (permit, asked) = mark(operation).await?;
    run.mirror.report.step(|| format!("{} may be sent", edit.operation_id));
    run.mirror.crash.after(CrashPoint::Send);
    if asked.elapsed() >= permit.send_within {
        operation.record_unknown().await?;
        return Ok(None);
    }
    // A process that is stopped here is woken too late, and no clock of its own can tell it so
    // before the request is out. That is why the request says what it expects to meet.
    if run.mirror.stop_before_write {
        run.mirror.report.note("stopping before the write");
        stop_until_woken();
    }
    let put = Put {
        owner: run.owner.name.clone(),
        source_id: edit.source_id.clone(),
        text: edit.text.clone(),
        if_match: edit.base.clone(),
    };
    let (folder, crash) = (run.mirror.folder.clone(), run.mirror.crash);
    let answer = tokio::task::spawn_blocking(move || folder.put(&put, crash)).await?;
    run.mirror.crash.after(CrashPoint::Write);
    let settled = match answer {
        Ok(PutAnswer::Written) => {
            finalize(run, edit, operation).await?;
            Settled::Written
        }
        Ok(PutAnswer::AlreadySo) => {
            finalize(run, edit, operation).await?;
            Settled::Reconciled
        }
        Ok(PutAnswer::Refused(standing)) => conflict(run, edit, operation, standing).await?,
        Err(PutFailure::NotWritten(error)) => {
            operation.defer(DeferReason::Offline, NEXT_ROUND, true).await?;
            Settled::Deferred(error.to_string())
        }
        Err(PutFailure::Unknown(error)) => {
            operation.record_unknown().await?;
            operation.defer(DeferReason::Offline, NEXT_ROUND, false).await?;
            Settled::Deferred(format!("it is not known whether it was written: {error}"))
        }
    };
    Ok(Some(settled))
}

/// Asks for the permission to send, and takes the time before: the permission counts from then.
async fn mark(operation: &ClaimedOperation) -> Result<(SendPermit, Instant), Failure> {
    let asked = Instant::now();
    match operation.mark_send_started().await {
        // To ask the provider may have taken longer than the claim lasts.
        Err(Error::LeaseExpired { .. }) => {
            operation.renew(TTL).await?;
            let asked = Instant::now();
            Ok((operation.mark_send_started().await?, asked))
        }
        permit => Ok((permit?, asked)),
    }
}

/// Asks the provider whether it has what may have been sent. None where it has it not, and no request
/// can be under way.
async fn ask(
    run: &OwnerRun,
    edit: &Edit,
    operation: &ClaimedOperation,
) -> Result<Option<Settled>, Failure> {
    let mut asks = 0;
    loop {
        operation.begin_reconcile_read().await?;
        let (folder, source_id) = (run.mirror.folder.clone(), edit.source_id.clone());
        let standing = tokio::task::spawn_blocking(move || folder.standing(&source_id)).await?;
        if standing == Standing::File(edit.digest.clone()) {
            finalize(run, edit, operation).await?;
            return Ok(Some(Settled::Reconciled));
        }
        asks += 1;
        match operation.record_not_written().await {
            Ok(()) => return Ok(None),
            // Who sent it may have been stopped, and may yet wake in time to write.
            Err(error @ Error::ReconcileTooEarly { not_before, .. }) => {
                let wait = until(not_before);
                if asks == MAX_ASKS || run.mirror.stop.requested() {
                    operation.defer(DeferReason::Dependency, wait, false).await?;
                    return Ok(Some(Settled::Deferred(error.to_string())));
                }
                let (name, source_id) = (&run.owner.name, &edit.source_id);
                run.mirror.report.note(&format!(
                    "{name}: waiting: a request for {source_id} may still be under way, for {} ms \
                     at most",
                    wait.as_millis()
                ));
                run.mirror.stop.sleep(wait).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// How long it is until then, and a little: at most as long as a request may be under way.
fn until(time: Timestamp) -> Duration {
    let wait = time.as_millis().saturating_sub(now().as_millis());
    let wait = Duration::from_millis(u64::try_from(wait).unwrap_or_default());
    wait.min(TTL) + Duration::from_millis(20)
}

/// The provider has the write. The watch is armed in the same moment, so the next round reads back
/// what this one wrote, wherever this one ends.
async fn finalize(
    run: &OwnerRun,
    edit: &Edit,
    operation: &ClaimedOperation,
) -> Result<(), Failure> {
    let watch = WatchExpectation {
        reason: WatchReason::Write,
        expected_digest: Digest::from_hex(&edit.digest),
        written_hlc: edit.version.clone(),
        deadline: READ_BACK_WITHIN,
    };
    operation.finalize_committed(&edit.source_id, Some(&edit.digest), Some(&watch)).await?;
    run.mirror.crash.after(CrashPoint::Finalize);
    run.mirror.graph.edit_written(edit).await
}

/// The provider has refused: something else stands there. That is safe in the graph before the
/// store forgets that anything was sent.
async fn conflict(
    run: &OwnerRun,
    edit: &Edit,
    operation: &ClaimedOperation,
    standing: Standing,
) -> Result<Settled, Failure> {
    let seen = match &standing {
        Standing::File(digest) => Some(digest.as_str()),
        Standing::Absent | Standing::Other(_) => None,
    };
    run.mirror.graph.edit_conflicts(edit, seen).await?;
    if is_superseded(run, edit).await? {
        return kill(run, edit, operation).await;
    }
    operation.defer(DeferReason::Conflict, NEXT_ROUND, true).await?;
    Ok(Settled::Conflict)
}

/// The write will never be made.
async fn kill(
    run: &OwnerRun,
    edit: &Edit,
    operation: &ClaimedOperation,
) -> Result<Settled, Failure> {
    operation.finalize_dead("a later edit took its place").await?;
    dropped(run, edit).await
}

async fn dropped(run: &OwnerRun, edit: &Edit) -> Result<Settled, Failure> {
    run.mirror.graph.edit_dropped(edit).await?;
    Ok(Settled::Dropped)
}

fn is_conflict(edit: &Edit) -> bool {
    matches!(edit.state, EditState::Conflict(_))
}

/// The user has edited the document once more since.
async fn is_superseded(run: &OwnerRun, edit: &Edit) -> Result<bool, Failure> {
    let last = run.mirror.graph.last_unwritten(&edit.document).await?;
    Ok(last.is_some_and(|last| last.number > edit.number))
}
