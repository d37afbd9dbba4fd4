//! One partition: its enumeration page by page, with a receipt that proves it.
//!
//! The order of the steps of a page is what makes it safe to be killed anywhere: rows in the graph,
//! trims in the store, the page in the receipt, and only then the checkpoint, which says that all
//! before it is safe.

use connector_store::{
    BeginReceipt, Error, Json, MassDeleteGuard, ModelId, PartitionId, ReceiptKey, ReceiptKind,
    Rfc3339, SourceId, SyncProgress,
};
use serde_json::json;

use crate::document::MODEL;
use crate::summary::Counts;
use crate::sync::{OwnerRun, now};
use crate::{Failure, page};

/// Mirrors one partition and commits its receipt.
pub async fn mirror(
    run: &OwnerRun,
    partition: &PartitionId,
    counts: &mut Counts,
) -> Result<(), Failure> {
    counts.partitions += 1;
    let listing = {
        let (folder, partition) = (run.mirror.folder.clone(), partition.clone());
        tokio::task::spawn_blocking(move || folder.list(&partition)).await?
    };
    run.mirror.report.found(listing.entries.len());
    run.tell_skipped(&listing.skipped, counts);

    let mut receipt = Some(begin_receipt(run, partition).await?);
    let page_size = usize::try_from(run.mirror.page_size)?;
    let mut pages = 0;
    for entries in listing.entries.chunks(page_size) {
        if run.mirror.stop.requested() {
            return Ok(());
        }
        let present = page::mirror(run, partition, entries, counts).await?;
        if let Some(key) = receipt.take() {
            receipt = extend_receipt(run, key, pages, present).await?;
        }
        pages += 1;
        let documents = run.documents + i64::try_from(counts.created)?;
        move_checkpoint(run, partition, pages, documents).await?;
        run.mirror.report.advance(entries.len());
    }

    // A receipt that lacks something must never be completed: what it lacks would look deleted.
    match receipt {
        Some(key) if !listing.hidden => commit_receipt(run, &key, pages, counts).await,
        _ => {
            let name = &run.owner.name;
            run.mirror.report.note(&format!(
                "{name}: {partition} could not be listed whole, so nothing of it is swept"
            ));
            Ok(())
        }
    }
}

async fn begin_receipt(run: &OwnerRun, partition: &PartitionId) -> Result<ReceiptKey, Failure> {
    let receipt = run
        .connector
        .begin_receipt(BeginReceipt {
            partition: partition.clone(),
            provenance: run.mirror.folder.provenance().clone(),
            model_id: ModelId::new(MODEL)?,
            scope: json!({ "model": MODEL, "partition": partition.as_str() }).to_string(),
            source_fetch_hlc: run.mirror.stamp()?,
            predicate: None,
            kind: ReceiptKind::Full,
            fingerprint: run.mirror.folder.fingerprint(),
        })
        .await?;
    run.mirror.report.step(|| format!("receipt of {partition} begun"));
    Ok(receipt.key())
}

/// Adds a page to the receipt. A partition that has more entities than a receipt can hold is
/// mirrored all the same, without one.
async fn extend_receipt(
    run: &OwnerRun,
    key: ReceiptKey,
    page: u32,
    ids: Vec<SourceId>,
) -> Result<Option<ReceiptKey>, Failure> {
    let fingerprint = run.mirror.folder.fingerprint();
    match run.connector.extend_receipt(&key, page, ids, &fingerprint).await {
        Ok(()) => {
            run.mirror.report.step(|| format!("page {page} of {} in its receipt", key.partition));
            Ok(Some(key))
        }
        Err(error @ Error::ReceiptTooLarge { .. }) => {
            run.mirror.report.note(&error.to_string());
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

async fn move_checkpoint(
    run: &OwnerRun,
    partition: &PartitionId,
    pages: u32,
    entity_count: i64,
) -> Result<(), Failure> {
    let checkpoint = json!({ "partition": partition.as_str(), "pages": pages });
    let checkpoint = Json::from_value("checkpoint", &checkpoint)?;
    let started = Rfc3339::from_timestamp(now());
    run.connector
        .update_sync_progress(move |state| SyncProgress {
            checkpoint: Some(checkpoint.clone()),
            recovery: None,
            last_synced_at: state.map_or(started.clone(), |state| state.last_synced_at.clone()),
            entity_count,
            error: None,
        })
        .await?;
    run.mirror.report.step(|| format!("checkpoint after {pages} pages of {partition}"));
    Ok(())
}

/// The enumeration is whole: what is known and was not seen becomes a candidate for deletion,
/// unless that is too much to be believed.
async fn commit_receipt(
    run: &OwnerRun,
    key: &ReceiptKey,
    pages: u32,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let fingerprint = run.mirror.folder.fingerprint();
    // No count is passed on: an empty directory is not the word of anybody that it ought to be so.
    run.connector.complete_receipt(key, pages, None, &fingerprint).await?;
    run.mirror.report.step(|| format!("receipt of {} complete", key.partition));
    let guard = guard(run, &key.partition).await?;
    let mut known = run.mirror.graph.documents(&run.owner.did, &key.partition).await?;
    // Local intent comes first: what the user has edited is not deleted because the source has it
    // not, or not any more.
    let edited = run.mirror.graph.unwritten(&run.owner.did).await?;
    known.retain(|(id, _)| !edited.contains(id));
    match run.connector.commit_receipt(key, known, guard).await {
        Ok(_) => run.mirror.report.step(|| format!("receipt of {} committed", key.partition)),
        Err(error @ Error::SweepTooLarge { .. }) => {
            counts.refused += 1;
            let name = &run.owner.name;
            run.mirror.report.note(&format!(
                "{name}: refused: {error}; nothing of it is deleted \
                 (--allow-mass-delete if this is right)"
            ));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// The usual guard; but where the last receipt of the partition was about another folder, the
/// difference of two folders is no deletion, and nothing goes without the user's word.
async fn guard(run: &OwnerRun, partition: &PartitionId) -> Result<MassDeleteGuard, Failure> {
    let allow_mass_delete = run.mirror.allow_mass_delete;
    let guard = MassDeleteGuard { allow_mass_delete, ..MassDeleteGuard::default() };
    let last = run.connector.sweep_checkpoint(partition).await?;
    let elsewhere = last.is_some_and(|last| last.provenance != *run.mirror.folder.provenance());
    Ok(if elsewhere { MassDeleteGuard { max_ratio: 0.0, min_count: 1, ..guard } } else { guard })
}
