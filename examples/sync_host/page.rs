//! One page of an enumeration: files are read, compared with the graph, and what changed is written.
//!
//! Rows first, then the store is told of the trims, and given signed records of what was seen. A row
//! says by `trim_due` and `sign_due` that the store is still to be told, so it does not matter where in
//! between a run is killed, nor what becomes of the file until the next one.
//!
//! What was fetched is applied only where the store says that the source wins: a value that was read
//! before a local write, while one is under way, or before something newer was decided, never
//! replaces it.

use std::collections::{HashMap, HashSet};

use connector_store::{
    Digest, DocumentId, FetchedRead, Hlc, Json, PartitionId, ReadWinner, SourceId, Verification,
};

use crate::document::{Document, fit_body, id_of, title_of};
use crate::graph::Known;
use crate::provider::{Content, Entry, Fetched};
use crate::summary::Counts;
use crate::sync::OwnerRun;
use crate::tasks::at_once;
use crate::{Failure, observe};

/// So many commands of one owner are under way at a time: enough to fill the store's batches.
const COMMANDS_AT_ONCE: usize = 256;

/// A trim that the store is to be told of; none where the document no longer has one.
type DueTrim = (DocumentId, Option<String>);

/// What a page comes to.
#[derive(Debug, Default)]
struct Changes {
    /// Rows to be written.
    documents: Vec<Document>,
    /// Trims to be told: also what a run that was killed left untold.
    trims: Vec<DueTrim>,
    /// Documents of which something newer was decided than what was fetched, and the stamp of what
    /// they show.
    owed: Vec<(DocumentId, Hlc)>,
    /// Documents whose repair this fetch is.
    paid: Vec<DocumentId>,
}

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
    let changes = compare(run, partition, contents, &stamp, counts).await?;
    let written = changes.documents.len();
    if written > 0 {
        run.mirror.graph.write(&changes.documents).await?;
        run.mirror.report.step(|| format!("{written} documents of {partition} written"));
    }
    tell_trims(run, changes.trims).await?;
    observe::sign_due(run, counts).await?;
    for (id, shown) in &changes.owed {
        observe::owe(run, id, shown).await?;
    }
    // Last: killed before, the next run would pay once more.
    for id in &changes.paid {
        run.session.document(id).clear_repair().await?;
    }
    Ok(present)
}

/// Compares what was fetched with what is known, and asks the store who wins where they differ.
async fn compare(
    run: &OwnerRun,
    partition: &PartitionId,
    contents: Vec<(DocumentId, SourceId, Content)>,
    stamp: &Hlc,
    counts: &mut Counts,
) -> Result<Changes, Failure> {
    let ids: Vec<_> = contents.iter().map(|(id, ..)| id.clone()).collect();
    let mut known = run.mirror.graph.known(&ids).await?;
    let repairs = run.mirror.store.repairs(&ids).await?;
    let mut owing: HashSet<_> = repairs.into_iter().map(|repair| repair.document_id).collect();
    let is_asked = |(id, _, content): &&(DocumentId, SourceId, Content)| {
        known.get(id).is_some_and(|known| known.digest != content.digest || owing.contains(id))
    };
    let asked = contents.iter().filter(is_asked).map(|(id, ..)| id.clone()).collect();
    let mut winners = winners(run, asked, stamp).await?;
    let mut changes = Changes::default();
    for (id, source_id, content) in contents {
        counts.entities += 1;
        let known = known.remove(&id);
        let winner = winners.remove(&id).unwrap_or(ReadWinner::Source);
        let is_owing = owing.remove(&id);
        if let Some(known) = &known {
            let is_same = known.digest == content.digest;
            let is_applied = winner == ReadWinner::Source;
            counts.unchanged += u64::from(is_same || !is_applied);
            counts.updated += u64::from(!is_same && is_applied);
            if let ReadWinner::Decision { .. } = winner {
                counts.decided += 1;
                let shown = known.version.clone().unwrap_or_else(|| stamp.clone());
                changes.owed.push((id.clone(), shown));
            }
            // What is the same is signed once more where others have decided something else since.
            if !is_applied || is_same && !is_owing && known.version.is_some() {
                changes.trims.extend(known.trim_due.then(|| (id, known.trim.clone())));
                continue;
            }
        } else {
            counts.created += 1;
        }
        if is_owing {
            changes.paid.push(id.clone());
        }
        let document = document_of(run, partition, id, source_id, content, known.as_ref(), stamp);
        counts.trimmed += u64::from(document.trim.is_some());
        if document.trim_due {
            changes.trims.push((document.id.clone(), document.trim.clone()));
        }
        changes.documents.push(document);
    }
    Ok(changes)
}

/// Who wins the documents: the source, a local write, or what was decided. One that the graph has
/// not is not asked about: an edit is in the graph before there is anything else of it, and the store
/// takes no record of a document that the graph has not.
async fn winners(
    run: &OwnerRun,
    documents: Vec<DocumentId>,
    stamp: &Hlc,
) -> Result<HashMap<DocumentId, ReadWinner>, Failure> {
    let read = |document: &DocumentId| FetchedRead {
        owner: run.owner.did.clone(),
        document: document.clone(),
        fetch_hlc: stamp.clone(),
    };
    let reads: Vec<_> = documents.iter().map(read).collect();
    let winners = run.mirror.store.read_winners(&reads).await?;
    Ok(documents.into_iter().zip(winners).collect())
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
    stamp: &Hlc,
) -> Document {
    let digest = content.digest.clone();
    let (body, trim) = fit_body(content);
    let told = known.and_then(|known| known.trim.as_ref());
    let owed = known.is_some_and(|known| known.trim_due);
    Document {
        trim_due: owed || told != trim.as_ref(),
        version: stamp.clone(),
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
