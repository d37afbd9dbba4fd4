//! What a batch owes to those who wait for it, from the queue to the answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::env::Activation;
use super::repository::{Failure, Reach, Ticket};
use super::telemetry;
use crate::domain::Row;
use crate::journal::AppendOutcome;

/// The work of one batch, in order; the appends themselves are in the batch.
pub(super) enum Slot {
    Write {
        reaches: Vec<Reach>,
        ticket: Box<dyn Ticket>,
        events: u64,
        writes: bool,
        /// It was refused before the commit, and then: an earlier one of its activations had failed.
        refused_behind: Option<bool>,
    },
    /// Not in the batch: it stands on what has failed, and is told so behind that.
    Stale {
        reaches: Vec<Reach>,
        ticket: Box<dyn Ticket>,
    },
    Barrier {
        activation: Arc<Activation>,
        ticket: Box<dyn Ticket>,
    },
    Flush(oneshot::Sender<()>),
}

/// A batch that has left the queue and has no outcomes yet. Should the store's threads be stopped
/// meanwhile, nobody can say what became of its appends.
pub(super) struct UnderWay {
    pub(super) slots: Vec<Slot>,
    /// The store's time when it was begun.
    pub(super) begun: Duration,
    /// Appends that write something.
    pub(super) writes: usize,
    /// Something of it must be in no file before long.
    pub(super) erases: bool,
}

impl UnderWay {
    /// No append stands on one that was refused, also where another host's decision of the same command
    /// has left a head that looks like it.
    pub(super) fn refuse(&mut self, outcomes: &[AppendOutcome]) {
        let mut outcomes = outcomes.iter();
        for slot in &mut self.slots {
            if let Slot::Write { reaches, refused_behind, .. } = slot
                && !matches!(outcomes.next(), Some(AppendOutcome::Committed { .. }))
            {
                *refused_behind = Some(mark(reaches));
            }
        }
    }

    pub(super) fn end(mut self) -> Vec<Slot> {
        std::mem::take(&mut self.slots)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        for slot in self.slots.drain(..) {
            if let Slot::Write { ticket, .. } = slot {
                ticket.failed(Failure::Unknown);
            }
        }
    }
}

/// Answers of a batch that is durable. Dropped, they leave, so that nobody is forgotten who waits.
pub(super) struct Answers {
    pub(super) waiting: Vec<(Box<dyn Ticket>, Vec<Row>)>,
    pub(super) took: Duration,
}

impl Drop for Answers {
    fn drop(&mut self) {
        for (ticket, taken) in self.waiting.drain(..) {
            ticket.committed(taken, self.took);
        }
    }
}

pub(super) fn failure(outcome: Option<Result<AppendOutcome, Failure>>) -> Failure {
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
/// have reloaded. Whether an earlier one had failed already.
fn mark(reaches: &[Reach]) -> bool {
    let behind = reaches.iter().any(|reach| reach.activation.has_failed());
    for reach in reaches {
        reach.activation.fail();
    }
    behind
}

/// Of two failures of one activation only the first has a reason of its own.
pub(super) fn fail(
    reaches: &[Reach],
    ticket: Box<dyn Ticket>,
    failure: Failure,
    refused_behind: Option<bool>,
) {
    let marked = mark(reaches);
    let behind = refused_behind.unwrap_or(marked);
    let conflict = matches!(failure, Failure::Conflict);
    ticket.failed(if conflict && behind { Failure::Stale } else { failure });
}
