//! A batch that did not go through at once: tried again, halved, or looked up, until it is known what
//! became of each of its appends.

use std::sync::Arc;
use std::time::Duration;

use super::clock::{StoreTime, within};
use super::repository::Failure;
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Error, StorageFault};
use crate::journal::{Append, AppendOutcome, BatchError, Storage};

/// Tries of a batch that fails for a passing reason.
const MAX_BATCH_TRIES: u32 = 10;
/// First pause between them; it doubles.
const BATCH_RETRY_PAUSE: Duration = Duration::from_millis(2);
/// Pause between two look-ups of an unknown outcome.
const LOOK_UP_PAUSE: Duration = Duration::from_millis(100);

/// What a batch came to, append by append.
pub(super) type Outcomes = Vec<Result<AppendOutcome, Failure>>;

/// Carries a batch that has failed once to its end: no step of it is ever dropped half-way. A batch in
/// which one append is more than the storage can take is halved until that one is alone: it never fails
/// its neighbours. Gives back what was written besides.
pub(super) async fn carry_out(
    storage: Arc<dyn Storage>,
    time: StoreTime,
    batch: Vec<Append>,
    timeout: Duration,
    failed: BatchError,
) -> (Outcomes, Vec<Append>) {
    let (mut outcomes, mut spent) = (Vec::with_capacity(batch.len()), Vec::new());
    let (mut left, mut failed) = (vec![batch], Some(failed));
    while let Some(mut batch) = left.pop() {
        match write(&*storage, &time, &batch, failed.take()).await {
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

/// Writes a batch, unless it has `failed` already; one that fails for a passing reason is tried again.
async fn write(
    storage: &dyn Storage,
    time: &StoreTime,
    batch: &[Append],
    failed: Option<BatchError>,
) -> Result<Vec<AppendOutcome>, BatchError> {
    let mut result = match failed {
        Some(error) => Err(error),
        None => storage.append(batch, time.now()).await,
    };
    let mut pause = BATCH_RETRY_PAUSE;
    for _ in 1..MAX_BATCH_TRIES {
        let Err(BatchError::Passing(_)) = result else { break };
        time.sleep(pause).await;
        pause *= 2;
        result = storage.append(batch, time.now()).await;
    }
    result
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
