//! Deletions: each candidate is confirmed with the provider, then its document goes from the graph
//! and its rows from the store.
//!
//! The graph and the store are two databases. So a sweep is begun in the store first, and what was
//! begun is finished by the next run, whatever became of this one.

use std::sync::Arc;
use std::time::Duration;

use connector_store::{DocumentId, DocumentRef, SweepCandidate, SweepOutcome};

use crate::Failure;
use crate::summary::Counts;
use crate::sync::{Mirror, OwnerRun};
use crate::tasks::at_once;

/// So many candidates are dealt with together.
const CANDIDATES_AT_ONCE: u32 = 256;
/// Sweeps of one owner's documents all hold that owner's connector, so more at once gain nothing.
const SWEEPS_AT_ONCE: usize = 32;
/// How often a sweep that met others on its keys is tried.
const SWEEP_TRIES: u32 = 5;
/// The wait after the first try; it grows with each.
const SWEEP_RETRY: Duration = Duration::from_millis(20);

/// Finishes the sweeps that an earlier run had begun: the provider had confirmed them. They can only
/// be this host's own, because nobody else uses its store.
pub async fn finish_begun(mirror: &Arc<Mirror>) -> Result<(), Failure> {
    loop {
        let begun = mirror.store.begun_sweeps(None, CANDIDATES_AT_ONCE).await?;
        if begun.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = begun.into_iter().map(|sweep| sweep.document_id).collect();
        mirror.graph.delete(&ids).await?;
        let sweeps = ids.iter().map(|id| {
            let document = mirror.store.document(id);
            async move { sweep_rows(&document).await }
        });
        for result in at_once(SWEEPS_AT_ONCE, sweeps).await? {
            result?;
        }
        mirror.report.note(&format!("{} sweeps of an earlier run finished", ids.len()));
    }
}

/// Confirms and applies the candidates that are due. Each is dealt with once: one that cannot be
/// decided or applied now is not due again at once.
pub async fn apply_due(run: &OwnerRun, counts: &mut Counts) -> Result<(), Failure> {
    while !run.mirror.stop.requested() {
        let due = run.connector.due_candidates(CANDIDATES_AT_ONCE).await?;
        if due.is_empty() {
            return Ok(());
        }
        let absent = confirm(run, due).await?;
        let begun = begin(run, absent).await?;
        finish(run, begun, counts).await?;
    }
    Ok(())
}

/// Asks the provider about each candidate, and gives those that it says are gone.
async fn confirm(
    run: &OwnerRun,
    candidates: Vec<SweepCandidate>,
) -> Result<Vec<SweepCandidate>, Failure> {
    let folder = run.mirror.folder.clone();
    let answers = tokio::task::spawn_blocking(move || {
        let ask = |candidate: SweepCandidate| {
            // Another folder's candidate cannot be asked about here.
            let ours = candidate.provenance == *folder.provenance();
            let unknown = SweepOutcome::Unknown;
            let outcome = if ours { folder.confirm(&candidate.source_id) } else { unknown };
            (candidate, outcome)
        };
        candidates.into_iter().map(ask).collect::<Vec<_>>()
    })
    .await?;

    let commands = answers.into_iter().map(|(candidate, outcome)| {
        let connector = run.connector.clone();
        async move {
            connector.record_sweep_outcome(&candidate.key(), outcome).await?;
            Ok::<_, connector_store::Error>((outcome == SweepOutcome::Absent).then_some(candidate))
        }
    });
    let mut absent = Vec::new();
    for result in at_once(SWEEPS_AT_ONCE, commands).await? {
        absent.extend(result?);
    }
    run.mirror.report.step(|| format!("{} candidates confirmed", absent.len()));
    Ok(absent)
}

/// Begins the sweeps. One that the store refuses is put off.
async fn begin(
    run: &OwnerRun,
    candidates: Vec<SweepCandidate>,
) -> Result<Vec<SweepCandidate>, Failure> {
    let commands = candidates.into_iter().map(|candidate| {
        let (connector, document) =
            (run.connector.clone(), run.session.document(&candidate.document_id));
        async move {
            let Err(error) = document.begin_document_sweep().await else {
                return Ok(Some(candidate));
            };
            connector.record_sweep_apply_failure(&candidate.key(), &error.to_string()).await?;
            Ok::<_, connector_store::Error>(None)
        }
    });
    let mut begun = Vec::new();
    for result in at_once(SWEEPS_AT_ONCE, commands).await? {
        begun.extend(result?);
    }
    run.mirror.report.step(|| format!("{} sweeps begun", begun.len()));
    Ok(begun)
}

/// Deletes the documents from the graph, then their rows from the store, which ends the sweep.
async fn finish(
    run: &OwnerRun,
    begun: Vec<SweepCandidate>,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let ids: Vec<DocumentId> =
        begun.iter().map(|candidate| candidate.document_id.clone()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    run.mirror.graph.delete(&ids).await?;
    run.mirror.report.step(|| format!("{} documents deleted", ids.len()));
    let commands = begun.into_iter().map(|candidate| {
        let (connector, document) =
            (run.connector.clone(), run.session.document(&candidate.document_id));
        async move {
            sweep_rows(&document).await?;
            connector.sweep_applied(&candidate.key()).await
        }
    });
    for result in at_once(SWEEPS_AT_ONCE, commands).await? {
        result?;
        counts.swept += 1;
    }
    run.mirror.report.step(|| format!("{} sweeps finished", ids.len()));
    Ok(())
}

/// Sweeps the rows of one document. It takes the document and its connectors together, so it may
/// have to be tried again where others are at work on them: nothing happened then.
async fn sweep_rows(document: &DocumentRef) -> connector_store::Result<()> {
    let mut tries = 1;
    loop {
        match document.sweep_document_rows().await {
            Err(error) if error.is_retryable() && tries < SWEEP_TRIES => {
                tokio::time::sleep(SWEEP_RETRY * tries).await;
                tries += 1;
            }
            result => return result,
        }
    }
}
