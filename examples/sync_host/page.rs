//! One page of an enumeration: files are read, compared with the graph, and what changed is written.
//!
//! Rows first, then the store is told of the trims. A row says by `trim_due` that the store is still
//! to be told, so it does not matter where in between a run is killed, nor what becomes of the file
//! until the next one.
//!
//! What was fetched is applied only where the store says that the source wins: a value that was read
//! before a local write, or while one is under way, never replaces it.

use std::collections::HashSet;

use connector_store::{
    Digest, DocumentId, FetchedRead, Hlc, Json, PartitionId, ReadWinner, SourceId, Verification,
};

use crate::Failure;
use crate::document::{Document, fit_body, id_of, title_of};
use crate::graph::Known;
use crate::provider::{Content, Entry, Fetched};
use crate::summary::Counts;
use crate::sync::OwnerRun;
use crate::tasks::at_once;

/// So many commands of one owner are under way at a time: enough to fill the store's batches.
const COMMANDS_AT_ONCE: usize = 256;

/// A trim that the store is to be told of; none where the document no longer has one.
type DueTrim = (DocumentId, Option<String>);

/// Mirrors the entities and gives the ids of those that are there, mirrored or not.
pub async fn mirror(
    run: &OwnerRun,
    partition: &PartitionId,
    entries: &[Entry],
    counts: &mut Counts,
) -> Result<Vec<SourceId>, Failure> {
    let entries = entries.to_vec();
    // Before the first is read: what is written from now on, the reads cannot disprove.
    let stamp = run.mirror.stamp()?;
    let fetched = tokio::task::spawn_blocking(move || {
        entries.into_iter().map(|entry| (entry.fetch(), entry.source_id)).collect::<Vec<_>>()
    })
    .await?;

    let mut present = Vec::with_capacity(fetched.len());
    let mut contents = Vec::with_capacity(fetched.len());
    for (fetched, source_id) in fetched {
        match fetched {
            Fetched::Content(content) => {
                let id = id_of(&run.owner.did, &run.mirror.connector, &source_id)?;
                contents.push((id, source_id.clone(), content));
            }
            Fetched::Skipped(skip) => run.tell_skipped(&[skip], counts),
            Fetched::Gone => continue,
        }
        present.push(source_id);
    }

    read_back(run, &contents, &stamp, counts).await?;
    let (changed, trims) = compare(run, partition, contents, &stamp, counts).await?;
    if !changed.is_empty() {
        run.mirror.graph.write(&changed).await?;
        run.mirror.report.step(|| format!("{} documents of {partition} written", changed.len()));
    }
    tell_trims(run, trims).await?;
    Ok(present)
}

/// What is to be written, and what the store is to be told: also what a run that was killed left
/// untold.
async fn compare(
    run: &OwnerRun,
    partition: &PartitionId,
    contents: Vec<(DocumentId, SourceId, Content)>,
    stamp: &Hlc,
    counts: &mut Counts,
) -> Result<(Vec<Document>, Vec<DueTrim>), Failure> {
    let ids: Vec<_> = contents.iter().map(|(id, ..)| id.clone()).collect();
    let mut known = run.mirror.graph.known(&ids).await?;
    let differs = |(id, _, content): &&(DocumentId, SourceId, Content)| {
        known.get(id).is_some_and(|known| known.digest != content.digest)
    };
    let differing = contents.iter().filter(differs).map(|(id, ..)| id.clone()).collect();
    let local = local_winners(run, differing, stamp).await?;
    let (mut changed, mut trims) = (Vec::new(), Vec::new());
    for (id, source_id, content) in contents {
        counts.entities += 1;
        let known = known.remove(&id);
        match &known {
            Some(known) if known.digest == content.digest || local.contains(&id) => {
                counts.unchanged += 1;
                if known.trim_due {
                    trims.push((id, known.trim.clone()));
                }
                continue;
            }
            Some(_) => counts.updated += 1,
            None => counts.created += 1,
        }
        let document = document_of(run, partition, id, source_id, content, known.as_ref());
        counts.trimmed += u64::from(document.trim.is_some());
        if document.trim_due {
            trims.push((document.id.clone(), document.trim.clone()));
        }
        changed.push(document);
    }
    Ok((changed, trims))
}

/// Those of the documents that a local write keeps from taking what was fetched. One that the graph
/// has not is not asked about: an edit is in the graph before there is anything else of it.
async fn local_winners(
    run: &OwnerRun,
    documents: Vec<DocumentId>,
    stamp: &Hlc,
) -> Result<HashSet<DocumentId>, Failure> {
    let read = |document: &DocumentId| FetchedRead {
        owner: run.owner.did.clone(),
        document: document.clone(),
        fetch_hlc: stamp.clone(),
    };
    let reads: Vec<_> = documents.iter().map(read).collect();
    let winners = run.mirror.store.read_winners(&reads).await?;
    let pairs = documents.into_iter().zip(winners);
    Ok(pairs.filter(|(_, winner)| *winner != ReadWinner::Source).map(|(id, _)| id).collect())
}

/// Tells the store what was read of files that an earlier round wrote.
async fn read_back(
    run: &OwnerRun,
    contents: &[(DocumentId, SourceId, Content)],
    stamp: &Hlc,
    counts: &mut Counts,
) -> Result<(), Failure> {
    for (id, source_id, content) in contents {
        let Some(&number) = run.watched.get(id) else { continue };
        let document = run.session.document(id);
        let outcome =
            document.record_verification(stamp, Digest::from_hex(&content.digest)).await?;
        match outcome {
            Verification::Verified => counts.verified += 1,
            // Where a provider shows a write late, a later read may still show it.
            Verification::Mismatched { .. } | Verification::Stale => {
                counts.mismatched += u64::from(outcome != Verification::Stale);
                continue;
            }
            Verification::Expired => {
                counts.mismatched += 1;
                document.disarm_watch().await?;
                let name = &run.owner.name;
                run.mirror.report.note(&format!("{name}: what was written to {source_id} is gone"));
            }
            Verification::NoWatch => {}
        }
        run.mirror.graph.edit_done(number).await?;
    }
    Ok(())
}

fn document_of(
    run: &OwnerRun,
    partition: &PartitionId,
    id: DocumentId,
    source_id: SourceId,
    content: Content,
    known: Option<&Known>,
) -> Document {
    let digest = content.digest.clone();
    let (body, trim) = fit_body(content);
    let told = known.and_then(|known| known.trim.as_ref());
    let owed = known.is_some_and(|known| known.trim_due);
    Document {
        trim_due: owed || told != trim.as_ref(),
        version: None,
        title: title_of(&source_id),
        owner: run.owner.did.clone(),
        partition: partition.clone(),
        id,
        source_id,
        body,
        digest,
        trim,
    }
}

/// Tells the store what was trimmed, or no longer is; then the graph that the store knows.
async fn tell_trims(run: &OwnerRun, trims: Vec<DueTrim>) -> Result<(), Failure> {
    if trims.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = trims.iter().map(|(id, _)| id.clone()).collect();
    let commands = trims.into_iter().map(|(id, trim)| {
        let document = run.session.document(&id);
        let (owner, connector) = (run.owner.did.clone(), run.mirror.connector.clone());
        async move {
            match trim {
                Some(fields) => {
                    let fields = Json::parse("trimmed_fields", &fields)?;
                    document.set_entity_trim(&owner, &connector, fields).await
                }
                None => document.clear_entity_trim().await,
            }
        }
    });
    for result in at_once(COMMANDS_AT_ONCE, commands).await? {
        result?;
    }
    run.mirror.report.step(|| format!("{} trims recorded", ids.len()));
    run.mirror.graph.trims_told(&ids).await
}
